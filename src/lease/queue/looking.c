/*
 * A waiter that sleeps may have lost its place: another request with its lease key, which the network delivered late to
 * another daemon, took the place over and left with it. So those that no max_block sends back are asked again, the queue
 * from end to end, a part of it at a time: newcomers find room beside it in each batch.
 */
#include "lease/queue_internal.h"

#define ROUND_US (17 * LH_US_PER_S) /* from the end of one to the next */
#define ROUND_PERCENT 15            /* more or less: scopes that came together do not look together */
#define PART_US (25 * LH_US_PER_MS) /* from one part to the next */

static size_t part_of(const struct lh_coordinator *c)
{
    return (c->options.batch_max + 1) / 2;
}

static void begin_round(struct lh_coordinator *c, struct lh_scope *scope)
{
    scope->looked = 0;
    scope->look_us = lh_time_add(c->now_us, lh_turn_jitter(c, ROUND_US, ROUND_PERCENT));
}

int64_t lh_looking_us(struct lh_coordinator *c, struct lh_scope *scope)
{
    if (lh_list_is_empty(&scope->queue))
        scope->look_us = 0;
    else if (scope->look_us == 0)
        begin_round(c, scope);
    return scope->look_us == 0 ? LH_NEVER : scope->look_us;
}

static bool has_room(const struct lh_coordinator *c, const struct lh_scope *scope)
{
    size_t left = part_of(c);

    LH_LIST_EACH(const struct lh_waiter, waiter, &scope->again, link) {
        if (--left == 0)
            return false;
    }
    return true;
}

static bool looks_again(const struct lh_waiter *waiter)
{
    LH_REQUEST_EACH(request, waiter)
    {
        if (request->own.verdict == LH_OK && request->own.looks_again)
            return true;
    }
    return false;
}

void lh_looking_on_timer(struct lh_coordinator *c, struct lh_scope *scope)
{
    struct lh_link *link, *next;

    if (scope->look_us == 0 || scope->look_us > c->now_us)
        return;
    scope->look_us = lh_time_add(c->now_us, PART_US);
    if (!has_room(c, scope))
        return;
    link = lh_waiter_queued_from(scope, scope->looked + 1);
    for (size_t left = part_of(c); left > 0 && link != &scope->queue; left--, link = next) {
        struct lh_waiter *waiter = LH_CONTAINER(struct lh_waiter, link, link);
        next = link->next;
        scope->looked = waiter->ticket;
        if (looks_again(waiter))
            lh_waiter_set_state(c, waiter, LH_WAITER_LINED, "it has waited for long: has it its place?");
    }
    if (link == &scope->queue)
        begin_round(c, scope);
}
