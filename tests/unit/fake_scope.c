#include "fake_scope.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fake_rules.h"

bool fake_is_live(const struct fake_world *world, int index)
{
    const struct fake_node *node = world->nodes[index];
    return node->is_registered && world->now_us - node->seen_at_us < FAKE_LIVE_US;
}

static bool is_live(const struct fake_world *world, const struct fake_row *row)
{
    return fake_is_live(world, row->node) && row->away_until_us == 0 &&
           (row->wait_until_us < 0 || row->wait_until_us > world->now_us);
}

struct fake_scope *fake_scope(struct fake_world *world, const char *ns, const char *key)
{
    for (int i = 0; i < FAKE_SCOPES; i++) {
        if (strcmp(world->scopes[i].key, key) == 0 && strcmp(world->scopes[i].ns, ns) == 0)
            return &world->scopes[i];
    }
    fake_fail("unknown scope %s/%s", ns, key);
}

int64_t fake_deadline_us(const struct fake_scope *scope)
{
    return scope->heartbeat_at_us + scope->duration_us;
}

bool fake_is_expired(const struct fake_world *world, const struct fake_scope *scope)
{
    return scope->is_held && !scope->is_manual && world->now_us >= fake_deadline_us(scope) + FAKE_GRACE_US;
}

bool fake_is_ended(const struct fake_world *world, const struct fake_scope *scope)
{
    for (size_t i = 0; i < scope->share_count; i++) {
        if (!fake_is_expired(world, &scope->shares[i]))
            return false;
    }
    return !scope->is_held || fake_is_expired(world, scope);
}

/* Of holders that have not expired. */
static int32_t taken(const struct fake_world *world, const struct fake_scope *scope)
{
    int32_t units = 0;
    for (size_t i = 0; i < scope->share_count; i++)
        units += fake_is_expired(world, &scope->shares[i]) ? 0 : scope->shares[i].units;
    return units;
}

bool fake_has_room(const struct fake_world *world, const struct fake_scope *scope, int32_t units)
{
    if (units == 0)
        return fake_is_ended(world, scope);
    if (scope->is_held && !fake_is_expired(world, scope))
        return false;
    return scope->capacity == 0 || units > scope->capacity || taken(world, scope) + units <= scope->capacity;
}

int32_t fake_units_free(const struct fake_world *world, const struct fake_scope *scope)
{
    int32_t units = scope->capacity - taken(world, scope);
    if (scope->capacity == 0)
        return LH_UNITS_UNBOUNDED;
    return units < 0 || scope->is_held ? 0 : units;
}

int32_t fake_holder_count(const struct fake_scope *scope)
{
    return scope->is_held ? 1 : (int32_t)scope->share_count;
}

const struct fake_scope *fake_oldest(const struct fake_scope *scope)
{
    if (scope->is_held)
        return scope;
    return scope->share_count > 0 ? &scope->shares[0] : NULL;
}

struct fake_scope *fake_lease(struct fake_scope *scope, const struct lh_uuid *lease_key)
{
    if (scope->is_held && lh_uuid_equal(&scope->lease_key, lease_key))
        return scope;
    for (size_t i = 0; i < scope->share_count; i++) {
        if (lh_uuid_equal(&scope->shares[i].lease_key, lease_key))
            return &scope->shares[i];
    }
    return NULL;
}

static bool is_slot_taken(const struct fake_scope *scope, int32_t slot)
{
    for (size_t i = 0; i < scope->share_count; i++) {
        for (int32_t k = 0; k < scope->shares[i].slot_count; k++) {
            if (scope->shares[i].slots[k] == slot)
                return true;
        }
    }
    return false;
}

struct fake_scope *fake_add_share(struct fake_scope *scope, const struct fake_scope *share)
{
    scope->shares = lh_realloc(scope->shares, scope->share_count + 1, sizeof(*scope->shares));
    struct fake_scope *added = &scope->shares[scope->share_count];
    *added = *share;
    added->slot_count = 0;
    for (int32_t slot = 1; scope->capacity > 0 && added->slot_count < added->units; slot++) {
        if (!is_slot_taken(scope, slot))
            added->slots[added->slot_count++] = slot;
    }
    scope->share_count++;
    return added;
}

void fake_set_capacity(struct fake_world *world, struct fake_scope *scope, int32_t capacity)
{
    scope->capacity = capacity;
    fake_wake_head(world, -1, scope);
}

int64_t fake_rests_in_us(const struct fake_world *world, const struct fake_scope *scope)
{
    return scope->rests_until_us > world->now_us ? scope->rests_until_us - world->now_us : 0;
}

bool fake_is_free(const struct fake_world *world, const struct fake_scope *scope)
{
    return fake_is_ended(world, scope) && fake_rests_in_us(world, scope) == 0;
}

const struct fake_row *fake_head(const struct fake_world *world, const struct fake_scope *scope)
{
    for (size_t i = 0; i < scope->row_count; i++) {
        if (is_live(world, &scope->rows[i]))
            return &scope->rows[i];
    }
    return NULL;
}

struct fake_row *fake_find_row(struct fake_scope *scope, const struct lh_uuid *lease_key)
{
    return (struct fake_row *)(uintptr_t)fake_row(scope, lease_key);
}

