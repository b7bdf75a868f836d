/*
 * The way of a batch: ready scopes put their items into it, the store answers it, its operation applies each answer,
 * and the end of that turn frees the lane. A batch that the store refuses was never sent: its items go back to their
 * places and the lane counts as down.
 */

#include "base/log.h"
#include "lease/hooks_internal.h"
#include "lease/queue/together.h"

void lh_batch_answer(struct lh_lane *lane, enum lh_status status, const struct lh_error *error)
{
    const struct lh_operation *operation = lane->coordinator->operations[lane->kind];

    if (status != LH_OK)
        lh_debug("batch failed lane=%u kind=%s items=%zu status=%s", lane->index, operation->name, lane->n,
                 lh_status_name(status));
    lane->coordinator->lanes.record = (struct lh_batch_record){.sent_us = lane->sent_us,
                                                               .answered_us = lane->coordinator->now_us,
                                                               .items = lane->n + lane->rider_count,
                                                               .is_hooked = lane->hook_queue != NULL};
    operation->on_done(lane, status, error);
    lane->coordinator->lanes.answered = lane;
}

static void on_batch_done(void *arg, enum lh_status status, const struct lh_error *error)
{
    struct lh_lane *lane = arg;
    struct lh_coordinator *c = lane->coordinator;

    lh_turn_begin(c);
    lh_histogram_add(&c->stats.batch_us[lane->kind], &lh_latency_bounds, c->now_us - lane->sent_us);
    if (lane->rider_count > 0)
        lh_histogram_add(&c->stats.batch_us[LH_KIND_ACQUIRE], &lh_latency_bounds, c->now_us - lane->sent_us);
    lh_lane_note_answered(lane);
    lh_batch_answer(lane, status, error);
    lh_turn_end_event(c);
}

static void form(struct lh_coordinator *c, struct lh_waiter *waiter, const struct lh_acquire_item *items, size_t count)
{
    struct lh_wanted_scope also[LH_ALL_ITEMS_MAX];

    for (size_t i = 1; i < count; i++)
        also[i - 1] = (struct lh_wanted_scope){items[i].ns, items[i].key, items[i].units, items[i].at_least_us};
    waiter->units = items[0].units;
    lh_together_form(c, waiter, also, count - 1);
}

/* The grants that nobody took: their callers went in the same instant. They leave, and the leave ends the lease. */
static void give_back(struct lh_coordinator *c, const struct lh_entry *entry, size_t count)
{
    const char *ns = entry->acquire != NULL ? entry->acquire->ns : entry->leave->ns;
    const char *key = entry->acquire != NULL ? entry->acquire->key : entry->leave->key;
    const struct lh_uuid *lease_key = entry->acquire != NULL ? &entry->acquire->lease_key : &entry->leave->lease_key;

    struct lh_scope *scope = lh_scope_get(c, ns, key);
    struct lh_waiter *waiter = lh_waiter_find(c, scope, lease_key);
    if (waiter != NULL) {
        lh_waiter_set_grant(waiter,
                            LH_GRANT_UNTAKEN); /* a request that came meanwhile takes it over, or gives it back */
        waiter->unheard_since_us = 0;
    } else {
        waiter = lh_waiter_create(c, scope, lease_key);
        if (entry->all != NULL)
            form(c, waiter, entry->all, count);
        waiter->unheard_since_us = 0;
        lh_waiter_leave(c, waiter, "no request takes its grant any more");
    }
    lh_scope_schedule_or_free(c, scope);
}

static void empty(struct lh_lane *lane)
{
    lane->n = 0;
    lane->rider_count = 0;
    lh_hook_queue_leave(lane);
}

