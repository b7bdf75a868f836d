/* Callers of a random history: they acquire, cancel, and come back with the same lease key. */
#include "random_history.h"

int scope_count(const struct call *call)
{
    return 1 + (int)call->acquire.also_count;
}

/* Some lease keys are for several scopes, the same ones in the same order each time, upwards or downwards. */
int scope_of(const struct call *call, int i)
{
    int step = call->acquire.lease_key.bytes[0] % 2 == 0 ? 1 : SCOPES - 1;
    return (call->scope + i * step) % SCOPES;
}

bool is_for(const struct call *call, int scope)
{
    for (int i = 0; i < scope_count(call); i++) {
        if (scope_of(call, i) == scope)
            return true;
    }
    return false;
}

static int also_of(const struct lh_uuid *lease_key)
{
    int dice = lease_key->bytes[0] * 31 % 5;
    return !t.has_together || dice > 1 ? 0 : 1 + dice;
}

void cancel(struct call *call)
{
    call->is_cancelled = true;
    for (int i = 0; i < scope_count(call); i++) {
        struct hold *hold = find_hold(scope_of(call, i), &call->acquire.lease_key);
        if (hold != NULL && t.has_faults)
            hold->may_be_lost = true;
    }
    for (int i = 0; i < t.call_count; i++) {
        /* Its repeats are on their own now; if a reply is lost nobody knows whose the lease is. */
        if (lh_uuid_equal(&t.calls[i].acquire.lease_key, &call->acquire.lease_key))
            t.calls[i].is_repeat = true;
    }
    t.calling++;
    lh_coordinator_cancel(call->node->coordinator, &call->acquire);
    t.calling--;
}

bool may_come_back(enum lh_status status)
{
    return status == LH_BLOCKING_TIMEOUT || status == LH_DATABASE_UNAVAILABLE || status == LH_SHUTTING_DOWN;
}

static void on_acquired(struct lh_acquire *acquire, const struct lh_acquire_result *result)
{
    struct call *call = acquire->arg;
    if (t.calling > 0)
        fake_fail("an acquire was answered inside a call");
    if (++call->answers > 1)
        fake_fail("an acquire was answered twice");
    if (call->is_cancelled && result->status == LH_OK)
        fake_fail("a cancelled acquire was granted");
    t.open--;
    free(call->owner); /* the caller's again */
    call->owner = NULL;
    if (result->message != NULL && strlen(result->message) > 500)
        fake_fail("a message of great length");
    if (result->contention != NULL && result->contention->has_holder && result->contention->holder.owner[0] == 0)
        fake_fail("a holder without a name");
    if (result->status == LH_OK)
        hold_lease(call, result);
    else if (may_come_back(result->status) && fake_below(&t.world, 2) == 0 && any_node() != NULL)
        begin_call(any_node(), call->scope, &call->acquire.lease_key, true);

    struct call *other = any_open_call();
    if (fake_below(&t.world, 8) == 0 && other != NULL && !other->node->is_gone)
        cancel(other);
    if (fake_below(&t.world, 8) == 0 && any_node() != NULL)
        begin_call(any_node(), fake_below(&t.world, SCOPES), NULL, false);
}

/* The same for all with one lease key: it is the first one's that counts. */
int64_t at_least_of(const struct lh_uuid *lease_key)
{
    int dice = lease_key->bytes[0] * 53 % 7;

    if (!t.has_rests)
        return 0;
    return dice == 6 ? LH_AT_LEAST_POLICY : dice * 400 * LH_US_PER_MS;
}

int32_t units_of(const struct lh_uuid *lease_key)
{
    int dice = lease_key->bytes[0] * 29 % 8;

    if (!t.has_modes || dice < 2)
        return 0;
    return dice < 6 ? 1 : dice - 4;
}

void begin_call(struct fake_node *node, int scope, const struct lh_uuid *lease_key, bool is_repeat)
{
    if (t.call_count == CALLS_MAX || t.is_healing)
        return;
    struct call *call = &t.calls[t.call_count];
    *call = (struct call){.node = node, .scope = scope, .sent_us = t.world.now_us, .is_repeat = is_repeat};
    call->owner = lh_strdup("worker");
    call->acquire = (struct lh_acquire){
        .ns = t.world.scopes[scope].ns,
        .key = t.world.scopes[scope].key,
        .terms.owner = call->owner,
        .terms.labels = "{}",
        .wait = (enum lh_wait)fake_below(&t.world, 4),
        .wait_us = fake_below(&t.world, 4) == 0 ? fake_below(&t.world, 5) * LH_US_PER_MS
                                                : fake_below(&t.world, 3000) * LH_US_PER_MS,
        .on_done = on_acquired,
        .arg = call,
    };
    if (lease_key != NULL) {
        call->acquire.lease_key = *lease_key;
    } else {
        t.next_key++;
        memcpy(call->acquire.lease_key.bytes, &t.next_key, sizeof(t.next_key));
    }
    /* The same for all with one lease key: a repeat takes the new duration, and would shorten what others believe. */
    call->acquire.terms.duration_us = (500 + call->acquire.lease_key.bytes[0] * 37 % 1500) * LH_US_PER_MS;
    call->acquire.units = units_of(&call->acquire.lease_key);
    call->acquire.at_least_us = call->acquire.units > 0 ? LH_AT_LEAST_POLICY : at_least_of(&call->acquire.lease_key);
    call->acquire.also = call->also;
    call->acquire.also_count = (size_t)also_of(&call->acquire.lease_key);
    for (int i = 1; i < scope_count(call); i++) {
        const struct fake_scope *also = &t.world.scopes[scope_of(call, i)];
        call->also[i - 1] =
            (struct lh_wanted_scope){also->ns, also->key, call->acquire.units, call->acquire.at_least_us};
    }
    if (call->acquire.also_count > 0 && call->acquire.wait == LH_WAIT_WHILE_ALIVE)
        call->acquire.wait = LH_WAIT_UNTIL_GRANTED;
    for (int i = 0; i < t.call_count && lease_key != NULL; i++) {
        if (lh_uuid_equal(&t.calls[i].acquire.lease_key, lease_key) && t.calls[i].node != node)
            t.calls[i].is_split = call->is_split = true;
    }
    t.calling++;
    enum lh_status status = lh_coordinator_acquire(node->coordinator, &call->acquire);
    t.calling--;
    if (status == LH_OK) {
        t.call_count++;
        t.open++;
    } else {
        free(call->owner);
    }
}
