#include "client/deadlines.h"

#include <stdlib.h>

#include "base/memory.h"

#define FIRST_CAPACITY 64

static void put(struct deadlines *heap, uint32_t place, struct deadline *entry)
{
    heap->slots[place] = entry;
    entry->place = place;
}

static void settle(struct deadlines *heap, uint32_t place, struct deadline *entry)
{
    while (place > 1 && heap->slots[place / 2]->at_us > entry->at_us) {
        put(heap, place, heap->slots[place / 2]);
        place /= 2;
    }
    for (;;) {
        uint32_t child = place * 2;
        if (child > heap->count)
            break;
        if (child < heap->count && heap->slots[child + 1]->at_us < heap->slots[child]->at_us)
            child++;
        if (heap->slots[child]->at_us >= entry->at_us)
            break;
        put(heap, place, heap->slots[child]);
        place = child;
    }
    put(heap, place, entry);
}

void deadlines_set(struct deadlines *heap, struct deadline *entry, int64_t at_us)
{
    entry->at_us = at_us;
    if (entry->place != 0) {
        settle(heap, entry->place, entry);
        return;
    }
    if (heap->count + 1 >= heap->capacity) {
        heap->capacity = heap->capacity == 0 ? FIRST_CAPACITY : heap->capacity * 2;
        heap->slots = lh_realloc(heap->slots, heap->capacity, sizeof(heap->slots[0]));
    }
    heap->count++;
    settle(heap, heap->count, entry);
}

void deadlines_remove(struct deadlines *heap, struct deadline *entry)
{
    uint32_t place = entry->place;
    struct deadline *last;

    if (place == 0)
        return;
    last = heap->slots[heap->count--];
    entry->place = 0;
    if (last != entry)
        settle(heap, place, last);
}

int64_t deadlines_next_us(const struct deadlines *heap)
{
    return heap->count == 0 ? INT64_MAX : heap->slots[1]->at_us;
}

struct deadline *deadlines_due(struct deadlines *heap, int64_t now_us)
{
    struct deadline *first;

    if (deadlines_next_us(heap) > now_us)
        return NULL;
    first = heap->slots[1];
    deadlines_remove(heap, first);
    return first;
}

void deadlines_finish(struct deadlines *heap)
{
    free(heap->slots);
    *heap = (struct deadlines){0};
}
