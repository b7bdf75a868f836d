/*
 * A lane's life: down until the store says it is up; idle; busy with one batch until the store answers it. A batch that
 * the store refuses was never sent: its items go back to their places and the lane is taken for down.
 */
#include "lease/lane.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "lease/hooked.h"

static const char *const kind_names[] = {"acquire", "heartbeat", "release", "leave"};

void lh_lane_set_state(struct lh_lane *lane, enum lh_lane_state state)
{
    struct lh_coordinator *c = lane->coordinator;
    unsigned *up = lane->index < c->lane_count ? &c->lanes_up : &c->hook_lanes_up;

    /* Each may follow each but: only an idle lane gets busy. */
    assert(state != LH_LANE_BUSY || lane->state == LH_LANE_IDLE);
    *up += (state != LH_LANE_DOWN) - (lane->state != LH_LANE_DOWN);
    c->lanes_busy += (state == LH_LANE_BUSY) - (lane->state == LH_LANE_BUSY);
    lane->state = state;
}

void lh_lanes_create(struct lh_coordinator *c)
{
    c->lane_count = c->store->ops->lane_count(c->store);
    c->hook_lane_count = c->store->ops->hook_lane_count == NULL ? 0 : c->store->ops->hook_lane_count(c->store);
    c->lanes = lh_alloc_zero(c->lane_count + c->hook_lane_count, sizeof(c->lanes[0]));
    for (unsigned i = 0; i < c->lane_count + c->hook_lane_count; i++) {
        struct lh_lane *lane = &c->lanes[i];
        size_t batch_max = i < c->lane_count ? c->options.batch_max : 1;
        lane->coordinator = c;
        lane->index = i;
        lane->items = lh_alloc_zero(i < c->lane_count ? batch_max : LH_REAP_PIPELINE_MAX, sizeof(lane->items[0]));
        lane->entries = lh_alloc_zero(batch_max, sizeof(lane->entries[0]));
        lane->acquires = lh_alloc_zero(batch_max, sizeof(lane->acquires[0]));
        lane->leaves = lh_alloc_zero(batch_max, sizeof(lane->leaves[0]));
        lane->riders = lh_alloc_zero(batch_max, sizeof(lane->riders[0]));
    }
}

void lh_lanes_destroy(struct lh_coordinator *c)
{
    for (unsigned i = 0; i < c->lane_count + c->hook_lane_count; i++) {
        struct lh_lane *lane = &c->lanes[i];
        free(lane->items);
        free(lane->entries);
        free(lane->acquires);
        free(lane->leaves);
        free(lane->riders);
        lh_arena_finish(&lane->strings);
    }
    free(c->lanes);
}

static void on_batch_done(void *arg, enum lh_status status, const struct lh_error *error)
{
    struct lh_lane *lane = arg;
    struct lh_coordinator *c = lane->coordinator;

    lh_turn_begin(c);
    if (status != LH_OK)
        lh_debug("batch failed lane=%u kind=%s items=%zu status=%s", lane->index, kind_names[lane->kind], lane->n,
                 lh_status_name(status));
    if (lane->space != NULL)
        lh_hooks_on_done(lane, status);
    else
        lh_histogram_add(&c->stats.batch_us[lane->kind], &lh_latency_bounds, c->now_us - lane->sent_us);
    switch (lane->kind) {
    case LH_KIND_ACQUIRE:
        lh_asking_on_done(lane, status, error);
        break;
    case LH_KIND_HEARTBEAT:
        lh_heartbeats_on_done(lane, status, error);
        break;
    case LH_KIND_RELEASE:
        lh_releases_on_done(lane, status, error);
        break;
    default:
        lh_leaving_on_done(lane, status, error);
        break;
    }
    c->answered_lane = lane;
    lh_turn_end_event(c);
}

/* The grants that nobody took: their callers went in the same instant. They leave, and the leave ends the lease. */
static void give_back(struct lh_coordinator *c, const struct lh_entry *entry)
{
    const char *ns = entry->acquire != NULL ? entry->acquire->ns : entry->leave->ns;
    const char *key = entry->acquire != NULL ? entry->acquire->key : entry->leave->key;
    const struct lh_uuid *lease_key = entry->acquire != NULL ? &entry->acquire->lease_key : &entry->leave->lease_key;

    struct lh_scope *scope = lh_scope_get(c, ns, key);
    struct lh_waiter *waiter = lh_waiter_find(c, scope, lease_key);
    if (waiter != NULL) {
        waiter->is_untaken = true;
        waiter->is_taken = false;
        waiter->is_unknown = true; /* who came meanwhile takes it over, or gives it back */
    } else {
        waiter = lh_waiter_create(c, scope, lease_key);
        lh_waiter_leave(c, waiter, "nobody takes its grant any more");
    }
    lh_scope_settle(c, scope);
}

