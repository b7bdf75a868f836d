/*
 * The story of a hooked item: it is sent with others on a common lane, and answered HOOKED. Its scope is put into its
 * namespace's line, and a hook lane takes the scope's first item of that kind, alone. Items of the scope without a hook
 * go on by the common lanes meanwhile, but never while the hooked item is in flight. For the next second items of that
 * kind and namespace go straight into the line; after that the next one goes by a common lane again, so that the daemon
 * notices a removed hook or a changed limit.
 *
 * A hook that breaks its own connection costs a hook lane that connection. The item's outcome is unknown then, and it
 * is asked for again after a pause of its namespace; at the third time in a row its requests are refused.
 */
#include "base/clock.h"
#include "lease/hooks_internal.h"

#define REST_MAX_US (50 * LH_US_PER_MS)

/* --- whose turn it is --- */

static bool is_last_lane_for_slow(const struct lh_coordinator *c)
{
    unsigned slow = 0;
    for (unsigned i = 0; i < c->lanes.hook_count; i++)
        slow += lh_hook_queue_is_slow_lane(c, &c->lanes.all[c->lanes.count + i]);
    return c->lanes.hook_count > 1 && slow + 1 >= c->lanes.hook_count;
}

static bool may_go(const struct lh_coordinator *c, const struct lh_hook_queue *hook_queue)
{
    return hook_queue->retry_us <= c->now_us && !(lh_hook_queue_is_slow(c, hook_queue) && is_last_lane_for_slow(c));
}

static struct lh_hook_queue *next_working(const struct lh_coordinator *c)
{
    LH_LIST_EACH(struct lh_hook_queue, hook_queue, &c->hooks.working, working) {
        if (may_go(c, hook_queue))
            return hook_queue;
    }
    return NULL;
}

static struct lh_hook_queue *next_reaping(const struct lh_coordinator *c)
{
    if (c->state != LH_CORE_RUNNING)
        return NULL;
    LH_LIST_EACH(struct lh_hook_queue, hook_queue, &c->hooks.reaping, reaping) {
        if (may_go(c, hook_queue))
            return hook_queue;
    }
    return NULL;
}

static bool is_resting(const struct lh_lane *lane)
{
    return lane->rest_us > lane->coordinator->now_us;
}

/* Rather one that may reap. */
static struct lh_lane *idle_lane(const struct lh_coordinator *c)
{
    struct lh_lane *best = NULL;

    for (unsigned i = 0; i < c->lanes.hook_count; i++) {
        struct lh_lane *lane = &c->lanes.all[c->lanes.count + i];
        bool is_idle = lane->state == LH_LANE_IDLE && lane->hook_queue == NULL;
        if (is_idle && (best == NULL || (is_resting(best) && !is_resting(lane))))
            best = lane;
    }
    return best;
}

bool lh_hooks_could_dispatch(const struct lh_coordinator *c)
{
    bool has_work = !lh_list_is_empty(&c->hooks.working) || !lh_list_is_empty(&c->hooks.reaping);
    const struct lh_lane *lane = has_work && c->state != LH_CORE_CLOSING ? idle_lane(c) : NULL;
    return lane != NULL && (next_working(c) != NULL || (!is_resting(lane) && next_reaping(c) != NULL));
}

static bool have_others_work(const struct lh_coordinator *c)
{
    for (unsigned i = 0; i < c->lanes.count; i++) {
        if (c->lanes.all[i].state == LH_LANE_BUSY)
            return true;
    }
    return false;
}

/* A backlog of the dead must not starve the living: while they work, so long as the run took. */
static void rest(struct lh_lane *lane)
{
    struct lh_coordinator *c = lane->coordinator;
    int64_t took_us = c->now_us - lane->sent_us;

    if (took_us <= 0 || !have_others_work(c))
        return;
    lane->rest_us = c->now_us + (took_us < REST_MAX_US ? took_us : REST_MAX_US);
    lh_hook_queues_wake_at(c, lane->rest_us);
}

