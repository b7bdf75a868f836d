/* The coordinator's life, its turns, and its timer. */
#include "lease/coordinator.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "lease/hooked.h"
#include "lease/lane.h"
#include "lease/progress.h"
#include "lease/reaping.h"

void lh_coordinator_options_init(struct lh_coordinator_options *options)
{
    *options = (struct lh_coordinator_options){
        .max_block_us = 20 * LH_US_PER_S,
        .busy_limit_us = 1 * LH_US_PER_S,
        .reap_interval_us = 1 * LH_US_PER_S,
        .max_waiters = 200000,
        .max_pending = 200000,
        .max_watchers = 1000,
        .max_hooked = 10000,
        .batch_max = LH_BATCH_MAX,
    };
}

int64_t lh_time_add(int64_t a_us, int64_t b_us)
{
    int64_t sum_us;
    return __builtin_add_overflow(a_us, b_us, &sum_us) ? LH_NEVER : sum_us;
}

int64_t lh_core_jitter(struct lh_coordinator *c, int64_t value_us, int percent)
{
    int64_t span_us = value_us / 100 * percent;
    if (span_us <= 0)
        return value_us;
    return value_us - span_us + (int64_t)(c->port.random(c->port.arg) % (uint64_t)(2 * span_us + 1));
}

bool lh_core_can_send(const struct lh_coordinator *c, enum lh_kind kind)
{
    return kind != LH_KIND_ACQUIRE || c->control.is_enrolled;
}

bool lh_core_can_ask(const struct lh_coordinator *c)
{
    return c->lanes_up > 0 && c->control.is_enrolled;
}

static const char *const state_names[] = {"created", "running", "stopping", "closing", "stopped"};

static const unsigned legal_moves[] = {
    [LH_CORE_CREATED] = 1u << LH_CORE_RUNNING,  /* started */
    [LH_CORE_RUNNING] = 1u << LH_CORE_STOPPING, /* told to stop */
    [LH_CORE_STOPPING] = 1u << LH_CORE_CLOSING, /* everybody is answered, or time is up */
    [LH_CORE_CLOSING] = 1u << LH_CORE_STOPPED,  /* the store has closed */
    [LH_CORE_STOPPED] = 0,
};

void lh_core_set_state(struct lh_coordinator *c, enum lh_core_state state)
{
    assert(legal_moves[c->state] & (1u << state));
    lh_debug("coordinator %s -> %s", state_names[c->state], state_names[state]);
    c->state = state;
}

void lh_turn_begin(struct lh_coordinator *c)
{
    c->turn_depth++;
    c->now_us = c->port.now_us(c->port.arg);
}

static bool has_answers(const struct lh_coordinator *c)
{
    return !lh_list_is_empty(&c->answers) || !lh_list_is_empty(&c->telling) || !lh_list_is_empty(&c->heartbeats_done) ||
           !lh_list_is_empty(&c->releases_done) || lh_reaping_has_answers(c);
}

static void arm(struct lh_coordinator *c)
{
    int64_t at_us = lh_heap_next_us(&c->timers);
    bool may_close = c->state == LH_CORE_STOPPING && c->lanes_busy == 0 && (c->scopes.count == 0 || c->lanes_up == 0);
    if (has_answers(c) || lh_lanes_could_dispatch(c) || lh_hooks_could_dispatch(c) || may_close || c->wants_turn)
        at_us = c->now_us;
    if (at_us == c->armed_us || c->armed_us <= c->now_us)
        return; /* it is due already, and looks again then */
    c->armed_us = at_us;
    c->port.set_timer(c->port.arg, at_us == LH_NEVER ? LH_FOREVER : at_us);
}

void lh_turn_end_call(struct lh_coordinator *c)
{
    if (--c->turn_depth == 0)
        arm(c);
}

static void deliver(struct lh_coordinator *c)
{
    while (has_answers(c)) {
        lh_progress_deliver(c);
        lh_request_deliver(c);
        lh_direct_deliver(c);
        lh_reaping_deliver(c);
    }
}

static void on_store_stopped(void *arg, enum lh_status status, const struct lh_error *error)
{
    struct lh_coordinator *c = arg;
    lh_turn_begin(c);
    lh_core_drop_all(c);
    lh_core_set_state(c, LH_CORE_STOPPED);
    lh_turn_end_event(c);
}

/* Everybody is answered, or nobody can be asked any more: close the store. */
static void progress_stop(struct lh_coordinator *c)
{
    if (c->state == LH_CORE_STOPPING && c->lanes_up == 0)
        lh_core_drop_all(c);
    if (c->state == LH_CORE_CLOSING || c->state == LH_CORE_STOPPED)
        lh_core_drop_all(c);
    if (c->state == LH_CORE_STOPPING && c->scopes.count == 0 && c->lanes_busy == 0 && !has_answers(c)) {
        lh_core_set_state(c, LH_CORE_CLOSING);
        lh_heap_remove(&c->timers, &c->stop_timer);
        lh_control_stop(c);
        c->store->ops->stop(c->store, on_store_stopped, c);
    }
}

