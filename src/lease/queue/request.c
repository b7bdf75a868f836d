/*
 * The requests of a waiter. Each carries its own limits and a verdict: its answer if it is not granted. A request that
 * does not wait has its verdict from the start; one that waits gets it when its time has passed. It is then answered
 * with the contention in the next answer of the database: of the leave if it is the last of its waiter, else of an
 * acquire. If that answer cannot come (the row is busy, the database down) the request is answered without it.
 */

#include "lease/hooks_internal.h"
#include "lease/queue/together.h"

static void begin(struct lh_coordinator *c, struct lh_acquire *request)
{
    request->own = (__typeof__(request->own)){0};
    request->own.timer.kind = LH_TIMER_REQUEST;
    request->own.arrived_us = c->now_us;
    request->own.wait_until_us = LH_NEVER;
    request->own.looks_again = c->options.max_block_us == 0 || request->on_progress != NULL;
    if (request->wait == LH_WAIT_NONE)
        request->own.verdict = LH_LEASE_HELD;
    if (request->wait == LH_WAIT_TIME)
        request->own.wait_until_us = lh_time_add(c->now_us, request->wait_us);
    request->own.block_until_us = request->own.looks_again ? LH_NEVER : lh_time_add(c->now_us, c->options.max_block_us);
}

/* Are all its requests of the kind that came while it was leaving? */
static bool has_only_fresh(const struct lh_waiter *waiter)
{
    LH_REQUEST_EACH(request, waiter)
    {
        if (!request->own.is_fresh)
            return false;
    }
    return true;
}

static void join(struct lh_coordinator *c, struct lh_waiter *waiter, struct lh_acquire *request)
{
    waiter->keeps_place = false;
    switch (waiter->state) {
    case LH_WAITER_NEW:
    case LH_WAITER_QUEUED:
        lh_waiter_set_state(c, waiter, LH_WAITER_LINED, "a request came");
        break;
    case LH_WAITER_LEAVING:
        if (has_only_fresh(waiter) && lh_together_is_whole(waiter))
            lh_waiter_set_state(c, waiter, LH_WAITER_LINED, "it came back before it had left");
        else
            request->own.is_fresh = true;
        break;
    case LH_WAITER_LEFT:
    case LH_WAITER_OUT:
        request->own.is_fresh = true;
        break;
    default:
        break;
    }
    lh_request_attach(c, waiter, request);
    lh_request_arm(c, request);
    if (waiter->scope->is_dead)
        lh_request_on_liveness(c, request, true);
}

/* What one lease key asks for has one answer, so all its requests ask for the same. */
static bool is_of_another_mode(const struct lh_waiter *waiter, const struct lh_acquire *request)
{
    const struct lh_acquire *other = LH_LIST_FIRST(struct lh_acquire, &waiter->requests, own.link);
    return (other != NULL && other->units != request->units) || !lh_together_is_same(waiter, request);
}

/* NULL: in one of its other scopes the lease key asks for something else. */
static struct lh_waiter *create(struct lh_coordinator *c, struct lh_scope *scope, const struct lh_acquire *request)
{
    struct lh_waiter *waiter;

    if (lh_together_is_taken(c, request))
        return NULL;
    waiter = lh_waiter_create(c, scope, &request->lease_key);
    waiter->units = request->units;
    if (request->also_count > 0)
        lh_together_form(c, waiter, request->also, request->also_count);
    return waiter;
}

enum lh_status lh_coordinator_acquire(struct lh_coordinator *c, struct lh_acquire *request)
{
    if (lh_readiness_of_life(c) != LH_OK)
        return lh_readiness_of_life(c);
    if (lh_readiness_is_given_up(c))
        return LH_DATABASE_UNAVAILABLE;
    /* Promise 12: bounded. The last quarter is for heartbeats and releases alone. */
    bool is_full = request->wait == LH_WAIT_NONE
                       ? c->pending >= c->options.max_pending - c->options.max_pending / 4
                       : c->queue.waiting + c->queue.orphans + request->also_count >= c->options.max_waiters;
    if (is_full) {
        c->stats.refused++;
        c->stats.refused_waiters += request->wait != LH_WAIT_NONE;
        return LH_OVERLOADED;
    }

