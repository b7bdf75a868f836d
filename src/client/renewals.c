#include "client/renewals.h"

#include <stdlib.h>

#include "client/batch.h"
#include "client/request.h"

#define RENEWALS_A_DURATION 3
#define ROUNDS_A_BATCH 2 /* a batch has so many periods' time */
#define HEDGE_PARTS 4    /* of a call's time: after one of them it goes out in pieces too */
#define SUSPECTS_MAX 128 /* beyond, it is not single rows that are locked */
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

/* --- one batch --- */

/* Those that were released meanwhile do not go out again. */
static void drop_what_is_not_held(struct lease_batch *batch)
{
    size_t kept = 0;

    for (size_t i = 0; i < batch->count; i++) {
        if (lease_is_held(batch->leases[i]))
            batch->leases[kept++] = batch->leases[i];
        else
            lease_unref(batch->leases[i]);
    }
    batch->count = kept;
}

void renewals_pack(struct lh_client *client, struct lease_batch *batch, struct lh_buffer *message)
{
    Leasehold__V1__HeartbeatRequest heartbeat = LEASEHOLD__V1__HEARTBEAT_REQUEST__INIT;
    struct lh_arena arena = {0};
    size_t size;

    drop_what_is_not_held(batch);
    heartbeat.n_leases = batch->count;
    heartbeat.leases = lh_arena_alloc(&arena, (batch->count + 1) * sizeof(heartbeat.leases[0]));
    for (size_t i = 0; i < batch->count; i++)
        heartbeat.leases[i] = lease_ref_message(batch->leases[i], &arena);
    size = leasehold__v1__heartbeat_request__get_packed_size(&heartbeat);
    leasehold__v1__heartbeat_request__pack(&heartbeat, lh_buffer_reserve(message, size + 1));
    message->size += size;
    lh_arena_finish(&arena);
    atomic_fetch_add_explicit(&client->counts.renewal_batches, 1, memory_order_relaxed);
}

static void pack(struct lh_request *request, struct lh_buffer *message)
{
    renewals_pack(request->client, &batch_of(request)->batch, message);
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
        lease_renewed(lease, sent_us, duration_from_message(result->remaining));
        return true;
    case LEASEHOLD__V1__OUTCOME__OUTCOME_LOST:
        lease_lose(lease, lost_reason_of(result->end_reason), result->message);
        return true;
    case LEASEHOLD__V1__OUTCOME__OUTCOME_RETRY:
        return false;
    default: /* a hook refused: so it may the next time, or not */
        if (lease_is_held(lease))
            lh_warn("renewal refused scope=%s/%s: %s", lease->declared->text, lease->scope_key, result->message);
        return true;
    }
}

static void arm(struct renewals *renewals, int64_t at_us)
{
    if (!renewals->is_stopped && (!lh_timer_is_armed(&renewals->tick) || at_us < renewals->tick.at_us))
        lh_timer_arm_at_us(&renewals->tick, at_us);
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
        arm(renewals, lh_clock_us() + hurry_us(renewals));
}

bool renewals_answer(struct renewals *renewals, struct lease_batch *batch, int64_t sent_us,
                     const Leasehold__V1__HeartbeatResponse *response)
{
    bool is_complete = true;

    if (response->n_results != batch->count)
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
        return request_judge_error(request, reply);
    request->status = LH_OK;
    if (!renewals_answer(&request->client->renewals, batch, request->sent_us, (const void *)reply->message))
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
    lease_batch_finish(&batch->batch);
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
    request_init(&batch->request, renewals->client, &heartbeat_verb, until_us, NULL, NULL);
    batch->request.own_us = until_us - lh_clock_us();
    request_begin_internal(&batch->request);
    request_go(&batch->request);
    return batch;
}

void renewals_call(struct renewals *renewals, struct lease_batch *leases, int64_t until_us)
{
    struct renewal_batch *batch = call(renewals, leases, until_us);
    int64_t now_us = lh_clock_us();

    if (batch != NULL && batch->batch.count > 1)
        lh_timer_arm_at_us(&batch->hedge, now_us + (until_us - now_us) / HEDGE_PARTS);
}

