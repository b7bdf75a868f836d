/*
 * The life of a waiter. It is lined up, asked for, and then granted (and gone), refused (and gone), or queued: asleep
 * until it is asked for again. It leaves the queue in the database before it goes. After a lost reply it counts as both
 * queued and granted: it is asked for again, or leaves. There is one waiter for a lease key in a scope at any time, so
 * an acquire and a leave of one lease key are never out at once.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "lease/queue/wait_progress.h"
#include "lease/queue_internal.h"

#define CLOCK_SLACK_US (100 * LH_US_PER_MS) /* what is known of the database's clock is less wrong */

struct waiter_name {
    const struct lh_scope *scope;
    const struct lh_uuid *lease_key;
};

static bool is_named(const struct lh_table_entry *entry, const void *key)
{
    const struct lh_waiter *waiter = LH_CONTAINER(const struct lh_waiter, entry, entry);
    const struct waiter_name *name = key;
    return waiter->scope == name->scope && waiter->state != LH_WAITER_DONE &&
           lh_uuid_equal(&waiter->lease_key, name->lease_key);
}

static uint64_t hash_of(const struct lh_scope *scope, const struct lh_uuid *lease_key)
{
    return lh_hash(lease_key->bytes, sizeof(lease_key->bytes), scope->entry.hash);
}

void lh_waiters_create(struct lh_coordinator *c)
{
    lh_table_init(&c->queue.waiters, is_named);
    lh_list_init(&c->queue.gone);
}

size_t lh_waiters_waiting(const struct lh_coordinator *c)
{
    return c->queue.waiting;
}

struct lh_waiter *lh_waiter_find(struct lh_coordinator *c, struct lh_scope *scope, const struct lh_uuid *lease_key)
{
    struct waiter_name name = {scope, lease_key};
    struct lh_table_entry *entry = lh_table_find(&c->queue.waiters, hash_of(scope, lease_key), &name);
    return entry == NULL ? NULL : LH_CONTAINER(struct lh_waiter, entry, entry);
}

struct lh_waiter *lh_waiter_create(struct lh_coordinator *c, struct lh_scope *scope, const struct lh_uuid *lease_key)
{
    struct lh_waiter *waiter = lh_alloc_zero(1, sizeof(*waiter));
    waiter->scope = scope;
    waiter->lease_key = *lease_key;
    waiter->seq = ++c->queue.next_seq;
    waiter->since_us = waiter->unheard_since_us = c->now_us;
    lh_list_init(&waiter->requests);
    lh_table_insert(&c->queue.waiters, &waiter->entry, hash_of(scope, lease_key));
    c->queue.orphans++;
    return waiter;
}

static void free_one(struct lh_coordinator *c, struct lh_waiter *waiter)
{
    lh_table_remove(&c->queue.waiters, &waiter->entry);
    c->queue.orphans--;
    free(waiter);
}

/* Somebody may be walking over all waiters. */
static void free_other_places(struct lh_coordinator *c, struct lh_waiter *first)
{
    struct lh_together *together = first->together;

    LH_PLACE_EACH(place, together)
    {
        if (place->waiter == first)
            continue;
        lh_waiter_set_state(c, place->waiter, LH_WAITER_DONE, "no request waits any more");
        lh_scope_touch(c, place->waiter->scope);
        place->waiter->together = NULL;
        lh_list_append(&c->queue.gone, &place->waiter->link);
    }
    lh_heap_remove(&c->timers, &together->timer);
    free(together);
    first->together = NULL;
}

void lh_waiter_free(struct lh_coordinator *c, struct lh_waiter *waiter)
{
    assert(lh_list_is_empty(&waiter->requests));
    if (waiter->together != NULL)
        free_other_places(c, waiter);
    lh_waiter_set_priority(waiter, NULL);
    lh_waiter_set_state(c, waiter, LH_WAITER_DONE, "no request waits any more");
    free_one(c, waiter);
}

void lh_waiters_free_gone(struct lh_coordinator *c)
{
    while (!lh_list_is_empty(&c->queue.gone)) {
        struct lh_waiter *waiter = LH_LIST_FIRST(struct lh_waiter, &c->queue.gone, link);
        lh_list_remove(&waiter->link);
        free_one(c, waiter);
    }
}