    lh_turn_begin(c);
    if (lh_hook_queue_refuse(c, request->ns, request->also_count > 0 ? LH_KIND_ACQUIRE_ALL : LH_KIND_ACQUIRE)) {
        lh_turn_end_call(c);
        return LH_OVERLOADED;
    }
    begin(c, request);
    struct lh_scope *scope = lh_scope_get(c, request->ns, request->key);
    struct lh_waiter *waiter = lh_waiter_find(c, scope, &request->lease_key);
    if (waiter == NULL)
        waiter = create(c, scope, request);
    if (waiter == NULL || is_of_another_mode(waiter, request)) {
        lh_scope_schedule_or_free(c, scope);
        lh_turn_end_call(c);
        return LH_INVALID_ARGUMENT;
    }
    join(c, waiter, request);
    lh_scope_schedule_or_free(c, scope);
    lh_turn_end_call(c);
    return LH_OK;
}

void lh_coordinator_cancel(struct lh_coordinator *c, struct lh_acquire *request)
{
    if (request->own.is_answering) {
        /* Granted in this very turn and not told yet: it is given back when nobody takes it. */
        if (request->own.verdict == LH_OK)
            request->own.verdict = LH_CANCELED;
        return;
    }
    struct lh_waiter *waiter = request->own.waiter;
    if (waiter == NULL)
        return;

    lh_turn_begin(c);
    struct lh_scope *scope = waiter->scope;
    lh_request_answer(c, request, LH_CANCELED, NULL);
    if (lh_list_is_empty(&waiter->requests)) {
        waiter->keeps_place = false;
        waiter->gone_wanted = waiter->state == LH_WAITER_LEFT || waiter->state == LH_WAITER_OUT ||
                              (waiter->state == LH_WAITER_LEAVING && waiter->together != NULL);
    }
    lh_waiter_review(c, waiter);
    lh_scope_schedule_or_free(c, scope);
    lh_turn_end_call(c);
}

void lh_coordinator_send_back(struct lh_coordinator *c, struct lh_acquire *request)
{
    struct lh_waiter *waiter = request->own.waiter;

    if (request->own.is_answering || waiter == NULL)
        return;
    lh_turn_begin(c);
    struct lh_scope *scope = waiter->scope;
    lh_request_answer(c, request, LH_DATABASE_UNAVAILABLE, NULL);
    lh_waiter_review(c, waiter);
    lh_scope_schedule_or_free(c, scope);
    lh_turn_end_call(c);
}

static bool is_delayed_in(const struct lh_coordinator *c, const struct lh_scope *scope)
{
    return scope->delay_us[LH_KIND_LEAVE] > 0 || lh_hook_queue_wants(c, scope, LH_KIND_LEAVE);
}

/* Returns whether its leave, or that of another of its places, is put off: a row is busy, the database refuses it, or it is for a
 * hook lane. */
static bool is_leave_delayed(const struct lh_coordinator *c, const struct lh_waiter *waiter)
{
    if (waiter->together == NULL)
        return is_delayed_in(c, waiter->scope);
    LH_PLACE_EACH(place, waiter->together)
    {
        if (is_delayed_in(c, place->waiter->scope))
            return true;
    }
    return false;
}

static bool is_for_hook_lane(const struct lh_coordinator *c, const struct lh_waiter *waiter)
{
    return waiter->together != NULL ? waiter->together->is_hooked
                                    : lh_hook_queue_wants(c, waiter->scope, LH_KIND_ACQUIRE);
}

/* What to say now to a request whose verdict is due, or LH_OK: an answer of the database is on its way. */
static enum lh_status overdue_status(const struct lh_coordinator *c, const struct lh_acquire *request, bool is_first)
{
    const struct lh_waiter *waiter = request->own.waiter;
    const struct lh_scope *scope = waiter->scope;
    const struct lh_together *together = waiter->together;
    bool is_hooked = is_for_hook_lane(c, waiter);
    bool is_full = together != NULL ? together->is_full : scope->is_full;
    int fails = together != NULL ? together->fails : scope->fails;
    bool is_delayed = together != NULL ? together->is_resting : scope->delay_us[LH_KIND_ACQUIRE] > 0;

