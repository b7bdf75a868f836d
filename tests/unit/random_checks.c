/* What is checked at the steps of a random history: nobody is forgotten, neither who waits nor who holds. */
#include "random_history.h"

#define STALL_US (3 * LH_US_PER_S)
#define STRICT_STALL_US (300 * LH_US_PER_MS)
#define SETTLED_US (500 * LH_US_PER_MS)

/* A scope that is free, with a first waiter whose coordinator is well, does not stay so. */
void check_stalls(void)
{
    for (int s = 0; s < SCOPES; s++) {
        struct fake_scope *scope = &t.world.scopes[s];
        const struct fake_row *head = fake_head(&t.world, scope);
        bool is_stalled = head != NULL && fake_is_free(&t.world, scope) && scope->busy_until_us <= t.world.now_us &&
                          t.world.fail_with == LH_OK && fake_node_is_healthy(t.world.nodes[head->node]);
        /* Without a net only a release is told at once; an expiry may have to wait for the reaper. */
        int64_t limit_us = t.is_strict && !scope->is_held ? STRICT_STALL_US : STALL_US;
        if (!is_stalled || scope->is_held != scope->stalled_while_held)
            scope->stalled_since_us = -1;
        else if (scope->stalled_since_us < 0)
            scope->stalled_since_us = t.world.now_us;
        else if (t.world.now_us - scope->stalled_since_us > limit_us)
            fake_fail("k%d is free since %lld us and its first waiter is not granted: key %d ticket %lld of node %d", s,
                      (long long)(t.world.now_us - scope->stalled_since_us), head->lease_key.bytes[0],
                      (long long)head->ticket, head->node);
        scope->stalled_while_held = scope->is_held;
    }
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

static bool is_settled(const struct fake_node *node, const struct fake_scope *scope)
{
    int64_t before_us = t.world.now_us - SETTLED_US;
    /* After errors the core takes its time, up to 10 s between two attempts. */
    return node->well_since_us >= 0 && node->well_since_us < before_us && scope->busy_until_us < before_us &&
           t.world.fail_with == LH_OK && t.quiet_since_us < t.world.now_us - 15 * LH_US_PER_S;
}

/* Whoever waits has a place in the queue, also after an outage that lost it. */
static void check_places(void)
{
    if (t.has_hooks)
        return; /* a hook may keep the lane for whoever comes */
    for (int i = 0; i < t.call_count; i++) {
        const struct call *call = &t.calls[i];
        const struct fake_scope *scope = &t.world.scopes[call->scope];
        if (call->answers > 0 || call->is_lost || call->is_split || call->is_cancelled ||
            call->acquire.wait == LH_WAIT_NONE || call->acquire.own.verdict != LH_OK ||
            call->sent_us > t.world.now_us - SETTLED_US || !is_settled(call->node, scope))
            continue;
        bool is_granted = scope->is_held && lh_uuid_equal(&scope->lease_key, &call->acquire.lease_key);
        if (!is_granted && fake_row(scope, &call->acquire.lease_key) == NULL)
            fake_fail("call %d (key %d) waits for k%d at node %d and has no place there", i,
                      call->acquire.lease_key.bytes[0], call->scope, call->node->index);
    }
}

/* Whoever holds a lease was told so, or will be, or was told to come back. */
static void check_owners(void)
{
    for (int s = 0; s < SCOPES; s++) {
        const struct fake_scope *scope = &t.world.scopes[s];
        if (!scope->is_held || scope->acquired_at_us > t.world.now_us - SETTLED_US ||
            !is_settled(t.world.nodes[scope->granted_by], scope) || find_hold(s, &scope->lease_key) != NULL)
            continue;
        bool has_owner = false;
        for (int i = 0; i < t.call_count && !has_owner; i++) {
            const struct call *call = &t.calls[i];
            if (call->scope == s && lh_uuid_equal(&call->acquire.lease_key, &scope->lease_key))
                has_owner = call->answers == 0 || call->is_lost || may_come_back(call->acquire.own.verdict) ||
                            (t.has_faults && call->acquire.own.verdict == LH_HOOK_REJECTED) ||
                            /* who leaves may wait long for a hook lane whose connection is broken again and again */
                            (t.has_faults && t.has_hooks && call->is_cancelled);
        }
        if (!has_owner)
            fake_fail("k%d is held by key %d, and nobody knows", s, scope->lease_key.bytes[0]);
    }
}

void check_now_and_then(void)
{
    note_health();
    if (fake_below(&t.world, 8) == 0) {
        check_places();
        check_owners();
    }
}
