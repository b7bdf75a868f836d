/* What concerns every scope: starting, wake-ups without a name, registering again, stopping. */
#include "base/clock.h"
#include "base/log.h"
#include "lease/lane.h"
#include "lease/reaping.h"

#define STOP_LIMIT_US (5 * LH_US_PER_S)

static struct lh_scope *next_scope(struct lh_coordinator *c, size_t *slot, struct lh_table_entry **next)
{
    struct lh_table_entry *entry = lh_table_walk(&c->scopes, slot, next);
    return entry == NULL ? NULL : LH_CONTAINER(struct lh_scope, entry, entry);
}

#define SCOPE_EACH(scope)                                                                                              \
    size_t scope##_slot = 0;                                                                                           \
    struct lh_table_entry *scope##_next = NULL;                                                                        \
    struct lh_scope *scope;                                                                                            \
    while ((scope = next_scope(c, &scope##_slot, &scope##_next)) != NULL)

void lh_core_reschedule(struct lh_coordinator *c)
{
    SCOPE_EACH(scope)
    lh_scope_settle(c, scope);
}

void lh_core_ask_all(struct lh_coordinator *c)
{
    SCOPE_EACH(scope)
    {
        lh_scope_ask_all(c, scope);
        lh_scope_settle(c, scope);
    }
}

static void wake_all(struct lh_coordinator *c)
{
    SCOPE_EACH(scope)
    {
        bool is_asking = scope->in_flight > 0 && scope->flight_kind == LH_KIND_ACQUIRE;
        if (is_asking || !lh_list_is_empty(&scope->queue))
            lh_scope_wake(c, scope);
        lh_scope_settle(c, scope);
    }
}

static void on_listener_up(void *arg)
{
    struct lh_coordinator *c = arg;
    lh_turn_begin(c);
    wake_all(c);
    lh_turn_end_event(c);
}

static void on_wake(void *arg, const struct lh_wake *wake)
{
    struct lh_coordinator *c = arg;
    lh_turn_begin(c);
    if (wake->ns == NULL)
        wake_all(c);
    else
        lh_control_wake(c, wake);
    lh_turn_end_event(c);
}

void lh_coordinator_wake(struct lh_coordinator *c, const char *ns, const char *key)
{
    struct lh_wake wake = {ns, key, 0};
    lh_turn_begin(c);
    if (lh_scope_find(c, ns, key) != NULL)
        lh_control_wake(c, &wake);
    lh_turn_end_call(c);
}

static const struct lh_store_events store_events = {
    .on_lane_up = lh_lane_on_up,
    .on_lane_down = lh_lane_on_down,
    .on_control_up = lh_control_on_up,
    .on_control_down = lh_control_on_down,
    .on_listener_up = on_listener_up,
    .on_wake = on_wake,
    .on_watch = lh_watch_on_news,
};

void lh_coordinator_start(struct lh_coordinator *c)
{
    lh_turn_begin(c);
    lh_core_set_state(c, LH_CORE_RUNNING);
    lh_lanes_create(c);
    lh_control_start(c);
    c->store->ops->start(c->store, &store_events, c);
    lh_turn_end_call(c);
}

static struct lh_waiter *next_waiter(struct lh_coordinator *c, size_t *slot, struct lh_table_entry **next)
{
    struct lh_table_entry *entry = lh_table_walk(&c->waiters, slot, next);
    return entry == NULL ? NULL : LH_CONTAINER(struct lh_waiter, entry, entry);
}

/* Its place is kept in the database, so that its callers find it again at another coordinator. */
static void stop_waiter(struct lh_coordinator *c, struct lh_waiter *waiter)
{
    LH_REQUEST_EACH(request, waiter)
    {
        request->own.is_fresh = false;
        if (request->own.verdict == LH_OK || request->own.verdict == LH_LEASE_HELD)
            lh_request_set_verdict(c, request, LH_SHUTTING_DOWN);
    }
    if (waiter->state == LH_WAITER_LINED && !lh_waiter_may_be_in_database(waiter))
        lh_request_answer_all(c, waiter, LH_SHUTTING_DOWN, NULL);
    lh_waiter_review(c, waiter);
}

void lh_coordinator_stop(struct lh_coordinator *c, void (*on_done)(void *arg), void *arg)
{
    lh_turn_begin(c);
    lh_info("coordinator stops waiters=%zu pending=%zu", c->waiting, c->pending);
    lh_core_set_state(c, LH_CORE_STOPPING);
    c->on_stopped = on_done;
    c->on_stopped_arg = arg;
    lh_heap_set(&c->timers, &c->stop_timer, c->now_us + STOP_LIMIT_US);

    lh_reaping_drop(c);
    c->wants_turn = true;

    size_t slot = 0;
    struct lh_table_entry *next = NULL;
    struct lh_waiter *waiter;
    while ((waiter = next_waiter(c, &slot, &next)) != NULL)
        stop_waiter(c, waiter);
    lh_core_reschedule(c);
    lh_turn_end_call(c);
}

static void drop_waiter(struct lh_coordinator *c, struct lh_waiter *waiter)
{
    LH_REQUEST_EACH(request, waiter)
    {
        bool is_open = request->own.verdict == LH_OK || request->own.verdict == LH_LEASE_HELD;
        lh_request_answer(c, request, is_open ? LH_SHUTTING_DOWN : request->own.verdict, NULL);
    }
    lh_waiter_free(c, waiter);
}

void lh_core_drop_all(struct lh_coordinator *c)
{
    size_t slot = 0;
    struct lh_table_entry *next = NULL;
    struct lh_waiter *waiter;
    while ((waiter = next_waiter(c, &slot, &next)) != NULL) {
        if (waiter->state != LH_WAITER_ASKED && waiter->state != LH_WAITER_LEFT)
            drop_waiter(c, waiter);
    }
    SCOPE_EACH(scope)
    {
        lh_direct_drop(c, scope);
        lh_scope_settle(c, scope);
    }
}
