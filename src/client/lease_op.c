#include "client/lease_op.h"

#include <stdlib.h>

#include "client/client.h"
#include "client/lease_message.h"
#include "client/request_end.h"

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

void lh_lease_op_start_held(struct lh_request *request)
{
    if (lh_lease_is_kept(lh_lease_op_of(request)->lease))
        lh_request_go(request);
    else
        lh_request_end(request, LH_LOST, "the lease is not held any more");
}

void lh_lease_op_finish_held(struct lh_request *request)
{
    /* Lost for another reason meanwhile, by the time or by another answer: then so it is, whatever this one said. */
    if (request->status == LH_OK && !lh_lease_is_kept(lh_lease_op_of(request)->lease))
        request->status = lh_error_set(&request->error, LH_LOST, "the lease is not held any more");
    lh_lease_op_finish(request);
}

struct lease_op *lh_lease_op_create(struct lh_lease *lease, const struct request_verb *verb,
                                    const struct lh_call_options *options, lh_done_cb *on_done, void *arg)
{
    struct lh_client *client = lease->client;
    struct lease_op *op = lh_alloc_zero(1, sizeof(*op));
    int64_t timeout_us = options != NULL && options->timeout_us > 0 ? options->timeout_us : client->timeout_us;

    op->lease = lease;
    op->on_done = on_done;
    op->arg = arg;
    lh_lease_ref(lease);
    lh_request_init(&op->request, client, verb, lh_clock_us() + timeout_us, options,
                    lease->declared->has_strategy ? &lease->declared->strategy : NULL);
    op->request.name = lease->scope_key;
    return op;
}

enum lh_status lh_lease_op_submit(struct lease_op *op, void (*on_start)(struct lh_request *request),
                                  struct lh_request **request, struct lh_error *error)
{
    enum lh_status status;

    if (request != NULL)
        *request = &op->request;
    status = lh_request_submit(&op->request, on_start, error);
    if (status != LH_OK) {
        lh_request_drop(&op->request);
        destroy(op);
    }
    return status;
}
