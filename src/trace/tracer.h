/*
 * OpenTelemetry traces of calls, sent to a collector by OTLP over gRPC.
 *
 *     trace = lh_trace_begin(tracer, traceparent, "leasehold.v1.LeaseService/Acquire", arrived_us);
 *     lh_trace_set_scope(trace, "db", "7");
 *     lh_trace_add(trace, LH_TRACE_QUEUEING, arrived_us, sent_us, 0);
 *     lh_trace_end(trace, LH_GRPC_OK, lh_clock_us());
 *
 * The story of a trace: the call's traceparent, or chance, decides that the call is traced. Its spans are collected
 * beside the call, and go into a ring when it ends. One request at a time takes up to 512 of them to the collector, or
 * after 1 s those that there are. When the collector is away or overloaded, the tracer tries again after 1 s and the
 * spans wait in the ring; when the ring is full, new spans are dropped. No call ever waits for the collector.
 *
 * All times are of lh_clock_us(). A trace of NULL is not traced: every function takes it and does nothing.
 */
#ifndef LH_TRACE_TRACER_H
#define LH_TRACE_TRACER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct lh_loop;
struct lh_trace;
struct lh_tracer;

#define LH_TRACE_RING_MAX 8192 /* spans */
#define LH_TRACE_BATCH_MAX 512

/* Children of the call's span; the hook is one of the batch. */
enum lh_trace_part { LH_TRACE_QUEUEING, LH_TRACE_BATCH, LH_TRACE_HOOK, LH_TRACE_GRANT, LH_TRACE_PARTS };

struct lh_tracer_options {
    const char *endpoint; /* as lh_rpc_channel_create takes it; a host name is looked up at once */
    const char *ca_file;  /* PEM: TLS, and who may sign the collector's certificate; NULL: no TLS */
    /* Share of the calls without a traceparent, in millionths. */
    int64_t sample;
};

/* Strings are copied. NULL: `error` says why. */
struct lh_tracer *lh_tracer_create(struct lh_loop *loop, const struct lh_tracer_options *options,
                                   struct lh_error *error);
/* Frees the tracer; unsent spans are lost. Call it after the last lh_trace_end. */
void lh_tracer_destroy(struct lh_tracer *tracer);

struct lh_tracer_stats {
    uint64_t sent;    /* spans that the collector has taken */
    uint64_t dropped; /* spans that were dropped */
};
/* `tracer` NULL: nothing yet. */
void lh_tracer_stats(const struct lh_tracer *tracer, struct lh_tracer_stats *stats);

/* `traceparent` may be NULL; `name` is SERVICE/METHOD and stays in place. NULL: this call is not traced. */
struct lh_trace *lh_trace_begin(struct lh_tracer *tracer, const char *traceparent, const char *name, int64_t start_us);
void lh_trace_set_scope(struct lh_trace *trace, const char *ns, const char *key);      /* copied; once */
void lh_trace_set_outcome(struct lh_trace *trace, const char *outcome, int64_t token); /* a literal */
void lh_trace_set_items(struct lh_trace *trace, size_t items);
/* `items` 0: not told. */
void lh_trace_add(struct lh_trace *trace, enum lh_trace_part part, int64_t start_us, int64_t end_us, size_t items);
/* Ends and frees the trace; `code`: enum lh_grpc_code. */
void lh_trace_end(struct lh_trace *trace, int code, int64_t end_us);

#endif
