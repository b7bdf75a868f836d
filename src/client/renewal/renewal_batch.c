#include "client/batches_internal.h"

#include <stdlib.h>

#include "base/text.h"
#include "client/client.h"
#include "client/lease_internal.h"
#include "client/request_internal.h"

#define HEDGE_PARTS 4 /* of a call's time: after one of them it goes out in pieces too */
#define HURRY_FIRST_US (10 * LH_US_PER_MS)
#define HURRY_LAST_US LH_US_PER_S

struct renewal_batch {
    struct lh_request request;
    struct lh_timer hedge; /* where it is no piece of another */
    struct lease_batch batch;
};

static void on_late(void *arg);

static struct renewal_batch *batch_of(struct lh_request *request)
{
    return LH_CONTAINER(struct renewal_batch, request, request);
}

/* --- its message --- */

/* Those that were released meanwhile do not go out again. */
static void drop_what_is_not_held(struct lease_batch *batch)
{
    size_t kept = 0;

    for (size_t i = 0; i < batch->count; i++) {
        if (lh_lease_is_kept(batch->leases[i]))
            batch->leases[kept++] = batch->leases[i];
        else
            lh_lease_unref(batch->leases[i]);
    }
    batch->count = kept;
}

void lh_renewals_pack(struct lh_client *client, struct lease_batch *batch, struct lh_buffer *message)
{
    drop_what_is_not_held(batch);
    lh_heartbeat_pack(batch->leases, batch->count, message);
    atomic_fetch_add_explicit(&client->counts.renewal_batches, 1, memory_order_relaxed);
}

static void pack(struct lh_request *request, struct lh_buffer *message)
{
    lh_renewals_pack(request->client, &batch_of(request)->batch, message);
}

static void try_soon(struct lh_lease *lease)
{
    if (!lh_link_is_linked(&lease->held))
        return;
    lease->tried_us = 0;
    lh_list_remove(&lease->held);
    lh_list_prepend(&lease->declared->held, &lease->held);
}

/* False: it is to be tried again. */
static bool take_result(struct lh_lease *lease, int64_t sent_us, const Leasehold__V1__HeartbeatResult *result)
{
    switch (result->outcome) {
    case LEASEHOLD__V1__OUTCOME__OUTCOME_OK:
        lh_lease_heard(lease, result->token, result->units, result->has_slots);
        lh_lease_renewed(lease, sent_us, lh_unpack_remaining_us(result->remaining, lease->declared),
                         result->deadline_is_final);
        lh_lease_asked(lease, sent_us, result->asked);
        return true;
    case LEASEHOLD__V1__OUTCOME__OUTCOME_LOST:
        lh_lease_lose(lease, lh_lost_reason_of(result->end_reason), result->message);
        return true;
    case LEASEHOLD__V1__OUTCOME__OUTCOME_RETRY:
        return false;
    default: /* a hook refused, or a rule: so it may the next time, or not */
        if (lh_lease_is_kept(lease))
            lh_warn("renewal refused scope=%s: %s", LH_SCOPE_NAME(lease->declared->text, lease->scope_key),
                    result->message);
        return true;
    }
}

void lh_renewals_arm(struct renewals *renewals, int64_t at_us)
{
    if (!renewals->is_stopped)
        lh_timer_arm_no_later_us(&renewals->tick, at_us);
}

static int64_t hurry_us(const struct renewals *renewals)
{
    int64_t delay_us = HURRY_FIRST_US;
    for (uint32_t i = 1; i < renewals->hurried && delay_us < HURRY_LAST_US; i++)
        delay_us *= 2;
    return delay_us < HURRY_LAST_US ? delay_us : HURRY_LAST_US;
}

static void hurry(struct renewals *renewals)
{
    if (renewals->hurried > 0)
        lh_renewals_arm(renewals, lh_clock_us() + hurry_us(renewals));
}

