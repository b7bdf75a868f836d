/*
 * The holder of a scope as the answers that pass through here show it: when its lease expires, how long the scope
 * rests, whether the holder is alive. From this follows when to ask again without any notification. Clocks are only
 * ever compared by the time left, counted from now.
 *
 * The first waiter sleeps until then, so its own answer sets that time. A new exclusive holder, and that one's
 * heartbeats, may put it off; any other answer, to a newcomer say, can only bring it forward: it may be older than the
 * look that it would put off.
 */
#include "base/clock.h"
#include "lease/queue/wait_progress.h"
#include "lease/queue_internal.h"

#define MARGIN_US (1 * LH_US_PER_MS)
#define OVERDUE_FIRST_US (10 * LH_US_PER_MS)
#define OVERDUE_LAST_US (1 * LH_US_PER_S)
#define DEAD_POLL_US (1 * LH_US_PER_S)

static void set_dead(struct lh_coordinator *c, struct lh_scope *scope, bool is_dead)
{
    if (scope->is_dead == is_dead)
        return;
    scope->is_dead = is_dead;
    if (scope->alive_requests == 0)
        return;
    struct lh_link *lists[] = {&scope->again, &scope->line, &scope->queue};
    for (int i = 0; i < 3; i++) {
        LH_LIST_EACH(struct lh_waiter, waiter, lists[i], link) {
            LH_REQUEST_EACH(request, waiter)
            lh_request_on_liveness(c, request, is_dead);
        }
    }
}

/*
 * While it is not known who holds it, or an expired lease is not taken over (an earlier waiter's turn, a reaper's),
 * look again, ever more rarely: the next holder may die without a word, and then its expiry has to be known here.
 */
static int64_t next_overdue_us(struct lh_scope *scope)
{
    int32_t delay_us = scope->overdue_us == 0 ? (int32_t)OVERDUE_FIRST_US : scope->overdue_us * 2;
    scope->overdue_us = delay_us > OVERDUE_LAST_US ? (int32_t)OVERDUE_LAST_US : delay_us;
    return scope->overdue_us;
}

static void look_at(int64_t *look_us, int64_t at_us, bool decides)
{
    if (decides || at_us < *look_us)
        *look_us = at_us;
}

/*
 * When a waiter may be granted at the earliest, without a word from the holder: nobody holds the scope any more
 * (`free_in_us`; LH_NEVER: it does not end by itself) and its rest is over. A holder that ends earlier, within the
 * rest, is reported to the first waiter, which asks again.
 */
static void ask_after(struct lh_coordinator *c, struct lh_scope *scope, int64_t free_in_us, int64_t rests_in_us,
                      bool decides)
{
    int64_t in_us = free_in_us > rests_in_us ? free_in_us : rests_in_us;

    if (in_us > 0)
        scope->overdue_us = 0;
    else /* free for another's waiter, or overdue */
        in_us = next_overdue_us(scope);
    look_at(&scope->expires_us, lh_time_add(c->now_us, lh_time_add(in_us, MARGIN_US)), decides);
}

/* A scope that is free and does not rest is for somebody else's waiter. For a place of several that may be long so, and the end of it is told. */
static int64_t free_for_another_us(const struct lh_waiter *waiter, int64_t rests_in_us)
{
    return waiter != NULL && waiter->together != NULL && rests_in_us == 0 ? OVERDUE_LAST_US : 0;
}

static void set_dead_after(struct lh_scope *scope, int64_t dead_after_us)
{
    scope->dead_after_us = dead_after_us > INT32_MAX ? INT32_MAX : (int32_t)dead_after_us;
}

static bool is_alive(const struct lh_held_lease *lease)
{
    return lease->liveness == LH_LIVENESS_ALIVE || lease->liveness == LH_LIVENESS_UNSPECIFIED;
}

/* Of several holders one may be silent that is not the one shown: then there is no time until the first is suspected. */
static bool is_one_dead(const struct lh_acquire_item *item)
{
    return item->has_lease && (!is_alive(&item->lease) || (item->holder_count > 1 && item->suspected_in_us <= 0));
}

