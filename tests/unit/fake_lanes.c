/* A batch's way: sent, executed when it has reached the database, answered when the reply has come back. */
#include "fake_lanes.h"

#include <stdlib.h>
#include <string.h>

#include "fake_rules.h"

void fake_lanes_init(struct fake_node *node)
{
    for (int i = 0; i < FAKE_ALL_LANES; i++)
        node->lanes[i].batch.kind = -1;
}

void fake_lanes_finish(struct fake_node *node)
{
    for (int i = 0; i < FAKE_ALL_LANES; i++)
        lh_arena_finish(&node->lanes[i].batch.strings);
}

bool fake_lanes_are_idle(const struct fake_node *node)
{
    for (int i = 0; i < FAKE_ALL_LANES; i++) {
        if (node->lanes[i].batch.kind >= 0)
            return false;
    }
    return true;
}

/* --- on its way --- */

static void answer_batch(struct fake_node *node, struct fake_lane *lane, enum lh_status status)
{
    struct fake_batch *batch = &lane->batch;
    struct lh_error error;
    lh_error_set(&error, status == LH_OK ? LH_INTERNAL : status, "the database says no");
    batch->kind = -1;
    batch->serial++;
    batch->on_done(batch->arg, status, status == LH_OK ? NULL : &error);
    lh_arena_finish(&batch->strings); /* whoever kept a string is found out */
    fake_stop_when_idle(node);
}

static void on_mended(struct fake_world *world, void *arg, uint64_t n)
{
    fake_lane_raise(arg, (unsigned)n);
}

static void on_reply(struct fake_world *world, void *arg, uint64_t n)
{
    struct fake_node *node = arg;
    struct fake_lane *lane = &node->lanes[n % FAKE_ALL_LANES];
    if (node->is_gone || lane->batch.serial != n / FAKE_ALL_LANES || lane->batch.kind < 0)
        return;
    if (lane->is_broken) {
        lane->is_broken = false;
        fake_lane_drop(node, (unsigned)(n % FAKE_ALL_LANES), false);
        fake_at(world, world->now_us + 50 * LH_US_PER_MS, on_mended, node, n % FAKE_ALL_LANES);
        return;
    }
    answer_batch(node, lane, lane->batch.status);
}

static void scope_of(const void *item, const char **ns, const char **key)
{
    /* All of them begin with the names. */
    const struct lh_holder_item *names = item;
    *ns = names->ns;
    *key = names->key;
}

static bool is_reply_lost(struct fake_world *world, const struct fake_batch *batch)
{
    return world->reply_loss_percent > 0 && !batch->is_on_hook_lane &&
           fake_below(world, 100) < world->reply_loss_percent;
}

/* Acquires of a connection that was given up: the session at the database goes on with them. */
struct late {
    struct fake_node *node;
    struct fake_batch batch; /* its items are copies */
};

static struct lh_acquire_item *copy_item(const struct lh_acquire_item *item, struct lh_arena *strings)
{
    struct lh_acquire_item *copy = lh_arena_alloc(strings, sizeof(*copy));

    *copy = *item;
    copy->ns = lh_arena_strdup(strings, item->ns);
    copy->key = lh_arena_strdup(strings, item->key);
    copy->terms.owner = lh_arena_strdup(strings, item->terms.owner);
    copy->terms.principal = lh_arena_strdup(strings, item->terms.principal);
    copy->terms.labels = lh_arena_strdup(strings, item->terms.labels);
    return copy;
}

static void on_late(struct fake_world *world, void *arg, uint64_t n)
{
    struct late *late = arg;

    world->is_late = true;
    fake_execute(late->node, &late->batch);
    world->is_late = false;
    lh_arena_finish(&late->batch.strings);
    free(late);
}

static void execute_later(struct fake_node *node, const struct fake_batch *batch)
{
    struct fake_world *world = node->world;
    struct late *late = lh_alloc_zero(1, sizeof(*late));

    late->node = node;
    late->batch = (struct fake_batch){.kind = batch->kind, .n = batch->n};
    late->batch.items = lh_arena_alloc(&late->batch.strings, batch->n * sizeof(batch->items[0]));
    for (size_t i = 0; i < batch->n; i++)
        late->batch.items[i] = copy_item(batch->items[i], &late->batch.strings);
    fake_at(world, world->now_us + (1 + fake_below(world, 5000)) * LH_US_PER_MS, on_late, late, 0);
}

static bool is_for_later(struct fake_world *world, const struct fake_batch *batch)
{
    return world->late_commit_percent > 0 && world->fail_with == LH_OK && !batch->is_on_hook_lane &&
           (batch->kind == 0 || batch->kind == 6) && fake_below(world, 100) < world->late_commit_percent;
}

