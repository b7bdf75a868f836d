/* State shared by the files of this directory. */
#ifndef LH_LOOP_INTERNAL_H
#define LH_LOOP_INTERNAL_H

#include <event2/event.h>

#include "loop/loop.h"

struct lh_loop {
    struct event_base *base;
    struct lh_heap timers;
    struct lh_watch clock_watch; /* a timerfd on CLOCK_BOOTTIME, the clock of lh_clock_us() */
    int64_t clock_at_us;         /* time when it goes off; LH_NEVER: it does not */
    int64_t firing_us;           /* the time of the timers being run; 0: none are */
    struct lh_link deferred;
    int64_t poll_until_us;   /* turns before then do not sleep */
    int64_t yields_us;       /* the next time that they let others have the CPU */
    int64_t sleeps_until_us; /* they do, whatever is expected */
    bool is_stopping;
    struct event *guest_turn; /* on the caller's base: the end of a turn that has work */

    unsigned events;      /* events of descriptors in this turn */
    unsigned batch;       /* libevent asks for at least so many at once */
    int64_t polled_us;    /* before they were looked for */
    int64_t read_us;      /* time up to which the available input has been handled */
    bool is_behind;       /* lh_loop_is_behind said so */
    unsigned catching_up; /* turns since */
    bool has_caught_up;   /* in the turn before this one */
    int64_t rests_until_us;
};

/* On the caller's base: makes it run deferred work and timers. */
static inline void lh_loop_wake_guest(struct lh_loop *loop)
{
    if (loop->guest_turn != NULL && event_pending(loop->guest_turn, EV_TIMEOUT, NULL) == 0)
        event_active(loop->guest_turn, EV_TIMEOUT, 0);
}

#endif
