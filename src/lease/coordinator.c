/*
 * The coordinator's life, and its turns. Every entry from outside is a turn.
 *
 * A call of the API (acquire, cancel, heartbeat, release) changes state, and at its end sets the timer to now if work
 * is left. So no callback runs inside a call.
 *
 * A callback of the store and the timer apply answers, which only changes state too. The end of the turn does the rest,
 * in this order (end_event): watches take their next step; callers are answered; grants that no caller took are given
 * back and the answered lane is free; scopes that changed while another one was at hand are scheduled; a stop goes on;
 * free lanes are filled; hook lanes are filled; requests refused meanwhile are answered; the timer is set. So no lane
 * is refilled while answers still point into its batch.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "lease/coordinator.h"
#include "lease/hooks_internal.h"
#include "lease/queue/together.h"
#include "lease/queue/wait_progress.h"
#include "lease/watch_internal.h"

#define STOP_LIMIT_US (5 * LH_US_PER_S)

static const struct lh_operation *const operations[LH_KIND_COUNT] = {
    [LH_KIND_ACQUIRE] = &lh_acquire_operation,         [LH_KIND_HEARTBEAT] = &lh_heartbeat_operation,
    [LH_KIND_RELEASE] = &lh_release_operation,         [LH_KIND_LEAVE] = &lh_dequeue_operation,
    [LH_KIND_DOWNGRADE] = &lh_downgrade_operation,     [LH_KIND_REAP] = &lh_reap_operation,
    [LH_KIND_ACQUIRE_ALL] = &lh_acquire_all_operation,
};

void lh_coordinator_options_init(struct lh_coordinator_options *options)
{
    *options = (struct lh_coordinator_options){
        .max_block_us = 20 * LH_US_PER_S,
        .busy_limit_us = 1 * LH_US_PER_S,
        .max_guard_us = 60 * LH_US_PER_S,
        .reap_interval_us = 1 * LH_US_PER_S,
        .max_waiters = 200000,
        .max_pending = 200000,
        .max_watchers = 1000,
        .max_hooked = 10000,
        .batch_max = LH_BATCH_MAX,
    };
}

static const char *const state_names[] = {"created", "running", "stopping", "closing", "stopped"};

static const unsigned legal_moves[] = {
    [LH_CORE_CREATED] = 1u << LH_CORE_RUNNING,  /* started */
    [LH_CORE_RUNNING] = 1u << LH_CORE_STOPPING, /* told to stop */
    [LH_CORE_STOPPING] = 1u << LH_CORE_CLOSING, /* everybody is answered, or time is up */
    [LH_CORE_CLOSING] = 1u << LH_CORE_STOPPED,  /* the store has closed */
    [LH_CORE_STOPPED] = 0,
};

static void set_state(struct lh_coordinator *c, enum lh_core_state state)
{
    assert(legal_moves[c->state] & (1u << state));
    lh_debug("coordinator %s -> %s", state_names[c->state], state_names[state]);
    c->state = state;
}

/* --- the turn --- */

static bool has_answers(const struct lh_coordinator *c)
{
    return !(lh_list_is_empty(&c->queue.telling) && lh_list_is_empty(&c->queue.answers) &&
             lh_list_is_empty(&c->holder_ops.done) && lh_list_is_empty(&c->reaping.done));
}

static void deliver(struct lh_coordinator *c)
{
    while (has_answers(c)) {
        lh_wait_progress_deliver(c);
        lh_reply_deliver(c);
        lh_holder_op_deliver(c);
        lh_reaping_deliver(c);
    }
}

static void arm(struct lh_coordinator *c)
{
    int64_t at_us = lh_heap_next_us(&c->timers);
    bool may_close =
        c->state == LH_CORE_STOPPING && lh_lanes_are_quiet(c) && (lh_scopes_count(c) == 0 || !lh_lanes_are_up(c));
    if (has_answers(c) || lh_batches_could_dispatch(c) || lh_hooks_could_dispatch(c) || may_close || c->wants_turn)
        at_us = c->now_us;
    if (at_us == c->armed_us || c->armed_us <= c->now_us)
        return; /* it is due already, and looks again then */
    c->armed_us = at_us;
    c->port.set_timer(c->port.arg, at_us);
}

