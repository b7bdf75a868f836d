/*
 * A watch begins once every transaction has ended that was under way when it was added, because such a transaction
 * writes no event for it. Watches settle in rounds; a round that takes too long ends in doubt.
 */
#include "base/clock.h"
#include "base/log.h"
#include "lease/watch_internal.h"

#define SETTLE_LIMIT_US (5 * LH_US_PER_S)
#define SETTLE_FIRST_US (1 * LH_US_PER_MS)
#define SETTLE_LAST_US (50 * LH_US_PER_MS)
#define DOUBT_US (1 * LH_US_PER_S)

static void end_round(struct lh_coordinator *c, bool is_settled)
{
    c->watching.horizon = 0;
    LH_WATCH_EACH(watch)
    {
        if (watch->state != LH_WATCH_SETTLING)
            continue;
        watch->state = LH_WATCH_ACTIVE;
        watch->idle_us = c->now_us;
        if (is_settled)
            watch->horizon = 0;
    }
    if (is_settled)
        return;
    lh_warn(
        "a transaction that changed a lease is open for over 5 s: a watch that begins now will end with WATCH_LAGGED");
    c->watching.doubt_us = c->now_us + DOUBT_US;
}

/* The transaction has ended: what it did, they may not have been told. */
static void end_doubt(struct lh_coordinator *c, uint64_t horizon)
{
    LH_WATCH_EACH(watch)
    {
        if (watch->state != LH_WATCH_ACTIVE || watch->horizon == 0 || watch->horizon > horizon)
            continue;
        watch->horizon = 0;
        LH_WATCHER_EACH(watcher, watch)
        if (watcher->own.is_doubtful)
            lh_watcher_end(c, watcher, LH_WATCH_LAGGED);
    }
}

/* The oldest horizon of those in doubt, or 0. */
static uint64_t doubtful_horizon(const struct lh_coordinator *c)
{
    uint64_t horizon = 0;
    LH_WATCH_EACH(watch)
    if (watch->state == LH_WATCH_ACTIVE && watch->horizon != 0 && (horizon == 0 || watch->horizon < horizon))
        horizon = watch->horizon;
    return horizon;
}

static void on_settled(void *arg, enum lh_status status, const struct lh_error *error, bool is_settled)
{
    struct lh_coordinator *c = arg;
    struct lh_watching *w = &c->watching;

    lh_turn_begin(c);
    if (status != LH_OK && status != LH_DATABASE_UNAVAILABLE && status != LH_CANCELED)
        lh_warn("watch cannot settle: %s", error != NULL ? error->message : lh_status_text(status));
    if (lh_watch_call_end(&w->asking)) {
        if (w->asked_horizon == w->horizon && (is_settled || c->now_us - w->round_us >= SETTLE_LIMIT_US))
            end_round(c, is_settled);
        if (is_settled)
            end_doubt(c, w->asked_horizon);
    }
    c->watching.wants_pump = true;
    lh_turn_end_event(c);
}

static void on_barrier(void *arg, enum lh_status status, const struct lh_error *error, uint64_t horizon)
{
    struct lh_coordinator *c = arg;
    struct lh_watching *w = &c->watching;

    lh_turn_begin(c);
    if (lh_watch_call_end(&w->asking)) {
        if (status == LH_OK && horizon == 0)
            lh_watch_begin_anew(c, "the database has forgotten the watches");
        LH_WATCH_EACH(watch)
        {
            if (watch->state != LH_WATCH_SETTLING)
                continue;
            watch->horizon = horizon;
            if (status != LH_OK)
                watch->state = LH_WATCH_ADDED;
        }
        w->horizon = status == LH_OK ? horizon : 0;
        w->round_us = c->now_us;
        w->poll_us = c->now_us;
        w->poll_pause_us = SETTLE_FIRST_US;
        if (status != LH_OK)
            w->retry_us = c->now_us + LH_WATCH_RETRY_US;
    }
    c->watching.wants_pump = true;
    lh_turn_end_event(c);
}

static void ask_settled(struct lh_coordinator *c, uint64_t horizon)
{
    struct lh_watching *w = &c->watching;

    w->asked_horizon = horizon;
    if (c->store->ops->watch_settled(c->store, horizon, on_settled, c) == LH_OK)
        w->asking = LH_WATCH_CALL_SENT;
}

static void begin_round(struct lh_coordinator *c)
{
    struct lh_watching *w = &c->watching;
    bool is_wanted = false;

    LH_WATCH_EACH(watch)
    is_wanted |= watch->state == LH_WATCH_ADDED;
    if (!is_wanted)
        return;
    if (!lh_watch_call_begin(c, &w->asking, c->store->ops->watch_barrier(c->store, on_barrier, c)))
        return;
    LH_WATCH_EACH(watch)
    if (watch->state == LH_WATCH_ADDED)
        watch->state = LH_WATCH_SETTLING;
}

void lh_watch_settle(struct lh_coordinator *c)
{
    struct lh_watching *w = &c->watching;
    uint64_t doubtful;

    if (w->asking == LH_WATCH_CALL_NONE && w->horizon == 0)
        begin_round(c);
    if (w->asking != LH_WATCH_CALL_NONE)
        return;
    if (w->horizon != 0 && c->now_us >= w->poll_us) {
        w->poll_us = c->now_us + w->poll_pause_us;
        if (w->poll_pause_us < SETTLE_LAST_US)
            w->poll_pause_us *= 2;
        ask_settled(c, w->horizon);
    } else if ((doubtful = doubtful_horizon(c)) != 0 && c->now_us >= w->doubt_us) {
        w->doubt_us = c->now_us + DOUBT_US;
        ask_settled(c, doubtful);
    }
}
