#include <stdlib.h>

#include "base/log.h"
#include "lease/queue/together.h"
#include "lease/queue/wait_progress.h"
#include "lease/queue_internal.h"

static struct lh_scope *next_scope(struct lh_coordinator *c, size_t *slot, struct lh_table_entry **next)
{
    struct lh_table_entry *entry = lh_table_walk(&c->queue.scopes, slot, next);
    return entry == NULL ? NULL : LH_CONTAINER(struct lh_scope, entry, entry);
}

static struct lh_waiter *next_place(struct lh_coordinator *c, size_t *slot, struct lh_table_entry **next)
{
    struct lh_table_entry *entry = lh_table_walk(&c->queue.waiters, slot, next);
    return entry == NULL ? NULL : LH_CONTAINER(struct lh_waiter, entry, entry);
}

/* Of several places the first, which stands for all. */
static struct lh_waiter *next_waiter(struct lh_coordinator *c, size_t *slot, struct lh_table_entry **next)
{
    struct lh_waiter *waiter;

    do
        waiter = next_place(c, slot, next);
    while (waiter != NULL && (waiter->state == LH_WAITER_DONE || !lh_waiter_is_first_place(waiter)));
    return waiter;
}

/* The body may free the item. */
#define EACH(noun)                                                                                                     \
    size_t noun##_slot = 0;                                                                                            \
    struct lh_table_entry *noun##_next = NULL;                                                                         \
    struct lh_##noun *noun;                                                                                            \
    while ((noun = next_##noun(c, &noun##_slot, &noun##_next)) != NULL)

void lh_scopes_schedule_all(struct lh_coordinator *c)
{
    EACH(scope)
    lh_scope_schedule_or_free(c, scope);
}

void lh_scopes_ask_all(struct lh_coordinator *c)
{
    EACH(scope)
    {
        lh_scope_ask_all(c, scope);
        lh_scope_schedule_or_free(c, scope);
    }
}

void lh_scopes_wake_all(struct lh_coordinator *c)
{
    EACH(scope)
    {
        bool is_asking = scope->in_flight > 0 && lh_kind_asks((enum lh_kind)scope->flight_kind);
        if (is_asking || !lh_list_is_empty(&scope->queue))
            lh_scope_wake(c, scope);
        lh_scope_schedule_or_free(c, scope);
    }
}

void lh_scopes_hand_back_all(struct lh_coordinator *c)
{
    EACH(waiter)
    {
        LH_REQUEST_EACH(request, waiter)
        lh_request_hand_back(c, request);
    }
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

void lh_scopes_stop_all(struct lh_coordinator *c)
{
    EACH(waiter)
    stop_waiter(c, waiter);
    lh_scopes_schedule_all(c);
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

void lh_scopes_drop_all(struct lh_coordinator *c)
{
    EACH(waiter)
    {
        if (!lh_waiter_is_in_flight(waiter))
            drop_waiter(c, waiter);
    }
    EACH(scope)
    {
        for (int kind = 0; kind < LH_SCOPE_KINDS; kind++) {
            if (c->operations[kind]->retry_until != NULL)
                c->operations[kind]->retry_until(c, scope, (enum lh_kind)kind, LH_NEVER);
        }
        lh_scope_schedule_or_free(c, scope);
    }
}

void lh_scopes_free_all(struct lh_coordinator *c)
{
    EACH(waiter)
    lh_together_dissolve(waiter);
    size_t place_slot = 0;
    struct lh_table_entry *place_next = NULL;
    struct lh_waiter *place;
    while ((place = next_place(c, &place_slot, &place_next)) != NULL) {
        lh_table_remove(&c->queue.waiters, &place->entry);
        free(place);
    }
    EACH(scope)
    {
        lh_table_remove(&c->queue.scopes, &scope->entry);
        lh_wait_progress_destroy(scope);
        free(scope);
    }
    lh_table_finish(&c->queue.waiters);
    lh_scopes_destroy(c);
}
