/*
 * The descriptors of everybody: epoll, timers and sockets as the code under test asks the system for them, in this
 * process's memory. What libc has of these names is not used. A stream carries bytes to a daemon and back, late, in pieces
 * or not at all; what comes to a descriptor is an event of the world.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "simulation.h"

#define FIRST_FD 100 /* below are the system's */
#define FDS 200

enum kind { FREE, EPOLL, TIMER, LISTENER, STREAM };

struct piece {
    struct piece *next;
    int64_t due_us;
    size_t size; /* 0: the end of the stream */
    size_t taken;
    char bytes[];
};

struct descriptor {
    enum kind kind;
    uint32_t wanted;         /* of epoll's events */
    struct process *process; /* whose epoll looks at it; an epoll's own */
    epoll_data_t data;
    int64_t due_us; /* a timer goes off, a stream is open */
    int worker, daemon;
    /* a stream */
    struct descriptor *peer; /* NULL: closed */
    unsigned way;            /* 0: what is sent here goes to the daemon; 1: to the worker */
    bool is_waiting;         /* to be accepted */
    bool is_broken;
    bool is_shut;
    int failure;                 /* of the connection, where it is broken; 0: its end */
    struct piece *first, **last; /* what comes */
    size_t coming;
    int64_t last_due_us;
};

static struct descriptor fds[FDS], *end_of_fds = fds; /* behind the last that was used */
static int64_t stalled_until_us[WORKERS_MAX][DAEMONS_MAX][2];

void network_address(int worker, int number, char *text, size_t bytes)
{
    snprintf(text, bytes, "unix:/%d%d", worker, number);
}

static struct descriptor *at(int fd)
{
    return fd >= FIRST_FD && fd < FIRST_FD + FDS && fds[fd - FIRST_FD].kind != FREE ? &fds[fd - FIRST_FD] : NULL;
}

static struct descriptor *expect(int fd)
{
    if (at(fd) == NULL)
        fake_fail("descriptor %d is the system's, or closed", fd);
    return at(fd);
}

static int number_of(const struct descriptor *descriptor)
{
    return (int)(descriptor - fds) + FIRST_FD;
}

static struct descriptor *make(enum kind kind)
{
    for (struct descriptor *made = fds; made < fds + FDS; made++) {
        if (made->kind != FREE)
            continue;
        if (made == end_of_fds)
            end_of_fds++;
        *made = (struct descriptor){.kind = kind, .due_us = LH_NEVER, .last = &made->first};
        return made;
    }
    fake_fail("more than %d descriptors", FDS);
    abort();
}

static int fail(int number)
{
    errno = number;
    return -1;
}

/* --- what can be read and written --- */

static uint32_t ready_for(const struct descriptor *descriptor)
{
    const struct descriptor *peer = descriptor->peer;
    uint32_t ready = 0;

    switch (descriptor->kind) {
    case TIMER:
        return descriptor->due_us <= sim.world.now_us ? EPOLLIN : 0;
    case LISTENER:
        for (struct descriptor *other = fds; other < end_of_fds; other++)
            if (other->is_waiting && other->daemon == descriptor->daemon && other->due_us <= sim.world.now_us)
                return EPOLLIN;
        return 0;
    case STREAM:
        if (descriptor->is_broken)
            return EPOLLIN | EPOLLOUT;
        if (descriptor->first != NULL && descriptor->first->due_us <= sim.world.now_us)
            ready |= EPOLLIN;
        if (descriptor->due_us <= sim.world.now_us && (peer == NULL || peer->coming < sim.window))
            ready |= EPOLLOUT;
        return ready;
    default:
        return 0;
    }
}

static void look(struct descriptor *descriptor)
{
    if (descriptor->process != NULL && !descriptor->process->is_ready &&
        (ready_for(descriptor) & descriptor->wanted) != 0)
        descriptor->process->is_ready = true;
}

static void on_due(struct fake_world *world, void *arg, uint64_t n)
{
    look(arg);
}

static void look_at(struct descriptor *descriptor, int64_t at_us)
{
    fake_at(&sim.world, at_us, on_due, descriptor, 0);
}

int epoll_create1(int flags)
{
    struct descriptor *made = make(EPOLL);
    made->process = sim.starting;
    return number_of(made);
}

int epoll_ctl(int epoll, int op, int fd, struct epoll_event *event)
{
    struct descriptor *descriptor = expect(fd);

    descriptor->process = expect(epoll)->process;
    descriptor->wanted = op == EPOLL_CTL_DEL ? 0 : event->events;
    if (op != EPOLL_CTL_DEL)
        descriptor->data = event->data;
    look(descriptor);
    return 0;
}

