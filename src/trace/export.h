/* Spans as the messages of opentelemetry.proto.collector.trace.v1. For tracer.c. */
#ifndef LH_TRACE_EXPORT_H
#define LH_TRACE_EXPORT_H

#include "base/memory.h"
#include "trace/ring.h"

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
