/* What the files of this directory share. */
#ifndef LH_LOOP_INTERNAL_H
#define LH_LOOP_INTERNAL_H

#include "loop/loop.h"

/* A heap of pointers, the earliest first; place 0 of `slots` is unused. */
struct timer_heap {
    struct lh_timer **slots;
    uint32_t count;
    uint32_t capacity;
};

struct lh_loop {
    struct event_base *base;
    struct timer_heap timers;
    struct lh_watch clock_watch; /* a timerfd on CLOCK_BOOTTIME, the clock of lh_clock_us() */
    int64_t clock_at_us;         /* when it goes off; LH_NEVER_US: it does not */
    int64_t firing_us;           /* the time of the timers being run; 0: none are */
    struct lh_link deferred;
    bool is_stopping;
    struct event *guest_turn; /* on somebody else's base: the end of a turn, when there is something to do in it */

    unsigned events;      /* of descriptors, in this turn */
    unsigned batch;       /* libevent asks for at least so many at once */
    int64_t polled_us;    /* when the first of them was handled */
    int64_t read_us;      /* what was there then has been handled */
    bool is_behind;       /* somebody was told so */
    unsigned catching_up; /* turns since */
    bool has_caught_up;   /* in the turn before this one */
    int64_t rests_until_us;
};

#define LH_NEVER_US INT64_MAX

/* Somebody else's base: see to it that deferred work and timers are looked after. */
void lh_loop_wake_guest(struct lh_loop *loop);

int64_t lh_timers_next_us(const struct lh_loop *loop);
void lh_timers_run(struct lh_loop *loop);

#endif
