/*
 * Holders of a random history: they renew, give back, make an exclusive lease shared, or die; one at a time for a scope,
 * or shared ones that fit together.
 */
#include "random_history.h"

static void note_token(int scope, int64_t token, int32_t units);
static void take_slots(struct hold *hold, const struct lh_held_lease *lease);

static void on_heartbeat_done(struct lh_holder_request *request)
{
    struct hold *hold = request->arg;
    const struct lh_holder_item *item = &request->items[0].item;
    if (t.calling > 0)
        fake_fail("a heartbeat was answered inside a call");
    if (!hold->is_beating)
        fake_fail("a heartbeat was answered twice");
    hold->is_beating = false;
    t.open--;
    if (item->outcome == LH_OUTCOME_OK) {
        int64_t until_us = hold->heartbeat_sent_us + item->remaining_us;
        hold->until_us = until_us > hold->until_us ? until_us : hold->until_us;
    } else if (item->outcome == LH_OUTCOME_LOST && hold->until_us > t.world.now_us && !hold->is_released &&
               !hold->may_be_lost) {
        fake_fail("a live holder of k%d lost its lease: end reason %d", hold->scope, item->end_reason);
    }
    schedule_holder(hold);
}

static void beat(struct hold *hold, struct fake_node *node)
{
    hold->heartbeat_item = (struct lh_holder_entry){.item = {.ns = t.world.scopes[hold->scope].ns,
                                                             .key = t.world.scopes[hold->scope].key,
                                                             .lease_key = hold->lease_key}};
    hold->heartbeat = (struct lh_holder_request){
        .items = &hold->heartbeat_item, .count = 1, .on_done = on_heartbeat_done, .arg = hold};
    hold->heartbeat_sent_us = t.world.now_us;
    hold->node = node;
    t.calling++;
    enum lh_status status = lh_coordinator_heartbeat(node->coordinator, &hold->heartbeat);
    t.calling--;
    hold->is_beating = status == LH_OK;
    t.open += status == LH_OK;
}

static void on_release_done(struct lh_holder_request *request)
{
    struct hold *hold = request->arg;
    const struct lh_holder_item *item = &request->items[0].item;
    if (t.calling > 0)
        fake_fail("a release was answered inside a call");
    if (!hold->is_releasing)
        fake_fail("a release was answered twice");
    hold->is_releasing = false;
    t.open--;
    if (item->outcome == LH_OUTCOME_LOST && hold->until_us > t.world.now_us && !hold->may_be_lost)
        fake_fail("a live holder of k%d could not release: end reason %d", hold->scope, item->end_reason);
    if (item->outcome == LH_OUTCOME_REJECTED && !t.has_hooks)
        fake_fail("a release was refused by nobody");
    if (item->outcome == LH_OUTCOME_RETRY)
        schedule_holder(hold);
}

/* From when it is sent others may be let in, whatever becomes of the reply. */
static void on_downgrade_done(struct lh_holder_request *request)
{
    struct hold *hold = request->arg;
    const struct lh_holder_item *item = &request->items[0].item;
    if (t.calling > 0)
        fake_fail("a downgrade was answered inside a call");
    if (!hold->is_downgrading)
        fake_fail("a downgrade was answered twice");
    hold->is_downgrading = false;
    t.open--;
    if (item->outcome == LH_OUTCOME_OK) {
        const struct lh_held_lease *lease = &hold->downgrade.lease;
        if (lease->units != hold->units || lease->token <= hold->token)
            fake_fail("k%d was downgraded to %d units and the token %lld", hold->scope, (int)lease->units,
                      (long long)lease->token);
        note_token(hold->scope, lease->token, lease->units);
        hold->token = lease->token;
        take_slots(hold, lease);
    } else if (item->outcome == LH_OUTCOME_LOST && hold->until_us > t.world.now_us && !hold->may_be_lost) {
        fake_fail("a live holder of k%d could not downgrade: end reason %d", hold->scope, item->end_reason);
    }
    /* RETRY and REJECTED: it is not known, or not done. It goes on as a shared holder would, and repeats nothing. */
    schedule_holder(hold);
}

static void make_shared(struct hold *hold, struct fake_node *node)
{
    hold->units = 1 + fake_below(&t.world, 2);
    if (t.world.scopes[hold->scope].capacity > 0)
        hold->units = 1;
    hold->downgrade = (struct lh_downgrade){.units = hold->units, .principal = ""};
    hold->smaller_item = (struct lh_holder_entry){.item = {.ns = t.world.scopes[hold->scope].ns,
                                                           .key = t.world.scopes[hold->scope].key,
                                                           .lease_key = hold->lease_key,
                                                           .downgrade = &hold->downgrade}};
    hold->smaller =
        (struct lh_holder_request){.items = &hold->smaller_item, .count = 1, .on_done = on_downgrade_done, .arg = hold};
    hold->node = node;
    hold->was_exclusive = true;
    t.calling++;
    enum lh_status status = lh_coordinator_downgrade(node->coordinator, &hold->smaller);
    t.calling--;
    hold->is_downgrading = status == LH_OK;
    t.open += status == LH_OK;
}