void lh_turn_end_event(struct lh_coordinator *c)
{
    assert(c->turn_depth == 1);
    c->wants_turn = false;
    deliver(c);
    if (c->answered_lane != NULL) {
        lh_lane_settle(c, c->answered_lane);
        c->answered_lane = NULL;
    }
    progress_stop(c);
    lh_lanes_dispatch(c);
    lh_hooks_dispatch(c);
    deliver(c);
    arm(c);
    c->turn_depth--;
    if (c->state == LH_CORE_STOPPED && c->on_stopped != NULL) {
        void (*on_stopped)(void *) = c->on_stopped;
        c->on_stopped = NULL;
        on_stopped(c->on_stopped_arg);
    }
}

static void on_stop_timer(struct lh_coordinator *c)
{
    if (c->state != LH_CORE_STOPPING)
        return;
    lh_core_set_state(c, LH_CORE_CLOSING);
    lh_core_drop_all(c);
    lh_control_stop(c);
    c->store->ops->stop(c->store, on_store_stopped, c);
}

void lh_coordinator_on_timer(struct lh_coordinator *c)
{
    struct lh_heap_timer *timer;

    lh_turn_begin(c);
    c->armed_us = LH_NEVER;
    while ((timer = lh_heap_due(&c->timers, c->now_us)) != NULL) {
        switch ((enum lh_timer_kind)timer->kind) {
        case LH_TIMER_REQUEST:
            lh_request_on_timer(c, LH_CONTAINER(struct lh_acquire, own.timer, timer));
            break;
        case LH_TIMER_SCOPE:
            lh_scope_on_timer(c, LH_CONTAINER(struct lh_scope, timer, timer));
            break;
        case LH_TIMER_TICK:
            lh_control_on_tick(c);
            break;
        case LH_TIMER_REAP:
            lh_reaping_on_timer(c);
            break;
        case LH_TIMER_STOP:
            on_stop_timer(c);
            break;
        case LH_TIMER_PROGRESS:
            lh_progress_on_timer(c, LH_CONTAINER(struct lh_progress, timer, timer));
            break;
        case LH_TIMER_WATCH:
            lh_watch_on_timer(c);
            break;
        case LH_TIMER_HOOK:
            lh_hooks_on_timer(c);
            break;
        }
    }
    lh_turn_end_event(c);
}

struct lh_coordinator *lh_coordinator_create(struct lh_store *store, const struct lh_coordinator_port *port,
                                             const struct lh_coordinator_options *options)
{
    struct lh_coordinator *c = lh_alloc_zero(1, sizeof(*c));
    c->store = store;
    c->port = *port;
    c->options = *options;
    if (c->options.batch_max == 0 || c->options.batch_max > LH_BATCH_MAX)
        c->options.batch_max = LH_BATCH_MAX;
    if (c->options.busy_limit_us < LH_US_PER_MS)
        c->options.busy_limit_us = LH_US_PER_MS;
    c->armed_us = LH_NEVER;
    c->stop_timer.kind = LH_TIMER_STOP;
    lh_scope_table_init(c);
    lh_waiter_table_init(c);
    lh_watch_create(c);
    lh_hooks_create(c);
    lh_reaping_create(c);
    for (int kind = 0; kind < LH_KIND_COUNT; kind++)
        lh_list_init(&c->ready[kind]);
    lh_list_init(&c->answers);
    lh_list_init(&c->telling);
    lh_list_init(&c->heartbeats_done);
    lh_list_init(&c->releases_done);
    return c;
}

void lh_coordinator_destroy(struct lh_coordinator *c)
{
    if (c == NULL)
        return;
    /* The requests may be gone with their callers: neither they nor their timers are touched. */
    size_t slot = 0;
    struct lh_table_entry *next = NULL;
    struct lh_table_entry *entry;
    while ((entry = lh_table_walk(&c->waiters, &slot, &next)) != NULL) {
        lh_table_remove(&c->waiters, entry);
        free(LH_CONTAINER(struct lh_waiter, entry, entry));
    }
    slot = 0;
    next = NULL;
    while ((entry = lh_table_walk(&c->scopes, &slot, &next)) != NULL) {
        lh_table_remove(&c->scopes, entry);
        lh_progress_destroy(c, LH_CONTAINER(struct lh_scope, entry, entry));
        free(LH_CONTAINER(struct lh_scope, entry, entry));
    }
    lh_table_finish(&c->waiters);
    lh_scope_table_finish(c);
    lh_reaping_destroy(c);
    lh_hooks_destroy(c);
    lh_lanes_destroy(c);
    lh_watch_destroy(c);
    lh_heap_finish(&c->timers);
    free(c);
}

void lh_coordinator_set_max_block(struct lh_coordinator *c, int64_t max_block_us)
{
    c->options.max_block_us = max_block_us;
}

struct lh_store *lh_coordinator_store(struct lh_coordinator *c)
{
    return c->store;
}

void lh_coordinator_stats(const struct lh_coordinator *c, struct lh_coordinator_stats *stats)
{
    *stats = c->stats;
    stats->waiters = c->waiting;
    stats->pending = c->pending;
    stats->scopes = c->scopes.count;
    stats->max_waiters = c->options.max_waiters;
    stats->max_pending = c->options.max_pending;
    stats->watchers = c->watching.watcher_count;
    stats->max_watchers = c->options.max_watchers;
    stats->hooked = c->hooks.waiting;
    stats->max_hooked = c->options.max_hooked;
    stats->reaps = c->reaping.jobs.count;
    stats->max_reaps = LH_REAPS_MAX;
}
