/*
 * Batches of leaves. A waiter whose requests have all gone, or whose time has passed, leaves the queue in the database
 * first; requests that are owed an answer are answered after that. GONE gives up the place, and a lease that was
 * granted in the same instant; AWAY keeps the place until the caller comes back.
 */

#include "lease/hooks_internal.h"
#include "lease/queue/together.h"
#include "lease/queue/wait_progress.h"

static void leave(struct lh_lane *lane, struct lh_waiter *waiter)
{
    struct lh_coordinator *c = lane->coordinator;
    struct lh_entry *entry = &lane->entries[lane->n];
    struct lh_leave_item *item = &lane->leaves[lane->n];

    lh_waiter_set_state(c, waiter, LH_WAITER_LEFT, "a batch takes it");
    *item = (struct lh_leave_item){
        .ns = lh_arena_strdup(&lane->strings, waiter->scope->ns),
        .key = lh_arena_strdup(&lane->strings, waiter->scope->key),
        .lease_key = waiter->lease_key,
        .kind = (enum lh_leave_kind)waiter->leave_kind,
        .unheard_since_us = lh_waiter_unheard_since_us(c, waiter),
        .hook_timeout_us = lane->hook_timeout_us,
    };
    *entry = (struct lh_entry){.waiter = waiter, .scope = waiter->scope, .leave = item, .sent_us = lane->sent_us};
    lane->items[lane->n++] = item;
    waiter->scope->in_flight++;
}

static int64_t oldest_us(const struct lh_scope *scope, enum lh_kind kind)
{
    const struct lh_waiter *waiter = LH_LIST_FIRST(struct lh_waiter, &scope->leaves, link);
    return waiter == NULL ? LH_NEVER : waiter->since_us;
}

static uint64_t client_of(const struct lh_scope *scope)
{
    return lh_waiter_client(LH_LIST_FIRST(struct lh_waiter, &scope->leaves, link));
}

static void take(struct lh_lane *lane, struct lh_scope *scope, size_t room)
{
    for (; room > 0 && !lh_list_is_empty(&scope->leaves); room--)
        leave(lane, LH_LIST_FIRST(struct lh_waiter, &scope->leaves, link));
}

/*
 * Answers what the waiter left for. The others go on: those that came while it was leaving, and those that a lease in this
 * scope alone is no answer to. `entry` is NULL where the last answer was about another one of its places.
 */
static void answer_requests(struct lh_coordinator *c, struct lh_waiter *waiter, struct lh_entry *entry)
{
    bool is_granted = !lh_waiter_is_grant_known(waiter);

    LH_REQUEST_EACH(request, waiter)
    {
        if (request->own.is_fresh || (is_granted && request->also_count > 0)) {
            request->own.is_fresh = false;
            continue;
        }
        if (is_granted) {
            entry->is_renewal = entry->leave->lease.acquired_at_us < entry->leave->unheard_since_us;
            entry->is_grant = !entry->is_renewal;
        }
        lh_request_answer(c, request, is_granted ? LH_OK : request->own.verdict, entry);
    }
}

/* It is out of the queues of all its scopes. */
static void go_or_come_back(struct lh_coordinator *c, struct lh_waiter *waiter, struct lh_entry *entry)
{
    bool gone_wanted = waiter->gone_wanted && waiter->leave_kind == LH_LEAVE_AWAY;

    answer_requests(c, waiter, entry);
    if (lh_list_is_empty(&waiter->requests) && !gone_wanted) {
        lh_waiter_free(c, waiter);
        return;
    }
    lh_together_reform(c, waiter);
    if (!lh_together_is_there(waiter))
        lh_request_answer_all(c, waiter, LH_INVALID_ARGUMENT, "the lease key is used for one of the scopes meanwhile");
    if (lh_list_is_empty(&waiter->requests))
        lh_waiter_leave(c, waiter, "its caller went while its place was kept");
    else
        lh_waiter_set_state(c, waiter, LH_WAITER_LINED, "it came back while it left");
}

static void on_left(struct lh_coordinator *c, struct lh_entry *entry)
{
    struct lh_waiter *waiter = entry->waiter;
    const struct lh_leave_item *leave = entry->leave;

    c->stats.grants += leave->was_granted;
    waiter->scope->units_free = leave->units_free;
    lh_scope_learn_holder(c, waiter->scope, leave->has_lease ? &leave->lease : NULL, leave->rests_in_us);
    if (leave->was_granted)
        lh_waiter_doubt_grant(waiter); /* whoever comes back may take it, or give it back */
    else
        lh_waiter_settle_grant(waiter);
    if (leave->kind == LH_LEAVE_GONE || leave->was_granted)
        lh_wait_progress_departed(c, waiter->scope, waiter->ticket);
    if (leave->kind == LH_LEAVE_GONE)
        waiter->ticket = 0;
    /* A shared lease that it was granted may leave room for the next. */
    if (leave->wake || (leave->was_granted && leave->lease.units > 0))
        lh_scope_wake(c, waiter->scope);
    struct lh_waiter *first = lh_together_left(c, waiter);
    if (first != NULL)
        go_or_come_back(c, first, first == waiter ? entry : NULL);
}

static void on_not_left(struct lh_coordinator *c, struct lh_waiter *waiter)
{
    lh_waiter_set_state(c, waiter, LH_WAITER_LEAVING, "its leave was not done");
    lh_waiter_review(c, waiter); /* the mode may be another one by now */
}

static void on_done(struct lh_lane *lane, enum lh_status status, const struct lh_error *error)
{
    struct lh_coordinator *c = lane->coordinator;
    for (size_t i = 0; i < lane->n; i++) {
        struct lh_entry *entry = &lane->entries[i];
        struct lh_scope *scope = entry->waiter->scope;
        if (status == LH_OK && entry->leave->is_hooked &&
            lh_hook_queue_learn(lane, scope, LH_KIND_LEAVE, entry->leave->hook_timeout_us)) {
            on_not_left(c, entry->waiter);
        } else if (status == LH_OK && !entry->leave->is_busy && !entry->leave->is_hooked) {
            on_left(c, entry);
        } else {
            if (status != LH_DATABASE_UNAVAILABLE && status != LH_CANCELED)
                scope->trouble = (uint8_t)(status == LH_OK ? LH_SCOPE_BUSY : status);
            c->stats.busy += status == LH_OK;
            if (status != LH_OK && !lh_list_is_empty(&scope->queue))
                scope->wake_when_answered = true; /* the reply may have said so */
            on_not_left(c, entry->waiter);
        }
        lh_scope_item_done(c, scope, LH_KIND_LEAVE);
    }
}

const struct lh_operation lh_dequeue_operation = {
    .name = "leave",
    .oldest_us = oldest_us,
    .client_of = client_of,
    .take = take,
    .on_done = on_done,
};
