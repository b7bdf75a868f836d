/*
 * The lease of a Hold stream. At a third of its duration we look whether the client has said `alive` since the renewal
 * before, or wait until it does; then we ask by a PING, and renew when it answers. So a client that was stopped or cut
 * off gets no renewal after its last sign of life. One that answers late, or whose PING was late because this daemon
 * was stopped, is renewed as soon as it answers.
 *
 * A renewal that is not done (the database is away, a hook refuses) is tried again, with a PING before each try, until
 * the deadline; then the lease is lost to the client, whatever the database will say. A client that does not answer
 * keeps its lease until the deadline and the grace have passed: from then on the database is asked whether the lease
 * has ended. The server never revives it by itself.
 */
#include "service/streams_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

#define AGAIN_MOST_US (1 * LH_US_PER_S)
#define RELEASE_AGAIN_US (200 * LH_US_PER_MS)

/* Before what was not done, or not decided, is tried again. */
static int64_t pause_us(const struct hold *hold)
{
    int64_t pause_us = hold->lease.duration_us / 12;
    return pause_us > AGAIN_MOST_US ? AGAIN_MOST_US : pause_us;
}

static void note_remaining(struct hold *hold, int64_t remaining_us)
{
    int64_t now_us = lh_clock_us();

    hold->lease.remaining_us = remaining_us;
    hold->deadline_us = now_us + remaining_us;
    hold->next_us = hold->deadline_us - hold->lease.duration_us / 3 * 2;
    if (hold->lease.is_final && hold->next_us <= now_us) { /* the client goes on hearing of it; then how it ended */
        int64_t pause = remaining_us > 0 ? hold->lease.duration_us / 3 : pause_us(hold);
        hold->next_us = now_us + (remaining_us > 0 && remaining_us < pause ? remaining_us : pause);
    }
    lh_hold_look_at(hold, hold->next_us);
}

void lh_hold_take(struct hold *hold, const struct lh_held_lease *lease)
{
    free(hold->slots);
    free(hold->principal);
    hold->slots = NULL;
    hold->principal = lh_strdup(lease->principal != NULL ? lease->principal : hold->acquire.terms.principal);
    hold->has_proof = false;
    hold->lease = *lease;
    hold->lease.ns = hold->acquire.ns;
    hold->lease.key = hold->acquire.key;
    hold->lease.lease_key = hold->acquire.lease_key;
    hold->lease.owner = hold->acquire.terms.owner;
    hold->lease.principal = hold->principal;
    hold->lease.labels = hold->acquire.terms.labels;
    if (hold->lease.slot_count > 0) {
        size_t bytes = (size_t)hold->lease.slot_count * sizeof(*hold->slots);
        hold->slots = memcpy(lh_alloc(bytes), hold->lease.slots, bytes);
        hold->lease.slots = hold->slots;
    }
    note_remaining(hold, lease->remaining_us);
}

/* --- renewing --- */

/* Somebody may have downgraded the lease, here, at another daemon or in SQL. */
static void take_shared(struct hold *hold, const struct lh_shared_terms *shared)
{
    struct lh_held_lease *lease = &hold->lease;

    if (shared->units == 0 || (shared->token == lease->token && shared->units == lease->units))
        return;
    lh_info("hold is downgraded scope=%s/%s token=%lld units=%d", hold->acquire.ns, hold->acquire.key,
            (long long)shared->token, shared->units);
    if (lease->units == 0 && shared->has_slots) {
        hold->slots = lh_alloc((size_t)shared->units * sizeof(*hold->slots));
        for (int32_t i = 0; i < shared->units; i++)
            hold->slots[i] = i + 1;
        lease->slots = hold->slots;
        lease->slot_count = shared->units;
    }
    if (lease->slot_count > shared->units)
        lease->slot_count = shared->units;
    lease->token = shared->token;
    lease->units = shared->units;
}

