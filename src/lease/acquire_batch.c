/*
 * Batches of acquires: writing the items, and applying their answers.
 *
 * A batch answers only the requests that came before it was sent: a caller counts the deadline from when it sent its
 * request, so an older statement would tell it more time than it has. Requests that came later are asked for again.
 */

#include "lease/hooks_internal.h"
#include "lease/queue/together.h"
#include "lease/queue/wait_progress.h"

/* Of several callers with one lease key the newest most likely still listens: its words hold. */
const struct lh_acquire *lh_acquire_newest(const struct lh_waiter *waiter)
{
    return LH_CONTAINER(const struct lh_acquire, own.link, waiter->requests.prev);
}

static const char *keep(struct lh_lane *lane, const char *text, const char *otherwise)
{
    return lh_arena_strdup(&lane->strings, text != NULL ? text : otherwise);
}

/* The request may end before the answer comes. */
static struct lh_acquire_terms keep_terms(struct lh_lane *lane, const struct lh_acquire_terms *terms)
{
    struct lh_acquire_terms kept = *terms;

    kept.owner = keep(lane, terms->owner, "");
    kept.principal = keep(lane, terms->principal, "");
    kept.labels = keep(lane, terms->labels, "{}");
    return kept;
}

void lh_acquire_write(struct lh_lane *lane, size_t place, struct lh_waiter *waiter, struct lh_scope *scope,
                      int32_t units, int64_t at_least_us)
{
    struct lh_coordinator *c = lane->coordinator;
    struct lh_acquire_item *item = &lane->acquires[place];
    const struct lh_acquire *newest = lh_acquire_newest(waiter);

    *item = (struct lh_acquire_item){
        .ns = lh_arena_strdup(&lane->strings, scope->ns),
        .key = lh_arena_strdup(&lane->strings, scope->key),
        .lease_key = waiter->lease_key,
        .terms = keep_terms(lane, &newest->terms),
        .units = units,
        .at_least_us = at_least_us,
        .queue = lh_waiter_wants(waiter),
        .ticket = waiter->ticket,
        .hook_timeout_us = lane->hook_timeout_us,
    };
    item->wait_us = item->queue ? lh_waiter_wait_us(c, waiter) : 0;
    lane->entries[place] =
        (struct lh_entry){.waiter = waiter, .scope = scope, .acquire = item, .sent_us = lane->sent_us};
    scope->in_flight++;
}

/* By itself, or behind releases. */
static void ask(struct lh_lane *lane, struct lh_waiter *waiter)
{
    const struct lh_acquire *newest = lh_acquire_newest(waiter);
    bool is_rider = lane->kind == LH_KIND_RELEASE;
    size_t place = is_rider ? lane->rider_count++ : lane->n++;

    lh_waiter_set_state(lane->coordinator, waiter, LH_WAITER_ASKED, "a batch takes it");
    waiter->units = newest->units;
    lh_waiter_set_priority(waiter, newest);
    lh_acquire_write(lane, place, waiter, waiter->scope, newest->units, newest->at_least_us);
    if (is_rider)
        lane->riders[place] = &lane->acquires[place];
    else
        lane->items[place] = &lane->acquires[place];
}

static struct lh_waiter *first(const struct lh_scope *scope)
{
    return lh_together_next_alone(scope);
}

static int64_t oldest_us(const struct lh_scope *scope, enum lh_kind kind)
{
    const struct lh_waiter *waiter = first(scope);
    return waiter == NULL ? LH_NEVER : waiter->since_us;
}

static uint64_t client_of(const struct lh_scope *scope)
{
    return lh_waiter_client(first(scope));
}

static void take(struct lh_lane *lane, struct lh_scope *scope, size_t room)
{
    struct lh_waiter *waiter;
    for (; room > 0 && (waiter = first(scope)) != NULL; room--)
        ask(lane, waiter);
}

/* Newcomers that go behind the rider, and so with the hand-over's transaction; the others make a batch. */
#define BEHIND_MAX 12
#define HAND_OVER_AND_JOIN 3 /* items */

/* Has no place, as far as known, and will get the last one of the queue. */
static bool is_newcomer(const struct lh_waiter *waiter)
{
    const struct lh_acquire *newest = lh_acquire_newest(waiter);

    return !lh_waiter_may_be_in_database(waiter) && newest->units == 0 && newest->terms.priority == 0;
}

