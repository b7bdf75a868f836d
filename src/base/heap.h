/*
 * A binary heap of points in time, the earliest first. Its entries are members of their owners' objects and know their
 * place, so that an entry is moved or removed without a search. The heap has no clock of its own.
 *
 *     lh_heap_set(&heap, &waiter->timer, now_us + 1000);   again to move it
 *     while ((timer = lh_heap_due(&heap, now_us)) != NULL) ...   each is out of the heap when it is handed out
 */
#ifndef LH_BASE_HEAP_H
#define LH_BASE_HEAP_H

#include <stdint.h>

#define LH_NEVER INT64_MAX

struct lh_heap_timer {
    int64_t at_us;
    uint32_t slot; /* its place in the heap, from 1; 0: not in it */
    uint32_t kind; /* the owner's: which object it is in */
};

/* Zero-initialised it is empty. */
struct lh_heap {
    struct lh_heap_timer **slots; /* slot 0 is unused */
    uint32_t count;
    uint32_t capacity;
};

void lh_heap_finish(struct lh_heap *heap); /* the timers stay their owners' */

/* LH_NEVER takes it out. */
void lh_heap_set(struct lh_heap *heap, struct lh_heap_timer *timer, int64_t at_us);
void lh_heap_remove(struct lh_heap *heap, struct lh_heap_timer *timer); /* does nothing to one that is not in it */

int64_t lh_heap_next_us(const struct lh_heap *heap); /* LH_NEVER when empty */

/* Takes the earliest out when its time has come, else NULL. */
struct lh_heap_timer *lh_heap_due(struct lh_heap *heap, int64_t now_us);

#endif
