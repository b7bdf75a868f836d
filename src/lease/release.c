#include "lease/release.h"

#include "lease/acquire.h"
#include "lease/database.h"
#include "lease/queue/holder_liveness.h"

enum lh_status lh_coordinator_release(struct lh_coordinator *c, struct lh_holder_request *request)
{
    return lh_holder_op_submit(c, request, LH_KIND_RELEASE);
}

static void take(struct lh_lane *lane, struct lh_scope *scope, size_t room)
{
    lh_holder_op_take(lane, scope, room);
    lh_acquire_ride(lane, scope);
}

static enum lh_status send(struct lh_lane *lane, lh_store_cb *on_done)
{
    struct lh_store *store = lane->coordinator->store;
    struct lh_holder_item **items = (struct lh_holder_item **)lane->items;

    if (lane->rider_count == 0)
        return store->ops->release(store, lane->index, items, lane->n, on_done, lane);
    return store->ops->hand_over(store, lane->index, lh_database_us(lane->coordinator), items, lane->n, lane->riders,
                                 lane->rider_count, on_done, lane);
}

static void on_answer(struct lh_coordinator *c, struct lh_holder_entry *entry)
{
    struct lh_holder_item *item = &entry->item;

    if (entry->own.is_unknown && item->outcome == LH_OUTCOME_LOST &&
        (item->end_reason == LH_END_RELEASED || item->end_reason == LH_END_FAILED)) {
        item->outcome = LH_OUTCOME_OK; /* its own doing */
        item->end_reason = LH_END_UNSPECIFIED;
        item->message = NULL;
    }
    if (item->outcome == LH_OUTCOME_OK) {
        c->stats.releases++;
        /* Behind one of several, what is known of the others stays. */
        if (!entry->own.scope->is_shared)
            lh_scope_learn_holder(c, entry->own.scope, NULL, 0);
    }
    if (item->wake && !entry->own.scope->has_rider)
        lh_scope_wake(c, entry->own.scope);
}

static void on_lost(struct lh_lane *lane, struct lh_holder_entry *entry)
{
    entry->own.is_unknown = entry->own.is_unknown || lane->is_sent;
    if (!lh_list_is_empty(&entry->own.scope->queue))
        entry->own.scope->wake_when_answered = true; /* the reply may have said so */
}

static void on_done(struct lh_lane *lane, enum lh_status status, const struct lh_error *error)
{
    lh_holder_op_on_done(lane, status, error);
    lh_acquire_on_riders_done(lane, status, error);
}

const struct lh_holder_op lh_release_operation = {
    .row.name = "release",
    .row.oldest_us = lh_holder_op_oldest_us,
    .row.take = take,
    .row.send = send,
    .row.on_done = on_done,
    .row.retry_until = lh_holder_op_retry_until,
    .on_answer = on_answer,
    .on_lost = on_lost,
};