static void give_back(struct hold *hold, struct fake_node *node)
{
    hold->release_item = (struct lh_holder_entry){.item = {.ns = t.world.scopes[hold->scope].ns,
                                                           .key = t.world.scopes[hold->scope].key,
                                                           .lease_key = hold->lease_key,
                                                           .is_failure = fake_below(&t.world, 4) == 0,
                                                           .value = NULL}};
    hold->release =
        (struct lh_holder_request){.items = &hold->release_item, .count = 1, .on_done = on_release_done, .arg = hold};
    hold->node = node;
    /* The outcome of an earlier attempt that ended as RETRY is unknown, so a repeat may be LOST. */
    hold->may_be_lost = hold->may_be_lost || hold->is_released;
    hold->is_released = true;
    t.calling++;
    enum lh_status status = lh_coordinator_release(node->coordinator, &hold->release);
    t.calling--;
    hold->is_releasing = status == LH_OK;
    t.open += status == LH_OK;
}

static void on_holder_turn(struct fake_world *world, void *arg, uint64_t n)
{
    struct hold *hold = arg;
    struct fake_node *node = any_node();
    if (hold->is_beating || hold->is_releasing || hold->is_downgrading || hold->dies)
        return;
    if (node == NULL) {
        schedule_holder(hold);
        return;
    }
    if (hold->heartbeats_left-- > 0 && !hold->is_released) {
        if (t.has_modes && hold->units == 0 && fake_below(&t.world, 2) == 0)
            make_shared(hold, node);
        else
            beat(hold, node);
    } else {
        give_back(hold, node);
    }
    if (!hold->is_beating && !hold->is_releasing && !hold->is_downgrading)
        schedule_holder(hold);
}

void schedule_holder(struct hold *hold)
{
    int64_t delay_us = hold->heartbeats_left > 0 ? hold->duration_us / 3 : fake_below(&t.world, 200) * LH_US_PER_MS;
    if (hold->until_us < t.world.now_us)
        return; /* it knows that its time is over */
    fake_at(&t.world, t.world.now_us + delay_us, on_holder_turn, hold, 0);
}

static bool is_believed(const struct hold *hold)
{
    return !hold->is_released && !hold->may_be_lost && hold->until_us > t.world.now_us;
}

static void check_slots(const struct hold *hold, const struct hold *other)
{
    for (int32_t i = 0; i < hold->slot_count; i++) {
        for (int32_t k = 0; k < other->slot_count; k++) {
            if (hold->slots[i] == other->slots[k])
                fake_fail("slot %d of k%d has two holders", (int)hold->slots[i], hold->scope);
        }
    }
}

/* One exclusive holder, or shared ones that fit. */
static void check_one_holder(const struct hold *hold)
{
    int32_t units = hold->units;
    for (int i = 0; i < t.hold_count; i++) {
        const struct hold *other = &t.holds[i];
        if (other == hold || other->scope != hold->scope || !is_believed(other))
            continue;
        if (hold->units == 0 || other->units == 0)
            fake_fail("k%d has two holders: %d until %+lld us, and %d", hold->scope, (int)other->lease_key.bytes[0],
                      (long long)(other->until_us - t.world.now_us), (int)hold->lease_key.bytes[0]);
        check_slots(hold, other);
        units += other->units;
    }
    if (t.capacity[hold->scope] > 0 && units > t.capacity[hold->scope])
        fake_fail("%d units of k%d are held, of %d", (int)units, hold->scope, (int)t.capacity[hold->scope]);
}

/* As a resource does that fences: replies of shared grants may cross. */
static void note_token(int scope, int64_t token, int32_t units)
{
    if (token <= t.last_exclusive_token[scope] || (units == 0 && token <= t.last_token[scope]))
        fake_fail("token %lld of k%d after %lld", (long long)token, scope, (long long)t.last_token[scope]);
    if (units == 0)
        t.last_exclusive_token[scope] = token;
    if (token > t.last_token[scope])
        t.last_token[scope] = token;
}

static void take_slots(struct hold *hold, const struct lh_held_lease *lease)
{
    hold->slot_count = lease->slot_count;
    for (int32_t i = 0; i < lease->slot_count; i++) {
        hold->slots[i] = lease->slots[i];
        if (lease->slots[i] < 1 || (i > 0 && lease->slots[i] <= lease->slots[i - 1]))
            fake_fail("slot %d of k%d", (int)lease->slots[i], hold->scope);
    }
    if (lease->slot_count != 0 && lease->slot_count != lease->units)
        fake_fail("%d slots for %d units of k%d", (int)lease->slot_count, (int)lease->units, hold->scope);
}

/*
 * On one coordinator nobody who came later, with a new lease key, is granted first. A request for several scopes may be
 * passed by before it has its place, or when that was lost: another of its scopes may be busy.
 */
