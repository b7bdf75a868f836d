#include "client/batches_internal.h"

#include "client/client.h"

#define RENEWALS_A_DURATION 3
#define ROUNDS_A_BATCH 2 /* a batch has so many periods' time */
#define SUSPECTS_MAX 128 /* beyond, it is not single rows that are locked */

static void send_batch(struct renewals *renewals, struct lease_batch *batch, int64_t until_us)
{
    if (batch->count > 0 && !lh_keep_alive_send(&renewals->keep_alive, batch, until_us))
        lh_renewals_call(renewals, batch, until_us);
}

/* --- when --- */

static int64_t third_us(const struct lh_declared *declared)
{
    return declared->options.duration_us / RENEWALS_A_DURATION;
}

static int64_t period_us(const struct renewals *renewals)
{
    int64_t shortest_us = INT64_MAX;

    LH_LIST_EACH(struct lh_declared, declared, &renewals->client->leases.declarations, in_leases)
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
    lh_lease_ref(lease);
    if (lh_lease_batch_add(&round->batch, lease))
        return;
    send_batch(round->renewals, &round->batch, round->until_us);
    lh_lease_batch_add(&round->batch, lease);
}

/* Each by itself; or, where there are too many for that, as all others. */
static void send_suspects(struct round *round)
{
    struct renewals *renewals = round->renewals;
    struct lease_batch *suspects = &round->suspects;

    if (suspects->count <= SUSPECTS_MAX) {
        for (size_t i = 0; i < suspects->count; i++) {
            struct lease_batch one = {0};
            lh_lease_ref(suspects->leases[i]);
            lh_lease_batch_add(&one, suspects->leases[i]);
            lh_renewals_call(renewals, &one, round->until_us);
        }
    } else {
        for (size_t i = 0; i < suspects->count; i++)
            put(round, suspects->leases[i]);
    }
    lh_lease_batch_finish(suspects);
}

static void put_suspect(struct round *round, struct lh_lease *lease)
{
    lh_lease_ref(lease);
    if (lh_lease_batch_add(&round->suspects, lease))
        return;
    send_suspects(round);
    lh_lease_batch_add(&round->suspects, lease);
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
        if (!lh_lease_is_kept(lease)) /* released, and on its way out */
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

    LH_LIST_EACH(struct lh_declared, declared, &renewals->client->leases.declarations, in_leases) {
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

    lh_leases_look_at_clock(renewals->client);
    if (renewals->is_stopped)
        return;
    if (lh_list_is_empty(&renewals->client->leases.declarations)) {
        lh_keep_alive_rest(&renewals->keep_alive);
        return;
    }
    period = period_us(renewals);
    round.now_us = lh_clock_us();
    round.before_us = renewals->hurried > 0 ? round.now_us : round.now_us + period;
    round.until_us = round.now_us + ROUNDS_A_BATCH * period;
    LH_LIST_EACH(struct lh_declared, declared, &renewals->client->leases.declarations, in_leases)
        collect(&round, declared);
    send_suspects(&round);
    send_batch(renewals, &round.batch, round.until_us);
    lh_timer_arm_at_us(&renewals->tick, next_us(renewals));
}

void lh_renewals_init(struct renewals *renewals, struct lh_client *client)
{
    renewals->client = client;
    lh_timer_init(&renewals->tick, client->loop, on_tick, renewals);
    renewals->keep_alive.client = client;
    lh_list_init(&renewals->keep_alive.streams);
}

void lh_renewals_stop(struct renewals *renewals)
{
    renewals->is_stopped = true;
    lh_timer_finish(&renewals->tick);
    lh_keep_alive_stop(&renewals->keep_alive);
}

void lh_renewals_add(struct renewals *renewals, const struct lh_lease *lease)
{
    lh_renewals_arm(renewals, lease->tried_us + third_us(lease->declared));
}