void lh_scope_learn_queued(struct lh_coordinator *c, struct lh_scope *scope, const struct lh_waiter *waiter,
                           const struct lh_acquire_item *item)
{
    const struct lh_waiter *first = LH_LIST_FIRST(struct lh_waiter, &scope->queue, link);
    bool is_first = first == NULL || item->new_ticket <= first->ticket;
    bool is_dead = is_one_dead(item);
    int64_t suspect_us = LH_NEVER;

    lh_wait_progress_learn(c, scope, item->has_lease ? &item->lease : NULL, item->holder_count, item->units_free,
                           item->rests_in_us);

    scope->is_shared = item->has_lease && item->lease.units > 0;
    scope->units_free = item->units_free;

    scope->grace_us = item->has_lease ? item->lease.grace_us : 0;
    int64_t free_in_us = item->has_lease ? item->expires_in_us : free_for_another_us(waiter, item->rests_in_us);
    if (scope->is_shared && item->rests_in_us > 0)
        free_in_us = 0; /* after the rest of a downgraded lease there may be room beside it */
    ask_after(c, scope, free_in_us, item->rests_in_us, is_first);

    if (is_dead) {
        suspect_us = c->now_us + DEAD_POLL_US; /* it may come back to life */
    } else if (item->has_lease && item->suspected_in_us > 0) {
        set_dead_after(scope, lh_time_add(item->suspected_in_us, item->lease.silent_us));
        suspect_us = lh_time_add(c->now_us, lh_time_add(item->suspected_in_us, MARGIN_US));
    }
    look_at(&scope->suspect_us, suspect_us, is_first);
    set_dead(c, scope, is_dead);
}

/* The default of lease_facts.sql: a grant does not say the policy's dead_after, and a waiter that asks then hears it. */
static int64_t default_dead_after_us(const struct lh_held_lease *lease)
{
    return lease->duration_us / 3 * 2;
}

/* One more of several: it is the first to be waited for only where it ends before the others that are known. */
static void learn_another(struct lh_coordinator *c, struct lh_scope *scope, const struct lh_held_lease *lease)
{
    int64_t expires_us =
        lh_time_add(lh_time_add(c->now_us, MARGIN_US), lh_time_add(lease->remaining_us, lease->grace_us));

    int64_t suspect_us = lh_time_add(c->now_us, scope->is_dead ? DEAD_POLL_US : default_dead_after_us(lease));

    look_at(&scope->expires_us, lease->is_manual ? LH_NEVER : expires_us, false);
    look_at(&scope->suspect_us, suspect_us, false);
}

/* `is_new`: it was granted by now, and what was known of a holder before is over. */
static void learn_lease(struct lh_coordinator *c, struct lh_scope *scope, const struct lh_held_lease *lease,
                        int64_t rests_in_us, bool is_new)
{
    bool decides = is_new && lease->units == 0;
    int64_t left_us = lh_time_add(lease->remaining_us, lease->grace_us);

    if (scope->is_shared && lease->units > 0) {
        learn_another(c, scope, lease);
        return;
    }
    scope->is_shared = lease->units > 0;
    lh_wait_progress_learn(c, scope, lease, 1, scope->units_free, rests_in_us);

    scope->grace_us = lease->grace_us;
    ask_after(c, scope, lease->is_manual ? LH_NEVER : left_us, rests_in_us, decides);
    if (is_new || scope->dead_after_us == 0)
        set_dead_after(scope, default_dead_after_us(lease));
    look_at(&scope->suspect_us,
            is_alive(lease) ? lh_time_add(c->now_us, scope->dead_after_us - lease->silent_us + MARGIN_US)
                            : c->now_us + DEAD_POLL_US,
            decides);
    set_dead(c, scope, !is_alive(lease));
}

void lh_scope_learn_grant(struct lh_coordinator *c, struct lh_scope *scope, const struct lh_held_lease *lease,
                          int64_t rests_in_us)
{
    learn_lease(c, scope, lease, rests_in_us, true);
}

void lh_scope_learn_holder(struct lh_coordinator *c, struct lh_scope *scope, const struct lh_held_lease *lease,
                           int64_t rests_in_us)
{
    scope->is_shared = scope->is_shared && lease != NULL && lease->units > 0;
    if (lease != NULL && (lease->is_manual || lease->remaining_us + lease->grace_us > 0)) {
        learn_lease(c, scope, lease, rests_in_us, false);
        return;
    }
    scope->overdue_us = 0;
    const struct lh_waiter *first = LH_LIST_FIRST(struct lh_waiter, &scope->queue, link);
    ask_after(c, scope, free_for_another_us(first, rests_in_us), rests_in_us, false);
}

void lh_scope_learn_heartbeat(struct lh_coordinator *c, struct lh_scope *scope, int64_t remaining_us)
{
    if (scope->is_shared)
        return; /* it says nothing of the others: their end is looked up when the first of them may have come */
    lh_wait_progress_renewed(c, scope, remaining_us);
    scope->overdue_us = 0;
    if (scope->expires_us != LH_NEVER)
        scope->expires_us = lh_time_add(c->now_us, lh_time_add(remaining_us, scope->grace_us + MARGIN_US));
    if (scope->dead_after_us > 0)
        scope->suspect_us = lh_time_add(c->now_us, lh_time_add(scope->dead_after_us, MARGIN_US));
    set_dead(c, scope, false);
}