static void on_store_stopped(void *arg, enum lh_status status, const struct lh_error *error)
{
    struct lh_coordinator *c = arg;
    lh_turn_begin(c);
    lh_scopes_drop_all(c);
    set_state(c, LH_CORE_STOPPED);
    lh_turn_end_event(c);
}

static void close_store(struct lh_coordinator *c)
{
    set_state(c, LH_CORE_CLOSING);
    lh_scopes_drop_all(c); /* where time is up */
    lh_heap_remove(&c->timers, &c->stop_timer);
    lh_heap_remove(&c->timers, &c->registration.timer);
    lh_reaping_drop(c);
    lh_watch_stop(c);
    c->store->ops->stop(c->store, on_store_stopped, c);
}

/* Everybody is answered, or nobody can be asked any more: close the store. */
static void go_on_stopping(struct lh_coordinator *c)
{
    if (c->state == LH_CORE_STOPPING && !lh_lanes_are_up(c))
        lh_scopes_drop_all(c);
    if (c->state == LH_CORE_CLOSING || c->state == LH_CORE_STOPPED)
        lh_scopes_drop_all(c);
    if (c->state == LH_CORE_STOPPING && lh_scopes_count(c) == 0 && lh_lanes_are_quiet(c) && !has_answers(c))
        close_store(c);
}

static void end_call(struct lh_coordinator *c)
{
    lh_scopes_schedule_touched(c);
    lh_waiters_free_gone(c);
    arm(c);
}

static void end_event(struct lh_coordinator *c)
{
    assert(c->turn_depth == 1);
    c->wants_turn = false;
    lh_watch_pump(c);
    deliver(c);
    lh_batch_finish(c);
    lh_scopes_schedule_touched(c);
    go_on_stopping(c);
    lh_batches_dispatch(c);
    lh_hooks_dispatch(c);
    deliver(c);
    end_call(c);
    c->turn_depth--;
    if (c->state == LH_CORE_STOPPED && c->on_stopped != NULL) {
        void (*on_stopped)(void *) = c->on_stopped;
        c->on_stopped = NULL;
        on_stopped(c->on_stopped_arg);
    }
}

static const struct lh_turn turn = {.end_call = end_call, .end_event = end_event};

static void on_stop_timer(struct lh_coordinator *c)
{
    if (c->state == LH_CORE_STOPPING)
        close_store(c);
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
        case LH_TIMER_TOGETHER:
            lh_together_on_timer(c, LH_CONTAINER(struct lh_together, timer, timer));
            break;
        case LH_TIMER_TICK:
            lh_registration_on_tick(c);
            break;
        case LH_TIMER_REAP:
            lh_reaping_on_timer(c);
            break;
        case LH_TIMER_STOP:
            on_stop_timer(c);
            break;
        case LH_TIMER_PROGRESS:
            lh_wait_progress_on_timer(c, LH_CONTAINER(struct lh_wait_progress, timer, timer));
            break;
        case LH_TIMER_WATCH:
            lh_watch_on_timer(c);
            break;
        case LH_TIMER_HOOK:
            lh_hooks_on_timer(c);
            break;
        case LH_TIMER_LANE:
            break; /* the end of the turn looks for a lane */
        }
    }
    lh_turn_end_event(c);
}

/* --- from the store --- */

static void on_listener_up(void *arg)
{
    struct lh_coordinator *c = arg;
    lh_turn_begin(c);
    lh_scopes_wake_all(c);
    lh_turn_end_event(c);
}