static void on_hook_lane_done(void *arg, enum lh_status status, const struct lh_error *error)
{
    struct lh_lane *lane = arg;
    struct lh_coordinator *c = lane->coordinator;

    lh_turn_begin(c);
    if (lane->kind == LH_KIND_REAP)
        rest(lane);
    else if (status == LH_DATABASE_UNAVAILABLE)
        lh_hook_queue_back_off(c, lane->hook_queue);
    else if (status != LH_CANCELED)
        lh_hook_queue_on_call(c, lane->hook_queue, lane->kind, c->now_us - lane->sent_us);
    lh_batch_answer(lane, status, error);
    lh_turn_end_event(c);
}

/* One item of the scope that has waited longest in this namespace; the namespace's next turn is after all others. */
static void send_item(struct lh_coordinator *c, struct lh_lane *lane, struct lh_hook_queue *hook_queue)
{
    struct lh_scope *scope = LH_LIST_FIRST(struct lh_scope, &hook_queue->scopes, hook_ready);
    enum lh_kind kind = (enum lh_kind)scope->hook_kind;

    lh_list_remove(&hook_queue->working);
    lh_list_append(&c->hooks.working, &hook_queue->working);
    lh_lane_begin(lane, kind);
    lh_hook_queue_occupy(lane, hook_queue);
    if (!lh_batch_take(lane, kind, scope, 1)) {
        lh_hook_queue_leave(lane);
        return;
    }
    scope->hooked &= (uint8_t) ~(1u << kind);
    scope->is_on_hook_lane = true;
    lh_scope_schedule_or_free(c, scope); /* what else it has waits no longer than for a busy row */
    lh_batch_send(lane, on_hook_lane_done);
}

static void send_reaps(struct lh_coordinator *c, struct lh_lane *lane, struct lh_hook_queue *hook_queue)
{
    lh_lane_begin(lane, LH_KIND_REAP);
    lh_hook_queue_occupy(lane, hook_queue);
    c->operations[LH_KIND_REAP]->take(lane, NULL, LH_REAP_PIPELINE_MAX);
    lh_batch_send(lane, on_hook_lane_done);
}

void lh_hooks_dispatch(struct lh_coordinator *c)
{
    bool has_work = !lh_list_is_empty(&c->hooks.working) || !lh_list_is_empty(&c->hooks.reaping);
    bool is_behind = has_work && lh_turn_is_behind(c);
    struct lh_lane *lane;

    while (has_work && c->state != LH_CORE_CLOSING && (lane = idle_lane(c)) != NULL) {
        struct lh_hook_queue *item_queue = is_behind ? NULL : next_working(c);
        struct lh_hook_queue *reap_queue = is_resting(lane) ? NULL : next_reaping(c);

        /* By turns: neither waits for all of the other. */
        if (item_queue != NULL && (reap_queue == NULL || lane->kind == LH_KIND_REAP))
            send_item(c, lane, item_queue);
        else if (reap_queue != NULL)
            send_reaps(c, lane, reap_queue);
        else
            return;
    }
}

void lh_hooks_on_timer(struct lh_coordinator *c)
{
    struct lh_link *lists[] = {&c->hooks.working, &c->hooks.reaping};
    int64_t next_us = LH_NEVER;

    LH_LIST_EACH(struct lh_hook_queue, hook_queue, lists[0], working)
        next_us = hook_queue->retry_us > c->now_us && hook_queue->retry_us < next_us ? hook_queue->retry_us : next_us;
    LH_LIST_EACH(struct lh_hook_queue, hook_queue, lists[1], reaping)
        next_us = hook_queue->retry_us > c->now_us && hook_queue->retry_us < next_us ? hook_queue->retry_us : next_us;
    for (unsigned i = 0; i < c->lanes.hook_count; i++) {
        int64_t rest_us = c->lanes.all[c->lanes.count + i].rest_us;
        next_us = rest_us > c->now_us && rest_us < next_us ? rest_us : next_us;
    }
    lh_heap_set(&c->timers, &c->hooks.timer, next_us);
}