static void check_order(const struct call *granted, int scope)
{
    if (granted->is_repeat || granted->node->cleaned_at_us > t.world.now_us - 20 * LH_US_PER_S)
        return;
    for (int i = 0; i < t.call_count; i++) {
        const struct call *other = &t.calls[i];
        const struct lh_acquire *acquire = &other->acquire;
        if (other->node != granted->node || !is_for(other, scope) || other->answers > 0 || other->is_cancelled ||
            other->is_repeat || other->sent_us >= granted->sent_us || acquire->wait == LH_WAIT_NONE ||
            acquire->own.verdict != LH_OK || acquire->own.is_answering)
            continue;
        bool has_place = other->placed_us > t.rows_lost_us && other->placed_us < granted->sent_us &&
                         fake_row(&t.world.scopes[scope], &acquire->lease_key) != NULL;
        if (acquire->also_count > 0 && !has_place)
            continue;
        fake_fail("call %d overtook call %d on k%d", (int)(granted - t.calls), i, scope);
    }
}

/* Nobody is granted a scope that rests, and each rest is as long as was asked for. */
static void check_rest(const struct call *call, int s, int64_t token)
{
    const struct fake_scope *scope = &t.world.scopes[s];
    int64_t *rests_until_us = &t.rests_until_us[s];
    int64_t at_least_us = at_least_of(&call->acquire.lease_key);

    if (at_least_us == LH_AT_LEAST_POLICY)
        at_least_us = t.world.at_least_us;
    if (call->acquire.units > 0 || scope->token != token)
        return; /* another one has it by now */
    if (scope->acquired_at_us < *rests_until_us)
        fake_fail("k%d was granted %lld us before its rest is over", s,
                  (long long)(*rests_until_us - scope->acquired_at_us));
    *rests_until_us = scope->acquired_at_us + at_least_us;
    if (scope->rests_until_us != *rests_until_us)
        fake_fail("k%d rests for %lld us and not for %lld", s,
                  (long long)(scope->rests_until_us - scope->acquired_at_us), (long long)at_least_us);
}

static void hold_one(const struct call *call, int s, const struct lh_acquire_result *result,
                     const struct lh_held_lease *granted)
{
    struct hold *hold = find_hold(s, &call->acquire.lease_key);
    int64_t until_us = call->sent_us + result->waited_us + granted->remaining_us;

    if (result->waited_us < 0 || result->waited_us > t.world.now_us - call->sent_us)
        fake_fail("waited %lld", (long long)result->waited_us);
    if (!lh_uuid_equal(&granted->lease_key, &call->acquire.lease_key))
        fake_fail("somebody else's lease");
    struct fake_scope *scope = &t.world.scopes[s];
    const struct fake_scope *lease = fake_lease(scope, &call->acquire.lease_key);
    if (lease != NULL && until_us > fake_deadline_us(lease))
        fake_fail("call %d believes in k%d for %lld us after its deadline", (int)(call - t.calls), s,
                  (long long)(until_us - fake_deadline_us(lease)));
    if (granted->units != call->acquire.units)
        fake_fail("call %d asked for %d units of k%d and got %d", (int)(call - t.calls), (int)call->acquire.units, s,
                  (int)granted->units);
    if (hold != NULL) {
        /* Its own: it may have been released since, and the reply of who came next been faster. */
        if (granted->token != hold->token && !hold->was_exclusive)
            fake_fail("a renewal of k%d came with another token", s);
        hold->until_us = until_us > hold->until_us ? until_us : hold->until_us;
        return;
    }
    if (t.hold_count == HOLDS_MAX)
        return;
    hold = &t.holds[t.hold_count++];
    *hold = (struct hold){.scope = s,
                          .lease_key = call->acquire.lease_key,
                          .token = granted->token,
                          .units = granted->units,
                          .until_us = until_us,
                          .duration_us = call->acquire.terms.duration_us};
    take_slots(hold, granted);
    if (until_us > t.world.now_us)
        check_one_holder(hold);
    check_order(call, s);
    check_rest(call, s, granted->token);
    note_token(s, granted->token, granted->units);
    hold->heartbeats_left = fake_below(&t.world, 3);
    hold->dies = fake_below(&t.world, 6) == 0;
    if (!hold->dies)
        schedule_holder(hold);
}

void hold_lease(const struct call *call, const struct lh_acquire_result *result)
{
    if (call->acquire.also_count == 0) {
        hold_one(call, call->scope, result, result->lease);
        return;
    }
    for (int i = 0; i < scope_count(call); i++) {
        const struct lh_held_lease *lease = &result->all[i].lease;
        if (strcmp(lease->key, t.world.scopes[scope_of(call, i)].key) != 0)
            fake_fail("call %d got %s in place of k%d", (int)(call - t.calls), lease->key, scope_of(call, i));
        hold_one(call, scope_of(call, i), result, lease);
    }
}