    switch ((enum lh_waiter_state)waiter->state) {
    case LH_WAITER_LINED:
        if (!lh_lanes_are_up(c) || !lh_database_is_registered(c))
            return LH_DATABASE_UNAVAILABLE;
        if (is_hooked && !lh_lanes_have_hook_lane(c))
            return LH_DATABASE_UNAVAILABLE;
        /* In a line that may be long: it is answered after its own wait or busy_limit, whether its turn came or not. */
        if (is_hooked)
            return request->wait == LH_WAIT_NONE ? LH_SCOPE_BUSY : request->own.verdict;
        if (!is_delayed)
            return LH_OK;
        if (request->wait != LH_WAIT_NONE)
            return request->own.verdict;
        return fails > 0 ? LH_INTERNAL : is_full ? LH_OVERLOADED : LH_SCOPE_BUSY;
    case LH_WAITER_QUEUED:
        return !lh_lanes_are_up(c) ? LH_DATABASE_UNAVAILABLE : LH_OK;
    case LH_WAITER_LEAVING:
    case LH_WAITER_OUT:
        if (!lh_lanes_are_up(c))
            return LH_DATABASE_UNAVAILABLE;
        if (is_first || !is_leave_delayed(c, waiter))
            return LH_OK;
        return request->wait == LH_WAIT_NONE ? LH_SCOPE_BUSY : request->own.verdict;
    default:
        return LH_OK;
    }
}

void lh_request_on_timer(struct lh_coordinator *c, struct lh_acquire *request)
{
    struct lh_waiter *waiter = request->own.waiter;
    struct lh_scope *scope = waiter->scope;
    bool is_first = request->own.verdict == LH_OK;

    if (is_first) {
        bool is_wait = request->own.wait_until_us <= request->own.block_until_us;
        request->own.verdict = is_wait ? LH_WAIT_TIMEOUT : LH_BLOCKING_TIMEOUT;
    }
    enum lh_status status = overdue_status(c, request, is_first);
    if (status != LH_OK && is_for_hook_lane(c, waiter))
        request->own.message = lh_hook_queue_trouble(c, scope, LH_KIND_ACQUIRE);
    if (status != LH_OK)
        lh_request_answer(c, request, status, NULL);
    else
        lh_request_arm(c, request);
    lh_waiter_review(c, waiter);
    lh_scope_schedule_or_free(c, scope);
}

/* --- answers --- */

static void fill_result(const struct lh_coordinator *c, const struct lh_acquire *request,
                        struct lh_acquire_result *result, struct lh_contention *contention)
{
    const struct lh_entry *entry = request->own.entry;
    const struct lh_acquire_item *acquire = entry == NULL ? NULL : entry->acquire;
    const struct lh_leave_item *leave = entry == NULL ? NULL : entry->leave;

    *result = (struct lh_acquire_result){.status = request->own.verdict, .message = request->own.message};
    if (entry == NULL || result->status == LH_CANCELED)
        return;
    result->batch = c->lanes.record; /* `entry` is of it */
    result->waited_us = entry->sent_us > request->own.arrived_us ? entry->sent_us - request->own.arrived_us : 0;
    if (acquire != NULL) {
        result->message = acquire->message;
        result->field = acquire->field;
        result->bound = acquire->bound;
    }
    if (entry->all != NULL)
        result->about = (size_t)(acquire - entry->all);
    if (result->status == LH_OK) {
        result->all = entry->all;
        result->lease = acquire != NULL ? &acquire->lease : &leave->lease;
        result->is_renewal = entry->is_renewal;
        return;
    }
    bool tells_holder = leave != NULL || acquire->outcome == LH_ACQUIRE_QUEUED || acquire->outcome == LH_ACQUIRE_HELD;
    if (!tells_holder)
        return;
    if (acquire != NULL)
        *contention = (struct lh_contention){.has_holder = acquire->has_lease,
                                             .holder = acquire->lease,
                                             .holder_count = acquire->holder_count,
                                             .units_free = acquire->units_free,
                                             .waiters_ahead = acquire->waiters_ahead,
                                             .rests_us = acquire->rests_in_us};
    else
        *contention = (struct lh_contention){.has_holder = leave->has_lease,
                                             .holder = leave->lease,
                                             .holder_count = leave->holder_count,
                                             .units_free = leave->units_free,
                                             .waiters_ahead = leave->waiters_ahead,
                                             .rests_us = leave->rests_in_us};
    result->contention = contention;
}

void lh_reply_deliver(struct lh_coordinator *c)
{
    while (!lh_list_is_empty(&c->queue.answers)) {
        struct lh_acquire *request = LH_LIST_FIRST(struct lh_acquire, &c->queue.answers, own.link);
        struct lh_acquire_result result;
        struct lh_contention contention;

        lh_list_remove(&request->own.link);
        request->own.is_answering = false; /* from here on it is the caller's: a late cancel finds nothing */
        fill_result(c, request, &result, &contention);
        if (result.status == LH_OK)
            request->own.entry->is_taken = true;
        request->on_done(request, &result);
    }
}