bool lh_waiter_is_first_place(const struct lh_waiter *waiter)
{
    return waiter->together == NULL || waiter->together->places[0].waiter == waiter;
}

static bool is_in_flight(const struct lh_waiter *waiter)
{
    return waiter->state == LH_WAITER_ASKED || waiter->state == LH_WAITER_LEFT;
}

bool lh_waiter_is_in_flight(const struct lh_waiter *waiter)
{
    if (waiter->together == NULL)
        return is_in_flight(waiter);
    LH_PLACE_EACH(place, waiter->together)
    {
        if (is_in_flight(place->waiter))
            return true;
    }
    return false;
}

bool lh_waiter_lets_pass(const struct lh_waiter *waiter)
{
    return waiter->together != NULL && (waiter->together->is_resting || waiter->together->is_hooked);
}

void lh_waiter_set_ticket(struct lh_waiter *waiter, int64_t ticket)
{
    waiter->ticket = ticket;
    if (waiter->together == NULL)
        return;
    LH_PLACE_EACH(place, waiter->together)
    place->waiter->ticket = ticket;
}

void lh_waiter_set_priority(struct lh_waiter *waiter, const struct lh_acquire *request)
{
    waiter->scope->prioritized -= waiter->priority != 0;
    waiter->priority = request == NULL ? 0 : abs(request->terms.priority);
    waiter->scope->prioritized += waiter->priority != 0;
}

static const char *const state_names[] = {"new", "lined", "asked", "queued", "leaving", "left", "out", "done"};

#define TO(state) (1u << LH_WAITER_##state)
static const unsigned legal_moves[] = {
    [LH_WAITER_NEW] = TO(LINED) | TO(LEAVING),              /* it came; or a grant that nobody took is given back */
    [LH_WAITER_LINED] = TO(ASKED) | TO(LEAVING) | TO(DONE), /* a batch takes it; its last request went */
    [LH_WAITER_ASKED] = TO(LINED) | TO(QUEUED) | TO(LEAVING) | TO(DONE), /* busy, lost or to be asked again; queued;
                                                                            over meanwhile; granted or refused */
    [LH_WAITER_QUEUED] = TO(LINED) | TO(LEAVING) | TO(DONE), /* a wake-up; its last request went; dropped at stop */
    [LH_WAITER_LEAVING] = TO(LEFT) | TO(LINED) | TO(DONE),   /* a batch takes it; it came back; dropped at stop */
    [LH_WAITER_LEFT] = TO(LEAVING) | TO(OUT) | TO(LINED) | TO(DONE), /* busy or lost; others of its places still stand;
                                                                         it came back; out of the queue */
    [LH_WAITER_OUT] =
        TO(LINED) | TO(LEAVING) | TO(DONE), /* all are out, and it came back, or leaves for good; or is over */
    [LH_WAITER_DONE] = 0,
};
#undef TO

static int64_t ticket_of(const struct lh_link *link)
{
    return LH_CONTAINER(const struct lh_waiter, link, link)->ticket;
}

/* Returns the first link with this ticket or a later one; or the list. Mostly that is at an end, or near this link. */
static struct lh_link *place_of(struct lh_link *list, struct lh_link *near, int64_t ticket)
{
    struct lh_link *place = near;

    if (lh_list_is_empty(list) || ticket_of(list->prev) < ticket)
        return list;
    if (ticket_of(list->next) >= ticket)
        return list->next;
    while (place->prev != list && ticket_of(place->prev) >= ticket)
        place = place->prev;
    while (place == list || ticket_of(place) < ticket)
        place = place->next;
    return place;
}

struct lh_link *lh_waiter_queued_from(struct lh_scope *scope, int64_t ticket)
{
    return place_of(&scope->queue, scope->back, ticket);
}

static void insert_by_seq(struct lh_link *list, struct lh_waiter *waiter)
{
    struct lh_waiter *last = lh_list_is_empty(list) ? NULL : LH_CONTAINER(struct lh_waiter, link, list->prev);
    struct lh_link *place = list->next;
    if (last == NULL || last->seq < waiter->seq)
        place = list;
    while (place != list && LH_CONTAINER(struct lh_waiter, link, place)->seq < waiter->seq)
        place = place->next;
    lh_list_insert_before(place, &waiter->link);
}

