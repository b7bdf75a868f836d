/* The fake database's watch over its queues: whose turn it is does not wait. */
#include "fake_rules.h"
#include "fake_scope.h"

#define STALL_US (3 * LH_US_PER_S)
#define LATE_US                                                                                                        \
    (25 * LH_US_PER_S) /* a row that its coordinator does not know stays for 10 s, and it looks once in 10 s */

static bool has_expired(const struct fake_world *world, const struct fake_scope *scope)
{
    for (size_t i = 0; i < scope->share_count; i++) {
        if (world->now_us >= fake_deadline_us(&scope->shares[i]) + FAKE_GRACE_US)
            return true;
    }
    return false;
}

/*
 * What the slow poll alone finds. Behind a shared holder one gets the turn when the wait of the row before it has
 * passed, though that waits on with a repeat. One that can never fit is asked for when a lease ends. And the row before
 * it may be of a coordinator that gives no sign of life any more.
 */
static bool is_for_the_poll(const struct fake_world *world, const struct fake_scope *scope, const struct fake_row *head)
{
    if (scope->capacity > 0 && head->units > scope->capacity)
        return true;
    for (const struct fake_row *row = scope->rows; row < head; row++) {
        if (!fake_is_live(world, row->node))
            return true;
        if (row->wait_until_us >= 0 && row->wait_until_us <= world->now_us && scope->share_count > 0)
            return true;
    }
    return false;
}

/* Of several scopes: it stands first in each, and is in the way of nobody but those that are free too. */
static bool could_go(const struct fake_world *world, int scopes, const struct fake_row *row, int64_t strict_us)
{
    for (int s = 0; s < scopes; s++) {
        const struct fake_scope *scope = &world->scopes[s];
        const struct fake_row *head = fake_head(world, scope);
        if ((row->together & (UINT64_C(1) << s)) == 0)
            continue;
        if (head == NULL || head->ticket != row->ticket || !fake_has_room(world, scope, head->units) ||
            scope->rests_until_us > world->now_us || scope->busy_until_us > world->now_us ||
            (strict_us > 0 && is_for_the_poll(world, scope, head)))
            return false;
    }
    return true;
}

/* In this scope, or in another of those that its first waiter is for. */
static bool is_one_held(const struct fake_world *world, int scopes, int s, const struct fake_row *head)
{
    for (int k = 0; k < scopes; k++) {
        const struct fake_scope *scope = &world->scopes[k];
        bool is_meant = k == s || (head != NULL && (head->together & (UINT64_C(1) << k)) != 0);
        if (is_meant && (scope->is_held || has_expired(world, scope)))
            return true;
    }
    return false;
}

/* A scope that is free, or has room, with a first waiter whose coordinator is well, does not stay so. */
void fake_check_stalls(struct fake_world *world, int scopes, int64_t strict_us,
                       bool (*is_well)(const struct fake_node *node))
{
    for (int s = 0; s < scopes; s++) {
        struct fake_scope *scope = &world->scopes[s];
        const struct fake_row *head = fake_head(world, scope);
        bool is_free =
            head != NULL && fake_has_room(world, scope, head->units) && scope->rests_until_us <= world->now_us;
        bool is_stalled = is_free && could_go(world, scopes, head, strict_us) &&
                          !(strict_us > 0 && is_for_the_poll(world, scope, head)) &&
                          scope->busy_until_us <= world->now_us && world->fail_with == LH_OK &&
                          is_well(world->nodes[head->node]);
        /* Without a net only a release is told at once; an expiry may have to wait for the reaper. */
        bool is_held = is_one_held(world, scopes, s, head);
        bool is_late = head != NULL && head->is_late;
        int64_t limit_us = strict_us > 0 && !is_held ? strict_us : is_late ? LATE_US : STALL_US;
        if (!is_stalled || is_held != scope->stalled_while_held || is_late != scope->stalled_while_late)
            scope->stalled_since_us = -1;
        else if (scope->stalled_since_us < 0)
            scope->stalled_since_us = world->now_us;
        else if (world->now_us - scope->stalled_since_us > limit_us)
            fake_fail("k%d is free since %lld us and its first waiter is not granted: key %d ticket %lld of node %d, "
                      "%d units; %zu share it, capacity %d",
                      s, (long long)(world->now_us - scope->stalled_since_us), head->lease_key.bytes[0],
                      (long long)head->ticket, head->node, (int)head->units, scope->share_count, (int)scope->capacity);
        scope->stalled_while_held = is_held;
        scope->stalled_while_late = is_late;
    }
}
