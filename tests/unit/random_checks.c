/* What is checked at the steps of a random history: nobody is forgotten, neither who waits nor who holds. */
#include "random_history.h"

#define STRICT_STALL_US (300 * LH_US_PER_MS)
#define SETTLED_US (500 * LH_US_PER_MS)

void check_stalls(void)
{
    fake_check_stalls(&t.world, SCOPES, t.is_strict ? STRICT_STALL_US : 0, fake_node_is_healthy);
}

void note_health(void)
{
    for (int i = 0; i < t.world.node_count; i++) {
        struct fake_node *node = t.world.nodes[i];
        if (!fake_node_is_healthy(node) || node->is_leaving)
            node->well_since_us = -1;
        else if (node->well_since_us < 0)
            node->well_since_us = t.world.now_us;
    }
}

/* Which requests for several scopes have a place by now. */
static void note_places(void)
{
    for (int i = 0; i < t.call_count; i++) {
        struct call *call = &t.calls[i];
        if (call->acquire.also_count > 0 && call->placed_us == 0 && call->answers == 0 && !call->is_lost &&
            fake_row(&t.world.scopes[call->scope], &call->acquire.lease_key) != NULL)
            call->placed_us = t.world.now_us;
    }
}

static bool is_settled(const struct fake_node *node, const struct fake_scope *scope)
{
    int64_t before_us = t.world.now_us - SETTLED_US;
    /* After errors the core takes its time, up to 10 s between two attempts. */
    return node->well_since_us >= 0 && node->well_since_us < before_us && scope->busy_until_us < before_us &&
           t.world.fail_with == LH_OK && t.quiet_since_us < t.world.now_us - 15 * LH_US_PER_S;
}

/* Whoever waits has a place in the queue, also after an outage that lost it. */
static void check_place(const struct call *call, int s)
{
    struct fake_scope *scope = &t.world.scopes[s];
    bool is_granted = fake_lease(scope, &call->acquire.lease_key) != NULL;
    bool is_refused = scope->capacity > 0 && call->acquire.units > scope->capacity; /* the answer is on its way */

    if (!is_granted && !is_refused && fake_row(scope, &call->acquire.lease_key) == NULL)
        fake_fail("call %d (key %d) waits for k%d at node %d and has no place there", (int)(call - t.calls),
                  call->acquire.lease_key.bytes[0], s, call->node->index);
}

static bool are_settled(const struct call *call)
{
    for (int i = 0; i < scope_count(call); i++) {
        const struct fake_scope *scope = &t.world.scopes[scope_of(call, i)];
        if (!is_settled(call->node, scope) ||
            (call->acquire.also_count > 0 && scope->capacity > 0 && call->acquire.units > scope->capacity))
            return false;
    }
    return true;
}

static void check_places(void)
{
    if (t.has_hooks)
        return; /* a hook may keep the lane for whoever comes */
    for (int i = 0; i < t.call_count; i++) {
        const struct call *call = &t.calls[i];
        if (call->answers > 0 || call->is_lost || call->is_split || call->is_cancelled ||
            call->acquire.wait == LH_WAIT_NONE || call->acquire.own.verdict != LH_OK ||
            call->sent_us > t.world.now_us - SETTLED_US || !are_settled(call))
            continue;
        for (int k = 0; k < scope_count(call); k++)
            check_place(call, scope_of(call, k));
    }
}

static void check_owner(int s, const struct fake_scope *lease)
{
    bool has_owner = false;

    if (!lease->is_held || lease->has_moved || lease->acquired_at_us > t.world.now_us - SETTLED_US ||
        !is_settled(t.world.nodes[lease->granted_by], &t.world.scopes[s]) || find_hold(s, &lease->lease_key) != NULL)
        return;
    for (int i = 0; i < t.call_count && !has_owner; i++) {
        const struct call *call = &t.calls[i];
        if (is_for(call, s) && lh_uuid_equal(&call->acquire.lease_key, &lease->lease_key))
            has_owner = call->answers == 0 || call->is_lost || may_come_back(call->acquire.own.verdict) ||
                        (t.has_faults && call->acquire.own.verdict == LH_HOOK_REJECTED) ||
                        /* who leaves may wait long for a hook lane whose connection is broken again and again */
                        (t.has_faults && t.has_hooks && call->is_cancelled);
    }
    if (!has_owner)
        fake_fail("k%d is held by key %d, and nobody knows", s, lease->lease_key.bytes[0]);
}

/* Whoever holds a lease was told so, or will be, or was told to come back. */
static void check_owners(void)
{
    for (int s = 0; s < SCOPES; s++) {
        const struct fake_scope *scope = &t.world.scopes[s];
        check_owner(s, scope);
        for (size_t i = 0; i < scope->share_count; i++)
            check_owner(s, &scope->shares[i]);
    }
}

void check_now_and_then(void)
{
    note_health();
    note_places();
    if (fake_below(&t.world, 8) == 0) {
        check_places();
        check_owners();
    }
}