const struct fake_row *fake_row(const struct fake_scope *scope, const struct lh_uuid *lease_key)
{
    for (size_t i = 0; i < scope->row_count; i++) {
        if (lh_uuid_equal(&scope->rows[i].lease_key, lease_key))
            return &scope->rows[i];
    }
    return NULL;
}

void fake_rows_lose(struct fake_world *world, int percent)
{
    /* The end of the log is what a failover loses: whoever came last. */
    for (int s = 0; s < FAKE_SCOPES; s++) {
        struct fake_scope *scope = &world->scopes[s];
        scope->row_count -= (scope->row_count * (size_t)percent + 99) / 100;
    }
}

void fake_remove_row(struct fake_scope *scope, const struct lh_uuid *lease_key)
{
    struct fake_row *row = fake_find_row(scope, lease_key);
    if (row == NULL)
        return;
    size_t after = scope->row_count - (size_t)(row - scope->rows) - 1;
    memmove(row, row + 1, after * sizeof(*row));
    scope->row_count--;
}

struct fake_row *fake_insert_row(struct fake_world *world, struct fake_scope *scope, struct fake_row new_row)
{
    if (new_row.ticket == 0)
        new_row.ticket = ++world->next_ticket;
    new_row.enqueued_at_us = world->now_us;
    new_row.is_late = world->is_late;
    scope->rows = lh_realloc(scope->rows, scope->row_count + 1, sizeof(scope->rows[0]));
    size_t place = scope->row_count;
    while (place > 0 && scope->rows[place - 1].ticket > new_row.ticket)
        place--;
    memmove(scope->rows + place + 1, scope->rows + place, (scope->row_count - place) * sizeof(new_row));
    scope->rows[place] = new_row;
    scope->row_count++;
    return &scope->rows[place];
}

void fake_row_add(struct fake_world *world, int scope, struct lh_uuid lease_key, int node)
{
    fake_insert_row(world, &world->scopes[scope],
                    (struct fake_row){.lease_key = lease_key, .node = node, .wait_until_us = -1});
}

enum lh_end_reason fake_end_reason(const struct fake_scope *scope, const struct lh_uuid *lease_key)
{
    for (size_t i = 0; i < scope->end_count; i++) {
        if (lh_uuid_equal(&scope->ends[i].lease_key, lease_key))
            return scope->ends[i].reason;
    }
    return LH_END_UNSPECIFIED;
}

void fake_end(struct fake_world *world, struct fake_scope *scope, struct fake_scope *lease, enum lh_end_reason reason)
{
    scope->ends = lh_realloc(scope->ends, scope->end_count + 1, sizeof(scope->ends[0]));
    scope->ends[scope->end_count++] = (struct fake_end){lease->lease_key, reason};
    lh_debug("database: lease of %s ended: key %d reason %d", scope->key, lease->lease_key.bytes[0], (int)reason);
    if (lease == scope) {
        scope->is_held = false;
        scope->reap_failures = 0;
        scope->claimed_until_us = 0;
        return;
    }
    memmove(lease, lease + 1, (size_t)(scope->shares + --scope->share_count - lease) * sizeof(*lease));
}

void fake_end_lease(struct fake_world *world, struct fake_scope *scope, enum lh_end_reason reason)
{
    fake_end(world, scope, scope, reason);
}

bool fake_wake_head(struct fake_world *world, int node, const struct fake_scope *scope)
{
    const struct fake_row *head = fake_head(world, scope);
    if (head == NULL || !fake_has_room(world, scope, head->units))
        return false;
    if (head->node == node)
        return true;
    fake_notify(world, head->node, scope);
    return false;
}

void fake_fill_lease(const struct fake_world *world, const struct fake_scope *scope, struct lh_arena *strings,
                     struct lh_held_lease *lease)
{
    int64_t silent_us = world->now_us - scope->heartbeat_at_us;
    *lease = (struct lh_held_lease){
        .ns = lh_arena_strdup(strings, scope->ns),
        .key = lh_arena_strdup(strings, scope->key),
        .lease_key = scope->lease_key,
        .token = scope->token,
        .owner = lh_arena_strdup(strings, scope->owner),
        .principal = lh_arena_strdup(strings, scope->principal),
        .labels = lh_arena_strdup(strings, "{}"),
        .duration_us = scope->duration_us,
        .grace_us = FAKE_GRACE_US,
        .remaining_us = fake_deadline_us(scope) - world->now_us,
        .deadline_us = fake_deadline_us(scope) + world->clock_offset_us,
        .acquired_at_us = scope->acquired_at_us + world->clock_offset_us,
        .heartbeat_at_us = scope->heartbeat_at_us + world->clock_offset_us,
        .held_us = world->now_us - scope->acquired_at_us,
        .silent_us = silent_us,
        .heartbeats = scope->heartbeats,
        .liveness = fake_is_expired(world, scope)             ? LH_LIVENESS_EXPIRED
                    : silent_us >= scope->duration_us / 3 * 2 ? LH_LIVENESS_SUSPECTED_DEAD
                                                              : LH_LIVENESS_ALIVE,
        .is_manual = scope->is_manual,
        .units = scope->units,
        .slot_count = scope->slot_count,
    };
    if (scope->slot_count > 0) {
        int32_t *slots = lh_arena_alloc(strings, sizeof(scope->slots));
        lease->slots = memcpy(slots, scope->slots, sizeof(scope->slots));
    }
}
