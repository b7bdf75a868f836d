#include "trace/trace_internal.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "loop/loop.h"
#include "rpc/client.h"
#include "trace/tracer.h"

#define EXPORT_PATH "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
#define GATHER_US LH_US_PER_S /* and how long a collector that fails is left alone */
#define EXPORT_TIMEOUT_US (10 * LH_US_PER_S)
#define SAMPLE_ONE UINT64_C(1000000)
#define HOST_BYTES 256

struct lh_tracer {
    struct lh_rpc_channel *channel;
    struct lh_timer timer; /* armed while spans wait and no request is out */
    struct lh_span_ring ring;
    struct lh_arena arena;
    char *endpoint;
    char *instance;
    uint64_t sample;
    uint64_t sent;
    uint64_t lost;         /* besides those that the ring dropped */
    size_t out;            /* of the oldest, in the request that is out */
    int64_t not_before_us; /* after a failure */
    bool is_failing;
};

struct lh_trace {
    struct lh_tracer *tracer;
    struct lh_span call;
    struct lh_span_call more;
    int64_t epoch_us; /* 0 on lh_clock_us(), since the Unix epoch */
    struct lh_span parts[LH_TRACE_PARTS];
};

static const char *const part_names[LH_TRACE_PARTS] = {"queueing", "batch", "hook", "grant"};

/* Ids need be unlikely to be there already, no more: without entropy there are no traces. */
static bool fill_random(void *bytes, size_t size)
{
    return getrandom(bytes, size, GRND_NONBLOCK) == (ssize_t)size;
}

/* --- to the collector --- */

/* Worth asking again, by https://opentelemetry.io/docs/specs/otlp/#failures; UNAUTHENTICATED may be our own word for a
   certificate, which is replaced some day. RESOURCE_EXHAUSTED would be asked again for ever where it means the size. */
static bool may_pass(enum lh_grpc_code code)
{
    return code == LH_GRPC_CANCELLED || code == LH_GRPC_DEADLINE_EXCEEDED || code == LH_GRPC_ABORTED ||
           code == LH_GRPC_OUT_OF_RANGE || code == LH_GRPC_UNAVAILABLE || code == LH_GRPC_DATA_LOSS ||
           code == LH_GRPC_UNAUTHENTICATED;
}

static void look(struct lh_tracer *tracer)
{
    int64_t at_us = lh_clock_us();

    if (tracer->out > 0 || tracer->ring.count == 0)
        return;
    if (tracer->ring.count < LH_TRACE_BATCH_MAX)
        at_us += GATHER_US;
    lh_timer_arm_no_later_us(&tracer->timer, at_us > tracer->not_before_us ? at_us : tracer->not_before_us);
}

static void note_failure(struct lh_tracer *tracer, const struct lh_rpc_result *result)
{
    if (!tracer->is_failing)
        lh_warn("the collector of traces does not take spans endpoint=%s status=%s: %s", tracer->endpoint,
                lh_grpc_code_name(result->code), result->message);
    tracer->is_failing = true;
}

static void note_success(struct lh_tracer *tracer, const struct lh_rpc_result *result)
{
    char why[256] = "";
    int64_t rejected = lh_export_rejected(result->reply, result->reply_size, why, sizeof(why));
    uint64_t lost = rejected <= 0 ? 0 : (uint64_t)rejected > tracer->out ? tracer->out : (uint64_t)rejected;

    tracer->sent += tracer->out - lost;
    tracer->lost += lost;
    if (lost > 0)
        lh_warn("the collector of traces rejected spans endpoint=%s count=%llu: %s", tracer->endpoint,
                (unsigned long long)lost, why);
    if (tracer->is_failing)
        lh_info("the collector of traces takes spans again endpoint=%s", tracer->endpoint);
    tracer->is_failing = false;
}