bool lh_renewals_answer(struct renewals *renewals, struct lease_batch *batch, int64_t sent_us,
                        const Leasehold__V1__HeartbeatResponse *response)
{
    bool is_complete = true;

    if (response->n_results != batch->count)
        return false;
    for (size_t i = 0; i < batch->count; i++)
        if (!lh_is_answer_about(response->results[i]->lease_key, &batch->leases[i]->key))
            return false;
    for (size_t i = 0; i < batch->count; i++) {
        if (take_result(batch->leases[i], sent_us, response->results[i]))
            continue;
        try_soon(batch->leases[i]);
        is_complete = false;
    }
    renewals->hurried = is_complete ? 0 : renewals->hurried + 1;
    hurry(renewals);
    return true;
}

static unsigned judge(struct lh_request *request, const struct lh_reply *reply)
{
    struct lease_batch *batch = &batch_of(request)->batch;

    if (reply->code != LH_GRPC_OK)
        return lh_attempt_judge_error(request, reply);
    request->status = LH_OK;
    if (!lh_renewals_answer(&request->client->renewals, batch, request->sent_us, (const void *)reply->message))
        request->status = lh_error_set(&request->error, LH_INTERNAL, "an answer for other leases than were asked for");
    return RETRY_NO_REASON;
}

static void finish(struct lh_request *request)
{
    struct renewal_batch *batch = batch_of(request);
    struct renewals *renewals = &request->client->renewals;

    if (request->status != LH_OK) {
        renewals->hurried++;
        if (request->status != LH_CANCELED)
            lh_warn("renewal failed leases=%zu status=%s: %s", batch->batch.count, lh_status_name(request->status),
                    request->error.message);
        for (size_t i = 0; i < batch->batch.count; i++)
            try_soon(batch->batch.leases[i]);
        hurry(renewals);
    }
    lh_timer_finish(&batch->hedge);
    lh_lease_batch_finish(&batch->batch);
    free(batch);
}

static const struct request_verb heartbeat_verb = {
    .name = "Heartbeat",
    .path = "/leasehold.v1.LeaseService/Heartbeat",
    .output = &leasehold__v1__heartbeat_response__descriptor,
    .pack = pack,
    .judge = judge,
    .finish = finish,
};

static struct renewal_batch *call(struct renewals *renewals, struct lease_batch *leases, int64_t until_us)
{
    struct renewal_batch *batch;

    drop_what_is_not_held(leases);
    if (leases->count == 0)
        return NULL;
    batch = lh_alloc_zero(1, sizeof(*batch));
    batch->batch = *leases;
    *leases = (struct lease_batch){0};
    lh_timer_init(&batch->hedge, renewals->client->loop, on_late, batch);
    lh_request_init(&batch->request, renewals->client, &heartbeat_verb, until_us, NULL, NULL);
    batch->request.own_us = until_us - lh_clock_us();
    lh_request_begin_internal(&batch->request);
    lh_request_go(&batch->request);
    return batch;
}

void lh_renewals_call(struct renewals *renewals, struct lease_batch *leases, int64_t until_us)
{
    struct renewal_batch *batch = call(renewals, leases, until_us);
    int64_t now_us = lh_clock_us();

    if (batch != NULL && batch->batch.count > 1)
        lh_timer_arm_at_us(&batch->hedge, now_us + (until_us - now_us) / HEDGE_PARTS);
}

void lh_renewals_hedge(struct renewals *renewals, const struct lease_batch *batch, int64_t sent_us, int64_t until_us)
{
    size_t piece = 1;
    struct lease_batch part = {0};

    while (piece * piece < batch->count)
        piece++;
    for (size_t i = 0; i < batch->count; i++) {
        struct lh_lease *lease = batch->leases[i];
        if (!lh_lease_is_kept(lease) || lease->sent_us >= sent_us)
            continue;
        lh_lease_ref(lease);
        lh_lease_batch_add(&part, lease);
        if (part.count == piece)
            call(renewals, &part, until_us);
    }
    call(renewals, &part, until_us);
}

/* Sent, and neither answered nor failed: a row may be locked, and keep the answer of all the others back. */
static void on_late(void *arg)
{
    struct renewal_batch *batch = arg;
    struct lh_request *request = &batch->request;

    lh_leases_look_at_clock(request->client);
    if (request->state == REQUEST_CALLING && request->retry.reasons == 0)
        lh_renewals_hedge(&request->client->renewals, &batch->batch, request->sent_us, request->deadline_us);
}