int epoll_wait(int epoll, struct epoll_event *events, int max, int timeout_ms)
{
    struct process *process = expect(epoll)->process;
    int count = 0;

    if (!process->is_ready)
        return 0;
    for (struct descriptor *descriptor = fds; descriptor < end_of_fds && count < max; descriptor++) {
        uint32_t ready = descriptor->process == process ? ready_for(descriptor) & descriptor->wanted : 0;
        if (ready != 0)
            events[count++] = (struct epoll_event){ready, descriptor->data};
    }
    process->is_ready = count > 0;
    return count;
}

int timerfd_create(int clock, int flags)
{
    return number_of(make(TIMER));
}

/* It goes off by a write. */
int eventfd(unsigned count, int flags)
{
    return timerfd_create(0, 0);
}

int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *at, struct itimerspec *before);
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *at, struct itimerspec *before)
{
    struct descriptor *timer = expect(fd);
    timer->due_us = at->it_value.tv_sec * LH_US_PER_S + at->it_value.tv_nsec / 1000;
    look_at(timer, timer->due_us);
    return 0;
}

ssize_t read(int fd, void *to, size_t size)
{
    struct descriptor *timer = at(fd);
    uint64_t once = 1;

    if (timer == NULL)
        return syscall(SYS_read, fd, to, size);
    if (timer->due_us > sim.world.now_us)
        return fail(EAGAIN);
    timer->due_us = LH_NEVER;
    memcpy(to, &once, sizeof(once));
    return sizeof(once);
}

ssize_t write(int fd, const void *from, size_t size)
{
    struct descriptor *timer = at(fd);

    if (timer == NULL)
        return syscall(SYS_write, fd, from, size);
    timer->due_us = sim.world.now_us;
    look(timer);
    return (ssize_t)size;
}

/* --- streams --- */

/* When that arrives which is sent now. */
static int64_t arrives_us(struct descriptor *from)
{
    int64_t due_us = sim.world.now_us + fake_delay_us(&sim.world);
    int64_t stalled_us = stalled_until_us[from->worker][from->daemon][from->way];

    if (due_us < stalled_us)
        due_us = stalled_us + fake_delay_us(&sim.world);
    if (due_us < from->last_due_us)
        due_us = from->last_due_us;
    return from->last_due_us = due_us;
}

static void carry(struct descriptor *from, const void *bytes, size_t size)
{
    struct descriptor *to = from->peer;
    struct piece *piece = lh_alloc_zero(1, sizeof(*piece) + size);

    piece->due_us = arrives_us(from);
    piece->size = size;
    if (size > 0)
        memcpy(piece->bytes, bytes, size);
    to->coming += size;
    *to->last = piece;
    to->last = &piece->next;
    look_at(to, piece->due_us);
}

/* All, or what has not arrived. */
static void lose(struct descriptor *descriptor, int64_t since_us)
{
    struct piece **link = &descriptor->first;

    while (*link != NULL && (*link)->due_us <= since_us)
        link = &(*link)->next;
    descriptor->last = link;
    while (*link != NULL) {
        struct piece *piece = *link;
        *link = piece->next;
        descriptor->coming -= piece->size - piece->taken;
        free(piece);
    }
}

static void break_off(struct descriptor *descriptor, int failure)
{
    lose(descriptor, sim.world.now_us);
    descriptor->is_broken = true;
    descriptor->is_waiting = false;
    descriptor->failure = failure;
    look(descriptor);
}

static void forget(struct descriptor *descriptor)
{
    if (descriptor->peer != NULL)
        descriptor->peer->peer = NULL;
    lose(descriptor, -1);
    *descriptor = (struct descriptor){FREE};
}

static struct descriptor *listener_of(int daemon)
{
    for (struct descriptor *descriptor = fds; descriptor < end_of_fds; descriptor++)
        if (descriptor->kind == LISTENER && descriptor->daemon == daemon)
            return descriptor;
    return NULL;
}

/* At the daemon's host, which answers for it. */
static void on_connection(struct fake_world *world, void *arg, uint64_t n)
{
    struct descriptor *end = arg, *listener = listener_of(end->daemon), *client = end->peer;

    if (!end->is_waiting || end->due_us > world->now_us)
        return;
    if (listener != NULL)
        look(listener);
    if (client != NULL) {
        client->due_us = arrives_us(end);
        look_at(client, client->due_us);
        if (listener == NULL)
            break_off(client, ECONNREFUSED);
    }
    if (listener == NULL)
        forget(end);
}

int network_listen(int daemon)
{
    struct descriptor *made = make(LISTENER);
    made->daemon = daemon;
    return number_of(made);
}

int listen(int fd, int backlog)
{
    return 0;
}

int getsockname(int fd, __SOCKADDR_ARG address, socklen_t *restrict size)
{
    *address.__sockaddr_in__ = (struct sockaddr_in){.sin_family = AF_INET};
    return 0;
}

int socket(int domain, int type, int protocol)
{
    return number_of(make(STREAM));
}