/* In a long queue a place of its own transaction costs a commit, a row lock and, in front of the next hand-over, its time. */
static void take_along(struct lh_lane *lane, struct lh_scope *scope)
{
    const struct lh_coordinator *c = lane->coordinator;
    struct lh_waiter *next;

    if (!lh_ready_has_long_queue(scope) || !lh_lane_is_worth(c, HAND_OVER_AND_JOIN))
        return;
    for (size_t i = 0; i < BEHIND_MAX && lane->rider_count < c->options.batch_max; i++) {
        if ((next = first(scope)) == NULL || !is_newcomer(next))
            break;
        ask(lane, next);
    }
    scope->has_taken_all = lh_list_is_empty(&scope->line);
}

/*
 * Behind an exclusive holder, our first waiter and with a shared one those shared ones that follow it; behind a shared
 * holder only so many as its release may make room for. A writer behind readers is left to the wake-up that the last
 * of them brings: it would be asked for at the end of each.
 */
static void ride(struct lh_lane *lane, struct lh_scope *scope)
{
    struct lh_coordinator *c = lane->coordinator;
    uint32_t freed = scope->in_flight; /* a unit at least by each release */
    struct lh_waiter *next = LH_LIST_FIRST(struct lh_waiter, &scope->queue, link);
    int64_t room = (int64_t)freed + scope->units_free;

    if (lh_list_is_empty(&scope->again) && next != NULL && next->units == 0 && scope->is_shared)
        return;
    if (next != NULL && next->together != NULL)
        return; /* it is asked for all of its scopes at once */
    lh_scope_ask_first(c, scope, freed);
    while ((next = LH_LIST_FIRST(struct lh_waiter, &scope->again, link)) != NULL && next->together == NULL &&
           lane->rider_count < c->options.batch_max) {
        if (scope->prioritized > 0) { /* the database knows which of them it is */
            ask(lane, next);
            scope->has_rider = true;
            continue;
        }
        if (scope->has_rider && (next->units == 0 || next->units > room))
            return;
        room -= next->units;
        ask(lane, next);
        scope->has_rider = true;
        if (next->units == 0) {
            take_along(lane, scope);
            return;
        }
    }
}

void lh_acquire_ride(struct lh_lane *lane, struct lh_scope *scope)
{
    struct lh_coordinator *c = lane->coordinator;
    bool is_plain = scope->delay_us[LH_KIND_RELEASE] == 0 && scope->delay_us[LH_KIND_ACQUIRE] == 0 &&
                    lh_list_is_empty(&scope->leaves) && !lh_hook_queue_wants(c, scope, LH_KIND_ACQUIRE);

    if (lane->hook_queue != NULL || !is_plain || c->state != LH_CORE_RUNNING ||
        !lh_scope_can_send(c, LH_KIND_ACQUIRE) || lh_turn_is_behind(c))
        return;
    ride(lane, scope);
}

/* Did the batch ask for it, after it came (promise 3), and in its mode? One with the same lease key may want another. */
static bool is_covered(const struct lh_acquire *request, const struct lh_entry *entry)
{
    return request->own.arrived_us <= entry->sent_us && (entry->all != NULL || request->units == entry->acquire->units);
}

/* Came after it was asked for, and waits longer than the place that it has: nobody is woken for a place whose wait is over. */
static bool outlives(const struct lh_acquire *request, const struct lh_entry *entry)
{
    return request->own.wait_until_us > lh_time_add(entry->sent_us, entry->acquire->wait_us);
}

static void ask_again_or_go(struct lh_coordinator *c, struct lh_waiter *waiter, const char *reason)
{
    if (!lh_list_is_empty(&waiter->requests)) {
        lh_waiter_set_state(c, waiter, LH_WAITER_LINED, reason);
        lh_waiter_review(c, waiter);
    } else if (lh_waiter_may_be_in_database(waiter)) {
        lh_waiter_leave(c, waiter, reason);
    } else {
        lh_waiter_free(c, waiter);
    }
}

static void learn_grant(struct lh_coordinator *c, struct lh_scope *scope, const struct lh_acquire_item *item,
                        int64_t ticket, bool is_renewal)
{
    if (is_renewal)
        c->stats.renewals++;
    else
        c->stats.grants++;
    if (!is_renewal && item->units > 0)
        c->stats.shared_grants++;
    scope->units_free = item->units_free;
    scope->has_room = item->units > 0;
    lh_scope_learn_grant(c, scope, &item->lease, item->rests_in_us);
    lh_wait_progress_departed(c, scope, ticket);
}

