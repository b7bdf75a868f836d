#include "client/request_internal.h"

#include <stdlib.h>

#include "base/bounds.h"
#include "base/clock.h"
#include "client/client.h"
#include "client/lease_internal.h"

/* --- what the operations share --- */

struct lease_op *lh_lease_op_of(struct lh_request *request)
{
    return LH_CONTAINER(struct lease_op, request, request);
}

unsigned lh_lease_op_miscounted(struct lh_request *request, size_t count)
{
    request->status = lh_error_set(&request->error, LH_INTERNAL, "an answer for %zu leases, not for one", count);
    return RETRY_NO_REASON;
}

unsigned lh_lease_op_misdirected(struct lh_request *request)
{
    request->status = lh_error_set(&request->error, LH_INTERNAL, "an answer for another lease than was asked for");
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
    free(op->reason);
    free(op);
}

void lh_lease_op_finish(struct lh_request *request)
{
    struct lease_op *op = lh_lease_op_of(request);

    op->on_done(op->arg, request->status, &request->error);
    destroy(op);
}

/* `on_start` and `finish` of requests that need the lease held, when they are sent and when they are answered; else
   LH_LOST. */
static void start_held(struct lh_request *request)
{
    if (lh_lease_is_kept(lh_lease_op_of(request)->lease))
        lh_request_go(request);
    else
        lh_request_end(request, LH_LOST, "the lease is not held any more");
}

static void finish_held(struct lh_request *request)
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

/* Checks what every call has. `subject` NULL: the argument of this name is missing. */
static enum lh_status check(const void *subject, const char *name, lh_done_cb *on_done,
                            const struct lh_call_options *options, struct lh_error *error)
{
    if (subject == NULL || on_done == NULL)
        return lh_bounds_refuse(error, subject == NULL ? name : "on_done", "not NULL", "an argument is missing");
    return options == NULL ? LH_OK : lh_bounds_time("timeout_us", options->timeout_us, error);
}

/* Packs a message about the lease, which `ref` of it names. */
static void pack_about(const struct lease_op *op, const ProtobufCMessage *message, Leasehold__V1__LeaseRef **ref,
                       struct lh_buffer *buffer)
{
    struct lh_arena arena = {0};

    *ref = lh_pack_lease_ref(op->lease, &arena);
    lh_pack_message(message, buffer);
    lh_arena_finish(&arena);
}

/* The answer of a call about a lease that is held is an error. */
static unsigned judge_error(struct lh_request *request, const struct lh_reply *reply)
{
    unsigned reason = lh_attempt_judge_error(request, reply);

    if (request->status == LH_NOT_HELD) {
        request->status = request->error.status = LH_LOST;
        lh_lease_lose(lh_lease_op_of(request)->lease, LH_LOST_UNKNOWN, reply->words);
    }
    return reason;
}

/* --- requests to hand over, as renewals tell them: on_asked is called once for each --- */

static int64_t asked_at_us(const Leasehold__V1__HandOver *asked)
{
    if (asked->asked_at == NULL || asked->asked_at->seconds > INT64_MAX / LH_US_PER_S - 1 ||
        asked->asked_at->seconds < 0)
        return 0;
    return asked->asked_at->seconds * LH_US_PER_S + asked->asked_at->nanos / 1000;
}

/* A request is the one before if it has its time; answers that come in another order than they were sent tell no more of
   an older one. */
void lh_lease_asked(struct lh_lease *lease, int64_t sent_us, const Leasehold__V1__HandOver *asked)
{
    const struct lh_declare_options *options = &lease->declared->options;
    struct lh_hand_over_request told;

    if (asked == NULL || options->on_asked == NULL || !lh_lease_is_kept(lease) || sent_us < lease->asked_sent_us ||
        asked_at_us(asked) == lease->asked_at_us)
        return;
    lease->asked_at_us = asked_at_us(asked);
    lease->asked_sent_us = sent_us;
    told = (struct lh_hand_over_request){.asked_by = asked->asked_by,
                                         .principal = asked->principal,
                                         .reason = asked->reason,
                                         .answer_in_us = lh_unpack_duration_us(asked->answer_in)};
    lh_lease_ref(lease);
    options->on_asked(options->arg, lease, &told);
    lh_lease_unref(lease);
}

/* --- heartbeat --- */

/* Heartbeats by hand: the same message as a renewal, for one lease, and somebody waits for its answer. */
static void pack_heartbeat(struct lh_request *request, struct lh_buffer *message)
{
    lh_heartbeat_pack(&lh_lease_op_of(request)->lease, 1, message);
}

static unsigned judge_heartbeat(struct lh_request *request, const struct lh_reply *reply)
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
    if (!lh_is_answer_about(result->lease_key, &lease->key))
        return lh_lease_op_misdirected(request);
    status = lh_status_of_outcome(result->outcome);
    if (status == LH_OK) {
        lh_lease_heard(lease, result->token, result->units, result->has_slots);
        lh_lease_renewed(lease, request->sent_us, lh_unpack_remaining_us(result->remaining, lease->declared),
                         result->deadline_is_final);
        lh_lease_asked(lease, request->sent_us, result->asked);
    } else if (status == LH_LOST) {
        lh_lease_lose(lease, lh_lost_reason_of(result->end_reason), result->message);
    }
    return lh_lease_op_answered(request, status, result->end_reason, result->message);
}

static const struct request_verb heartbeat_verb = {
    .name = "Heartbeat",
    .path = "/leasehold.v1.LeaseService/Heartbeat",
    .output = &leasehold__v1__heartbeat_response__descriptor,
    .pack = pack_heartbeat,
    .judge = judge_heartbeat,
    .finish = finish_held,
};

