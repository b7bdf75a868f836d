/*
 * libevent waits; everything that is not a descriptor is ours. Its timers are on CLOCK_MONOTONIC, which stands still
 * during suspend, so ours are kept in a heap of our own and a timerfd on CLOCK_BOOTTIME wakes the loop for the
 * earliest. The timerfd is moved only to an earlier time: a later one is set when it goes off for nothing, which spares
 * a system call for each call that comes and goes with its deadline.
 */
#include <errno.h>
#include <event2/event.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "loop/internal.h"
#include "loop/loop.h"

/* --- timers --- */

void lh_timer_init(struct lh_timer *timer, struct lh_loop *loop, void (*on_due)(void *arg), void *arg)
{
    memset(timer, 0, sizeof(*timer));
    timer->loop = loop;
    timer->on_due = on_due;
    timer->arg = arg;
}

void lh_timer_arm_at_us(struct lh_timer *timer, int64_t at_us)
{
    struct lh_loop *loop = timer->loop;

    /* Timers that arm each other in the past must not keep a turn from ending. */
    if (at_us <= loop->firing_us)
        at_us = loop->firing_us + 1;
    lh_heap_set(&loop->timers, &timer->due, at_us);
    lh_loop_wake_guest(loop);
}

void lh_timer_arm_no_later_us(struct lh_timer *timer, int64_t at_us)
{
    if (timer->due.slot == 0 || at_us < timer->due.at_us)
        lh_timer_arm_at_us(timer, at_us);
}

void lh_timer_cancel(struct lh_timer *timer)
{
    if (timer->due.slot != 0)
        lh_heap_remove(&timer->loop->timers, &timer->due);
}

bool lh_timer_is_armed(const struct lh_timer *timer)
{
    return timer->due.slot != 0;
}

void lh_timer_finish(struct lh_timer *timer)
{
    lh_timer_cancel(timer);
}

static void run_timers(struct lh_loop *loop)
{
    struct lh_heap_timer *due;

    if (loop->timers.count == 0)
        return;
    loop->firing_us = lh_clock_us();
    while ((due = lh_heap_due(&loop->timers, loop->firing_us)) != NULL) {
        struct lh_timer *timer = LH_CONTAINER(struct lh_timer, due, due);
        timer->on_due(timer->arg);
    }
    loop->firing_us = 0;
}

/* --- turns --- */

/* libevent's first number of events of one epoll_wait, and its last: doubled whenever so many came. */
#define BATCH_FIRST 32
#define BATCH_LAST 4096

#define BEHIND_US (100 * LH_US_PER_MS)
#define CATCH_UP_TURNS 8
#define CATCH_UP_REST_US (1 * LH_US_PER_S)

/* Who had the CPU for so long between two looks has work of its own, or this process used up what it may have. */
#define GONE_US 1000
#define YIELD_EACH_US 50 /* who yields in a tight loop is punished by some schedulers (Linux 6.6 to 6.17) */
#define REST_TIMES 100   /* as long */
#define REST_MAX_US (10 * LH_US_PER_S)

/* Deferred work that defers more work: so often in one turn, then descriptors get their chance. */
#define DEFERRED_ROUNDS 16

static void on_clock(void *arg, unsigned ready)
{
    struct lh_loop *loop = arg;
    uint64_t expirations;
    if (read(loop->clock_watch.fd, &expirations, sizeof(expirations)) < 0)
        return;
    loop->clock_at_us = LH_NEVER;
    lh_loop_wake_guest(loop);
}

static void on_guest_turn(evutil_socket_t fd, short what, void *arg);

/* `base` NULL: one of its own. */
static struct lh_loop *create(struct event_base *base)
{
    struct lh_loop *loop = lh_alloc_zero(1, sizeof(*loop));
    int clock_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);

    lh_list_init(&loop->deferred);
    loop->clock_at_us = LH_NEVER;
    loop->batch = BATCH_FIRST;
    loop->read_us = lh_clock_us();
    if (clock_fd < 0)
        goto failed;
    loop->base = base != NULL ? base : event_base_new();
    if (loop->base == NULL)
        goto failed;
    if (base != NULL) {
        loop->guest_turn = event_new(base, -1, 0, on_guest_turn, loop);
        if (loop->guest_turn == NULL)
            goto failed;
    }
    lh_watch_init(&loop->clock_watch, loop, clock_fd, on_clock, loop);
    lh_watch_want(&loop->clock_watch, LH_WATCH_READ);
    return loop;

failed:
    lh_err("no event loop: %s", strerror(errno));
    if (clock_fd >= 0)
        close(clock_fd);
    free(loop);
    return NULL;
}

