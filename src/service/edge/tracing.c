#include "service/edge_internal.h"

#include "base/clock.h"
#include "service/call_internal.h"
#include "trace/tracer.h"

void lh_tracing_begin(struct lh_rpc_call *call)
{
    struct lh_tracer *tracer = lh_call_service(call)->tracer;

    if (tracer != NULL)
        lh_rpc_call_set_trace(call, lh_trace_begin(tracer, lh_rpc_call_metadata_alone(call, "traceparent"),
                                                   lh_rpc_call_method(call)->path + 1, lh_rpc_call_arrived_us(call)));
}

void lh_tracing_scope(struct lh_rpc_call *call, const char *ns, const char *key)
{
    lh_trace_set_scope(lh_rpc_call_trace(call), ns, key);
}

static void add_batch(struct lh_trace *trace, const struct lh_batch_record *batch)
{
    if (batch->sent_us == 0)
        return;
    lh_trace_add(trace, LH_TRACE_BATCH, batch->sent_us, batch->answered_us, batch->items);
    if (batch->is_hooked)
        lh_trace_add(trace, LH_TRACE_HOOK, batch->sent_us, batch->answered_us, 0);
}

static const char *outcome_of(const struct lh_acquire_result *result)
{
    if (result->status != LH_OK)
        return lh_status_name(result->status);
    return result->is_renewal ? "RENEWED" : "GRANTED";
}

void lh_tracing_acquired(struct lh_rpc_call *call, const struct lh_acquire_result *result)
{
    struct lh_trace *trace = lh_rpc_call_trace(call);
    const struct lh_batch_record *batch = &result->batch;

    if (trace == NULL)
        return;
    lh_trace_set_outcome(trace, outcome_of(result), result->status == LH_OK ? result->lease->token : 0);
    if (batch->sent_us != 0)
        lh_trace_add(trace, LH_TRACE_QUEUEING, batch->sent_us - result->waited_us, batch->sent_us, 0);
    add_batch(trace, batch);
    if (result->status == LH_OK && !result->is_renewal && batch->sent_us != 0)
        lh_trace_add(trace, LH_TRACE_GRANT, batch->answered_us, lh_clock_us(), 0);
}

void lh_tracing_answered(struct lh_rpc_call *call, const struct lh_holder_request *request)
{
    struct lh_trace *trace = lh_rpc_call_trace(call);

    if (trace == NULL)
        return;
    lh_trace_set_items(trace, request->count);
    add_batch(trace, &request->batch);
}

void lh_tracing_end(struct lh_rpc_call *call)
{
    lh_trace_end(lh_rpc_call_trace(call), lh_rpc_call_code(call), lh_clock_us());
    lh_rpc_call_set_trace(call, NULL);
}