static void on_execute(struct fake_world *world, void *arg, uint64_t n)
{
    struct fake_node *node = arg;
    struct fake_lane *lane = &node->lanes[n % FAKE_ALL_LANES];
    if (node->is_gone || lane->batch.serial != n / FAKE_ALL_LANES || lane->batch.kind < 0)
        return;
    lane->is_broken = lane->batch.is_on_hook_lane && fake_below(world, 100) < world->hook_break_percent;
    if (is_for_later(world, &lane->batch)) {
        execute_later(node, &lane->batch);
        lane->is_broken = true;
    }
    if (world->fail_with == LH_OK && (!lane->is_broken || lane->batch.kind == 4))
        fake_execute(node, &lane->batch);
    lane->batch.is_executed = true;
    lane->is_broken |= is_reply_lost(world, &lane->batch);
    lane->batch.status = world->fail_with;
    int64_t hook_us = 0;
    const char *ns, *key;
    scope_of(lane->batch.items[0], &ns, &key);
    bool is_slow = world->slow_ns == NULL || strcmp(ns, world->slow_ns) == 0;
    if (lane->batch.is_on_hook_lane && world->hook_us > 0 && is_slow)
        hook_us = (int64_t)(fake_random(world) % (uint64_t)world->hook_us);
    fake_at(world, world->now_us + fake_delay_us(world) + hook_us, on_reply, node, n);
}

/* The core's rule: a scope is in one batch at a time. */
static void check_alone(const struct fake_node *node, const struct fake_batch *batch)
{
    for (int l = 0; l < FAKE_ALL_LANES && batch->kind != 4; l++) {
        const struct fake_batch *other = &node->lanes[l].batch;
        if (other == batch || other->kind < 0 || other->kind == 4)
            continue;
        for (size_t i = 0; i < batch->n; i++) {
            for (size_t k = 0; k < other->n; k++) {
                const char *ns, *key, *other_ns, *other_key;
                scope_of(batch->items[i], &ns, &key);
                scope_of(other->items[k], &other_ns, &other_key);
                if (strcmp(ns, other_ns) == 0 && strcmp(key, other_key) == 0)
                    fake_fail("scope %s/%s is in two batches at once", ns, key);
            }
        }
    }
}

static enum lh_status send_batch(struct lh_store *store, unsigned index, int kind, void *items, size_t n,
                                 lh_store_cb *on_done, void *arg)
{
    struct fake_node *node = (struct fake_node *)store;
    struct fake_world *world = node->world;
    struct fake_lane *lane = &node->lanes[index];

    if (!lane->is_up || world->refuse_batches)
        return LH_DATABASE_UNAVAILABLE;
    if (lane->batch.kind >= 0 || node->is_stopping)
        fake_fail("lane %u got a batch out of turn", index);
    if (n == 0 || n > LH_BATCH_MAX)
        fake_fail("a batch of %zu", n);
    struct fake_batch *batch = &lane->batch;
    batch->is_on_hook_lane = index >= FAKE_LANES;
    if (batch->is_on_hook_lane && n != 1 && kind != 4 && kind != 6)
        fake_fail("%zu items at once on a hook lane", n);
    if (kind == 4 && (n > LH_REAP_PIPELINE_MAX || !batch->is_on_hook_lane))
        fake_fail("a run of %zu reaps on lane %u", n, index);
    if (kind == 4 && n > world->largest_run)
        world->largest_run = n;
    world->hook_batches[kind] += batch->is_on_hook_lane;
    batch->kind = kind;
    batch->items = items;
    batch->n = n;
    batch->rider_count = 0;
    batch->is_executed = false;
    batch->on_done = on_done;
    batch->arg = arg;
    check_alone(node, batch);
    if (n > world->largest_batch)
        world->largest_batch = n;
    world->batches[kind]++;
    fake_at(world, world->now_us + fake_delay_us(world), on_execute, node, batch->serial * FAKE_ALL_LANES + index);
    return LH_OK;
}

static bool is_released(struct lh_holder_item *const *items, size_t n, const struct lh_acquire_item *rider)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(items[i]->ns, rider->ns) == 0 && strcmp(items[i]->key, rider->key) == 0)
            return true;
    }
    return false;
}

/* Of a scope that is released an exclusive request rides alone, with newcomers behind it; only shared ones may follow each other. */
static void check_riders(struct lh_holder_item *const *items, size_t item_count, struct lh_acquire_item *const *riders,
                         size_t n)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i && is_released(items, item_count, riders[i]); k++) {
            bool is_same = strcmp(riders[i]->ns, riders[k]->ns) == 0 && strcmp(riders[i]->key, riders[k]->key) == 0;
            if (riders[i]->ticket == 0)
                continue;
            if (is_same && (riders[i]->units == 0 || riders[k]->units == 0))
                fake_fail("two riders for %s/%s, and one of them exclusive", riders[i]->ns, riders[i]->key);
            if (is_same && riders[i]->ticket <= riders[k]->ticket)
                fake_fail("riders for %s/%s out of order", riders[i]->ns, riders[i]->key);
        }
    }
}

