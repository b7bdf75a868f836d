#include "trace/trace_internal.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* --- traceparent --- */

#define VERSION_AT 0
#define TRACE_ID_AT 3
#define SPAN_ID_AT 36
#define FLAGS_AT 53
#define TEXT_BYTES 55 /* of version 00; later ones may go on after a dash */
#define VERSION_INVALID 0xff

/* Lower case only, as the specification has it. */
static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool parse_bytes(const char *text, uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool is_zero(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != 0)
            return false;
    }
    return true;
}

bool lh_traceparent_parse(const char *text, struct lh_traceparent *parent)
{
    size_t size = strlen(text);
    uint8_t version;

    if (size < TEXT_BYTES || text[TRACE_ID_AT - 1] != '-' || text[SPAN_ID_AT - 1] != '-' || text[FLAGS_AT - 1] != '-')
        return false;
    if (!parse_bytes(text + VERSION_AT, &version, 1) || version == VERSION_INVALID)
        return false;
    if (size > TEXT_BYTES && (version == 0 || text[TEXT_BYTES] != '-'))
        return false;
    return parse_bytes(text + TRACE_ID_AT, parent->trace_id, LH_TRACE_ID_BYTES) &&
           parse_bytes(text + SPAN_ID_AT, parent->span_id, LH_SPAN_ID_BYTES) &&
           parse_bytes(text + FLAGS_AT, &parent->flags, 1) && !is_zero(parent->trace_id, LH_TRACE_ID_BYTES) &&
           !is_zero(parent->span_id, LH_SPAN_ID_BYTES);
}

/* --- the ring --- */

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
