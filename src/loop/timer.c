/* A binary heap whose members know their place, so that a timer is cancelled without a search. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "loop/internal.h"
#include "loop/loop.h"

#define FIRST_CAPACITY 64

static void put(struct timer_heap *heap, uint32_t place, struct lh_timer *timer)
{
    heap->slots[place] = timer;
    timer->place = place;
}

static void sift_up(struct timer_heap *heap, uint32_t place, struct lh_timer *timer)
{
    while (place > 1 && heap->slots[place / 2]->at_us > timer->at_us) {
        put(heap, place, heap->slots[place / 2]);
        place /= 2;
    }
    put(heap, place, timer);
}

static void sift_down(struct timer_heap *heap, uint32_t place, struct lh_timer *timer)
{
    for (;;) {
        uint32_t child = place * 2;
        if (child > heap->count)
            break;
        if (child < heap->count && heap->slots[child + 1]->at_us < heap->slots[child]->at_us)
            child++;
        if (heap->slots[child]->at_us >= timer->at_us)
            break;
        put(heap, place, heap->slots[child]);
        place = child;
    }
    put(heap, place, timer);
}

static void settle(struct timer_heap *heap, uint32_t place, struct lh_timer *timer)
{
    if (place > 1 && heap->slots[place / 2]->at_us > timer->at_us)
        sift_up(heap, place, timer);
    else
        sift_down(heap, place, timer);
}

void lh_timer_init(struct lh_timer *timer, struct lh_loop *loop, void (*on_due)(void *arg), void *arg)
{
    memset(timer, 0, sizeof(*timer));
    timer->loop = loop;
    timer->on_due = on_due;
    timer->arg = arg;
}

void lh_timer_arm_at_us(struct lh_timer *timer, int64_t at_us)
{
    struct timer_heap *heap = &timer->loop->timers;

    /* Timers that arm each other in the past must not keep a turn from ending. */
    if (at_us <= timer->loop->firing_us)
        at_us = timer->loop->firing_us + 1;
    timer->at_us = at_us;
    if (timer->place != 0) {
        settle(heap, timer->place, timer);
        lh_loop_wake_guest(timer->loop);
        return;
    }
    if (heap->count + 1 >= heap->capacity) {
        heap->capacity = heap->capacity == 0 ? FIRST_CAPACITY : heap->capacity * 2;
        heap->slots = lh_realloc(heap->slots, heap->capacity, sizeof(heap->slots[0]));
    }
    heap->count++;
    sift_up(heap, heap->count, timer);
    lh_loop_wake_guest(timer->loop);
}

void lh_timer_cancel(struct lh_timer *timer)
{
    struct timer_heap *heap;
    uint32_t place = timer->place;
    struct lh_timer *last;

    if (place == 0)
        return;
    heap = &timer->loop->timers;
    last = heap->slots[heap->count--];
    timer->place = 0;
    if (last != timer)
        settle(heap, place, last);
}

bool lh_timer_is_armed(const struct lh_timer *timer)
{
    return timer->place != 0;
}

void lh_timer_finish(struct lh_timer *timer)
{
    lh_timer_cancel(timer);
}

int64_t lh_timers_next_us(const struct lh_loop *loop)
{
    return loop->timers.count == 0 ? LH_NEVER_US : loop->timers.slots[1]->at_us;
}

void lh_timers_run(struct lh_loop *loop)
{
    if (loop->timers.count == 0)
        return;
    loop->firing_us = lh_clock_us();
    while (lh_timers_next_us(loop) <= loop->firing_us) {
        struct lh_timer *timer = loop->timers.slots[1];
        lh_timer_cancel(timer);
        timer->on_due(timer->arg);
    }
    loop->firing_us = 0;
}
