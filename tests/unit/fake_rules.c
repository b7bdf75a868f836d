#include "fake_rules.h"

#include <stdio.h>

#include "base/log.h"
#include "fake_all.h"
#include "fake_reaps.h"
#include "fake_scope.h"

/* What stands in the way of a grant has expired. */
static void take_over(struct fake_world *world, struct fake_scope *scope)
{
    if (scope->is_held)
        fake_end_lease(world, scope, LH_END_EXPIRED);
    for (size_t i = scope->share_count; i-- > 0;) {
        if (fake_is_expired(world, &scope->shares[i]))
            fake_end(world, scope, &scope->shares[i], LH_END_EXPIRED);
    }
}

/* The lease of the item: the scope itself, or its share. */
struct fake_scope *fake_grant(struct fake_node *node, struct fake_scope *scope, const struct lh_acquire_item *item)
{
    struct fake_world *world = node->world;
    struct fake_scope share = {.ns = scope->ns, .units = item->units};
    struct fake_scope *lease = item->units == 0 ? scope : &share;

    take_over(world, scope);
    fake_remove_row(scope, &item->lease_key);
    snprintf(share.key, sizeof(share.key), "%s", scope->key);
    lease->granted_by = node->index;
    lease->has_moved = false;
    lease->is_held = true;
    lease->is_manual = scope->is_manual;
    lease->lease_key = item->lease_key;
    lease->token = ++world->next_token;
    snprintf(lease->owner, sizeof(lease->owner), "%s", item->terms.owner);
    snprintf(lease->principal, sizeof(lease->principal), "%s", item->terms.principal);
    lease->duration_us = item->terms.duration_us;
    lease->acquired_at_us = world->now_us;
    lease->heartbeat_at_us = world->now_us;
    lease->heartbeats = 0;
    lh_debug("database: lease of %s granted by node %d: key %d token %lld units %d", scope->key, node->index,
             lease->lease_key.bytes[0], (long long)lease->token, (int)item->units);
    if (item->units > 0)
        return fake_add_share(scope, lease);
    scope->rests_until_us =
        world->now_us + (item->at_least_us == LH_AT_LEAST_POLICY ? world->at_least_us : item->at_least_us);
    return scope;
}

/* Behind a grant that leaves room the next one is told, where it is another coordinator's. */
static void wake_next(struct fake_node *node, const struct fake_scope *scope)
{
    fake_wake_head(node->world, node->index, scope);
}

