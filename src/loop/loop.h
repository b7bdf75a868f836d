/*
 * The event loop of a process: timers, descriptors, signals, and work for the end of a turn. One thread, one loop.
 *
 * A turn: wait for descriptors or the next timer, run what is ready, run the timers that are due, run what was
 * deferred. Timers, watchers and deferrals live inside their owner's object; finish them before you free the object.
 * Any callback may cancel or finish any of them, its own included. Nothing is freed under its own callback: put a
 * struct lh_deferred into the object and free it from there.
 *
 *     lh_timer_init(&waiter->timer, loop, on_wait_passed, waiter);
 *     lh_timer_arm_at_us(&waiter->timer, lh_clock_us() + 5 * LH_US_PER_S);
 */
#ifndef LH_LOOP_LOOP_H
#define LH_LOOP_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/heap.h"
#include "base/list.h"

struct event;
struct event_base;
struct lh_loop;

/* NULL when the system refuses (no descriptors left); the reason is logged. Ignores SIGPIPE in this process. */
struct lh_loop *lh_loop_create(void);

/*
 * A guest on the caller's base: it runs while the caller runs that base; never call lh_loop_run, _run_once or _stop.
 * NULL: a base of its own. Unlike lh_loop_create it leaves the signals of the process alone.
 */
struct lh_loop *lh_loop_create_guest(struct event_base *base);

/* Runs what is still deferred, then frees the loop. Everything else must have been finished. */
void lh_loop_destroy(struct lh_loop *loop);

/* Until lh_loop_stop; the turn that is going on is completed. */
void lh_loop_run(struct lh_loop *loop);
void lh_loop_stop(struct lh_loop *loop);

/* One turn that waits for at most `wait_us` (0: not at all; negative: without limit). For tests. */
void lh_loop_run_once(struct lh_loop *loop, int64_t wait_us);

/*
 * News is expected before `at_us`: turns look for it without sleeping, which spares the time that waking up takes. They
 * let others have this CPU now and then; where one kept it for long, they sleep for a while. 0: it has come.
 */
void lh_loop_poll_until(struct lh_loop *loop, int64_t at_us);

/*
 * May there be unread data that arrived over 100 ms ago? That is so after the process stood still (SIGSTOP, a suspend,
 * no CPU). A decision would then ignore that data: try again in the next turn. False again some turns later, when all
 * was read.
 */
bool lh_loop_is_behind(struct lh_loop *loop);

/*
 * Timers are on the time of lh_clock_us(), which runs during suspend: after one, what is overdue fires at the first
 * wake-up. A timer never fires early; armed in the past it fires in the next turn, never inside of arm.
 */
struct lh_timer {
    struct lh_loop *loop;
    void (*on_due)(void *arg);
    void *arg;
    struct lh_heap_timer due;
};

void lh_timer_init(struct lh_timer *timer, struct lh_loop *loop, void (*on_due)(void *arg), void *arg);
void lh_timer_arm_at_us(struct lh_timer *timer, int64_t at_us); /* replaces the time before; LH_NEVER: disarms it */
void lh_timer_arm_no_later_us(struct lh_timer *timer, int64_t at_us); /* an earlier time before stays */
void lh_timer_cancel(struct lh_timer *timer);
bool lh_timer_is_armed(const struct lh_timer *timer);
void lh_timer_finish(struct lh_timer *timer);

/* Descriptors, level-triggered. The descriptor stays the caller's: finish first, close then. */
#define LH_WATCH_READ 1u
#define LH_WATCH_WRITE 2u

struct lh_watch {
    struct lh_loop *loop;
    struct event *event;
    void (*on_ready)(void *arg, unsigned ready);
    void *arg;
    int fd;
    unsigned wanted;
};

/* Watches for nothing until lh_watch_want. `ready` is LH_WATCH_*; errors and hang-ups come as what was wanted. */
void lh_watch_init(struct lh_watch *watch, struct lh_loop *loop, int fd, void (*on_ready)(void *arg, unsigned ready),
                   void *arg);
void lh_watch_want(struct lh_watch *watch, unsigned wanted);
/* At the end of a turn: call on_ready with LH_WATCH_READ in the next one, whatever is wanted. lh_watch_want takes it
   back. */
void lh_watch_again(struct lh_watch *watch);
void lh_watch_finish(struct lh_watch *watch); /* may be repeated, and called on a zeroed one */

/* Signals, delivered as ordinary callbacks of the loop. One loop in a process may have them. */
struct lh_signal {
    struct event *event;
    void (*on_signal)(void *arg, int number);
    void *arg;
};

void lh_signal_init(struct lh_signal *handler, struct lh_loop *loop, int number,
                    void (*on_signal)(void *arg, int number), void *arg);
void lh_signal_finish(struct lh_signal *handler);

/*
 * Work for the end of this turn (of the next one when deferred from outside of a turn). Deferring what is deferred
 * already does nothing; work deferred by deferred work runs in the same turn, for some rounds, then in the next turn.
 */
struct lh_deferred {
    struct lh_link link;
    void (*run)(void *arg);
    void *arg;
};

void lh_deferred_init(struct lh_deferred *deferred, void (*run)(void *arg), void *arg);
void lh_defer(struct lh_loop *loop, struct lh_deferred *deferred);
void lh_deferred_cancel(struct lh_deferred *deferred);

#endif
