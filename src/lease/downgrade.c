#include "lease/downgrade.h"

#include "lease/database.h"
#include "lease/queue/holder_liveness.h"

enum lh_status lh_coordinator_downgrade(struct lh_coordinator *c, struct lh_holder_request *request)
{
    return lh_holder_op_submit(c, request, LH_KIND_DOWNGRADE);
}

static enum lh_status send(struct lh_lane *lane, lh_store_cb *on_done)
{
    struct lh_coordinator *c = lane->coordinator;
    return c->store->ops->downgrade(c->store, lane->index, lh_database_us(c), (struct lh_holder_item **)lane->items,
                                    lane->n, on_done, lane);
}

static void on_answer(struct lh_coordinator *c, struct lh_holder_entry *entry)
{
    const struct lh_holder_item *item = &entry->item;
    struct lh_scope *scope = entry->own.scope;

    if (item->outcome == LH_OUTCOME_OK) {
        c->stats.downgrades++;
        lh_scope_learn_grant(c, scope, &item->downgrade->lease, 0);
    }
    if (item->wake)
        lh_scope_wake(c, scope);
}

/* Its reply may have said that a waiter here fits now. */
static void on_lost(struct lh_lane *lane, struct lh_holder_entry *entry)
{
    if (!lh_list_is_empty(&entry->own.scope->queue))
        entry->own.scope->wake_when_answered = true;
}

const struct lh_holder_op lh_downgrade_operation = {
    .row.name = "downgrade",
    .row.oldest_us = lh_holder_op_oldest_us,
    .row.take = lh_holder_op_take,
    .row.send = send,
    .row.on_done = lh_holder_op_on_done,
    .row.retry_until = lh_holder_op_retry_until,
    .on_answer = on_answer,
    .on_lost = on_lost,
};