static void join_list(struct lh_waiter *waiter)
{
    struct lh_scope *scope = waiter->scope;

    switch (waiter->state) {
    case LH_WAITER_LINED:
        if (waiter->ticket > 0)
            lh_list_insert_before(place_of(&scope->again, &scope->again, waiter->ticket), &waiter->link);
        else
            insert_by_seq(&scope->line, waiter);
        break;
    case LH_WAITER_QUEUED:
        lh_list_insert_before(lh_waiter_queued_from(scope, waiter->ticket), &waiter->link);
        scope->back = waiter->link.next;
        break;
    case LH_WAITER_LEAVING:
        lh_list_append(&scope->leaves, &waiter->link);
        break;
    case LH_WAITER_OUT:
        lh_list_append(&scope->out, &waiter->link);
        break;
    default:
        break;
    }
}

static void set_one_state(struct lh_coordinator *c, struct lh_waiter *waiter, enum lh_waiter_state state,
                          const char *reason)
{
    assert(legal_moves[waiter->state] & (1u << state));
    lh_debug("waiter %s -> %s: %s scope=%s ticket=%lld", state_names[waiter->state], state_names[state], reason,
             LH_SCOPE_NAME(waiter->scope->ns, waiter->scope->key), (long long)waiter->ticket);
    if (waiter->scope->back == &waiter->link)
        waiter->scope->back = waiter->link.next;
    lh_list_remove(&waiter->link);
    waiter->state = (uint8_t)state;
    if (state == LH_WAITER_LINED || state == LH_WAITER_LEAVING)
        waiter->since_us = c->now_us;
    join_list(waiter);
}

/* They begin to leave together, and then each is by itself. */
static bool is_by_itself(const struct lh_waiter *waiter, enum lh_waiter_state state)
{
    return waiter->together == NULL || waiter->state == LH_WAITER_LEFT || state == LH_WAITER_LEFT ||
           state == LH_WAITER_DONE;
}

void lh_waiter_set_state(struct lh_coordinator *c, struct lh_waiter *waiter, enum lh_waiter_state state,
                         const char *reason)
{
    struct lh_together *together = waiter->together;

    if (is_by_itself(waiter, state)) {
        set_one_state(c, waiter, state, reason);
        return;
    }
    LH_PLACE_EACH(place, together)
    {
        if (place->waiter->state == state)
            continue;
        set_one_state(c, place->waiter, state, reason);
        if (place->waiter != waiter && state != LH_WAITER_ASKED)
            lh_scope_touch(c, place->waiter->scope);
    }
    if (state == LH_WAITER_LINED && together->is_resting)
        return;
    together->is_resting = false;
    lh_heap_set(&c->timers, &together->timer,
                state == LH_WAITER_LINED ? c->now_us + LH_TOGETHER_PATIENCE_US : LH_NEVER);
}

uint64_t lh_waiter_client(const struct lh_waiter *waiter)
{
    const struct lh_waiter *first = waiter->together == NULL ? waiter : waiter->together->places[0].waiter;
    const struct lh_acquire *request = LH_LIST_FIRST(struct lh_acquire, &first->requests, own.link);
    return request == NULL ? 0 : request->client;
}

bool lh_waiter_wants(const struct lh_waiter *waiter)
{
    LH_REQUEST_EACH(request, waiter)
    {
        if (request->own.verdict == LH_OK)
            return true;
    }
    return false;
}

void lh_waiter_set_grant(struct lh_waiter *waiter, enum lh_waiter_grant grant)
{
    static const unsigned legal[] = {
        [LH_GRANT_NONE] = 1 << LH_GRANT_TAKEN | 1 << LH_GRANT_UNKNOWN | 1 << LH_GRANT_UNTAKEN,
        [LH_GRANT_TAKEN] = 1 << LH_GRANT_RENEWING | 1 << LH_GRANT_UNTAKEN,
        [LH_GRANT_UNKNOWN] = 1 << LH_GRANT_NONE | 1 << LH_GRANT_UNTAKEN,
        [LH_GRANT_RENEWING] = 1 << LH_GRANT_TAKEN | 1 << LH_GRANT_UNTAKEN,
        [LH_GRANT_UNTAKEN] = 1 << LH_GRANT_NONE,
    };

    assert(waiter->grant == grant || (legal[waiter->grant] & 1U << grant));
    waiter->grant = (uint8_t)grant;
}

