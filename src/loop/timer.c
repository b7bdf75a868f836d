#include <string.h>

#include "base/clock.h"
#include "loop/internal.h"

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

void lh_timers_run(struct lh_loop *loop)
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
