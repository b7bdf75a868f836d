#include "fake_rules.h"

#include <stdio.h>

#include "base/log.h"
#include "fake_reaps.h"
#include "fake_scope.h"

static void grant(struct fake_node *node, struct fake_scope *scope, const struct lh_acquire_item *item)
{
    struct fake_world *world = node->world;
    if (scope->is_held)
        fake_end_lease(world, scope, LH_END_EXPIRED);
    scope->granted_by = node->index;
    fake_remove_row(scope, &item->lease_key);
    scope->is_held = true;
    scope->lease_key = item->lease_key;
    scope->token = ++world->next_token;
    snprintf(scope->owner, sizeof(scope->owner), "%s", item->owner);
    snprintf(scope->principal, sizeof(scope->principal), "%s", item->principal);
    scope->duration_us = item->duration_us;
    scope->acquired_at_us = world->now_us;
    scope->rests_until_us =
        world->now_us + (item->at_least_us == LH_AT_LEAST_POLICY ? world->at_least_us : item->at_least_us);
    scope->heartbeat_at_us = world->now_us;
    scope->heartbeats = 0;
    lh_debug("database: lease of %s granted by node %d: key %d token %lld", scope->key, node->index,
             scope->lease_key.bytes[0], (long long)scope->token);
}

static void enqueue(struct fake_node *node, struct fake_scope *scope, const struct lh_acquire_item *item)
{
    struct fake_world *world = node->world;
    struct fake_row *row = fake_find_row(scope, &item->lease_key);
    int64_t until_us = item->wait_us == LH_NEVER ? -1 : world->now_us + item->wait_us;
    if (row == NULL) {
        fake_insert_row(world, scope, (struct fake_row){item->lease_key, item->ticket, node->index, 0, until_us});
        return;
    }
    row->node = node->index;
    row->away_until_us = 0;
    if (row->wait_until_us < 0 || (until_us >= 0 && until_us < row->wait_until_us))
        row->wait_until_us = until_us; /* a repeat never lengthens a wait */
}

/* Nothing is done, and so nothing is done for who came later in this batch. */
static void set_hooked(struct fake_world *world, struct fake_scope *scope, struct lh_acquire_item *item)
{
    item->outcome = LH_ACQUIRE_HOOKED;
    item->hook_timeout_us = world->hook_timeout_us;
    scope->is_left_to_hooks = true;
}

/* Its place goes to the next one. */
static void reject(struct fake_node *node, struct fake_scope *scope, struct lh_acquire_item *item)
{
    item->outcome = LH_ACQUIRE_REJECTED;
    fake_remove_row(scope, &item->lease_key);
    item->waiters_ahead = fake_wake_head(node->world, node->index, scope) ? -1 : 0;
}

static void acquire(struct fake_node *node, struct fake_scope *scope, struct lh_acquire_item *item,
                    const struct fake_batch *batch, struct lh_arena *strings)
{
    struct fake_world *world = node->world;
    bool is_left = world->is_hooked && !batch->is_on_hook_lane;
    bool is_own = scope->is_held && lh_uuid_equal(&scope->lease_key, &item->lease_key);

    scope->acquires++;
    scope->tried++;
    item->has_lease = false;
    item->message = item->field = item->bound = NULL;
    if (scope->is_frozen) {
        item->outcome = LH_ACQUIRE_FROZEN;
        item->message = lh_arena_strdup(strings, "maintenance");
        return;
    }
    if (is_own && fake_is_expired(world, scope)) {
        fake_end_lease(world, scope, LH_END_EXPIRED);
        is_own = false;
    }
    if (fake_end_reason(scope, &item->lease_key) != LH_END_UNSPECIFIED) {
        item->outcome = LH_ACQUIRE_ENDED;
        return;
    }
    if (is_left && scope->is_left_to_hooks) {
        set_hooked(world, scope, item);
        return;
    }
    if (is_own && is_left) {
        set_hooked(world, scope, item);
        return;
    }
    if (is_own && world->is_hooked && fake_is_vetoed(world, scope->key, strings, &item->message)) {
        item->outcome = LH_ACQUIRE_REJECTED;
        return;
    }
    if (is_own) {
        scope->heartbeat_at_us = world->now_us;
        scope->duration_us = item->duration_us;
        scope->granted_by = node->index;
        item->outcome = LH_ACQUIRE_RENEWED;
    } else {
        const struct fake_row *head = fake_head(world, scope);
        const struct fake_row *own = fake_find_row(scope, &item->lease_key);
        /* Who asks is alive, whatever its row says. */
        bool is_first = head == NULL || (own != NULL && own->ticket <= head->ticket);
        bool is_next = fake_is_free(world, scope) && is_first;
        if (is_next && is_left) {
            set_hooked(world, scope, item);
            return;
        }
        if (is_next && world->is_hooked && fake_is_vetoed(world, scope->key, strings, &item->message)) {
            reject(node, scope, item);
            return;
        }
        if (item->queue)
            enqueue(node, scope, item);
        if (is_next) {
            grant(node, scope, item);
            item->outcome = LH_ACQUIRE_GRANTED;
        } else {
            item->outcome = item->queue ? LH_ACQUIRE_QUEUED : LH_ACQUIRE_HELD;
        }
    }
    const struct fake_row *row = fake_find_row(scope, &item->lease_key);
    item->new_ticket = row == NULL ? 0 : row->ticket;
    item->waiters_ahead = row == NULL ? (int32_t)scope->row_count : (int32_t)(row - scope->rows);
    item->rests_in_us = fake_rests_in_us(world, scope);
    item->expires_in_us = LH_NEVER;
    item->suspected_in_us = 0;
    if (!scope->is_held)
        return;
    item->has_lease = true;
    fake_fill_lease(world, scope, strings, &item->lease);
    if (!scope->is_manual)
        item->expires_in_us = fake_deadline_us(scope) + FAKE_GRACE_US - world->now_us;
    int64_t suspected_in_us = scope->duration_us / 3 * 2 - item->lease.silent_us;
    item->suspected_in_us = suspected_in_us > 0 ? suspected_in_us : 0;
}