struct lh_loop *lh_loop_create(void)
{
    signal(SIGPIPE, SIG_IGN);
    return create(NULL);
}

struct lh_loop *lh_loop_create_guest(struct event_base *base)
{
    return create(base);
}

static void run_deferred(struct lh_loop *loop)
{
    for (int round = 0; round < DEFERRED_ROUNDS && !lh_list_is_empty(&loop->deferred); round++) {
        struct lh_link now;
        lh_list_init(&now);
        lh_list_splice(&now, &loop->deferred);
        while (!lh_list_is_empty(&now)) {
            struct lh_deferred *deferred = LH_LIST_FIRST(struct lh_deferred, &now, link);
            lh_list_remove(&deferred->link);
            deferred->run(deferred->arg);
        }
    }
}

void lh_loop_destroy(struct lh_loop *loop)
{
    int clock_fd;

    if (loop == NULL)
        return;
    run_deferred(loop);
    clock_fd = loop->clock_watch.fd;
    lh_watch_finish(&loop->clock_watch);
    close(clock_fd);
    if (loop->guest_turn != NULL)
        event_free(loop->guest_turn);
    else
        event_base_free(loop->base);
    lh_heap_finish(&loop->timers);
    free(loop);
}

/* May this turn wait? If so, wake it for the next timer. */
static bool prepare_to_wait(struct lh_loop *loop)
{
    int64_t next_us = lh_heap_next_us(&loop->timers);

    if (!lh_list_is_empty(&loop->deferred))
        return false;
    if (next_us == LH_NEVER)
        return true;
    if (next_us <= lh_clock_us())
        return false;
    if (next_us < loop->clock_at_us) {
        struct itimerspec at = {.it_value = {.tv_sec = next_us / LH_US_PER_S, .tv_nsec = next_us % LH_US_PER_S * 1000}};
        if (timerfd_settime(loop->clock_watch.fd, TFD_TIMER_ABSTIME, &at, NULL) == 0)
            loop->clock_at_us = next_us;
    }
    return true;
}

/*
 * Everything was read when a turn found nothing more, its deferred work included: a connection gives what it has in
 * some turns, and its end comes last. Where news never ends some turns must do, and then the question rests for a
 * while: a loop whose turns are slow gets on.
 */
static void note_what_was_read(struct lh_loop *loop)
{
    bool has_more = loop->events >= loop->batch;

    loop->has_caught_up = false;
    if (has_more && loop->batch < BATCH_LAST)
        loop->batch *= 2;
    if (!loop->is_behind) {
        loop->read_us = has_more ? loop->read_us : loop->polled_us;
        return;
    }
    if (loop->events > 0 && ++loop->catching_up < CATCH_UP_TURNS)
        return;
    loop->is_behind = false;
    loop->has_caught_up = true;
    loop->read_us = loop->polled_us;
    loop->rests_until_us = loop->events > 0 ? lh_clock_us() + CATCH_UP_REST_US : 0;
}

bool lh_loop_is_behind(struct lh_loop *loop)
{
    int64_t now_us;

    if (loop->is_behind || loop->has_caught_up)
        return loop->is_behind;
    now_us = lh_clock_us();
    loop->is_behind = now_us - loop->read_us > BEHIND_US && now_us >= loop->rests_until_us;
    loop->catching_up = 0;
    return loop->is_behind;
}

/* The end of a turn of somebody else's loop. */
static void on_guest_turn(evutil_socket_t fd, short what, void *arg)
{
    struct lh_loop *loop = arg;

    run_timers(loop);
    run_deferred(loop);
    if (!prepare_to_wait(loop))
        lh_loop_wake_guest(loop);
}

void lh_loop_poll_until(struct lh_loop *loop, int64_t at_us)
{
    loop->poll_until_us = at_us;
}

static bool polls(const struct lh_loop *loop)
{
    return loop->poll_until_us > loop->polled_us && loop->polled_us >= loop->sleeps_until_us;
}

static void give_way(struct lh_loop *loop)
{
    int64_t now_us = lh_clock_us(), gone_us;

    if (now_us >= loop->yields_us) {
        sched_yield();
        now_us = lh_clock_us();
        loop->yields_us = now_us + YIELD_EACH_US;
    }
    gone_us = now_us - loop->polled_us;
    if (gone_us > GONE_US)
        loop->sleeps_until_us = now_us + (gone_us < REST_MAX_US / REST_TIMES ? REST_TIMES * gone_us : REST_MAX_US);
}

