/*
 * A clock that can be stepped under one program: LD_PRELOAD this, and the wall clock is off by the microseconds that
 * the first eight bytes of the file $STEPPED_CLOCK say, from the moment they are written. Clocks that run from the
 * start of the machine are left as they are, as when a person or NTP sets the time.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *step_us;

__attribute__((constructor)) static void open_step(void)
{
    const char *path = getenv("STEPPED_CLOCK");
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *map = fd >= 0 ? mmap(NULL, sizeof(*step_us), PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;

    if (map == MAP_FAILED)
        abort(); /* a test that silently had the right time would prove nothing */
    step_us = map;
    close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);

    if (failed == 0 && clock == CLOCK_REALTIME) {
        int64_t us = (int64_t)now->tv_sec * 1000000 + now->tv_nsec / 1000 + *step_us;
        now->tv_sec = (time_t)(us / 1000000);
        now->tv_nsec = us % 1000000 * 1000;
    }
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out)
{
    struct timespec exact;

    clock_gettime(CLOCK_REALTIME, &exact);
    if (out != NULL)
        *out = exact.tv_sec;
    return exact.tv_sec;
}
