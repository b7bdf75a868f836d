/*
 * lh_downgrade: an exclusive lease becomes a shared one, or a shared one gives units back.
 *
 * A repeat after a lost answer gets the same lease with the same token. From the call on the caller counts as a shared
 * holder: an answer that never came may have had its effect.
 */
#include "base/bounds.h"
#include "client/attempt.h"
#include "client/blocking.h"
#include "client/lease_message.h"
#include "client/lease_op.h"

static void pack(struct lh_request *request, struct lh_buffer *buffer)
{
    Leasehold__V1__DowngradeRequest message = LEASEHOLD__V1__DOWNGRADE_REQUEST__INIT;
    const struct lease_op *op = lh_lease_op_of(request);
    struct lh_arena arena = {0};

    message.lease = lh_pack_lease_ref(op->lease, &arena);
    message.units = op->units;
    lh_pack_message(&message.base, buffer);
    lh_arena_finish(&arena);
}

static unsigned judge(struct lh_request *request, const struct lh_reply *reply)
{
    const Leasehold__V1__DowngradeResponse *response = (const void *)reply->message;
    struct lh_lease *lease = lh_lease_op_of(request)->lease;
    unsigned reason;

    if (reply->code == LH_GRPC_OK && response->lease != NULL) {
        request->status = LH_OK;
        if (!lh_lease_is_kept(lease))
            return RETRY_NO_REASON;
        lh_lease_downgraded(lease, lh_unpack_grant(response->lease));
        lh_lease_renewed(lease, lh_plus_us(request->sent_us, lh_unpack_duration_us(response->waited)),
                         lh_unpack_duration_us(response->lease->remaining), response->lease->deadline_is_final);
        return RETRY_NO_REASON;
    }
    if (reply->code == LH_GRPC_OK) {
        request->status = lh_error_set(&request->error, LH_INTERNAL, "the server answered without a lease");
        return RETRY_NO_REASON;
    }
    reason = lh_attempt_judge_error(request, reply);
    if (request->status == LH_NOT_HELD) {
        request->status = request->error.status = LH_LOST;
        lh_lease_lose(lease, LH_LOST_UNKNOWN, reply->words);
    }
    return reason;
}

static const struct request_verb downgrade_verb = {
    .name = "Downgrade",
    .path = "/leasehold.v1.LeaseService/Downgrade",
    .output = &leasehold__v1__downgrade_response__descriptor,
    .pack = pack,
    .judge = judge,
    .finish = lh_lease_op_finish_held,
};

enum lh_status lh_downgrade_async(struct lh_lease *lease, int32_t units, const struct lh_call_options *options,
                                  lh_done_cb *on_done, void *arg, struct lh_request **request, struct lh_error *error)
{
    struct lease_op *op;

    if (lease == NULL || on_done == NULL)
        return lh_bounds_refuse(error, lease == NULL ? "lease" : "on_done", "not NULL", "an argument is missing");
    if (options != NULL && lh_bounds_time("timeout_us", options->timeout_us, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    if (lh_bounds_units(units, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    op = lh_lease_op_create(lease, &downgrade_verb, options, on_done, arg);
    op->units = units > 0 ? units : 1;
    return lh_lease_op_submit(op, lh_lease_op_start_held, request, error);
}

enum lh_status lh_downgrade(struct lh_lease *lease, int32_t units, const struct lh_call_options *options,
                            struct lh_error *error)
{
    struct blocked blocked;
    enum lh_status status = lh_blocked_begin(&blocked, lease != NULL ? lease->client : NULL, error);

    if (status == LH_OK)
        status = lh_downgrade_async(lease, units, options, lh_blocked_on_done, &blocked, NULL, error);
    return lh_blocked_wait(&blocked, status);
}