static void on_wake(void *arg, const struct lh_wake *wake)
{
    struct lh_coordinator *c = arg;
    lh_turn_begin(c);
    if (wake->ns == NULL)
        lh_scopes_wake_all(c);
    else
        lh_scope_wake_named(c, wake->ns, wake->key);
    lh_turn_end_event(c);
}

static const struct lh_store_events store_events = {
    .on_lane_up = lh_batch_on_lane_up,
    .on_lane_down = lh_batch_on_lane_down,
    .on_control_up = lh_registration_on_up,
    .on_control_down = lh_registration_on_down,
    .on_listener_up = on_listener_up,
    .on_wake = on_wake,
    .on_watch = lh_watch_on_news,
    .on_asked = lh_asked_on_news,
    .on_spread = lh_spread_on_news,
};

/* --- its life --- */

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
    c->operations = operations;
    c->turn = &turn;
    c->armed_us = LH_NEVER;
    c->stop_timer.kind = LH_TIMER_STOP;
    lh_scopes_create(c);
    lh_waiters_create(c);
    lh_list_init(&c->holder_ops.done);
    lh_watch_create(c);
    lh_asked_create(c);
    lh_hook_queues_create(c);
    lh_reaping_create(c);
    return c;
}

void lh_coordinator_destroy(struct lh_coordinator *c)
{
    if (c == NULL)
        return;
    /* The requests may be gone with their callers: neither they nor their timers are touched. */
    lh_scopes_free_all(c);
    lh_reaping_destroy(c);
    lh_hook_queues_destroy(c);
    lh_lanes_destroy(c);
    lh_watch_destroy(c);
    lh_asked_destroy(c);
    lh_heap_finish(&c->timers);
    free(c);
}

void lh_coordinator_start(struct lh_coordinator *c)
{
    lh_turn_begin(c);
    set_state(c, LH_CORE_RUNNING);
    lh_lanes_create(c);
    lh_registration_start(c);
    lh_reaping_start(c);
    c->store->ops->start(c->store, &store_events, c);
    lh_turn_end_call(c);
}

void lh_coordinator_stop(struct lh_coordinator *c, void (*on_done)(void *arg), void *arg)
{
    lh_turn_begin(c);
    lh_info("coordinator stops waiters=%zu pending=%zu", lh_waiters_waiting(c), c->pending);
    set_state(c, LH_CORE_STOPPING);
    c->on_stopped = on_done;
    c->on_stopped_arg = arg;
    lh_heap_set(&c->timers, &c->stop_timer, c->now_us + STOP_LIMIT_US);
    lh_reaping_drop(c);
    c->wants_turn = true;
    lh_scopes_stop_all(c);
    lh_turn_end_call(c);
}

void lh_coordinator_wake(struct lh_coordinator *c, const char *ns, const char *key)
{
    lh_turn_begin(c);
    if (lh_scope_find(c, ns, key) != NULL)
        lh_scope_wake_named(c, ns, key);
    lh_turn_end_call(c);
}

void lh_coordinator_set_max_block(struct lh_coordinator *c, int64_t max_block_us)
{
    c->options.max_block_us = max_block_us;
}

void lh_coordinator_set_max_guard(struct lh_coordinator *c, int64_t max_guard_us)
{
    c->options.max_guard_us = max_guard_us;
}

struct lh_store *lh_coordinator_store(struct lh_coordinator *c)
{
    return c->store;
}

void lh_coordinator_stats(const struct lh_coordinator *c, struct lh_coordinator_stats *stats)
{
    *stats = c->stats;
    stats->waiters = lh_waiters_waiting(c);
    stats->pending = c->pending;
    stats->scopes = lh_scopes_count(c);
    stats->max_waiters = c->options.max_waiters;
    stats->max_pending = c->options.max_pending;
    stats->watchers = lh_watchers_count(c);
    stats->max_watchers = c->options.max_watchers;
    stats->hooked = c->hooks.waiting;
    stats->max_hooked = c->options.max_hooked;
    stats->reaps = c->reaping.jobs.count;
    stats->max_reaps = LH_REAPS_MAX;
}