/* All of one lease key, and no scope twice. */
static void check_together(struct lh_acquire_item *const *items, size_t n)
{
    if (n < 2 || n > LH_ALL_ITEMS_MAX)
        fake_fail("%zu scopes at once", n);
    for (size_t i = 0; i < n; i++) {
        if (!lh_uuid_equal(&items[i]->lease_key, &items[0]->lease_key) || items[i]->queue != items[0]->queue ||
            items[i]->ticket != items[0]->ticket || items[i]->terms.duration_us != items[0]->terms.duration_us)
            fake_fail("items of several requests for several scopes");
        for (size_t k = 0; k < i; k++) {
            if (strcmp(items[i]->key, items[k]->key) == 0 && strcmp(items[i]->ns, items[k]->ns) == 0)
                fake_fail("scope %s/%s twice", items[i]->ns, items[i]->key);
        }
    }
}

enum lh_status fake_lane_send(struct lh_store *store, unsigned lane, enum lh_kind kind, int64_t clock_us, void **items,
                              size_t n, lh_store_cb *on_done, void *arg)
{
    static const int numbers[LH_KIND_COUNT] = {
        [LH_KIND_ACQUIRE] = 0, [LH_KIND_HEARTBEAT] = 1, [LH_KIND_RELEASE] = 2,     [LH_KIND_LEAVE] = 3,
        [LH_KIND_REAP] = 4,    [LH_KIND_DOWNGRADE] = 5, [LH_KIND_ACQUIRE_ALL] = 6,
    };
    struct fake_node *node = (struct fake_node *)store;

    if (kind == LH_KIND_ACQUIRE_ALL)
        check_together((struct lh_acquire_item **)items, n);
    if (kind == LH_KIND_ACQUIRE || kind == LH_KIND_ACQUIRE_ALL)
        node->lanes[lane].batch.clock_us = node->last_clock_us = clock_us;
    return send_batch(store, lane, numbers[kind], items, n, on_done, arg);
}

size_t fake_lane_worth_a_batch(struct lh_store *store)
{
    return ((struct fake_node *)store)->world->worth_a_batch;
}

enum lh_status fake_lane_hand_over(struct lh_store *store, unsigned lane, int64_t clock_us,
                                   struct lh_holder_item **items, size_t n, struct lh_acquire_item **riders,
                                   size_t rider_count, lh_store_cb *on_done, void *arg)
{
    struct fake_node *node = (struct fake_node *)store;
    struct fake_batch *batch = &node->lanes[lane].batch;
    enum lh_status status = send_batch(store, lane, 2, items, n, on_done, arg);
    if (status != LH_OK)
        return status;
    if (rider_count == 0 || rider_count > LH_BATCH_MAX)
        fake_fail("%zu riders on %zu releases", rider_count, n);
    check_riders(items, n, riders, rider_count);
    batch->clock_us = clock_us;
    node->last_clock_us = clock_us;
    batch->riders = (void **)riders;
    batch->rider_count = rider_count;
    node->world->riders += rider_count;
    return LH_OK;
}

/* --- breaking and mending --- */

void fake_lane_drop(struct fake_node *node, unsigned index, bool commits)
{
    struct fake_lane *lane = &node->lanes[index];
    if (node->is_gone || !lane->is_up)
        return;
    lane->is_up = false;
    if (lane->batch.kind >= 0) {
        if (commits && !lane->batch.is_executed && node->world->fail_with == LH_OK)
            fake_execute(node, &lane->batch);
        lane->is_broken = false;
        fake_scribble(node->world, &lane->batch);
        answer_batch(node, lane, LH_DATABASE_UNAVAILABLE);
    }
    if (!node->is_gone)
        node->events->on_lane_down(node->events_arg, index);
}

void fake_lane_raise(struct fake_node *node, unsigned index)
{
    if (node->is_gone || node->is_stopping || node->lanes[index].is_up)
        return;
    node->lanes[index].is_up = true;
    node->events->on_lane_up(node->events_arg, index);
}

void fake_lanes_kill(struct fake_node *node)
{
    for (int i = 0; i < FAKE_ALL_LANES; i++) {
        struct fake_batch *batch = &node->lanes[i].batch;
        if (batch->kind >= 0 && !batch->is_executed && fake_below(node->world, 2) == 0)
            fake_execute(node, batch); /* it was on its way already */
        batch->kind = -1;
        lh_arena_finish(&batch->strings);
    }
}