static void on_exported(void *arg, const struct lh_rpc_result *result)
{
    struct lh_tracer *tracer = arg;
    size_t out = tracer->out;

    if (result->code == LH_GRPC_OK) {
        note_success(tracer, result);
        lh_span_ring_remove(&tracer->ring, out);
    } else {
        note_failure(tracer, result);
        tracer->not_before_us = lh_clock_us() + GATHER_US;
        if (!may_pass(result->code)) {
            lh_span_ring_remove(&tracer->ring, out);
            tracer->lost += out;
        }
    }
    tracer->out = 0;
    look(tracer);
}

static void export(void *arg)
{
    struct lh_tracer *tracer = arg;
    struct lh_trace_resource resource = {LH_VERSION, tracer->instance};
    size_t count = tracer->ring.count < LH_TRACE_BATCH_MAX ? tracer->ring.count : LH_TRACE_BATCH_MAX;
    const void *data;
    size_t size;

    size = lh_export_request(&tracer->ring, count, &resource, &tracer->arena, &data);
    if (lh_rpc_client_call_unary(tracer->channel, EXPORT_PATH, data, size, lh_clock_us() + EXPORT_TIMEOUT_US,
                                 on_exported, tracer) != NULL)
        tracer->out = count;
    lh_arena_finish(&tracer->arena);
}

/* --- life --- */

struct lh_tracer *lh_tracer_create(struct lh_loop *loop, const struct lh_tracer_options *options,
                                   struct lh_error *error)
{
    struct lh_tracer *tracer = lh_alloc_zero(1, sizeof(*tracer));
    struct lh_rpc_tls tls = {.ca_file = options->ca_file};
    struct lh_rpc_channel_options channel;
    char host[HOST_BYTES] = "";

    lh_rpc_channel_options_init(&channel);
    channel.tls = options->ca_file != NULL ? &tls : NULL;
    tracer->channel = lh_rpc_channel_create(loop, options->endpoint, &channel, error);
    if (tracer->channel == NULL) {
        free(tracer);
        return NULL;
    }
    gethostname(host, sizeof(host) - 1);
    tracer->endpoint = lh_strdup(options->endpoint);
    tracer->instance = lh_format("%s:%ld", host, (long)getpid());
    tracer->sample = (uint64_t)options->sample;
    lh_span_ring_init(&tracer->ring, LH_TRACE_RING_MAX);
    lh_timer_init(&tracer->timer, loop, export, tracer);
    return tracer;
}

void lh_tracer_destroy(struct lh_tracer *tracer)
{
    if (tracer == NULL)
        return;
    tracer->is_failing = true; /* that its request is cancelled is no news */
    lh_rpc_channel_destroy(tracer->channel);
    lh_timer_finish(&tracer->timer);
    lh_span_ring_finish(&tracer->ring);
    lh_arena_finish(&tracer->arena);
    free(tracer->endpoint);
    free(tracer->instance);
    free(tracer);
}

void lh_tracer_stats(const struct lh_tracer *tracer, struct lh_tracer_stats *stats)
{
    *stats = (struct lh_tracer_stats){0};
    if (tracer != NULL)
        *stats = (struct lh_tracer_stats){tracer->sent, tracer->ring.dropped + tracer->lost};
}

/* --- a trace --- */

static bool is_by_chance(const struct lh_tracer *tracer)
{
    uint64_t number;
    return tracer->sample > 0 && fill_random(&number, sizeof(number)) && number % SAMPLE_ONE < tracer->sample;
}

struct lh_trace *lh_trace_begin(struct lh_tracer *tracer, const char *traceparent, const char *name, int64_t start_us)
{
    struct lh_traceparent parent = {.flags = LH_TRACE_SAMPLED};
    bool is_child = traceparent != NULL && lh_traceparent_parse(traceparent, &parent);
    bool is_traced = is_child ? (parent.flags & LH_TRACE_SAMPLED) != 0 : is_by_chance(tracer);
    struct lh_trace *trace;

