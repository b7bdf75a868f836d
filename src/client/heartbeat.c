/* Heartbeats by hand: the same message as a renewal, for one lease, and somebody waits for its answer. */
#include "base/bounds.h"
#include "client/attempt.h"
#include "client/blocking.h"
#include "client/lease_message.h"
#include "client/lease_op.h"

static void pack(struct lh_request *request, struct lh_buffer *message)
{
    lh_heartbeat_pack(&lh_lease_op_of(request)->lease, 1, message);
}

static unsigned judge(struct lh_request *request, const struct lh_reply *reply)
{
    const Leasehold__V1__HeartbeatResponse *response = (const void *)reply->message;
    const Leasehold__V1__HeartbeatResult *result;
    struct lh_lease *lease = lh_lease_op_of(request)->lease;
    enum lh_status status;

    if (reply->code != LH_GRPC_OK)
        return lh_attempt_judge_error(request, reply);
    if (response->n_results != 1)
        return lh_lease_op_miscounted(request, response->n_results);
    result = response->results[0];
    status = lh_status_of_outcome(result->outcome);
    if (status == LH_OK) {
        lh_lease_heard(lease, result->token, result->units, result->has_slots);
        lh_lease_renewed(lease, request->sent_us, lh_unpack_duration_us(result->remaining), result->deadline_is_final);
    } else if (status == LH_LOST) {
        lh_lease_lose(lease, lh_lost_reason_of(result->end_reason), result->message);
    }
    return lh_lease_op_answered(request, status, result->end_reason, result->message);
}

static const struct request_verb heartbeat_verb = {
    .name = "Heartbeat",
    .path = "/leasehold.v1.LeaseService/Heartbeat",
    .output = &leasehold__v1__heartbeat_response__descriptor,
    .pack = pack,
    .judge = judge,
    .finish = lh_lease_op_finish_held,
};

enum lh_status lh_heartbeat_async(struct lh_lease *lease, const struct lh_call_options *options, lh_done_cb *on_done,
                                  void *arg, struct lh_request **request, struct lh_error *error)
{
    if (lease == NULL || on_done == NULL)
        return lh_bounds_refuse(error, lease == NULL ? "lease" : "on_done", "not NULL", "an argument is missing");
    if (options != NULL && lh_bounds_time("timeout_us", options->timeout_us, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    return lh_lease_op_submit(lh_lease_op_create(lease, &heartbeat_verb, options, on_done, arg), lh_lease_op_start_held,
                              request, error);
}

enum lh_status lh_heartbeat(struct lh_lease *lease, const struct lh_call_options *options, struct lh_error *error)
{
    struct blocked blocked;
    enum lh_status status = lh_blocked_begin(&blocked, lease != NULL ? lease->client : NULL, error);

    if (status == LH_OK)
        status = lh_heartbeat_async(lease, options, lh_blocked_on_done, &blocked, NULL, error);
    return lh_blocked_wait(&blocked, status);
}
