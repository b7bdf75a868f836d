/* Holders of a random history: they renew, give back, or die; one at a time for a scope. */
#include "random_history.h"

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
    if (hold->is_beating || hold->is_releasing || hold->dies)
        return;
    if (node == NULL) {
        schedule_holder(hold);
        return;
    }
    if (hold->heartbeats_left-- > 0 && !hold->is_released)
        beat(hold, node);
    else
        give_back(hold, node);
    if (!hold->is_beating && !hold->is_releasing)
        schedule_holder(hold);
}

void schedule_holder(struct hold *hold)
{
    int64_t delay_us = hold->heartbeats_left > 0 ? hold->duration_us / 3 : fake_below(&t.world, 200) * LH_US_PER_MS;
    if (hold->until_us < t.world.now_us)
        return; /* it knows that its time is over */
    fake_at(&t.world, t.world.now_us + delay_us, on_holder_turn, hold, 0);
}

static void check_one_holder(const struct hold *hold)
{
    for (int i = 0; i < t.hold_count; i++) {
        const struct hold *other = &t.holds[i];
        if (other != hold && other->scope == hold->scope && !other->is_released && !other->may_be_lost &&
            other->until_us > t.world.now_us)
            fake_fail("k%d has two holders: %d until %+lld us, and %d", hold->scope, (int)other->lease_key.bytes[0],
                      (long long)(other->until_us - t.world.now_us), (int)hold->lease_key.bytes[0]);
    }
}

/* On one coordinator nobody who came later, with a new lease key, is granted first. */
static void check_order(const struct call *granted)
{
    if (granted->is_repeat || granted->node->cleaned_at_us > t.world.now_us - 20 * LH_US_PER_S)
        return;
    for (int i = 0; i < t.call_count; i++) {
        const struct call *other = &t.calls[i];
        const struct lh_acquire *acquire = &other->acquire;
        if (other->node != granted->node || other->scope != granted->scope || other->answers > 0 ||
            other->is_cancelled || other->is_repeat || other->sent_us >= granted->sent_us ||
            acquire->wait == LH_WAIT_NONE || acquire->own.verdict != LH_OK || acquire->own.is_answering)
            continue;
        fake_fail("call %d overtook call %d on k%d", (int)(granted - t.calls), i, granted->scope);
    }
}

/* Nobody is granted a scope that rests, and each rest is as long as was asked for. */
static void check_rest(const struct call *call, int64_t token)
{
    const struct fake_scope *scope = &t.world.scopes[call->scope];
    int64_t *rests_until_us = &t.rests_until_us[call->scope];
    int64_t at_least_us = at_least_of(&call->acquire.lease_key);

    if (at_least_us == LH_AT_LEAST_POLICY)
        at_least_us = t.world.at_least_us;
    if (scope->token != token)
        return; /* another one has it by now */
    if (scope->acquired_at_us < *rests_until_us)
        fake_fail("k%d was granted %lld us before its rest is over", call->scope,
                  (long long)(*rests_until_us - scope->acquired_at_us));
    *rests_until_us = scope->acquired_at_us + at_least_us;
    if (scope->rests_until_us != *rests_until_us)
        fake_fail("k%d rests for %lld us and not for %lld", call->scope,
                  (long long)(scope->rests_until_us - scope->acquired_at_us), (long long)at_least_us);
}

void hold_lease(const struct call *call, const struct lh_acquire_result *result)
{
    struct hold *hold = find_hold(call->scope, &call->acquire.lease_key);
    int64_t until_us = call->sent_us + result->waited_us + result->lease->remaining_us;
    int64_t *last_token = &t.last_token[call->scope];

    if (result->waited_us < 0 || result->waited_us > t.world.now_us - call->sent_us)
        fake_fail("waited %lld", (long long)result->waited_us);
    if (!lh_uuid_equal(&result->lease->lease_key, &call->acquire.lease_key))
        fake_fail("somebody else's lease");
    const struct fake_scope *scope = &t.world.scopes[call->scope];
    if (scope->is_held && lh_uuid_equal(&scope->lease_key, &call->acquire.lease_key) &&
        until_us > fake_deadline_us(scope))
        fake_fail("call %d believes in k%d for %lld us after its deadline", (int)(call - t.calls), call->scope,
                  (long long)(until_us - fake_deadline_us(scope)));
    if (hold != NULL) {
        /* Its own: it may have been released since, and the reply of who came next been faster. */
        if (result->lease->token != hold->token)
            fake_fail("a renewal of k%d came with another token", call->scope);
        hold->until_us = until_us > hold->until_us ? until_us : hold->until_us;
        return;
    }
    if (t.hold_count == HOLDS_MAX)
        return;
    hold = &t.holds[t.hold_count++];
    *hold = (struct hold){.scope = call->scope,
                          .lease_key = call->acquire.lease_key,
                          .token = result->lease->token,
                          .until_us = until_us,
                          .duration_us = call->acquire.duration_us};
    if (until_us > t.world.now_us)
        check_one_holder(hold);
    check_order(call);
    check_rest(call, result->lease->token);
    if (result->lease->token <= *last_token)
        fake_fail("token %lld of k%d after %lld", (long long)result->lease->token, call->scope, (long long)*last_token);
    *last_token = result->lease->token;
    hold->heartbeats_left = fake_below(&t.world, 3);
    hold->dies = fake_below(&t.world, 6) == 0;
    if (!hold->dies)
        schedule_holder(hold);
}
