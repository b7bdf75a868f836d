/* Traces of calls, see trace/tracer.h: a call that is not traced costs a look at one pointer. */
#ifndef LH_SERVICE_TRACING_H
#define LH_SERVICE_TRACING_H

#include "lease/coordinator.h"

struct lh_rpc_call;

/* Begins the trace of a call. Call it first. */
void lh_tracing_begin(struct lh_rpc_call *call);
void lh_tracing_scope(struct lh_rpc_call *call, const char *ns, const char *key);
/* Note the outcome. Call them before the answer. */
void lh_tracing_acquired(struct lh_rpc_call *call, const struct lh_acquire_result *result);
void lh_tracing_answered(struct lh_rpc_call *call, const struct lh_holder_request *request);
/* Ends the trace. Call it first in on_end. */
void lh_tracing_end(struct lh_rpc_call *call);

#endif