void lh_batch_finish(struct lh_coordinator *c)
{
    struct lh_lane *lane = c->lanes.answered;
    if (lane == NULL)
        return;

    size_t entry_count = lane->rider_count;
    if (lane->kind == LH_KIND_ACQUIRE || lane->kind == LH_KIND_LEAVE)
        entry_count = lane->n;
    if (lane->kind == LH_KIND_ACQUIRE_ALL)
        entry_count = 1; /* it stands for all */
    for (size_t i = 0; i < entry_count; i++) {
        if (lane->entries[i].is_grant && !lane->entries[i].is_taken)
            give_back(c, &lane->entries[i], lane->n);
    }
    empty(lane);
    if (lane->state == LH_LANE_BUSY)
        lh_lane_set_state(lane, LH_LANE_IDLE);
    c->lanes.answered = NULL;
}

bool lh_batch_take(struct lh_lane *lane, enum lh_kind kind, struct lh_scope *scope, size_t room)
{
    size_t before = lane->n + lane->rider_count;

    lane->is_waited_for |= lh_scope_is_waited_for(scope);
    lh_scope_send_begins(lane->coordinator, scope, kind);
    /* While it is busy or failing, the first one finds out for all. */
    if (scope->delay_us[kind] > 0)
        room = 1;
    lane->coordinator->operations[kind]->take(lane, scope, room);
    if (lane->n + lane->rider_count == before)
        lh_scope_schedule_or_free(lane->coordinator, scope);
    return lane->n + lane->rider_count > before;
}

static enum lh_status hand_to_store(struct lh_lane *lane, lh_store_cb *on_done)
{
    struct lh_coordinator *c = lane->coordinator;
    const struct lh_store_ops *ops = c->store->ops;

    if (lane->rider_count == 0)
        return ops->send(c->store, lane->index, lane->kind, lh_database_us(c), lane->items, lane->n, on_done, lane);
    return ops->hand_over(c->store, lane->index, lh_database_us(c), (struct lh_holder_item **)lane->items, lane->n,
                          lane->riders, lane->rider_count, on_done, lane);
}

bool lh_batch_send(struct lh_lane *lane, lh_store_cb *on_done)
{
    const struct lh_operation *operation = lane->coordinator->operations[lane->kind];

    if (hand_to_store(lane, on_done) == LH_OK) {
        lh_lane_set_state(lane, LH_LANE_BUSY);
        return true;
    }
    /* As if the reply were lost, but the outcome is known. */
    lh_lane_set_state(lane, LH_LANE_DOWN);
    lane->is_sent = false;
    operation->on_done(lane, LH_DATABASE_UNAVAILABLE, NULL);
    empty(lane);
    return false;
}

/*
 * Renewals come by the thousand and have a third of a duration's time; an acquire is one that somebody waits for. In
 * the order of arrival alone it would wait until all the renewals before it are written. So neither takes the last lane
 * that the other could have; with fewer than three lanes there is none to spare.
 */
static bool has_its_share(const struct lh_coordinator *c, bool is_heartbeat)
{
    const struct lh_lanes *lanes = &c->lanes;
    unsigned busy = 0;
    if (lanes->up < 3)
        return false;
    for (unsigned i = 0; i < lanes->count; i++)
        busy += lanes->all[i].state == LH_LANE_BUSY && (lanes->all[i].kind == LH_KIND_HEARTBEAT) == is_heartbeat;
    return busy + 1 >= lanes->up;
}

/* The kind that a free lane may take and whose last batch was sent longest ago, or -1. */
static int next_kind(const struct lh_coordinator *c, bool without_acquires)
{
    const struct lh_lanes *lanes = &c->lanes;
    int best = -1;
    bool without_heartbeats = has_its_share(c, true);
    bool without_others = has_its_share(c, false);
    for (int kind = 0; kind < LH_SCOPE_KINDS; kind++) {
        if (kind == LH_KIND_HEARTBEAT ? without_heartbeats : without_others)
            continue;
        if (lh_kind_asks((enum lh_kind)kind) && without_acquires)
            continue;
        if (best >= 0 && lanes->turns[kind] >= lanes->turns[best])
            continue;
        if (lh_ready_since_us(c, (enum lh_kind)kind) != LH_NEVER &&
            !lh_lanes_keep(c, (enum lh_kind)kind, lh_ready_scopes(c, (enum lh_kind)kind)))
            best = kind;
    }
    return best;
}