void lh_lane_settle(struct lh_coordinator *c, struct lh_lane *lane)
{
    size_t entry_count = lane->rider_count;
    if (lane->kind == LH_KIND_ACQUIRE || lane->kind == LH_KIND_LEAVE)
        entry_count = lane->n;
    for (size_t i = 0; i < entry_count; i++) {
        if (lane->entries[i].is_grant && !lane->entries[i].is_taken)
            give_back(c, &lane->entries[i]);
    }
    lane->n = 0;
    lane->rider_count = 0;
    if (lane->space != NULL)
        lh_hooks_leave(lane);
    if (lane->state == LH_LANE_BUSY)
        lh_lane_set_state(lane, LH_LANE_IDLE);
}

void lh_lane_begin(struct lh_lane *lane, enum lh_kind kind)
{
    lane->kind = kind;
    lane->n = 0;
    lane->rider_count = 0;
    lane->is_sent = true;
    lane->sent_us = lane->coordinator->now_us;
    lh_arena_reset(&lane->strings);
}

void lh_lane_take(struct lh_lane *lane, struct lh_scope *scope, size_t room)
{
    struct lh_coordinator *c = lane->coordinator;

    lh_list_remove(&scope->ready);
    lh_hooks_part(c, scope);
    /* While it is busy or failing, the first one finds out for all. */
    if (scope->delay_us[lane->kind] > 0)
        room = 1;
    switch (lane->kind) {
    case LH_KIND_ACQUIRE:
        lh_asking_take(lane, scope, room);
        break;
    case LH_KIND_LEAVE:
        lh_leaving_take(lane, scope, room);
        break;
    default:
        lh_direct_take(lane, scope, room);
        lh_asking_ride(lane, scope);
        break;
    }
    scope->flight_kind = (uint8_t)lane->kind;
    assert(scope->in_flight > 0);
    lh_heap_set(&c->timers, &scope->timer, LH_NEVER);
}

static enum lh_status send(struct lh_coordinator *c, struct lh_lane *lane)
{
    const struct lh_store_ops *ops = c->store->ops;
    switch (lane->kind) {
    case LH_KIND_ACQUIRE:
        return ops->acquire(c->store, lane->index, lh_control_database_us(c), (struct lh_acquire_item **)lane->items,
                            lane->n, on_batch_done, lane);
    case LH_KIND_HEARTBEAT:
        return ops->heartbeat(c->store, lane->index, (struct lh_heartbeat_item **)lane->items, lane->n, on_batch_done,
                              lane);
    case LH_KIND_RELEASE:
        if (lane->rider_count > 0)
            return ops->hand_over(c->store, lane->index, lh_control_database_us(c),
                                  (struct lh_release_item **)lane->items, lane->n, lane->riders, lane->rider_count,
                                  on_batch_done, lane);
        return ops->release(c->store, lane->index, (struct lh_release_item **)lane->items, lane->n, on_batch_done,
                            lane);
    default:
        return ops->leave(c->store, lane->index, (struct lh_leave_item **)lane->items, lane->n, on_batch_done, lane);
    }
}

/* After the process stood still, who has gone since is read before anybody is asked for: no grant for the dead. */
static bool is_behind(const struct lh_coordinator *c)
{
    return !lh_list_is_empty(&c->ready[LH_KIND_ACQUIRE]) && c->port.is_behind != NULL && c->port.is_behind(c->port.arg);
}

/*
 * Renewals come by the thousand and have a third of a duration's time; an acquire is one that somebody waits for. In
 * the order of arrival alone it would wait until all the renewals before it are written. So neither takes the last lane
 * that the other could have; with fewer than three lanes there is none to spare.
 */
static bool has_its_share(const struct lh_coordinator *c, bool is_heartbeat)
{
    unsigned busy = 0;
    if (c->lanes_up < 3)
        return false;
    for (unsigned i = 0; i < c->lane_count; i++)
        busy += c->lanes[i].state == LH_LANE_BUSY && (c->lanes[i].kind == LH_KIND_HEARTBEAT) == is_heartbeat;
    return busy + 1 >= c->lanes_up;
}