static void turn(struct lh_loop *loop, bool may_wait)
{
    int flags = EVLOOP_ONCE | EVLOOP_NO_EXIT_ON_EMPTY;
    bool waits = prepare_to_wait(loop) && may_wait;

    if (waits)
        loop->has_caught_up = false; /* the process may stand still before this turn reads */
    if (!waits || polls(loop))
        flags |= EVLOOP_NONBLOCK;
    loop->events = 0;
    loop->polled_us = lh_clock_us(); /* it may stand still between the poll and its first event */
    event_base_loop(loop->base, flags);
    run_timers(loop);
    run_deferred(loop);
    if (loop->events == 0 && polls(loop))
        give_way(loop);
    note_what_was_read(loop);
}

void lh_loop_run(struct lh_loop *loop)
{
    loop->is_stopping = false;
    while (!loop->is_stopping)
        turn(loop, true);
}

void lh_loop_stop(struct lh_loop *loop)
{
    loop->is_stopping = true;
    event_base_loopbreak(loop->base);
}

static void on_waited(void *arg)
{
}

void lh_loop_run_once(struct lh_loop *loop, int64_t wait_us)
{
    struct lh_timer limit;

    lh_timer_init(&limit, loop, on_waited, NULL);
    if (wait_us > 0)
        lh_timer_arm_at_us(&limit, lh_clock_us() + wait_us);
    turn(loop, wait_us != 0);
    lh_timer_finish(&limit);
}

void lh_deferred_init(struct lh_deferred *deferred, void (*run)(void *arg), void *arg)
{
    memset(deferred, 0, sizeof(*deferred));
    deferred->run = run;
    deferred->arg = arg;
}

void lh_defer(struct lh_loop *loop, struct lh_deferred *deferred)
{
    if (!lh_link_is_linked(&deferred->link))
        lh_list_append(&loop->deferred, &deferred->link);
    lh_loop_wake_guest(loop);
}

void lh_deferred_cancel(struct lh_deferred *deferred)
{
    lh_list_remove(&deferred->link);
}

/* --- descriptors and signals: thin over libevent, so that nobody else has to know its flags --- */

static struct event *checked(struct event *event)
{
    if (event == NULL) {
        lh_err("libevent refused an event; stopping");
        abort();
    }
    return event;
}

static void on_event(evutil_socket_t fd, short what, void *arg)
{
    struct lh_watch *watch = arg;
    unsigned ready = 0;
    watch->loop->events++;
    if (what & EV_READ)
        ready |= LH_WATCH_READ;
    if (what & EV_WRITE)
        ready |= LH_WATCH_WRITE;
    watch->on_ready(watch->arg, ready);
}

void lh_watch_init(struct lh_watch *watch, struct lh_loop *loop, int fd, void (*on_ready)(void *arg, unsigned ready),
                   void *arg)
{
    memset(watch, 0, sizeof(*watch));
    watch->loop = loop;
    watch->on_ready = on_ready;
    watch->arg = arg;
    watch->fd = fd;
}

static bool has_event(struct lh_watch *watch)
{
    if (watch->event != NULL)
        return true;
    watch->event = checked(event_new(watch->loop->base, watch->fd, EV_PERSIST, on_event, watch));
    return false;
}

void lh_watch_again(struct lh_watch *watch)
{
    has_event(watch);
    event_active(watch->event, EV_READ, 0);
}

void lh_watch_want(struct lh_watch *watch, unsigned wanted)
{
    short flags = EV_PERSIST;

    if (wanted == watch->wanted)
        return;
    if (has_event(watch))
        event_del(watch->event);
    watch->wanted = wanted;
    if (wanted == 0)
        return;
    if (wanted & LH_WATCH_READ)
        flags |= EV_READ;
    if (wanted & LH_WATCH_WRITE)
        flags |= EV_WRITE;
    event_assign(watch->event, watch->loop->base, watch->fd, flags, on_event, watch);
    if (event_add(watch->event, NULL) != 0)
        lh_err("cannot watch a descriptor fd=%d", watch->fd);
}

void lh_watch_finish(struct lh_watch *watch)
{
    if (watch->event != NULL)
        event_free(watch->event);
    watch->event = NULL;
    watch->wanted = 0;
}

static void on_libevent_signal(evutil_socket_t number, short what, void *arg)
{
    struct lh_signal *handler = arg;
    handler->on_signal(handler->arg, (int)number);
}

void lh_signal_init(struct lh_signal *handler, struct lh_loop *loop, int number,
                    void (*on_signal)(void *arg, int number), void *arg)
{
    handler->on_signal = on_signal;
    handler->arg = arg;
    handler->event = checked(evsignal_new(loop->base, number, on_libevent_signal, handler));
    if (event_add(handler->event, NULL) != 0)
        lh_err("cannot handle a signal number=%d", number);
}

void lh_signal_finish(struct lh_signal *handler)
{
    if (handler->event != NULL)
        event_free(handler->event);
    handler->event = NULL;
}
