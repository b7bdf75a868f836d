#include "lease/heartbeat.h"

#include "lease/queue/holder_liveness.h"

enum lh_status lh_coordinator_heartbeat(struct lh_coordinator *c, struct lh_holder_request *request)
{
    return lh_holder_op_submit(c, request, LH_KIND_HEARTBEAT);
}

static enum lh_status send(struct lh_lane *lane, lh_store_cb *on_done)
{
    struct lh_store *store = lane->coordinator->store;
    return store->ops->heartbeat(store, lane->index, (struct lh_holder_item **)lane->items, lane->n, on_done, lane);
}

static void on_answer(struct lh_coordinator *c, struct lh_holder_entry *entry)
{
    const struct lh_holder_item *item = &entry->item;
    if (item->outcome == LH_OUTCOME_OK) {
        c->stats.heartbeats++;
        lh_scope_learn_heartbeat(c, entry->own.scope, item->remaining_us);
    } else if (item->outcome == LH_OUTCOME_LOST && item->end_reason < LH_END_REASONS) {
        c->stats.losses[item->end_reason]++;
    }
}

const struct lh_holder_op lh_heartbeat_operation = {
    .row.name = "heartbeat",
    .row.oldest_us = lh_holder_op_oldest_us,
    .row.take = lh_holder_op_take,
    .row.send = send,
    .row.on_done = lh_holder_op_on_done,
    .row.retry_until = lh_holder_op_retry_until,
    .on_answer = on_answer,
};
