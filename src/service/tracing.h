/* Traces of calls, see trace/tracer.h: a call that is not traced costs a look at one pointer. */
#ifndef LH_SERVICE_TRACING_H
#define LH_SERVICE_TRACING_H

#include "lease/coordinator.h"

struct lh_rpc_call;

/* Before the call does anything. */
void lh_tracing_begin(struct lh_rpc_call *call);
void lh_tracing_scope(struct lh_rpc_call *call, const char *ns, const char *key);
/* Before the answer. */
void lh_tracing_acquired(struct lh_rpc_call *call, const struct lh_acquire_result *result);
void lh_tracing_answered(struct lh_rpc_call *call, const struct lh_holder_request *request);
/* First in on_end. */
void lh_tracing_end(struct lh_rpc_call *call);

#endif