enum lh_status lh_heartbeat_async(struct lh_lease *lease, const struct lh_call_options *options, lh_done_cb *on_done,
                                  void *arg, struct lh_request **request, struct lh_error *error)
{
    if (check(lease, "lease", on_done, options, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    return lh_lease_op_submit(lh_lease_op_create(lease, &heartbeat_verb, options, on_done, arg), start_held, request,
                              error);
}

enum lh_status lh_heartbeat(struct lh_lease *lease, const struct lh_call_options *options, struct lh_error *error)
{
    struct blocked blocked;
    enum lh_status status = lh_blocked_begin(&blocked, lease != NULL ? lease->client : NULL, error);

    if (status == LH_OK)
        status = lh_heartbeat_async(lease, options, lh_blocked_on_done, &blocked, NULL, error);
    return lh_blocked_wait(&blocked, status);
}

/* --- downgrade --- */

/*
 * lh_downgrade: an exclusive lease becomes a shared one, or a shared one gives units back.
 *
 * A repeat after a lost answer gets the same lease with the same token. From the call on the caller counts as a shared
 * holder: an answer that never came may have had its effect.
 */
static void pack_downgrade(struct lh_request *request, struct lh_buffer *buffer)
{
    Leasehold__V1__DowngradeRequest message = LEASEHOLD__V1__DOWNGRADE_REQUEST__INIT;
    const struct lease_op *op = lh_lease_op_of(request);

    message.units = op->units;
    pack_about(op, &message.base, &message.lease, buffer);
}

static unsigned judge_downgrade(struct lh_request *request, const struct lh_reply *reply)
{
    const Leasehold__V1__DowngradeResponse *response = (const void *)reply->message;
    struct lh_lease *lease = lh_lease_op_of(request)->lease;

    if (reply->code != LH_GRPC_OK)
        return judge_error(request, reply);
    if (response->lease == NULL) {
        request->status = lh_error_set(&request->error, LH_INTERNAL, "the server answered without a lease");
        return RETRY_NO_REASON;
    }
    if (!lh_is_answer_about(response->lease->lease_key, &lease->key))
        return lh_lease_op_misdirected(request);
    request->status = LH_OK;
    if (lh_lease_is_kept(lease)) {
        lh_lease_downgraded(lease, lh_unpack_grant(response->lease));
        lh_lease_renewed(lease, lh_plus_us(request->sent_us, lh_unpack_waited_us(response->waited, request->sent_us)),
                         lh_unpack_remaining_us(response->lease->remaining, lease->declared),
                         response->lease->deadline_is_final);
    }
    return RETRY_NO_REASON;
}

static const struct request_verb downgrade_verb = {
    .name = "Downgrade",
    .path = "/leasehold.v1.LeaseService/Downgrade",
    .output = &leasehold__v1__downgrade_response__descriptor,
    .pack = pack_downgrade,
    .judge = judge_downgrade,
    .finish = finish_held,
};

enum lh_status lh_downgrade_async(struct lh_lease *lease, int32_t units, const struct lh_call_options *options,
                                  lh_done_cb *on_done, void *arg, struct lh_request **request, struct lh_error *error)
{
    struct lease_op *op;

    if (check(lease, "lease", on_done, options, error) != LH_OK || lh_bounds_units(units, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    op = lh_lease_op_create(lease, &downgrade_verb, options, on_done, arg);
    op->units = units > 0 ? units : 1;
    return lh_lease_op_submit(op, start_held, request, error);
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

/* --- refusing to hand over --- */

static void pack_refusal(struct lh_request *request, struct lh_buffer *buffer)
{
    Leasehold__V1__RefuseHandOverRequest message = LEASEHOLD__V1__REFUSE_HAND_OVER_REQUEST__INIT;
    const struct lease_op *op = lh_lease_op_of(request);

    message.reason = op->reason;
    pack_about(op, &message.base, &message.lease, buffer);
}

static unsigned judge_refusal(struct lh_request *request, const struct lh_reply *reply)
{
    if (reply->code != LH_GRPC_OK)
        return judge_error(request, reply);
    request->status = LH_OK;
    return RETRY_NO_REASON;
}

static const struct request_verb refuse_verb = {
    .name = "RefuseHandOver",
    .path = "/leasehold.v1.LeaseService/RefuseHandOver",
    .output = &leasehold__v1__refuse_hand_over_response__descriptor,
    .pack = pack_refusal,
    .judge = judge_refusal,
    .finish = finish_held,
};

enum lh_status lh_lease_refuse_hand_over_async(struct lh_lease *lease, const char *reason,
                                               const struct lh_call_options *options, lh_done_cb *on_done, void *arg,
                                               struct lh_request **request, struct lh_error *error)
{
    struct lease_op *op;

    if (check(lease != NULL ? reason : NULL, lease != NULL ? "reason" : "lease", on_done, options, error) != LH_OK ||
        lh_bounds_text("reason", LH_TEXT_HAND_OVER, reason, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    op = lh_lease_op_create(lease, &refuse_verb, options, on_done, arg);
    op->reason = lh_strdup(reason);
    return lh_lease_op_submit(op, start_held, request, error);
}

enum lh_status lh_lease_refuse_hand_over(struct lh_lease *lease, const char *reason,
                                         const struct lh_call_options *options, struct lh_error *error)
{
    struct blocked blocked;
    enum lh_status status = lh_blocked_begin(&blocked, lease != NULL ? lease->client : NULL, error);

    if (status == LH_OK)
        status = lh_lease_refuse_hand_over_async(lease, reason, options, lh_blocked_on_done, &blocked, NULL, error);
    return lh_blocked_wait(&blocked, status);
}