static void heartbeat(struct fake_world *world, struct fake_scope *scope, struct lh_holder_item *item,
                      struct fake_batch *batch)
{
    item->message = NULL;
    item->is_hooked = false;
    item->end_reason = LH_END_UNSPECIFIED;
    bool is_own = scope->is_held && lh_uuid_equal(&scope->lease_key, &item->lease_key);
    if (is_own && !fake_is_expired(world, scope) && world->is_hooked) {
        item->is_hooked = !batch->is_on_hook_lane;
        item->hook_timeout_us = world->hook_timeout_us;
        item->outcome = LH_OUTCOME_REJECTED;
        if (item->is_hooked || fake_is_vetoed(world, scope->key, &batch->strings, &item->message))
            return;
    }
    if (is_own && !fake_is_expired(world, scope)) {
        scope->heartbeat_at_us = world->now_us;
        item->outcome = LH_OUTCOME_OK;
        item->remaining_us = scope->duration_us;
        item->heartbeats = ++scope->heartbeats;
        item->deadline_us = fake_deadline_us(scope) + world->clock_offset_us;
        return;
    }
    item->outcome = LH_OUTCOME_LOST;
    item->end_reason = is_own ? LH_END_EXPIRED : fake_end_reason(scope, &item->lease_key);
    if (item->end_reason == LH_END_UNSPECIFIED)
        item->end_reason = LH_END_UNKNOWN;
}

static void release(struct fake_node *node, struct fake_scope *scope, struct lh_holder_item *item,
                    struct fake_batch *batch)
{
    struct fake_world *world = node->world;
    bool is_own = scope->is_held && lh_uuid_equal(&scope->lease_key, &item->lease_key);
    item->message = NULL;
    item->end_reason = LH_END_UNSPECIFIED;
    item->wake = item->is_hooked = false;
    if (is_own && !fake_is_expired(world, scope) && world->is_hooked && !world->is_release_plain) {
        item->is_hooked = !batch->is_on_hook_lane;
        item->hook_timeout_us = world->hook_timeout_us;
        item->outcome = LH_OUTCOME_REJECTED;
        if (item->is_hooked || fake_is_vetoed(world, scope->key, &batch->strings, &item->message))
            return;
    }
    if (is_own && !fake_is_expired(node->world, scope)) {
        fake_end_lease(node->world, scope, item->is_failure ? LH_END_FAILED : LH_END_RELEASED);
        item->outcome = LH_OUTCOME_OK;
        item->wake = fake_wake_head(node->world, node->index, scope);
        return;
    }
    item->outcome = LH_OUTCOME_LOST;
    item->end_reason = is_own ? LH_END_EXPIRED : fake_end_reason(scope, &item->lease_key);
    if (item->end_reason == LH_END_UNSPECIFIED)
        item->end_reason = LH_END_UNKNOWN;
}