static void on_granted(struct lh_coordinator *c, struct lh_entry *entry)
{
    struct lh_waiter *waiter = entry->waiter;
    bool is_from_before = entry->acquire->lease.acquired_at_us < lh_waiter_unheard_since_us(c, waiter);
    bool is_renewal =
        entry->acquire->outcome == LH_ACQUIRE_RENEWED && (lh_waiter_is_grant_known(waiter) || is_from_before);
    bool comes_back = waiter->keeps_place && lh_list_is_empty(&waiter->requests);

    /* A renewal whose caller went is not given back: the lease has an owner from before. */
    entry->is_grant = !is_renewal && !comes_back;
    entry->is_renewal = is_renewal;
    learn_grant(c, entry->scope, entry->acquire, waiter->ticket, is_renewal);
    for (size_t i = 1; entry->all != NULL && i < waiter->together->count; i++)
        learn_grant(c, waiter->together->places[i].waiter->scope, &entry->all[i], waiter->ticket, is_renewal);
    lh_waiter_settle_grant(waiter);
    lh_waiter_set_ticket(waiter, 0);
    LH_REQUEST_EACH(request, waiter)
    {
        if (!is_covered(request, entry))
            continue;
        lh_request_answer(c, request, LH_OK, entry);
        lh_waiter_set_grant(waiter, LH_GRANT_TAKEN);
        waiter->unheard_since_us = c->now_us;
    }
    ask_again_or_go(c, waiter, "a request came after the grant was sent for");
}

/*
 * It was asked for again, no holder is in its way, and yet it was not its turn: somebody is ahead, maybe a row of ours
 * that nobody here knows.
 */
static void look_ahead(struct lh_entry *entry)
{
    const struct lh_acquire_item *item = entry->acquire;
    bool fits = item->units > 0 && item->has_lease && item->lease.units > 0 && item->units <= item->units_free;
    bool is_free = (!item->has_lease || fits) && item->rests_in_us == 0;

    entry->scope->looks_ahead |= item->ticket > 0 && is_free;
}

static void on_queued(struct lh_coordinator *c, struct lh_entry *entry)
{
    struct lh_waiter *waiter = entry->waiter;
    bool wants = lh_waiter_wants(waiter);
    bool has_late = false;

    lh_waiter_set_ticket(waiter, entry->acquire->new_ticket);
    lh_waiter_settle_grant(waiter);
    bool is_stuck = lh_together_waits_for(waiter, entry->scope);
    lh_scope_learn_queued(c, entry->scope, waiter, entry->acquire);
    LH_REQUEST_EACH(request, waiter)
    {
        lh_request_on_liveness(c, request, waiter->scope->is_dead);
        lh_wait_progress_queued(c, request, entry->acquire->waiters_ahead);
        bool is_due = request->own.verdict != LH_OK;
        if (is_due ? !is_covered(request, entry) : outlives(request, entry))
            has_late = true;
        else if (is_due && (wants || entry->all != NULL || request->own.verdict == LH_LEASE_HELD))
            lh_request_answer(c, request, request->own.verdict, entry); /* the leave has no answer, or comes later */
    }
    if (has_late)
        lh_waiter_set_state(c, waiter, LH_WAITER_LINED, "a request came after this was asked");
    else if (wants)
        lh_waiter_set_state(c, waiter, LH_WAITER_QUEUED, "its turn will come");
    else
        lh_waiter_leave(c, waiter, "its requests ended meanwhile");
    if (is_stuck)
        look_ahead(entry);
    if (entry->acquire->ticket > 0 && entry->acquire->new_ticket > entry->acquire->ticket)
        lh_scope_wake(c, entry->scope); /* its wait was over, and it has a place behind others now */
    if (entry->acquire->has_lease && entry->acquire->expires_in_us == 0 && entry->acquire->ticket > 0)
        lh_reaping_soon(c); /* it has expired, and yet it could not be taken over */
}

static void note_busy(struct lh_coordinator *c, struct lh_entry *entry)
{
    if (entry->waiter->together != NULL)
        lh_together_busy(c, entry->waiter->together);
    else
        entry->scope->trouble = LH_SCOPE_BUSY;
}

