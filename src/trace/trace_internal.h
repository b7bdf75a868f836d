/* Spans: where they come from, where they wait, and as what they are sent. */
#ifndef LH_TRACE_TRACE_INTERNAL_H
#define LH_TRACE_TRACE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"

/* The header traceparent of https://www.w3.org/TR/trace-context/ (section 3.2). */
#define LH_TRACE_ID_BYTES 16
#define LH_SPAN_ID_BYTES 8
#define LH_TRACE_SAMPLED 0x01u

struct lh_traceparent {
    uint8_t trace_id[LH_TRACE_ID_BYTES];
    uint8_t span_id[LH_SPAN_ID_BYTES]; /* the caller's span */
    uint8_t flags;
};

/* Parses a traceparent. Returns false if `text` is none; the specification wants it ignored then. */
bool lh_traceparent_parse(const char *text, struct lh_traceparent *parent);

/*
 * Finished spans, the oldest first, until the collector has taken them. The ring has a fixed size: a span for which
 * there is no room is dropped and counted.
 */
/* The further members of a call's span; their strings lie behind it. */
struct lh_span_call {
    const char *ns;      /* NULL: no scope */
    const char *key;     /* the same */
    const char *outcome; /* a literal, or NULL */
    int64_t token;       /* 0: none */
    int code;            /* enum lh_grpc_code */
    bool is_child;       /* child of a span of the caller */
};

struct lh_span {
    uint8_t trace_id[LH_TRACE_ID_BYTES];
    uint8_t id[LH_SPAN_ID_BYTES];
    uint8_t parent_id[LH_SPAN_ID_BYTES]; /* zero: none */
    uint8_t flags;                       /* flags of the traceparent */
    const char *name;                    /* a literal, or a method's path */
    int64_t start_us;                    /* microseconds since the Unix epoch */
    int64_t end_us;
    size_t items;              /* items of a batch, or number that a call asks for; 0: unknown */
    struct lh_span_call *call; /* the span's own; NULL: it is a part of a call */
};

struct lh_span_ring {
    struct lh_span *spans;
    size_t capacity;
    size_t first;
    size_t count;
    uint64_t dropped;
};

void lh_span_ring_init(struct lh_span_ring *ring, size_t capacity);
void lh_span_ring_finish(struct lh_span_ring *ring);
/* Takes `span` over, whatever becomes of it. */
void lh_span_ring_put(struct lh_span_ring *ring, const struct lh_span *span);
/* The index-th oldest. */
const struct lh_span *lh_span_ring_at(const struct lh_span_ring *ring, size_t index);
/* The oldest `count` are gone. */
void lh_span_ring_remove(struct lh_span_ring *ring, size_t count);

/* Spans as the messages of opentelemetry.proto.collector.trace.v1. */
struct lh_trace_resource {
    const char *version;  /* version of this program */
    const char *instance; /* tells this process from others */
};

/* An ExportTraceServiceRequest of the oldest `count` spans; it lives in the arena. Returns its size. */
size_t lh_export_request(const struct lh_span_ring *ring, size_t count, const struct lh_trace_resource *resource,
                         struct lh_arena *arena, const void **data);
/* Returns the number of spans that the collector rejected, by its answer; `why` gets its words. */
int64_t lh_export_rejected(const void *data, size_t size, char *why, size_t why_bytes);

#endif