static void lose(struct hold *hold, enum lh_end_reason reason, const char *message)
{
    lh_info("hold is lost scope=%s token=%lld", LH_SCOPE_NAME(hold->acquire.ns, hold->acquire.key),
            (long long)hold->lease.token);
    lh_hold_tell_lost(hold, reason, message);
    lh_hold_set_state(hold, HOLD_OVER);
    lh_rpc_call_finish(hold->call, LH_GRPC_OK, NULL, NULL, 0);
}

static void renew_again(struct hold *hold, const char *message)
{
    int64_t now_us = lh_clock_us();

    hold->has_proof = true; /* it was not used */
    if (now_us < hold->deadline_us) {
        hold->next_us = now_us + pause_us(hold);
        lh_hold_look_at(hold, hold->next_us);
        return;
    }
    lose(hold, LH_END_UNKNOWN,
         message != NULL ? message
                         : "it could not be renewed before its deadline: the database did not answer in time");
    lh_hold_release(hold, true); /* it is told lost: let the next one have it */
}

static void on_beaten(struct lh_holder_request *request)
{
    struct hold *hold = request->arg;
    const struct lh_holder_item *item = &hold->beat_item.item;

    hold->is_beating = false;
    if (hold->state == HOLD_HELD && item->outcome == LH_OUTCOME_OK) {
        hold->lease.deadline_us = item->deadline_us;
        hold->lease.heartbeat_at_us = item->deadline_us - item->remaining_us;
        hold->lease.heartbeats = item->heartbeats;
        hold->lease.is_final = item->end_reason == LH_END_MAX_HOLD;
        take_shared(hold, &item->shared);
        note_remaining(hold, item->remaining_us);
        lh_hold_tell_renewed(hold);
        lh_hold_look_asked(hold);
    } else if (hold->state == HOLD_HELD && item->outcome == LH_OUTCOME_LOST) {
        lose(hold, item->end_reason, item->message);
    } else if (hold->state == HOLD_HELD) {
        renew_again(hold, item->message);
    }
    lh_hold_leave(hold);
}

static void renew(struct hold *hold)
{
    hold->beat_item = (struct lh_holder_entry){
        .item = {.ns = hold->acquire.ns, .key = hold->acquire.key, .lease_key = hold->acquire.lease_key}};
    hold->beat = (struct lh_holder_request){.items = &hold->beat_item, .count = 1, .on_done = on_beaten, .arg = hold};
    hold->beat_alive = hold->alive_sequence;
    hold->has_proof = false;
    if (lh_route_heartbeat(hold->service, &hold->beat) != LH_OK) {
        renew_again(hold, NULL);
        return;
    }
    hold->is_beating = true;
    hold->users++;
}

/* --- a client that is silent --- */

static bool is_over(const struct hold *hold, const struct lh_held_lease *lease)
{
    return lease->token != hold->lease.token || (lease->liveness == LH_LIVENESS_EXPIRED && !lease->is_manual);
}

static void looked(struct hold *hold, bool is_over)
{
    hold->is_looking = false;
    /* A heartbeat then says how it ended, and makes sure that it stays so. */
    if (is_over && hold->state == HOLD_HELD && !hold->is_beating)
        renew(hold);
    lh_hold_leave(hold);
}

static void on_scope(void *arg, enum lh_status status, const struct lh_error *error,
                     const struct lh_scope_answer *answer)
{
    struct hold *hold = arg;

    looked(hold, status == LH_NOT_HELD || (status == LH_OK && (!answer->is_held || is_over(hold, &answer->lease))));
}

static void on_listed(void *arg, enum lh_status status, const struct lh_error *error,
                      const struct lh_list_answer *answer)
{
    struct hold *hold = arg;

    looked(hold, status == LH_OK && (answer->lease_count == 0 || strcmp(answer->leases->key, hold->acquire.key) != 0 ||
                                     is_over(hold, answer->leases)));
}

static enum lh_status look_up(struct hold *hold)
{
    struct lh_store *store = hold->service->store;
    /* From its token on: of a shared scope it is one of many. */
    struct lh_list_request list = {.ns = hold->acquire.ns,
                                   .page_size = 1,
                                   .after_ns = hold->acquire.ns,
                                   .after_key = hold->acquire.key,
                                   .after_token = hold->lease.token - 1};

