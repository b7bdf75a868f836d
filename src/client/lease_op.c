#include "client/lease_op.h"

#include <stdlib.h>

#include "client/client.h"
#include "client/lease_message.h"

struct lease_op *lh_lease_op_of(struct lh_request *request)
{
    return LH_CONTAINER(struct lease_op, request, request);
}

unsigned lh_lease_op_miscounted(struct lh_request *request, size_t count)
{
    request->status = lh_error_set(&request->error, LH_INTERNAL, "an answer for %zu leases, not for one", count);
    return RETRY_NO_REASON;
}

unsigned lh_lease_op_answered(struct lh_request *request, enum lh_status status, Leasehold__V1__EndReason end_reason,
                              const char *message)
{
    request->status = lh_error_set(&request->error, status, "%s",
                                   status == LH_LOST ? lh_lost_words(lh_lost_reason_of(end_reason), message) : message);
    return status == LH_UNAVAILABLE ? LH_RETRY_OUTCOME_RETRY : RETRY_NO_REASON;
}

static void destroy(struct lease_op *op)
{
    lh_lease_unref(op->lease);
    free(op);
}

void lh_lease_op_finish(struct lh_request *request)
{
    struct lease_op *op = lh_lease_op_of(request);

    op->on_done(op->arg, request->status, &request->error);
    destroy(op);
}

enum lh_status lh_lease_op_submit(struct lh_lease *lease, const struct request_verb *verb,
                                  const struct lh_call_options *options, void (*on_start)(struct lh_request *request),
                                  lh_done_cb *on_done, void *arg, struct lh_request **request, struct lh_error *error)
{
    struct lh_client *client = lease->client;
    struct lease_op *op = lh_alloc_zero(1, sizeof(*op));
    int64_t timeout_us = options != NULL && options->timeout_us > 0 ? options->timeout_us : client->timeout_us;
    enum lh_status status;

    op->lease = lease;
    op->on_done = on_done;
    op->arg = arg;
    lh_lease_ref(lease);
    lh_request_init(&op->request, client, verb, lh_clock_us() + timeout_us, options,
                    lease->declared->has_strategy ? &lease->declared->strategy : NULL);
    op->request.name = lease->scope_key;
    if (request != NULL)
        *request = &op->request;
    status = lh_request_submit(&op->request, on_start, error);
    if (status != LH_OK) {
        lh_request_drop(&op->request);
        destroy(op);
    }
    return status;
}
