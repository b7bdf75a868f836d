#include "virtual_clock.h"

#include <dirent.h>
#include <event2/event.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "loop/internal.h"

#define TIMERS_MAX 64
#define IDLE_MS 1
#define IDLE_TURNS 4
#define REAL_TURN_US LH_US_PER_MS
#define NO_TIMER_US (100 * LH_US_PER_MS)

static struct {
    int fd;
    int64_t at_us;
} timers[TIMERS_MAX];
static size_t timer_count;
static bool is_virtual;
static int64_t now_us;

int64_t __real_lh_clock_us(void);
int64_t __wrap_lh_clock_us(void);
int64_t __wrap_lh_clock_us(void)
{
    return is_virtual ? now_us++ : __real_lh_clock_us(); /* no two readings are the same */
}

int __real_timerfd_settime(int fd, int flags, const struct itimerspec *at, struct itimerspec *before);
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *at, struct itimerspec *before);
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *at, struct itimerspec *before)
{
    size_t i = 0;

    if (!is_virtual || flags != TFD_TIMER_ABSTIME)
        return __real_timerfd_settime(fd, flags, at, before);
    while (i < timer_count && timers[i].fd != fd)
        i++;
    if (i == TIMERS_MAX)
        abort();
    if (i == timer_count)
        timer_count++;
    timers[i].fd = fd;
    timers[i].at_us = at->it_value.tv_sec * LH_US_PER_S + at->it_value.tv_nsec / 1000;
    return 0;
}

void virtual_clock_begin(void)
{
    now_us = __real_lh_clock_us();
    timer_count = 0;
    is_virtual = true;
}

void virtual_clock_end(void)
{
    is_virtual = false;
}

void virtual_clock_pass(int64_t time_us)
{
    now_us += time_us;
}

/* libevent tells nobody its descriptor. */
static int epoll_fd(void)
{
    DIR *directory = opendir("/proc/self/fd");
    struct dirent *entry;
    char path[300], target[64] = "";
    int found = -1;

    while (found < 0 && (entry = readdir(directory)) != NULL) {
        ssize_t size;
        snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
        size = readlink(path, target, sizeof(target) - 1);
        if (size > 0 && strncmp(target, "anon_inode:[eventpoll]", (size_t)size) == 0)
            found = atoi(entry->d_name);
    }
    closedir(directory);
    if (found < 0)
        abort();
    return found;
}

/* Work that waits for the end of a turn shows nowhere: some turns in a row must find nothing to do. */
static bool is_idle(struct lh_loop *loop)
{
    static int fd = -1;
    static unsigned turns;
    struct pollfd ready = {.events = POLLIN};

    if (fd < 0)
        fd = epoll_fd();
    ready.fd = fd;
    if (event_base_get_num_events(loop->base, EVENT_BASE_COUNT_ACTIVE) > 0 ||
        poll(&ready, 1, turns + 1 < IDLE_TURNS ? 0 : IDLE_MS) > 0)
        turns = 0;
    else
        turns++;
    return turns >= IDLE_TURNS;
}

static void jump(void)
{
    static const struct itimerspec at_once = {.it_value.tv_nsec = 1};
    int64_t next_us = now_us + NO_TIMER_US;

    for (size_t i = 0; i < timer_count; i++)
        if (timers[i].at_us < next_us)
            next_us = timers[i].at_us;
    if (next_us > now_us)
        now_us = next_us;
    for (size_t i = timer_count; i-- > 0;) {
        if (timers[i].at_us > now_us)
            continue;
        __real_timerfd_settime(timers[i].fd, 0, &at_once, NULL);
        timers[i] = timers[--timer_count];
    }
}

void virtual_clock_turn(struct lh_loop *loop)
{
    lh_loop_run_once(loop, is_virtual ? 0 : REAL_TURN_US);
    if (is_virtual && is_idle(loop))
        jump();
}
