#include "sockets.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "fuzz.h"

static struct fuzz_socket {
    bool is_open;
    bool is_ended;
    bool is_reset;
    bool is_stuck;
    struct lh_buffer input;
    size_t at;
    struct lh_buffer *listener;
} sockets[FUZZ_SOCKETS_MAX];

static int last = -1;

int64_t fuzz_now_us;
enum fuzz_reach fuzz_reach;

static struct fuzz_socket *find(int fd)
{
    return fd >= 0 && fd < FUZZ_SOCKETS_MAX && sockets[fd].is_open ? &sockets[fd] : NULL;
}

int fuzz_socket_open(void)
{
    int fd = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);

    FUZZ_CHECK(fd >= 0 && fd < FUZZ_SOCKETS_MAX);
    sockets[fd] = (struct fuzz_socket){.is_open = true};
    return fd;
}

int fuzz_socket_last(void)
{
    return fuzz_socket_is_open(last) ? last : -1;
}

bool fuzz_socket_is_open(int fd)
{
    return find(fd) != NULL;
}

void fuzz_socket_put(int fd, const void *data, size_t size)
{
    struct fuzz_socket *one = find(fd);

    if (one != NULL && !one->is_ended)
        lh_buffer_append(&one->input, data, size);
}

void fuzz_socket_listen(int fd, struct lh_buffer *to)
{
    struct fuzz_socket *one = find(fd);

    if (one != NULL)
        one->listener = to;
}

void fuzz_socket_end(int fd, bool is_reset)
{
    struct fuzz_socket *one = find(fd);

    if (one != NULL)
        one->is_ended = true;
    if (one != NULL)
        one->is_reset = is_reset;
}

void fuzz_socket_set_stuck(int fd, bool is_stuck)
{
    struct fuzz_socket *one = find(fd);

    if (one != NULL)
        one->is_stuck = is_stuck;
}

/* --- in place of the system's --- */

int64_t __wrap_lh_clock_us(void);
int64_t __wrap_lh_clock_us(void)
{
    return fuzz_now_us;
}

/* The loop looks at its timers in each turn, and no turn waits. */
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *at, struct itimerspec *before);
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *at, struct itimerspec *before)
{
    return 0;
}

ssize_t __wrap_recv(int fd, void *to, size_t room, int flags);
ssize_t __wrap_recv(int fd, void *to, size_t room, int flags)
{
    struct fuzz_socket *one = find(fd);
    size_t step;

    FUZZ_CHECK(one != NULL);
    step = one->input.size - one->at;
    if (step == 0 && one->is_ended && !one->is_reset)
        return 0;
    if (step == 0) {
        errno = one->is_reset ? ECONNRESET : EAGAIN;
        return -1;
    }
    if (step > room)
        step = room;
    memcpy(to, one->input.data + one->at, step);
    one->at += step;
    if (one->at == one->input.size)
        one->at = one->input.size = 0;
    return (ssize_t)step;
}

ssize_t __wrap_send(int fd, const void *from, size_t size, int flags);
ssize_t __wrap_send(int fd, const void *from, size_t size, int flags)
{
    struct fuzz_socket *one = find(fd);

    FUZZ_CHECK(one != NULL);
    if (one->is_stuck || one->is_reset) {
        errno = one->is_reset ? EPIPE : EAGAIN;
        return -1;
    }
    if (one->listener != NULL)
        lh_buffer_append(one->listener, from, size);
    return (ssize_t)size;
}

int __wrap_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol)
{
    last = fuzz_socket_open();
    return last;
}

int __wrap_connect(int fd, const struct sockaddr *to, socklen_t size);
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t size)
{
    if (fuzz_reach == FUZZ_REACHED)
        return 0;
    errno = fuzz_reach == FUZZ_REFUSED ? ECONNREFUSED : EINPROGRESS;
    return -1;
}

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size)
{
    *(int *)value = fuzz_reach == FUZZ_SILENT ? ETIMEDOUT : 0;
    return 0;
}

int __wrap_shutdown(int fd, int how);
int __wrap_shutdown(int fd, int how)
{
    return 0;
}

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    struct fuzz_socket *one = find(fd);

    if (one != NULL) {
        lh_buffer_finish(&one->input);
        one->is_open = false;
    }
    return __real_close(fd);
}