static void leave(struct fake_node *node, struct fake_scope *scope, struct lh_leave_item *item,
                  const struct fake_batch *batch, struct lh_arena *strings)
{
    struct fake_world *world = node->world;
    bool is_own = scope->is_held && lh_uuid_equal(&scope->lease_key, &item->lease_key) &&
                  scope->granted_by == node->index; /* else it came back elsewhere */
    struct fake_row *row = fake_find_row(scope, &item->lease_key);
    if (row != NULL && row->node != node->index)
        row = NULL; /* it waits elsewhere by now */

    item->was_granted = item->has_lease = item->wake = item->is_hooked = false;
    if (world->is_hooked && !batch->is_on_hook_lane && is_own && item->mode == LH_LEAVE_GONE) {
        item->is_hooked = true;
        item->hook_timeout_us = world->hook_timeout_us;
        return;
    }
    item->waiters_ahead = row == NULL ? 0 : (int32_t)(row - scope->rows);
    if (item->mode == LH_LEAVE_GONE) {
        if (row != NULL)
            fake_remove_row(scope, &item->lease_key);
        if (is_own)
            fake_end_lease(world, scope, fake_is_expired(world, scope) ? LH_END_EXPIRED : LH_END_RELEASED);
    } else if (is_own && !fake_is_expired(world, scope)) {
        item->was_granted = true;
    } else if (row != NULL) {
        row->away_until_us = world->now_us + 10 * LH_US_PER_S;
    }
    item->rests_in_us = fake_rests_in_us(world, scope);
    if (scope->is_held) {
        item->has_lease = true;
        fake_fill_lease(world, scope, strings, &item->lease);
    }
    item->wake = fake_wake_head(world, node->index, scope);
}

static void execute_items(struct fake_node *node, struct fake_batch *batch)
{
    struct fake_world *world = node->world;
    if (batch->kind == 4) {
        fake_execute_run(node, batch);
        return;
    }
    for (int s = 0; s < FAKE_SCOPES; s++)
        world->scopes[s].is_left_to_hooks = false;
    for (size_t i = 0; i < batch->n; i++) {
        struct lh_holder_item *names = batch->items[i];
        struct fake_scope *scope = fake_scope(world, names->ns, names->key);
        bool is_busy = scope->busy_until_us > world->now_us;
        switch (batch->kind) {
        case 0:
            if (is_busy) {
                scope->tried++;
                ((struct lh_acquire_item *)batch->items[i])->outcome = LH_ACQUIRE_BUSY;
            } else {
                acquire(node, scope, batch->items[i], batch, &batch->strings);
            }
            break;
        case 1:
            ((struct lh_holder_item *)batch->items[i])->is_busy = is_busy;
            ((struct lh_holder_item *)batch->items[i])->is_hooked = false;
            if (!is_busy)
                heartbeat(world, scope, batch->items[i], batch);
            break;
        case 2:
            ((struct lh_holder_item *)batch->items[i])->is_busy = is_busy;
            ((struct lh_holder_item *)batch->items[i])->is_hooked = false;
            if (!is_busy)
                release(node, scope, batch->items[i], batch);
            break;
        default:
            ((struct lh_leave_item *)batch->items[i])->is_busy = is_busy;
            ((struct lh_leave_item *)batch->items[i])->is_hooked = false;
            if (!is_busy)
                leave(node, scope, batch->items[i], batch, &batch->strings);
            break;
        }
    }
}

static struct fake_batch behind(const struct fake_batch *batch)
{
    return (struct fake_batch){.kind = 0,
                               .items = batch->riders,
                               .n = batch->rider_count,
                               .clock_us = batch->clock_us,
                               .strings = batch->strings};
}

void fake_execute(struct fake_node *node, struct fake_batch *batch)
{
    execute_items(node, batch);
    if (batch->rider_count == 0)
        return;
    struct fake_batch riders = behind(batch);
    execute_items(node, &riders);
    batch->strings = riders.strings;
}

void fake_scribble(struct fake_world *world, struct fake_batch *batch)
{
    if (batch->kind == 4) {
        fake_scribble_run(world, batch);
        return;
    }
    if (batch->rider_count > 0) {
        struct fake_batch riders = behind(batch);
        fake_scribble(world, &riders);
    }
    for (size_t i = 0; i < batch->n; i++) {
        switch (batch->kind) {
        case 0:
            ((struct lh_acquire_item *)batch->items[i])->outcome = (enum lh_acquire_outcome)99;
            ((struct lh_acquire_item *)batch->items[i])->new_ticket = -99;
            break;
        case 1:
            ((struct lh_holder_item *)batch->items[i])->outcome = LH_OUTCOME_LOST;
            ((struct lh_holder_item *)batch->items[i])->message = (const char *)16;
            break;
        case 2:
            ((struct lh_holder_item *)batch->items[i])->outcome = LH_OUTCOME_LOST;
            ((struct lh_holder_item *)batch->items[i])->message = (const char *)16;
            break;
        default:
            ((struct lh_leave_item *)batch->items[i])->was_granted = true;
            break;
        }
    }
}