    if (!is_traced)
        return NULL;
    trace = lh_alloc_zero(1, sizeof(*trace));
    trace->tracer = tracer;
    trace->epoch_us = lh_clock_wall_us() - lh_clock_us();
    if (!is_child) {
        parent = (struct lh_traceparent){.flags = LH_TRACE_SAMPLED};
        if (!fill_random(parent.trace_id, sizeof(parent.trace_id))) {
            free(trace);
            return NULL;
        }
    }
    trace->call = (struct lh_span){.flags = parent.flags, .name = name, .start_us = start_us};
    memcpy(trace->call.trace_id, parent.trace_id, sizeof(parent.trace_id));
    memcpy(trace->call.parent_id, parent.span_id, sizeof(parent.span_id));
    trace->more.is_child = is_child;
    return trace;
}

void lh_trace_set_scope(struct lh_trace *trace, const char *ns, const char *key)
{
    if (trace == NULL)
        return;
    trace->more.ns = lh_strdup(ns);
    trace->more.key = lh_strdup(key);
}

void lh_trace_set_outcome(struct lh_trace *trace, const char *outcome, int64_t token)
{
    if (trace == NULL)
        return;
    trace->more.outcome = outcome;
    trace->more.token = token;
}

void lh_trace_set_items(struct lh_trace *trace, size_t items)
{
    if (trace != NULL)
        trace->call.items = items;
}

void lh_trace_add(struct lh_trace *trace, enum lh_trace_part part, int64_t start_us, int64_t end_us, size_t items)
{
    if (trace != NULL)
        trace->parts[part] =
            (struct lh_span){.name = part_names[part], .start_us = start_us, .end_us = end_us, .items = items};
}

/* One allocation, that the ring frees. */
static struct lh_span_call *keep(const struct lh_span_call *call)
{
    size_t ns_size = call->ns == NULL ? 0 : strlen(call->ns) + 1,
           key_size = call->key == NULL ? 0 : strlen(call->key) + 1;
    struct lh_span_call *kept = lh_alloc(sizeof(*kept) + ns_size + key_size);
    char *strings = (char *)(kept + 1);

    *kept = *call;
    if (call->ns != NULL)
        kept->ns = memcpy(strings, call->ns, ns_size);
    if (call->key != NULL)
        kept->key = memcpy(strings + ns_size, call->key, key_size);
    return kept;
}

static void put(struct lh_trace *trace, struct lh_span *span)
{
    span->start_us += trace->epoch_us;
    span->end_us += trace->epoch_us;
    lh_span_ring_put(&trace->tracer->ring, span);
}

void lh_trace_end(struct lh_trace *trace, int code, int64_t end_us)
{
    uint8_t ids[LH_TRACE_PARTS + 1][LH_SPAN_ID_BYTES];

    if (trace == NULL)
        return;
    if (fill_random(ids, sizeof(ids))) {
        trace->more.code = code;
        trace->call.call = keep(&trace->more);
        trace->call.end_us = end_us;
        memcpy(trace->call.id, ids[LH_TRACE_PARTS], LH_SPAN_ID_BYTES);
        for (int part = 0; part < LH_TRACE_PARTS; part++) {
            struct lh_span *span = &trace->parts[part];
            if (span->name == NULL)
                continue;
            span->flags = trace->call.flags;
            memcpy(span->trace_id, trace->call.trace_id, LH_TRACE_ID_BYTES);
            memcpy(span->id, ids[part], LH_SPAN_ID_BYTES);
            memcpy(span->parent_id, part == LH_TRACE_HOOK ? ids[LH_TRACE_BATCH] : ids[LH_TRACE_PARTS],
                   LH_SPAN_ID_BYTES);
            put(trace, span);
        }
        put(trace, &trace->call);
        look(trace->tracer);
    }
    free((char *)(uintptr_t)trace->more.ns);
    free((char *)(uintptr_t)trace->more.key);
    free(trace);
}
