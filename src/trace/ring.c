#include "trace/ring.h"

#include <stdlib.h>

#include "base/memory.h"

void lh_span_ring_init(struct lh_span_ring *ring, size_t capacity)
{
    *ring = (struct lh_span_ring){.spans = lh_alloc_zero(capacity, sizeof(*ring->spans)), .capacity = capacity};
}

void lh_span_ring_finish(struct lh_span_ring *ring)
{
    lh_span_ring_remove(ring, ring->count);
    free(ring->spans);
}

static struct lh_span *place(const struct lh_span_ring *ring, size_t index)
{
    return &ring->spans[(ring->first + index) % ring->capacity];
}

void lh_span_ring_put(struct lh_span_ring *ring, const struct lh_span *span)
{
    if (ring->count == ring->capacity) {
        free(span->call);
        ring->dropped++;
        return;
    }
    *place(ring, ring->count++) = *span;
}

const struct lh_span *lh_span_ring_at(const struct lh_span_ring *ring, size_t index)
{
    return place(ring, index);
}

void lh_span_ring_remove(struct lh_span_ring *ring, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(place(ring, i)->call);
    ring->first = (ring->first + count) % ring->capacity;
    ring->count -= count;
}