static void on_held(struct lh_coordinator *c, struct lh_entry *entry)
{
    struct lh_waiter *waiter = entry->waiter;
    LH_REQUEST_EACH(request, waiter)
    {
        if (request->own.verdict != LH_OK && is_covered(request, entry))
            lh_request_answer(c, request, request->own.verdict, entry);
    }
    if (entry->acquire->queue)
        note_busy(c, entry); /* it should have been queued: do not ask in a hurry */
    ask_again_or_go(c, waiter, "it was held, and no request here waits any more");
}

/* One that can never fit is out of the queue, and may have been the first of it. */
static void on_invalid(struct lh_coordinator *c, struct lh_entry *entry)
{
    if (entry->acquire->ticket > 0)
        lh_together_wake(c, entry->waiter);
}

static void on_refused(struct lh_coordinator *c, struct lh_entry *entry, enum lh_status status)
{
    struct lh_waiter *waiter = entry->waiter;
    LH_REQUEST_EACH(request, waiter)
    {
        if (is_covered(request, entry))
            lh_request_answer(c, request, status, entry);
    }
    ask_again_or_go(c, waiter, "it was refused");
}

static void on_busy(struct lh_coordinator *c, struct lh_entry *entry)
{
    c->stats.busy++;
    note_busy(c, entry);
    ask_again_or_go(c, entry->waiter, "its row was busy");
}

/* Its row in the queue, if it had one, is gone. */
static void on_rejected(struct lh_coordinator *c, struct lh_entry *entry)
{
    enum lh_kind kind = entry->all != NULL ? LH_KIND_ACQUIRE_ALL : LH_KIND_ACQUIRE;
    bool has_waited = entry->all != NULL && entry->waiter->ticket > 0;

    lh_hook_queue_on_rejected(c, kind, entry->acquire->message);
    lh_wait_progress_departed(c, entry->scope, entry->waiter->ticket);
    lh_waiter_set_ticket(entry->waiter, 0);
    /* What may have been its lease for long is not given back. */
    if (entry->waiter->grant != LH_GRANT_UNTAKEN)
        lh_waiter_settle_grant(entry->waiter);
    if (entry->acquire->waiters_ahead < 0 || has_waited)
        lh_together_wake(c, entry->waiter);
    on_refused(c, entry, LH_HOOK_REJECTED);
}

static void on_hooked(struct lh_lane *lane, struct lh_entry *entry)
{
    struct lh_coordinator *c = lane->coordinator;
    struct lh_waiter *waiter = entry->waiter;
    enum lh_kind kind = entry->all != NULL ? LH_KIND_ACQUIRE_ALL : LH_KIND_ACQUIRE;

    /* Its own kind, and not the lane's: it may have ridden behind a release. */
    if (!lh_hook_queue_learn(lane, entry->scope, kind, entry->acquire->hook_timeout_us)) {
        on_busy(c, entry);
        return;
    }
    if (waiter->together != NULL)
        lh_together_hooked(waiter->together, entry->acquire->hook_timeout_us);
    if (lh_hook_queue_refuse(c, entry->scope->ns, kind)) {
        LH_REQUEST_EACH(request, waiter)
        {
            if (request->wait == LH_WAIT_NONE)
                lh_request_answer(c, request, LH_OVERLOADED, NULL);
        }
    }
    ask_again_or_go(c, waiter, "its hooks are to run");
}

void lh_acquire_on_answer(struct lh_lane *lane, struct lh_entry *entry)
{
    struct lh_coordinator *c = lane->coordinator;

    switch (entry->acquire->outcome) {
    case LH_ACQUIRE_GRANTED:
    case LH_ACQUIRE_RENEWED:
        on_granted(c, entry);
        break;
    case LH_ACQUIRE_QUEUED:
        on_queued(c, entry);
        break;
    case LH_ACQUIRE_HELD:
        on_held(c, entry);
        break;
    case LH_ACQUIRE_BUSY:
        on_busy(c, entry);
        break;
    case LH_ACQUIRE_FROZEN:
        on_refused(c, entry, LH_NAMESPACE_FROZEN);
        break;
    case LH_ACQUIRE_QUOTA:
        on_refused(c, entry, LH_QUOTA_EXCEEDED);
        break;
    case LH_ACQUIRE_ENDED:
        on_refused(c, entry, LH_LEASE_ENDED);
        break;
    case LH_ACQUIRE_INVALID:
        on_invalid(c, entry);
        on_refused(c, entry, LH_INVALID_ARGUMENT);
        break;
    case LH_ACQUIRE_DENIED:
        on_invalid(c, entry);
        on_refused(c, entry, LH_ACCESS_DENIED);
        break;
    case LH_ACQUIRE_ELSEWHERE: /* it is out of the queue too */
        on_invalid(c, entry);
        on_refused(c, entry, LH_DATABASE_UNAVAILABLE);
        lh_spread_loading_on_elsewhere(c);
        break;
    case LH_ACQUIRE_REJECTED:
        on_rejected(c, entry);
        break;
    case LH_ACQUIRE_HOOKED:
        on_hooked(lane, entry);
        break;
    }
}

