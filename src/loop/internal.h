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
};

#define LH_NEVER_US INT64_MAX

int64_t lh_timers_next_us(const struct lh_loop *loop);
void lh_timers_run(struct lh_loop *loop);

#endif