int connect(int fd, __CONST_SOCKADDR_ARG address, socklen_t size)
{
    const char *path = address.__sockaddr_un__->sun_path;
    struct descriptor *client = expect(fd), *end = make(STREAM);

    client->worker = end->worker = path[1] - '0';
    client->daemon = end->daemon = path[2] - '0';
    client->peer = end;
    end->peer = client;
    end->way = 1;
    end->is_waiting = true;
    end->due_us = arrives_us(client);
    fake_at(&sim.world, end->due_us, on_connection, end, 0);
    return fail(EINPROGRESS);
}

int accept4(int fd, __SOCKADDR_ARG address, socklen_t *restrict size, int flags)
{
    const struct descriptor *listener = expect(fd);

    for (struct descriptor *end = fds; end < end_of_fds; end++) {
        if (!end->is_waiting || end->daemon != listener->daemon || end->due_us > sim.world.now_us)
            continue;
        end->is_waiting = false;
        *address.__sockaddr_in__ = (struct sockaddr_in){
            .sin_family = AF_INET, .sin_addr.s_addr = htonl(UINT32_C(0x0a000001) + (uint32_t)end->worker)};
        *size = sizeof(struct sockaddr_in);
        return number_of(end);
    }
    return fail(EAGAIN);
}

ssize_t send(int fd, const void *bytes, size_t size, int flags)
{
    struct descriptor *from = expect(fd), *to = from->peer;

    if (from->is_broken)
        return fail(EPIPE);
    if (to == NULL) /* it does not know yet */
        return (ssize_t)size;
    if (to->coming >= sim.window)
        return fail(EAGAIN);
    if (size > sim.window - to->coming)
        size = sim.window - to->coming;
    carry(from, bytes, size);
    return (ssize_t)size;
}

ssize_t recv(int fd, void *bytes, size_t size, int flags)
{
    struct descriptor *to = expect(fd);
    struct piece *piece = to->first;

    if (piece == NULL || piece->due_us > sim.world.now_us)
        return to->is_broken && to->failure == 0 ? 0 : fail(to->is_broken ? to->failure : EAGAIN);
    if (size > piece->size - piece->taken)
        size = piece->size - piece->taken;
    if (size == 0)
        return 0;
    memcpy(bytes, piece->bytes + piece->taken, size);
    piece->taken += size;
    to->coming -= size;
    if (piece->taken == piece->size) {
        to->first = piece->next;
        if (to->first == NULL)
            to->last = &to->first;
        free(piece);
    }
    if (to->peer != NULL)
        look(to->peer);
    return (ssize_t)size;
}

int shutdown(int fd, int how)
{
    struct descriptor *from = expect(fd);

    if (from->peer != NULL && !from->is_shut && !from->is_broken)
        carry(from, NULL, 0);
    from->is_shut = true;
    return 0;
}

int close(int fd)
{
    struct descriptor *descriptor = at(fd);

    if (descriptor == NULL)
        return (int)syscall(SYS_close, fd);
    if (descriptor->kind == STREAM)
        shutdown(fd, SHUT_WR);
    for (struct descriptor *end = fds; end < end_of_fds && descriptor->kind == LISTENER; end++) {
        if (!end->is_waiting || end->daemon != descriptor->daemon || end->due_us > sim.world.now_us)
            continue;
        if (end->peer != NULL)
            break_off(end->peer, ECONNRESET);
        forget(end);
    }
    forget(descriptor);
    return 0;
}

int getsockopt(int fd, int level, int option, void *restrict value, socklen_t *restrict size)
{
    if (option != SO_ERROR)
        return fail(EINVAL);
    *(int *)value = expect(fd)->is_broken ? expect(fd)->failure : 0;
    return 0;
}

int setsockopt(int fd, int level, int option, const void *value, socklen_t size)
{
    return 0;
}

/* --- its faults --- */

void network_cut(int worker, int number)
{
    int failure = below(2) == 0 ? ECONNRESET : 0;

    for (struct descriptor *end = fds; end < end_of_fds; end++) {
        bool is_accepted = !end->is_waiting;
        if (end->kind != STREAM || end->worker != worker || end->daemon != number)
            continue;
        break_off(end, failure);
        if (!is_accepted)
            forget(end);
    }
}

void network_stall(int worker, int number, unsigned ways, int64_t until_us)
{
    for (unsigned way = 0; way < 2; way++)
        if (ways & 1u << way)
            stalled_until_us[worker][number][way] = until_us;
}

void network_calm(void)
{
    memset(stalled_until_us, 0, sizeof(stalled_until_us));
}

void network_end(void)
{
    for (struct descriptor *left = fds; left < end_of_fds; left++)
        if (left->is_waiting)
            forget(left);
        else if (left->kind != FREE)
            fake_fail("descriptor %d was not closed", number_of(left));
    end_of_fds = fds;
    network_calm();
}