    if (hold->lease.units > 0)
        return store->ops->list(store, &list, on_listed, hold);
    return store->ops->get(store, hold->acquire.ns, hold->acquire.key, on_scope, hold);
}

static void ask_whether_it_is_over(struct hold *hold)
{
    if (!hold->is_looking && look_up(hold) == LH_OK) {
        hold->is_looking = true;
        hold->users++;
    }
}

void lh_hold_answered(struct hold *hold)
{
    int64_t now_us = lh_clock_us();

    if (hold->state == HOLD_HELD && !hold->is_beating && now_us >= hold->next_us && lh_hold_has_proof(hold))
        renew(hold);
}

void lh_hold_look(struct hold *hold)
{
    int64_t now_us = lh_clock_us();

    if (hold->state == HOLD_RELEASING && hold->release.arg == NULL) {
        lh_hold_release(hold, hold->release_item.item.is_failure);
        return;
    }
    if (hold->state != HOLD_HELD || hold->is_beating)
        return;
    if (now_us < hold->next_us) {
        lh_hold_look_at(hold, hold->next_us);
        return;
    }
    if (lh_hold_has_proof(hold))
        lh_rpc_call_ask_peer(hold->call);
    if (now_us < hold->deadline_us + hold->lease.grace_us) {
        lh_hold_look_at(hold, hold->deadline_us + hold->lease.grace_us);
    } else {
        ask_whether_it_is_over(hold);
        lh_hold_look_at(hold, now_us + pause_us(hold));
    }
}

/* --- giving it back --- */

/* A verdict that is none: what the client said was no good, or the database was not there. */
static void on_given_back(struct hold *hold)
{
    const struct lh_holder_item *item = &hold->release_item.item;

    if (item->outcome == LH_OUTCOME_OK || item->outcome == LH_OUTCOME_LOST)
        return;
    if (item->outcome == LH_OUTCOME_INVALID && !item->is_failure) {
        free(hold->release_value);
        hold->release_value = lh_strdup("its result was refused by the database");
        lh_hold_release(hold, true);
        return;
    }
    lh_info("lease of an ended stream was not released, it ends by its deadline scope=%s",
            LH_SCOPE_NAME(hold->acquire.ns, hold->acquire.key));
}

static void on_released(struct lh_holder_request *request)
{
    struct hold *hold = request->arg;
    const struct lh_holder_item *item = &hold->release_item.item;

    hold->release.arg = NULL;
    if (hold->state == HOLD_RELEASING && item->outcome == LH_OUTCOME_RETRY && lh_clock_us() < hold->deadline_us &&
        !hold->service->is_draining) {
        lh_hold_look_at(hold, lh_clock_us() + RELEASE_AGAIN_US);
    } else {
        if (hold->state == HOLD_RELEASING) {
            lh_hold_tell_released(hold, item->outcome, item->end_reason, item->message);
            lh_hold_set_state(hold, HOLD_OVER);
            lh_rpc_call_finish(hold->call, LH_GRPC_OK, NULL, NULL, 0);
        }
        on_given_back(hold);
    }
    lh_hold_leave(hold);
}

void lh_hold_release(struct hold *hold, bool is_failure)
{
    hold->release_item = (struct lh_holder_entry){.item = {.ns = hold->acquire.ns,
                                                           .key = hold->acquire.key,
                                                           .lease_key = hold->acquire.lease_key,
                                                           .is_failure = is_failure,
                                                           .value = hold->release_value}};
    if (is_failure && hold->release_value == NULL)
        hold->release_item.item.value = "its holder was told that it is lost";
    hold->release =
        (struct lh_holder_request){.items = &hold->release_item, .count = 1, .on_done = on_released, .arg = hold};
    hold->users++;
    if (lh_route_release(hold->service, &hold->release) != LH_OK) {
        hold->release_item.item.outcome = LH_OUTCOME_RETRY;
        on_released(&hold->release);
    }
}