void fake_enqueue(struct fake_node *node, struct fake_scope *scope, const struct lh_acquire_item *item,
                  uint64_t together)
{
    struct fake_world *world = node->world;
    struct fake_row *row = fake_find_row(scope, &item->lease_key);
    int64_t until_us = item->wait_us == LH_NEVER ? -1 : world->now_us + item->wait_us;
    bool is_over = row != NULL && row->wait_until_us >= 0 && row->wait_until_us <= world->now_us;
    if (is_over)
        fake_remove_row(scope, &item->lease_key);
    if (row == NULL || is_over) {
        fake_insert_row(world, scope,
                        (struct fake_row){.lease_key = item->lease_key,
                                          .units = item->units,
                                          .ticket = is_over ? 0 : item->ticket,
                                          .node = node->index,
                                          .wait_until_us = until_us,
                                          .together = together});
        return;
    }
    row->node = node->index;
    row->away_until_us = 0;
    row->wait_until_us = until_us;
    row->is_late = world->is_late;
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

static void set_invalid(struct lh_acquire_item *item)
{
    item->outcome = LH_ACQUIRE_INVALID;
    item->field = "units";
}

/* What is known of the scope's holders. */
void fake_tell_holders(struct fake_world *world, struct fake_scope *scope, struct lh_acquire_item *item,
                       struct lh_arena *strings)
{
    const struct fake_scope *own = fake_lease(scope, &item->lease_key);
    const struct fake_scope *shown = own != NULL ? own : fake_oldest(scope);
    bool is_one_silent = false;

    item->expires_in_us = LH_NEVER;
    item->suspected_in_us = 0;
    item->holder_count = fake_holder_count(scope);
    item->units_free = fake_units_free(world, scope);
    if (shown == NULL)
        return;
    item->has_lease = true;
    fake_fill_lease(world, shown, strings, &item->lease);
    item->suspected_in_us = LH_NEVER;
    for (int i = 0; i < item->holder_count; i++) {
        const struct fake_scope *lease = scope->is_held ? scope : &scope->shares[i];
        int64_t expires_in_us = fake_deadline_us(lease) + FAKE_GRACE_US - world->now_us;
        int64_t suspected_in_us = lease->duration_us / 3 * 2 - (world->now_us - lease->heartbeat_at_us);
        if (!lease->is_manual && expires_in_us < item->expires_in_us)
            item->expires_in_us = expires_in_us;
        is_one_silent |= suspected_in_us <= 0;
        if (suspected_in_us < item->suspected_in_us)
            item->suspected_in_us = suspected_in_us;
    }
    if (is_one_silent)
        item->suspected_in_us = 0;
}

static void acquire(struct fake_node *node, struct fake_scope *scope, struct lh_acquire_item *item,
                    const struct fake_batch *batch, struct lh_arena *strings)
{
    struct fake_world *world = node->world;
    bool is_left = world->is_hooked && !batch->is_on_hook_lane;
    struct fake_scope *own = fake_lease(scope, &item->lease_key);
    const struct fake_row *own_row = fake_find_row(scope, &item->lease_key);

    scope->acquires++;
    scope->tried++;
    item->has_lease = false;
    item->holder_count = 0;
    item->units_free = LH_UNITS_UNBOUNDED;
    item->message = item->field = item->bound = NULL;
    if (scope->is_frozen) {
        item->outcome = LH_ACQUIRE_FROZEN;
        item->message = lh_arena_strdup(strings, "maintenance");
        return;
    }
    if (scope->is_elsewhere) {
        item->outcome = LH_ACQUIRE_ELSEWHERE;
        item->bound = lh_arena_strdup(strings, "k0 of a is in another database");
        return;
    }
    if (own != NULL && fake_is_expired(world, own)) {
        fake_end(world, scope, own, LH_END_EXPIRED);
        own = NULL;
    }
    if (fake_end_reason(scope, &item->lease_key) != LH_END_UNSPECIFIED) {
        item->outcome = LH_ACQUIRE_ENDED;
        return;
    }
    if ((own != NULL && own->units != item->units) ||
        (own_row != NULL && (own_row->units != item->units || own_row->together != 0))) {
        set_invalid(item); /* another mode: nothing changes */
        return;
    }
    if (own == NULL && scope->capacity > 0 && item->units > scope->capacity) {
        fake_remove_row(scope, &item->lease_key);
        wake_next(node, scope);
        set_invalid(item);
        return;
    }
    if (is_left && scope->is_left_to_hooks) {
        set_hooked(world, scope, item);
        return;
    }
    if (own != NULL && is_left) {
        set_hooked(world, scope, item);
        return;
    }
    if (own != NULL && world->is_hooked && fake_is_vetoed(world, scope->key, strings, &item->message)) {
        item->outcome = LH_ACQUIRE_REJECTED;
        return;
    }
    if (own != NULL) {
        own->heartbeat_at_us = world->now_us;
        own->duration_us = item->terms.duration_us;
        own->has_moved |= own->granted_by != node->index;
        own->granted_by = node->index;
        own->heartbeats++;
        item->outcome = LH_ACQUIRE_RENEWED;
    } else {
        const struct fake_row *head = fake_head(world, scope);
        /* Who asks is alive, whatever its row says. */
        bool is_first = head == NULL || (own_row != NULL && own_row->ticket <= head->ticket);
        bool is_next = fake_has_room(world, scope, item->units) && fake_rests_in_us(world, scope) == 0 && is_first;
        if (is_next && is_left) {
            set_hooked(world, scope, item);
            return;
        }
        if (is_next && world->is_hooked && fake_is_vetoed(world, scope->key, strings, &item->message)) {
            reject(node, scope, item);
            return;
        }
        if (item->queue)
            fake_enqueue(node, scope, item, 0);
        if (is_next) {
            fake_grant(node, scope, item);
            wake_next(node, scope);
            item->outcome = LH_ACQUIRE_GRANTED;
        } else {
            item->outcome = item->queue ? LH_ACQUIRE_QUEUED : LH_ACQUIRE_HELD;
        }
    }
    const struct fake_row *row = fake_find_row(scope, &item->lease_key);
    item->new_ticket = row == NULL ? 0 : row->ticket;
    item->waiters_ahead = row == NULL ? (int32_t)scope->row_count : (int32_t)(row - scope->rows);
    item->rests_in_us = fake_rests_in_us(world, scope);
    fake_tell_holders(world, scope, item, strings);
}

/* Is this lease held and not over, and does its hook agree? If not, the item has its answer. */
static bool may_go_on(struct fake_world *world, const struct fake_scope *scope, const struct fake_scope *own,
                      bool has_hook, struct lh_holder_item *item, struct fake_batch *batch)
{
    bool is_there = own != NULL && !fake_is_expired(world, own);

    item->message = NULL;
    item->wake = item->is_hooked = false;
    item->end_reason = LH_END_UNSPECIFIED;
    if (is_there && has_hook) {
        item->is_hooked = !batch->is_on_hook_lane;
        item->hook_timeout_us = world->hook_timeout_us;
        item->outcome = LH_OUTCOME_REJECTED;
        if (item->is_hooked || fake_is_vetoed(world, scope->key, &batch->strings, &item->message))
            return false;
    }
    item->outcome = LH_OUTCOME_OK;
    if (is_there)
        return true;
    item->outcome = LH_OUTCOME_LOST;
    item->end_reason = own != NULL ? LH_END_EXPIRED : fake_end_reason(scope, &item->lease_key);
    if (item->end_reason == LH_END_UNSPECIFIED)
        item->end_reason = LH_END_UNKNOWN;
    return false;
}

static void heartbeat(struct fake_world *world, struct fake_scope *scope, struct lh_holder_item *item,
                      struct fake_batch *batch)
{
    struct fake_scope *own = fake_lease(scope, &item->lease_key);

    if (!may_go_on(world, scope, own, world->is_hooked, item, batch))
        return;
    own->heartbeat_at_us = world->now_us;
    item->remaining_us = own->duration_us;
    item->heartbeats = ++own->heartbeats;
    item->deadline_us = fake_deadline_us(own) + world->clock_offset_us;
}

static void release(struct fake_node *node, struct fake_scope *scope, struct lh_holder_item *item,
                    struct fake_batch *batch)
{
    struct fake_world *world = node->world;
    struct fake_scope *own = fake_lease(scope, &item->lease_key);

    if (own != NULL && item->is_unheard && own->heartbeats > 0)
        own = NULL; /* its holder has asked again, and knows that it has it */
    if (!may_go_on(world, scope, own, world->is_hooked && !world->is_release_plain, item, batch))
        return;
    fake_end(world, scope, own, item->is_failure ? LH_END_FAILED : LH_END_RELEASED);
    item->wake = fake_wake_head(world, node->index, scope);
}

static void downgrade(struct fake_node *node, struct fake_scope *scope, struct lh_holder_item *item,
                      struct fake_batch *batch)
{
    struct fake_world *world = node->world;
    struct fake_scope *own = fake_lease(scope, &item->lease_key);
    struct lh_downgrade *asked = item->downgrade;

    if (!may_go_on(world, scope, own, world->is_hooked, item, batch))
        return;
    if (own != scope ? asked->units > own->units : scope->capacity > 0 && asked->units > scope->capacity) {
        item->outcome = LH_OUTCOME_INVALID;
        asked->field = "units";
        return;
    }
    own->heartbeat_at_us = world->now_us;
    if (own == scope) {
        struct fake_scope share = *scope;
        share.units = asked->units;
        share.token = ++world->next_token;
        share.shares = NULL;
        share.share_count = 0;
        share.claimed_until_us = 0;
        scope->is_held = false;
        own = fake_add_share(scope, &share);
    } else {
        own->units = asked->units;
        own->slot_count = own->slot_count < own->units ? own->slot_count : own->units;
    }
    fake_fill_lease(world, own, &batch->strings, &asked->lease);
    item->wake = fake_wake_head(world, node->index, scope);
}

static void leave(struct fake_node *node, struct fake_scope *scope, struct lh_leave_item *item,
                  const struct fake_batch *batch, struct lh_arena *strings)
{
    struct fake_world *world = node->world;
    struct fake_scope *own = fake_lease(scope, &item->lease_key);
    const struct fake_scope *shown;
    if (own != NULL && (own->granted_by != node->index || own->has_moved))
        own = NULL; /* its caller has asked elsewhere, too */
    item->is_busy = own != NULL && item->unheard_since_us > world->now_us + world->clock_offset_us;
    if (item->is_busy)
        return; /* the clock has stepped back, and the coordinator does not know it yet */
    if (own != NULL && item->kind == LH_LEAVE_GONE &&
        own->acquired_at_us + world->clock_offset_us < item->unheard_since_us)
        own = NULL; /* an earlier request's */
    struct fake_row *row = fake_find_row(scope, &item->lease_key);
    if (row != NULL && row->node != node->index)
        row = NULL; /* it waits elsewhere by now */

    item->was_granted = item->has_lease = item->wake = item->is_hooked = false;
    if (world->is_hooked && !batch->is_on_hook_lane && own != NULL && item->kind == LH_LEAVE_GONE) {
        item->is_hooked = true;
        item->hook_timeout_us = world->hook_timeout_us;
        return;
    }
    item->waiters_ahead = row == NULL ? 0 : (int32_t)(row - scope->rows);
    if (item->kind == LH_LEAVE_GONE) {
        if (row != NULL)
            fake_remove_row(scope, &item->lease_key);
        if (own != NULL)
            fake_end(world, scope, own, fake_is_expired(world, own) ? LH_END_EXPIRED : LH_END_RELEASED);
        own = NULL;
    } else if (own != NULL && !fake_is_expired(world, own)) {
        item->was_granted = true;
    } else if (row != NULL) {
        row->away_until_us = world->now_us + 10 * LH_US_PER_S;
    }
    item->rests_in_us = fake_rests_in_us(world, scope);
    item->holder_count = fake_holder_count(scope);
    item->units_free = fake_units_free(world, scope);
    shown = own != NULL ? own : fake_oldest(scope);
    if (shown != NULL) {
        item->has_lease = true;
        fake_fill_lease(world, shown, strings, &item->lease);
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
    if (batch->kind == 6) {
        fake_acquire_all(node, batch);
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
        case 5:
            ((struct lh_holder_item *)batch->items[i])->is_busy = is_busy;
            ((struct lh_holder_item *)batch->items[i])->is_hooked = false;
            if (!is_busy)
                downgrade(node, scope, batch->items[i], batch);
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
        case 6:
            ((struct lh_acquire_item *)batch->items[i])->outcome = (enum lh_acquire_outcome)99;
            ((struct lh_acquire_item *)batch->items[i])->new_ticket = -99;
            break;
        case 1:
        case 2:
        case 5:
            ((struct lh_holder_item *)batch->items[i])->outcome = LH_OUTCOME_LOST;
            ((struct lh_holder_item *)batch->items[i])->message = (const char *)16;
            break;
        default:
            ((struct lh_leave_item *)batch->items[i])->was_granted = true;
            break;
        }
    }
}