/* `count`: of the lane's items of this kind. */
static void fill(struct lh_lane *lane, enum lh_kind kind, const size_t *count)
{
    struct lh_coordinator *c = lane->coordinator;
    struct lh_scope *scope;
    size_t room, share;

    while (*count < c->options.batch_max && (*count == 0 || !c->operations[kind]->is_alone)) {
        room = c->options.batch_max - *count;
        scope = lh_ready_next(c, kind, room, &share);
        if (scope == NULL)
            return;
        lh_batch_take(lane, kind, scope, share);
    }
}

bool lh_batches_could_dispatch(const struct lh_coordinator *c)
{
    return c->state != LH_CORE_CLOSING && lh_lanes_idle(c) != NULL && next_kind(c, false) >= 0;
}

/* Whether disconnects are pending is asked only where there is an acquire to grant. */
static bool is_behind(const struct lh_coordinator *c)
{
    bool asks =
        lh_ready_since_us(c, LH_KIND_ACQUIRE) != LH_NEVER || lh_ready_since_us(c, LH_KIND_ACQUIRE_ALL) != LH_NEVER;
    return asks && lh_turn_is_behind(c);
}

/* A commit costs more than an item: acquires go in the transaction of releases where enough of both is ready. */
static bool has_riders(const struct lh_coordinator *c, int next, bool without_acquires)
{
    size_t acquires = lh_ready_scopes(c, LH_KIND_ACQUIRE);
    size_t releases = lh_ready_scopes(c, LH_KIND_RELEASE);

    return lh_lane_is_for_both((enum lh_kind)next) && !without_acquires && acquires > 0 && releases > 0 &&
           lh_lane_is_worth(c, acquires + releases);
}

static void note_sent(struct lh_coordinator *c, enum lh_kind kind, size_t n)
{
    if (n == 0)
        return;
    c->stats.batches[kind]++;
    lh_histogram_add(&c->stats.batch_sizes[kind], &lh_size_bounds, (int64_t)n);
}

static void dispatch(struct lh_lane *lane, enum lh_kind kind, bool with_acquires)
{
    struct lh_coordinator *c = lane->coordinator;

    lh_lane_begin(lane, kind);
    c->lanes.turns[kind] = ++c->lanes.turn;
    fill(lane, kind, &lane->n);
    if (with_acquires && lane->n > 0) {
        fill(lane, LH_KIND_ACQUIRE, &lane->rider_count);
        c->lanes.turns[LH_KIND_ACQUIRE] = c->lanes.turn;
    }
    if (lane->n > 0 && lh_batch_send(lane, on_batch_done)) {
        lh_lane_note_sent(lane);
        note_sent(c, kind, lane->n);
        note_sent(c, LH_KIND_ACQUIRE, lane->rider_count);
    }
}

void lh_batches_dispatch(struct lh_coordinator *c)
{
    struct lh_lane *lane;
    while (c->state != LH_CORE_CLOSING && (lane = lh_lanes_idle(c)) != NULL) {
        bool without_acquires = is_behind(c);
        int next = next_kind(c, without_acquires);
        if (next < 0)
            return;
        bool is_both = has_riders(c, next, without_acquires);
        dispatch(lane, is_both ? LH_KIND_RELEASE : (enum lh_kind)next, is_both);
    }
}

void lh_batch_on_lane_up(void *arg, unsigned index)
{
    struct lh_coordinator *c = arg;
    lh_turn_begin(c);
    lh_lane_set_state(&c->lanes.all[index], LH_LANE_IDLE);
    lh_turn_end_event(c);
}

void lh_batch_on_lane_down(void *arg, unsigned index)
{
    struct lh_coordinator *c = arg;
    lh_turn_begin(c);
    lh_lane_set_state(&c->lanes.all[index], LH_LANE_DOWN);
    if (c->lanes.up == 0 || c->lanes.hook_up == 0)
        lh_scopes_schedule_all(c);
    lh_turn_end_event(c);
}