/* Did the hook break the connection? Not where the server says who ended the session. */
static void on_lost_hook(struct lh_coordinator *c, struct lh_entry *entry, const struct lh_error *error)
{
    struct lh_waiter *waiter = entry->waiter;
    struct lh_scope *scope = entry->scope;

    if (error != NULL && error->sqlstate[0] != '\0') {
        note_busy(c, entry);
    } else if (++scope->hook_losses >= LH_HOOK_LOSSES_MAX) {
        scope->hook_losses = 0;
        waiter->keeps_place = true; /* a lease that it may have is not given back */
        lh_request_answer_all(c, waiter, LH_HOOK_REJECTED,
                              "the connection to the database was lost each time that its hook ran");
    }
}

static void note_failure(struct lh_coordinator *c, struct lh_entry *entry, enum lh_status trouble)
{
    if (entry->waiter->together != NULL)
        lh_together_failed(c, entry->waiter, trouble == LH_OVERLOADED);
    else
        entry->scope->trouble = (uint8_t)trouble;
}

void lh_acquire_on_error(struct lh_lane *lane, struct lh_entry *entry, enum lh_status status,
                         const struct lh_error *error)
{
    struct lh_coordinator *c = lane->coordinator;
    struct lh_waiter *waiter = entry->waiter;
    if (status == LH_DATABASE_UNAVAILABLE || status == LH_CANCELED) {
        if (lane->is_sent)
            lh_waiter_doubt_grant(waiter);
        if (lane->hook_queue != NULL && lane->is_sent)
            on_lost_hook(c, entry, error);
    } else {
        enum lh_status trouble = status == LH_OVERLOADED ? LH_OVERLOADED : LH_INTERNAL;
        LH_REQUEST_EACH(request, waiter)
        {
            if (request->own.verdict == LH_OK)
                continue; /* a bad minute of the database does not throw a waiter out */
            request->own.message = error != NULL ? error->message : NULL;
            lh_request_answer(c, request, trouble, NULL);
        }
        note_failure(c, entry, trouble);
    }
    ask_again_or_go(c, waiter, "its batch failed");
}

static void on_done(struct lh_lane *lane, enum lh_status status, const struct lh_error *error)
{
    struct lh_coordinator *c = lane->coordinator;
    for (size_t i = 0; i < lane->n; i++) {
        struct lh_entry *entry = &lane->entries[i];
        struct lh_scope *scope = entry->scope;
        if (status == LH_OK && lane->hook_queue != NULL)
            scope->hook_losses = 0;
        if (status == LH_OK)
            lh_acquire_on_answer(lane, entry);
        else
            lh_acquire_on_error(lane, entry, status, error);
        lh_scope_item_done(c, scope, LH_KIND_ACQUIRE);
    }
}

void lh_acquire_on_riders_done(struct lh_lane *lane, enum lh_status status, const struct lh_error *error)
{
    struct lh_coordinator *c = lane->coordinator;
    for (size_t i = 0; i < lane->rider_count; i++) {
        struct lh_entry *entry = &lane->entries[i];
        struct lh_scope *scope = entry->scope;
        scope->has_rider = false;
        if (status == LH_OK && entry->acquire->outcome == LH_ACQUIRE_GRANTED && scope->has_taken_all)
            scope->joins_us = (uint32_t)(c->now_us + LH_JOIN_US);
        scope->has_taken_all = false;
        if (status == LH_OK)
            lh_acquire_on_answer(lane, entry);
        else
            lh_acquire_on_error(lane, entry, status, error);
        lh_scope_item_done(c, scope, (enum lh_kind)scope->flight_kind);
    }
}

const struct lh_operation lh_acquire_operation = {
    .name = "acquire",
    .oldest_us = oldest_us,
    .client_of = client_of,
    .take = take,
    .on_done = on_done,
};
