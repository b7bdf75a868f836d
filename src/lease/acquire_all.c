/*
 * A batch has one request for several scopes, and is in flight in all of them. Its answer is about all: leases, or the
 * contention of the scope that is in the way. From then on it goes on as an acquire of one scope does, with the waiter
 * that has the requests.
 */

#include "lease/hooks_internal.h"
#include "lease/queue/together.h"

static int64_t oldest_us(const struct lh_scope *scope, enum lh_kind kind)
{
    const struct lh_waiter *waiter = lh_together_next_place(scope);
    return waiter == NULL ? LH_NEVER : waiter->since_us;
}

static uint64_t client_of(const struct lh_scope *scope)
{
    return lh_waiter_client(lh_together_next_place(scope));
}

static void take(struct lh_lane *lane, struct lh_scope *scope, size_t room)
{
    struct lh_coordinator *c = lane->coordinator;
    struct lh_waiter *waiter = lh_together_next_place(scope);

    if (waiter == NULL)
        return; /* another batch has taken one of its scopes meanwhile */
    struct lh_together *together = waiter->together;
    struct lh_waiter *first = together->places[0].waiter;
    const struct lh_acquire *newest = lh_acquire_newest(first);

    lh_waiter_set_state(c, first, LH_WAITER_ASKED, "a batch takes it");
    for (size_t i = 0; i < together->count; i++) {
        struct lh_scope *other = together->places[i].waiter->scope;
        if (other != scope)
            lh_scope_send_begins(c, other, LH_KIND_ACQUIRE_ALL);
        lh_acquire_write(lane, i, first, other, together->places[i].units,
                         i == 0 ? newest->at_least_us : newest->also[i - 1].at_least_us);
        if (lane->hook_queue != NULL) {
            lane->acquires[i].hook_timeout_us = together->is_hooked ? together->hook_timeout_us : lane->hook_timeout_us;
            other->is_on_hook_lane = true;
            other->hooked &= (uint8_t) ~(1u << LH_KIND_ACQUIRE_ALL);
        }
        lane->acquires[i].outcome = LH_ACQUIRE_BUSY; /* until the store says another one */
        /* A repeat may wait for longer than the request before it, and a row in the database never gets longer: one whose time has
           passed there and that is first here would keep those behind it from being asked. It leaves by a word from here. */
        if (lane->acquires[i].queue)
            lane->acquires[i].wait_us = LH_NEVER;
        lane->entries[i].all = lane->acquires;
        lane->items[i] = &lane->acquires[i];
    }
    lane->n = together->count;
}

/* Of the items the one with the answer: where all are granted, the first. */
static struct lh_entry *entry_of(struct lh_lane *lane)
{
    for (size_t i = 0; i < lane->n; i++) {
        if (lane->acquires[i].outcome != LH_ACQUIRE_BUSY)
            return &lane->entries[i];
    }
    return &lane->entries[0];
}

static void on_done(struct lh_lane *lane, enum lh_status status, const struct lh_error *error)
{
    struct lh_coordinator *c = lane->coordinator;
    struct lh_entry *entry = status == LH_OK ? entry_of(lane) : &lane->entries[0];
    enum lh_acquire_outcome outcome = entry->acquire->outcome;

    if (status == LH_OK) {
        if (lane->hook_queue != NULL)
            entry->scope->hook_losses = 0;
        if (outcome != LH_ACQUIRE_BUSY)
            lh_together_done(entry->waiter->together);
        lh_acquire_on_answer(lane, entry);
    } else {
        lh_acquire_on_error(lane, entry, status, error);
    }
    /* Until the last scope is done, the next request may hold back the others: the end of the turn schedules all again. */
    for (size_t i = 0; i < lane->n; i++) {
        lh_scope_touch(c, lane->entries[i].scope);
        lh_scope_item_done(c, lane->entries[i].scope, LH_KIND_ACQUIRE_ALL);
    }
}

const struct lh_operation lh_acquire_all_operation = {
    .name = "acquire_all",
    .oldest_us = oldest_us,
    .client_of = client_of,
    .take = take,
    .on_done = on_done,
    .holds_back = lh_together_holds_back,
    .is_alone = true,
};