/* The kind that a free lane may take and whose first scope has waited longest, or -1. */
static int oldest_kind(const struct lh_coordinator *c, bool without_acquires)
{
    int best = -1;
    int64_t best_us = LH_NEVER;
    bool without_heartbeats = has_its_share(c, true);
    bool without_others = has_its_share(c, false);
    for (int kind = 0; kind < LH_KIND_COUNT; kind++) {
        if (kind == LH_KIND_HEARTBEAT ? without_heartbeats : without_others)
            continue;
        if (kind == LH_KIND_ACQUIRE && without_acquires)
            continue;
        const struct lh_scope *scope = LH_LIST_FIRST(struct lh_scope, &c->ready[kind], ready);
        if (scope != NULL && scope->ready_us < best_us) {
            best = kind;
            best_us = scope->ready_us;
        }
    }
    return best;
}

static void fill(struct lh_coordinator *c, struct lh_lane *lane, enum lh_kind kind)
{
    lh_lane_begin(lane, kind);
    while (lane->n < c->options.batch_max && !lh_list_is_empty(&c->ready[kind]))
        lh_lane_take(lane, LH_LIST_FIRST(struct lh_scope, &c->ready[kind], ready), c->options.batch_max - lane->n);
}

/* Nothing was sent: as if the reply were lost, but the outcome is known. */
static void put_back(struct lh_lane *lane)
{
    lh_lane_set_state(lane, LH_LANE_DOWN);
    lane->is_sent = false;
    switch (lane->kind) {
    case LH_KIND_ACQUIRE:
        lh_asking_on_done(lane, LH_DATABASE_UNAVAILABLE, NULL);
        break;
    case LH_KIND_LEAVE:
        lh_leaving_on_done(lane, LH_DATABASE_UNAVAILABLE, NULL);
        break;
    case LH_KIND_HEARTBEAT:
        lh_heartbeats_on_done(lane, LH_DATABASE_UNAVAILABLE, NULL);
        break;
    default:
        lh_releases_on_done(lane, LH_DATABASE_UNAVAILABLE, NULL);
        break;
    }
    lane->n = 0;
    lane->rider_count = 0;
    if (lane->space != NULL)
        lh_hooks_leave(lane);
}

bool lh_lane_send(struct lh_lane *lane)
{
    struct lh_coordinator *c = lane->coordinator;

    if (send(c, lane) != LH_OK) {
        put_back(lane);
        return false;
    }
    lh_lane_set_state(lane, LH_LANE_BUSY);
    return true;
}

static struct lh_lane *idle_lane(const struct lh_coordinator *c)
{
    for (unsigned i = 0; i < c->lane_count; i++) {
        if (c->lanes[i].state == LH_LANE_IDLE)
            return &c->lanes[i];
    }
    return NULL;
}

bool lh_lanes_could_dispatch(const struct lh_coordinator *c)
{
    return c->state != LH_CORE_CLOSING && idle_lane(c) != NULL && oldest_kind(c, false) >= 0;
}

void lh_lanes_dispatch(struct lh_coordinator *c)
{
    struct lh_lane *lane;
    int kind;
    while (c->state != LH_CORE_CLOSING && (lane = idle_lane(c)) != NULL && (kind = oldest_kind(c, is_behind(c))) >= 0) {
        fill(c, lane, (enum lh_kind)kind);
        if (!lh_lane_send(lane))
            continue;
        c->stats.batches[kind]++;
        c->stats.batch_items[kind] += lane->n;
        lh_histogram_add(&c->stats.batch_sizes[kind], &lh_size_bounds, (int64_t)lane->n);
    }
}

void lh_lane_on_up(void *arg, unsigned index)
{
    struct lh_coordinator *c = arg;
    lh_turn_begin(c);
    lh_lane_set_state(&c->lanes[index], LH_LANE_IDLE);
    lh_turn_end_event(c);
}

void lh_lane_on_down(void *arg, unsigned index)
{
    struct lh_coordinator *c = arg;
    lh_turn_begin(c);
    lh_lane_set_state(&c->lanes[index], LH_LANE_DOWN);
    if (c->lanes_up == 0 || c->hook_lanes_up == 0)
        lh_core_reschedule(c);
    lh_turn_end_event(c);
}