void lh_waiter_doubt_grant(struct lh_waiter *waiter)
{
    if (waiter->grant == LH_GRANT_NONE)
        lh_waiter_set_grant(waiter, LH_GRANT_UNKNOWN);
    else if (waiter->grant == LH_GRANT_TAKEN)
        lh_waiter_set_grant(waiter, LH_GRANT_RENEWING);
}

void lh_waiter_settle_grant(struct lh_waiter *waiter)
{
    bool is_taken = waiter->grant == LH_GRANT_TAKEN || waiter->grant == LH_GRANT_RENEWING;
    lh_waiter_set_grant(waiter, is_taken ? LH_GRANT_TAKEN : LH_GRANT_NONE);
}

bool lh_waiter_is_grant_known(const struct lh_waiter *waiter)
{
    return waiter->grant == LH_GRANT_NONE || waiter->grant == LH_GRANT_TAKEN;
}

int64_t lh_waiter_unheard_since_us(const struct lh_coordinator *c, const struct lh_waiter *waiter)
{
    if (waiter->unheard_since_us == 0 || lh_database_us(c) == 0)
        return 0;
    return lh_database_us(c) - (c->now_us - waiter->unheard_since_us) - CLOCK_SLACK_US;
}

bool lh_waiter_may_be_in_database(const struct lh_waiter *waiter)
{
    return waiter->ticket > 0 || waiter->grant == LH_GRANT_UNKNOWN || waiter->grant == LH_GRANT_UNTAKEN;
}

int64_t lh_waiter_wait_us(const struct lh_coordinator *c, const struct lh_waiter *waiter)
{
    int64_t longest_us = 0;
    LH_REQUEST_EACH(request, waiter)
    {
        if (request->own.verdict != LH_OK)
            continue;
        if (request->wait != LH_WAIT_TIME || request->own.wait_until_us == LH_NEVER)
            return LH_NEVER;
        if (request->own.wait_until_us - c->now_us > longest_us)
            longest_us = request->own.wait_until_us - c->now_us;
    }
    return longest_us;
}

static enum lh_leave_kind leave_kind(const struct lh_waiter *waiter)
{
    LH_REQUEST_EACH(request, waiter)
    {
        if (request->own.verdict == LH_BLOCKING_TIMEOUT || request->own.verdict == LH_SHUTTING_DOWN)
            return LH_LEAVE_AWAY;
    }
    return waiter->keeps_place ? LH_LEAVE_AWAY : LH_LEAVE_GONE;
}

void lh_waiter_leave(struct lh_coordinator *c, struct lh_waiter *waiter, const char *reason)
{
    waiter->leave_kind = (uint8_t)leave_kind(waiter);
    waiter->gone_wanted = false;
    if (waiter->together != NULL)
        LH_PLACE_EACH(place, waiter->together)
        {
            place->waiter->leave_kind = waiter->leave_kind;
            place->waiter->unheard_since_us = waiter->unheard_since_us;
        }
    lh_waiter_set_state(c, waiter, LH_WAITER_LEAVING, reason);
}

/*
 * Must it be asked before its requests can be answered? A request that does not wait was promised one try. And of several
 * scopes only an ask tells what is in the way.
 */
static bool must_be_asked(const struct lh_waiter *waiter)
{
    LH_REQUEST_EACH(request, waiter)
    {
        if (request->own.verdict == LH_OK || request->own.verdict == LH_LEASE_HELD || waiter->together != NULL)
            return true;
    }
    return false;
}

static bool has_verdicts(const struct lh_waiter *waiter)
{
    LH_REQUEST_EACH(request, waiter)
    {
        if (request->own.verdict != LH_OK)
            return true;
    }
    return false;
}

void lh_waiter_review(struct lh_coordinator *c, struct lh_waiter *waiter)
{
    bool is_empty = lh_list_is_empty(&waiter->requests);

    if (!lh_waiter_is_first_place(waiter))
        return;
    switch (waiter->state) {
    case LH_WAITER_NEW:
    case LH_WAITER_LINED:
        if (is_empty && !lh_waiter_may_be_in_database(waiter))
            lh_waiter_free(c, waiter);
        else if (is_empty || (lh_waiter_may_be_in_database(waiter) && !must_be_asked(waiter)))
            lh_waiter_leave(c, waiter, "its last request has gone");
        break;
    case LH_WAITER_QUEUED:
        if (!lh_waiter_wants(waiter) && !must_be_asked(waiter))
            lh_waiter_leave(c, waiter, "its last request has gone");
        else if (has_verdicts(waiter))
            lh_waiter_set_state(c, waiter, LH_WAITER_LINED, "one of its requests is to be answered");
        break;
    case LH_WAITER_LEAVING:
        if (waiter->together == NULL) /* else the other places may have left in another one */
            waiter->leave_kind = (uint8_t)leave_kind(waiter);
        break;
    default: /* in flight: the answer decides */
        break;
    }
}

