/* What is checked at the steps of a random history: nobody is forgotten, neither who waits nor who holds. */
#include "random_history.h"

#define STALL_US (3 * LH_US_PER_S)
#define STRICT_STALL_US (300 * LH_US_PER_MS)
#define SETTLED_US (500 * LH_US_PER_MS)

static bool has_expired(const struct fake_scope *scope)
{
    for (size_t i = 0; i < scope->share_count; i++) {
        if (t.world.now_us >= fake_deadline_us(&scope->shares[i]) + FAKE_GRACE_US)
            return true;
    }
    return false;
}

/*
 * What the slow poll alone finds. Behind a shared holder one gets the turn when the wait of the row before it has
 * passed, though that waits on with a repeat. And one that can never fit is asked for when a lease ends.
 */
static bool is_for_the_poll(const struct fake_scope *scope, const struct fake_row *head)
{
    if (scope->capacity > 0 && head->units > scope->capacity)
        return true;
    for (const struct fake_row *row = scope->rows; row < head; row++) {
        if (row->wait_until_us >= 0 && row->wait_until_us <= t.world.now_us && scope->share_count > 0)
            return true;
    }
    return false;
}

/* Of several scopes: it stands first in each, and is in the way of nobody but those that are free too. */
static bool could_go(const struct fake_row *row)
{
    for (int s = 0; s < SCOPES; s++) {
        const struct fake_scope *scope = &t.world.scopes[s];
        const struct fake_row *head = fake_head(&t.world, scope);
        if ((row->together & (UINT64_C(1) << s)) == 0)
            continue;
        if (head == NULL || head->ticket != row->ticket || !fake_has_room(&t.world, scope, head->units) ||
            scope->rests_until_us > t.world.now_us || scope->busy_until_us > t.world.now_us ||
            (t.is_strict && is_for_the_poll(scope, head)))
            return false;
    }
    return true;
}

/* In this scope, or in another of those that its first waiter is for. */
static bool is_one_held(int s, const struct fake_row *head)
{
    for (int k = 0; k < SCOPES; k++) {
        const struct fake_scope *scope = &t.world.scopes[k];
        bool is_meant = k == s || (head != NULL && (head->together & (UINT64_C(1) << k)) != 0);
        if (is_meant && (scope->is_held || has_expired(scope)))
            return true;
    }
    return false;
}

/* A scope that is free, or has room, with a first waiter whose coordinator is well, does not stay so. */
void check_stalls(void)
{
    for (int s = 0; s < SCOPES; s++) {
        struct fake_scope *scope = &t.world.scopes[s];
        const struct fake_row *head = fake_head(&t.world, scope);
        bool is_free =
            head != NULL && fake_has_room(&t.world, scope, head->units) && scope->rests_until_us <= t.world.now_us;
        bool is_stalled = is_free && could_go(head) && !(t.is_strict && is_for_the_poll(scope, head)) &&
                          scope->busy_until_us <= t.world.now_us && t.world.fail_with == LH_OK &&
                          fake_node_is_healthy(t.world.nodes[head->node]);
        /* Without a net only a release is told at once; an expiry may have to wait for the reaper. */
        bool is_held = is_one_held(s, head);
        int64_t limit_us = t.is_strict && !is_held ? STRICT_STALL_US : STALL_US;
        if (!is_stalled || is_held != scope->stalled_while_held)
            scope->stalled_since_us = -1;
        else if (scope->stalled_since_us < 0)
            scope->stalled_since_us = t.world.now_us;
        else if (t.world.now_us - scope->stalled_since_us > limit_us)
            fake_fail("k%d is free since %lld us and its first waiter is not granted: key %d ticket %lld of node %d, "
                      "%d units; %zu share it, capacity %d",
                      s, (long long)(t.world.now_us - scope->stalled_since_us), head->lease_key.bytes[0],
                      (long long)head->ticket, head->node, (int)head->units, scope->share_count, (int)scope->capacity);
        scope->stalled_while_held = is_held;
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

    if (!lease->is_held || lease->acquired_at_us > t.world.now_us - SETTLED_US ||
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
