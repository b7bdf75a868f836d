#include "lease/queue/reply.h"

#include "lease/lane.h"
#include "lease/queue/waiter.h"

static void fill(const struct lh_coordinator *c, const struct lh_acquire *request, struct lh_acquire_result *result,
                 struct lh_contention *contention)
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
        fill(c, request, &result, &contention);
        if (result.status == LH_OK)
            request->own.entry->is_taken = true;
        request->on_done(request, &result);
    }
}

bool lh_reply_is_due(const struct lh_coordinator *c)
{
    return !lh_list_is_empty(&c->queue.answers);
}