/* --- its requests --- */

void lh_request_attach(struct lh_coordinator *c, struct lh_waiter *waiter, struct lh_acquire *request)
{
    if (lh_list_is_empty(&waiter->requests))
        c->queue.orphans--;
    lh_list_append(&waiter->requests, &request->own.link);
    request->own.waiter = waiter;
    if (request->on_progress != NULL)
        lh_wait_progress_attach(request);
    if (request->wait == LH_WAIT_WHILE_ALIVE)
        waiter->scope->alive_requests++;
    if (request->wait == LH_WAIT_NONE)
        c->pending++;
    else
        c->queue.waiting++;
    if (request->asks && request->wait != LH_WAIT_NONE)
        lh_list_append(&c->asked.askers, &request->own.asking);
}

static void detach(struct lh_coordinator *c, struct lh_acquire *request)
{
    struct lh_waiter *waiter = request->own.waiter;
    lh_wait_progress_detach(c, request);
    lh_list_remove(&request->own.link);
    lh_list_remove(&request->own.asking);
    lh_heap_remove(&c->timers, &request->own.timer);
    request->own.waiter = NULL;
    if (request->wait == LH_WAIT_WHILE_ALIVE)
        waiter->scope->alive_requests--;
    if (request->wait == LH_WAIT_NONE)
        c->pending--;
    else
        c->queue.waiting--;
    if (lh_list_is_empty(&waiter->requests))
        c->queue.orphans++;
}

void lh_request_arm(struct lh_coordinator *c, struct lh_acquire *request)
{
    int64_t at_us = request->own.wait_until_us;
    if (request->own.verdict != LH_OK)
        at_us = lh_time_add(c->now_us, c->options.busy_limit_us); /* when to look again why there is no answer */
    else if (request->own.block_until_us < at_us)
        at_us = request->own.block_until_us;
    lh_heap_set(&c->timers, &request->own.timer, at_us);
}

void lh_request_answer(struct lh_coordinator *c, struct lh_acquire *request, enum lh_status status,
                       struct lh_entry *entry)
{
    assert(!request->own.is_answering);
    if (status == LH_DATABASE_UNAVAILABLE || status == LH_BLOCKING_TIMEOUT || status == LH_SHUTTING_DOWN ||
        status == LH_SCOPE_BUSY)
        request->own.waiter->keeps_place = true; /* it is to come back with the same lease key */
    detach(c, request);
    request->own.is_answering = true;
    request->own.verdict = status;
    request->own.entry = entry;
    lh_list_append(&c->queue.answers, &request->own.link);
}

void lh_request_answer_all(struct lh_coordinator *c, struct lh_waiter *waiter, enum lh_status status,
                           const char *message)
{
    LH_REQUEST_EACH(request, waiter)
    {
        request->own.message = message;
        lh_request_answer(c, request, status, NULL);
    }
}

void lh_request_on_liveness(struct lh_coordinator *c, struct lh_acquire *request, bool is_dead)
{
    if (request->wait != LH_WAIT_WHILE_ALIVE || request->own.verdict != LH_OK)
        return;
    if (is_dead == (request->own.wait_until_us != LH_NEVER))
        return; /* it counts already, or does not */
    request->own.wait_until_us = is_dead ? lh_time_add(c->now_us, request->wait_us) : LH_NEVER;
    lh_request_arm(c, request);
}

void lh_request_set_verdict(struct lh_coordinator *c, struct lh_acquire *request, enum lh_status verdict)
{
    request->own.verdict = verdict;
    lh_request_arm(c, request);
}

void lh_request_hand_back(struct lh_coordinator *c, struct lh_acquire *request)
{
    if (request->own.verdict != LH_OK || request->own.looks_again)
        return;
    request->own.block_until_us = c->now_us;
    lh_request_arm(c, request);
}
