/*
 * After the control connection came up: register, and only then ask for every waiter again, because the database may be
 * another one. Then a tick each second: its answer has the clock, the slow poll's wake-ups, and whether this
 * coordinator is still registered.
 *
 * After 3.5 s without a sign of it in the database, other coordinators take a coordinator for dead and pass its waiters
 * over. So within about 5 s, or at the next tick if the reason is permanent, the waiters are handed back, to come again
 * by a coordinator that reaches the database, and so are watchers that wait for their beginning. Places are kept.
 *
 * A primary that was replaced but runs on still answers, and commits nothing when its synchronous standbys have left
 * it. So after 10 s without a tick that was committed the control connection looks at the other servers, again each
 * 10 s, and after a minute once a minute: each look leaves a session that waits for a standby.
 */

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "lease/batch_internal.h"
#include "lease/queue_internal.h"
#include "lease/watch_internal.h"

#define TICK_US (1 * LH_US_PER_S)
#define ELSEWHERE_TICKS 10               /* without an answer: the primary may be another one */
#define TELL_AGAIN_US (60 * LH_US_PER_S) /* why it is not registered, while that does not change */

/* A connection that was lost is no answer. */
static bool is_refusal(enum lh_status status)
{
    return status != LH_OK && status != LH_CANCELED && status != LH_DATABASE_UNAVAILABLE;
}

static void on_refused(struct lh_coordinator *c, enum lh_status status, const struct lh_error *error, const char *what)
{
    struct lh_registration *registration = &c->registration;
    const char *words = error != NULL ? error->message : lh_status_text(status);
    bool is_new = strcmp(registration->refusal.message, words) != 0;

    lh_error_set(&registration->refusal, status, "%s", words);
    if (!is_new && c->now_us - registration->refusal_told_us < TELL_AGAIN_US)
        return;
    registration->refusal_told_us = c->now_us;
    lh_warn("%s: %s", what, words);
}

/* Whoever waits for the database. */
static void hand_back_all(struct lh_coordinator *c)
{
    lh_scopes_hand_back_all(c);
    lh_watch_hand_back(c);
}

static void on_enrolled(void *arg, enum lh_status status, const struct lh_error *error,
                        const struct lh_tick_answer *answer)
{
    struct lh_coordinator *c = arg;

    lh_turn_begin(c);
    c->registration.is_enrolling = false;
    if (status == LH_OK && lh_database_is_up(c)) {
        lh_info("coordinator registered waiters=%zu", lh_waiters_waiting(c));
        c->registration.unheard = 0;
        c->registration.refusal = (struct lh_error){0};
        lh_database_set_state(c, LH_DATABASE_REGISTERED);
        lh_database_learn_clock(c, answer->database_now_us, c->registration.sent_us, false);
        lh_scopes_ask_all(c);
        lh_watch_on_registered(c);
        if (c->state == LH_CORE_RUNNING)
            lh_heap_set(&c->timers, &c->registration.timer, c->now_us);
    } else if (is_refusal(status)) {
        on_refused(c, status, error, "coordinator is not registered");
        hand_back_all(c);
    }
    lh_turn_end_event(c);
}

static void enroll(struct lh_coordinator *c)
{
    if (c->registration.is_enrolling)
        return;
    c->registration.sent_us = c->now_us;
    c->registration.is_enrolling = c->store->ops->enroll(c->store, on_enrolled, c) == LH_OK;
}

static void on_ticked(void *arg, enum lh_status status, const struct lh_error *error,
                      const struct lh_tick_answer *answer)
{
    struct lh_coordinator *c = arg;

    lh_turn_begin(c);
    c->registration.is_ticking = false;
    if (status == LH_OK) {
        c->stats.last_tick_us = c->now_us;
        c->registration.unheard = 0;
        c->registration.refusal = (struct lh_error){0};
        lh_database_learn_clock(c, answer->database_now_us, c->registration.sent_us, true);
        if (!answer->is_registered && lh_database_is_up(c)) {
            lh_warn("another coordinator took this one for dead, so it registers again");
            lh_database_set_state(c, LH_DATABASE_UP);
            lh_scopes_schedule_all(c);
            enroll(c);
        }
        lh_rule_loading_on_tick(c, answer->access_version);
        for (size_t i = 0; i < answer->wake_count; i++)
            lh_scope_wake_named(c, answer->wakes[i].ns, answer->wakes[i].key);
    } else if (is_refusal(status)) {
        on_refused(c, status, error, "the database refuses the sign of life");
    }
    lh_turn_end_event(c);
}

static bool looks_elsewhere(unsigned unheard)
{
    return unheard % (unheard <= 60 ? ELSEWHERE_TICKS : 60) == 0;
}

void lh_registration_on_tick(struct lh_coordinator *c)
{
    struct lh_registration *registration = &c->registration;

    lh_heap_set(&c->timers, &registration->timer, c->now_us + lh_turn_jitter(c, TICK_US, 10));
    registration->unheard++;
    if (looks_elsewhere(registration->unheard))
        c->store->ops->look_elsewhere(c->store);
    registration->without_lane = lh_lanes_are_up(c) ? 0 : registration->without_lane + 1;
    registration->has_seen_lane |= lh_lanes_are_up(c) && lh_database_is_up(c);
    if (lh_readiness_is_given_up(c))
        hand_back_all(c);
    if (!lh_database_is_up(c))
        return;
    if (!lh_database_is_registered(c)) {
        enroll(c);
    } else if (!registration->is_ticking && !registration->is_enrolling) {
        registration->sent_us = c->now_us;
        registration->is_ticking = c->store->ops->tick(c->store, lh_database_us(c), on_ticked, c) == LH_OK;
        lh_db_stats_on_tick(c);
        lh_guards_on_tick(c);
        lh_asked_on_tick(c);
        lh_coordinator_read_spread(c);
    }
}

void lh_registration_on_up(void *arg)
{
    struct lh_coordinator *c = arg;
    lh_turn_begin(c);
    lh_database_set_state(c, LH_DATABASE_UP);
    c->registration.has_seen_lane = false;
    enroll(c);
    lh_turn_end_event(c);
}

void lh_registration_on_down(void *arg)
{
    struct lh_coordinator *c = arg;
    lh_turn_begin(c);
    lh_database_set_state(c, LH_DATABASE_DOWN);
    c->registration.refusal.status = LH_OK; /* what keeps it from connecting is the reason now */
    lh_watch_on_down(c);
    lh_scopes_schedule_all(c);
    lh_turn_end_event(c);
}

void lh_registration_start(struct lh_coordinator *c)
{
    c->registration.timer.kind = LH_TIMER_TICK;
    lh_heap_set(&c->timers, &c->registration.timer, c->now_us + lh_turn_jitter(c, TICK_US, 10));
}
