/* Heartbeats by hand: the same message as a renewal, for one lease, and somebody waits for its answer. */
#include <stdlib.h>

#include "client/blocking.h"
#include "client/check.h"
#include "client/lease.h"
#include "client/request.h"

struct heartbeat_op {
    struct lh_request request;
    struct lh_lease *lease;
    lh_done_cb *on_done;
    void *arg;
};

static struct heartbeat_op *op_of(struct lh_request *request)
{
    return LH_CONTAINER(struct heartbeat_op, request, request);
}

static void pack(struct lh_request *request, struct lh_buffer *buffer)
{
    Leasehold__V1__HeartbeatRequest message = LEASEHOLD__V1__HEARTBEAT_REQUEST__INIT;
    Leasehold__V1__LeaseRef *ref;
    struct lh_arena arena = {0};
    size_t size;

    ref = lease_ref_message(op_of(request)->lease, &arena);
    message.n_leases = 1;
    message.leases = &ref;
    size = leasehold__v1__heartbeat_request__get_packed_size(&message);
    leasehold__v1__heartbeat_request__pack(&message, lh_buffer_reserve(buffer, size + 1));
    buffer->size += size;
    lh_arena_finish(&arena);
}

static unsigned judge(struct lh_request *request, const struct lh_reply *reply)
{
    const Leasehold__V1__HeartbeatResponse *response = (const void *)reply->message;
    const Leasehold__V1__HeartbeatResult *result;
    struct lh_lease *lease = op_of(request)->lease;

    if (reply->code != LH_GRPC_OK)
        return request_judge_error(request, reply);
    if (response->n_results != 1) {
        request->status =
            lh_error_set(&request->error, LH_INTERNAL, "an answer for %zu leases, not for one", response->n_results);
        return RETRY_NO_REASON;
    }
    result = response->results[0];
    request->status = lh_error_set(&request->error, status_of_outcome(result->outcome), "%s", result->message);
    if (request->status == LH_OK)
        lease_renewed(lease, request->sent_us, duration_from_message(result->remaining));
    else if (request->status == LH_LOST)
        lease_lose(lease, lost_reason_of(result->end_reason), result->message);
    return request->status == LH_UNAVAILABLE ? LH_RETRY_OUTCOME_RETRY : RETRY_NO_REASON;
}

static void finish(struct lh_request *request)
{
    struct heartbeat_op *op = op_of(request);

    /* Lost for another reason meanwhile, by the time or by another answer: then so it is, whatever this one said. */
    if (request->status == LH_OK && !lease_is_held(op->lease))
        request->status = lh_error_set(&request->error, LH_LOST, "the lease is not held any more");
    op->on_done(op->arg, request->status, &request->error);
    lease_unref(op->lease);
    free(op);
}

static const struct request_verb heartbeat_verb = {
    .name = "Heartbeat",
    .path = "/leasehold.v1.LeaseService/Heartbeat",
    .output = &leasehold__v1__heartbeat_response__descriptor,
    .pack = pack,
    .judge = judge,
    .finish = finish,
};

static void on_start(struct lh_request *request)
{
    if (lease_is_held(op_of(request)->lease))
        request_go(request);
    else
        request_end(request, LH_LOST, "the lease is not held any more");
}

enum lh_status lh_heartbeat_async(struct lh_lease *lease, const struct lh_call_options *options, lh_done_cb *on_done,
                                  void *arg, struct lh_request **request, struct lh_error *error)
{
    struct lh_client *client;
    struct heartbeat_op *op;
    int64_t timeout_us;
    enum lh_status status;

    if (lease == NULL || on_done == NULL)
        return check_refuse(error, lease == NULL ? "lease" : "on_done", "not NULL", "an argument is missing");
    if (options != NULL && options->timeout_us < 0)
        return check_refuse(error, "timeout_us", "not negative", "a time is negative");
    client = lease->client;
    op = lh_alloc_zero(1, sizeof(*op));
    op->lease = lease;
    op->on_done = on_done;
    op->arg = arg;
    lease_ref(lease);
    timeout_us = options != NULL && options->timeout_us > 0 ? options->timeout_us : client->timeout_us;
    request_init(&op->request, client, &heartbeat_verb, lh_clock_us() + timeout_us, options,
                 lease->declared->has_strategy ? &lease->declared->strategy : NULL);
    op->request.name = lease->scope_key;
    if (request != NULL)
        *request = &op->request;
    status = request_submit(&op->request, on_start, error);
    if (status != LH_OK) {
        request_drop(&op->request);
        lease_unref(lease);
        free(op);
    }
    return status;
}

enum lh_status lh_heartbeat(struct lh_lease *lease, const struct lh_call_options *options, struct lh_error *error)
{
    struct blocked blocked;
    enum lh_status status;

    if (lease == NULL)
        return check_refuse(error, "lease", "not NULL", "lease is missing");
    status = blocked_begin(&blocked, lease->client, error);
    if (status != LH_OK)
        return status;
    status = lh_heartbeat_async(lease, options, blocked_on_done, &blocked, NULL, error);
    return blocked_wait(&blocked, status);
}
