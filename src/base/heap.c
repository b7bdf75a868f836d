#include "base/heap.h"

#include <stdlib.h>

#include "base/memory.h"

#define FIRST_CAPACITY 64

static void place(struct lh_heap *heap, uint32_t slot, struct lh_heap_timer *timer)
{
    heap->slots[slot] = timer;
    timer->slot = slot;
}

static void sift_up(struct lh_heap *heap, uint32_t slot, struct lh_heap_timer *timer)
{
    while (slot > 1 && heap->slots[slot / 2]->at_us > timer->at_us) {
        place(heap, slot, heap->slots[slot / 2]);
        slot /= 2;
    }
    place(heap, slot, timer);
}

static void sift_down(struct lh_heap *heap, uint32_t slot, struct lh_heap_timer *timer)
{
    for (;;) {
        uint32_t child = slot * 2;
        if (child > heap->count)
            break;
        if (child < heap->count && heap->slots[child + 1]->at_us < heap->slots[child]->at_us)
            child++;
        if (heap->slots[child]->at_us >= timer->at_us)
            break;
        place(heap, slot, heap->slots[child]);
        slot = child;
    }
    place(heap, slot, timer);
}

void lh_heap_finish(struct lh_heap *heap)
{
    free(heap->slots);
    heap->slots = NULL;
    heap->count = 0;
    heap->capacity = 0;
}

void lh_heap_remove(struct lh_heap *heap, struct lh_heap_timer *timer)
{
    uint32_t slot = timer->slot;
    if (slot == 0)
        return;
    struct lh_heap_timer *last = heap->slots[heap->count--];
    timer->slot = 0;
    if (last == timer)
        return;
    if (slot > 1 && heap->slots[slot / 2]->at_us > last->at_us)
        sift_up(heap, slot, last);
    else
        sift_down(heap, slot, last);
}

void lh_heap_set(struct lh_heap *heap, struct lh_heap_timer *timer, int64_t at_us)
{
    if (timer->slot != 0 && timer->at_us == at_us)
        return;
    lh_heap_remove(heap, timer);
    timer->at_us = at_us;
    if (at_us == LH_NEVER)
        return;
    if (heap->count + 1 >= heap->capacity) {
        heap->capacity = heap->capacity == 0 ? FIRST_CAPACITY : heap->capacity * 2;
        heap->slots = lh_realloc(heap->slots, heap->capacity, sizeof(heap->slots[0]));
    }
    sift_up(heap, ++heap->count, timer);
}

int64_t lh_heap_next_us(const struct lh_heap *heap)
{
    return heap->count == 0 ? LH_NEVER : heap->slots[1]->at_us;
}

struct lh_heap_timer *lh_heap_due(struct lh_heap *heap, int64_t now_us)
{
    if (heap->count == 0 || heap->slots[1]->at_us > now_us)
        return NULL;
    struct lh_heap_timer *timer = heap->slots[1];
    lh_heap_remove(heap, timer);
    return timer;
}