void renewals_hedge(struct renewals *renewals, const struct lease_batch *batch, int64_t sent_us, int64_t until_us)
{
    size_t piece = 1;
    struct lease_batch part = {0};

    while (piece * piece < batch->count)
        piece++;
    for (size_t i = 0; i < batch->count; i++) {
        struct lh_lease *lease = batch->leases[i];
        if (!lease_is_held(lease) || lease->sent_us >= sent_us)
            continue;
        lease_ref(lease);
        lease_batch_add(&part, lease);
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

    client_look_at_clock(request->client);
    if (request->state == REQUEST_CALLING && request->retry.reasons == 0)
        renewals_hedge(&request->client->renewals, &batch->batch, request->sent_us, request->deadline_us);
}

static void send_batch(struct renewals *renewals, struct lease_batch *batch, int64_t until_us)
{
    if (batch->count > 0 && !keep_alive_send(&renewals->keep_alive, batch, until_us))
        renewals_call(renewals, batch, until_us);
}

/* --- when --- */

static int64_t third_us(const struct lh_declared *declared)
{
    return declared->options.duration_us / RENEWALS_A_DURATION;
}

static int64_t period_us(const struct renewals *renewals)
{
    int64_t shortest_us = INT64_MAX;

    LH_LIST_EACH(struct lh_declared, declared, &renewals->declarations, in_renewals)
        if (third_us(declared) < shortest_us)
            shortest_us = third_us(declared);
    return shortest_us;
}

struct round {
    struct renewals *renewals;
    int64_t now_us;
    int64_t before_us; /* whose third is over by then goes with this round */
    int64_t until_us;
    struct lease_batch batch;
    struct lease_batch suspects; /* told RETRY, or nothing at all: they are not to keep the others' answer back */
};

static void put(struct round *round, struct lh_lease *lease)
{
    lease_ref(lease);
    if (lease_batch_add(&round->batch, lease))
        return;
    send_batch(round->renewals, &round->batch, round->until_us);
    lease_batch_add(&round->batch, lease);
}

/* Each by itself; or, where there are too many for that, as all others. */
static void send_suspects(struct round *round)
{
    struct renewals *renewals = round->renewals;
    struct lease_batch *suspects = &round->suspects;

    if (suspects->count <= SUSPECTS_MAX) {
        for (size_t i = 0; i < suspects->count; i++) {
            struct lease_batch one = {0};
            lease_ref(suspects->leases[i]);
            lease_batch_add(&one, suspects->leases[i]);
            renewals_call(renewals, &one, round->until_us);
        }
    } else {
        for (size_t i = 0; i < suspects->count; i++)
            put(round, suspects->leases[i]);
    }
    lease_batch_finish(suspects);
}

static void put_suspect(struct round *round, struct lh_lease *lease)
{
    lease_ref(lease);
    if (lease_batch_add(&round->suspects, lease))
        return;
    send_suspects(round);
    lease_batch_add(&round->suspects, lease);
}

static void collect(struct round *round, struct lh_declared *declared)
{
    for (;;) {
        struct lh_lease *lease = LH_LIST_FIRST(struct lh_lease, &declared->held, held);
        bool is_suspect;

        if (lease == NULL || lease->tried_us >= round->now_us ||
            lease->tried_us + third_us(declared) >= round->before_us)
            return;
        is_suspect = lease->sent_us < lease->tried_us || lease->tried_us == 0;
        lease->tried_us = round->now_us;
        lh_list_remove(&lease->held);
        lh_list_append(&declared->held, &lease->held);
        if (!lease_is_held(lease)) /* released, and on its way out */
            continue;
        if (is_suspect)
            put_suspect(round, lease);
        else
            put(round, lease);
    }
}

/* The first of each declaration was tried the longest ago. */
static int64_t next_us(const struct renewals *renewals)
{
    int64_t at_us = INT64_MAX;

    LH_LIST_EACH(struct lh_declared, declared, &renewals->declarations, in_renewals) {
        const struct lh_lease *lease = LH_LIST_FIRST(struct lh_lease, &declared->held, held);
        if (lease->tried_us + third_us(declared) < at_us)
            at_us = lease->tried_us + third_us(declared);
    }
    return at_us;
}

static void on_tick(void *arg)
{
    struct renewals *renewals = arg;
    struct round round = {.renewals = renewals};
    int64_t period;

    client_look_at_clock(renewals->client);
    if (renewals->is_stopped || lh_list_is_empty(&renewals->declarations))
        return;
    period = period_us(renewals);
    round.now_us = lh_clock_us();
    round.before_us = renewals->hurried > 0 ? round.now_us : round.now_us + period;
    round.until_us = round.now_us + ROUNDS_A_BATCH * period;
    LH_LIST_EACH(struct lh_declared, declared, &renewals->declarations, in_renewals)
        collect(&round, declared);
    send_suspects(&round);
    send_batch(renewals, &round.batch, round.until_us);
    lh_timer_arm_at_us(&renewals->tick, next_us(renewals));
}

void renewals_init(struct renewals *renewals, struct lh_client *client)
{
    renewals->client = client;
    lh_list_init(&renewals->declarations);
    lh_timer_init(&renewals->tick, client->loop, on_tick, renewals);
    keep_alive_init(&renewals->keep_alive, client);
}

void renewals_stop(struct renewals *renewals)
{
    renewals->is_stopped = true;
    lh_timer_finish(&renewals->tick);
    keep_alive_stop(&renewals->keep_alive);
}

void renewals_add(struct renewals *renewals, struct lh_lease *lease)
{
    struct lh_declared *declared = lease->declared;

    if (lh_list_is_empty(&declared->held))
        lh_list_append(&renewals->declarations, &declared->in_renewals);
    lh_list_append(&declared->held, &lease->held);
    arm(renewals, lease->tried_us + third_us(declared));
}

void renewals_remove(struct renewals *renewals, struct lh_lease *lease)
{
    struct lh_declared *declared = lease->declared;

    if (!lh_link_is_linked(&lease->held))
        return;
    lh_list_remove(&lease->held);
    if (lh_list_is_empty(&declared->held))
        lh_list_remove(&declared->in_renewals);
    if (lh_list_is_empty(&renewals->declarations))
        keep_alive_rest(&renewals->keep_alive);
}
