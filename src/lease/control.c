/*
 * What goes beside the batches: registering this coordinator, the slow poll each second, wake-ups that are passed
 * on, and what is believed of the database's clock.
 *
 * After control came up: register, and only then ask, for every waiter again: the database may be another one.
 */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "lease/reaping.h"
#include "lease/scope.h"

#define TICK_US (1 * LH_US_PER_S)
#define PASS_ON_PAUSE_US (20 * LH_US_PER_MS)
#define RTT_SLACK_US (100 * LH_US_PER_MS)

int64_t lh_control_database_us(const struct lh_coordinator *c)
{
    return c->belief.is_known ? c->now_us + c->belief.offset_us : 0;
}

/*
 * A good offset is kept over worse ones, unless they contradict it: then the clock stepped, and the tick that told us
 * has dealt with it. An enrolment tells only the first offset, for it does not compare clocks: the tick has to see a
 * step.
 */
static void learn_clock(struct lh_coordinator *c, int64_t database_us, int64_t sent_us, bool is_tick)
{
    struct lh_belief *belief = &c->belief;
    int64_t rtt_us = c->now_us - sent_us;
    int64_t offset_us = database_us - (sent_us + rtt_us / 2);
    int64_t off_us = offset_us > belief->offset_us ? offset_us - belief->offset_us : belief->offset_us - offset_us;

    if (belief->is_known && !is_tick)
        return;
    if (!belief->is_known || rtt_us <= belief->rtt_us || off_us > rtt_us / 2 + RTT_SLACK_US) {
        belief->is_known = true;
        belief->offset_us = offset_us;
        belief->rtt_us = rtt_us;
    } else {
        belief->rtt_us += belief->rtt_us / 16 + 1;
    }
    c->stats.clock_offset_us = belief->offset_us;
}

void lh_control_wake(struct lh_coordinator *c, const struct lh_wake *wake)
{
    struct lh_scope *scope = lh_scope_find(c, wake->ns, wake->key);
    if (scope == NULL) {
        c->stats.wakes++;
        lh_control_pass_on(c, wake->ns, wake->key, 0);
        return;
    }
    lh_scope_wake(c, scope);
    lh_scope_settle(c, scope);
}

static void on_enrolled(void *arg, enum lh_status status, const struct lh_error *error,
                        const struct lh_tick_answer *answer)
{
    struct lh_coordinator *c = arg;
    struct lh_control *control = &c->control;

    lh_turn_begin(c);
    control->is_enrolling = false;
    if (status == LH_OK) {
        lh_info("coordinator registered waiters=%zu", c->waiting);
        control->is_enrolled = true;
        learn_clock(c, answer->database_now_us, control->sent_us, false);
        lh_core_ask_all(c);
        lh_watch_on_enrolled(c);
        if (c->state == LH_CORE_RUNNING)
            lh_heap_set(&c->timers, &c->tick_timer, c->now_us);
    } else if (status != LH_CANCELED) {
        lh_warn("coordinator is not registered: %s", error != NULL ? error->message : lh_status_text(status));
    }
    lh_turn_end_event(c);
}

static void enroll(struct lh_coordinator *c)
{
    if (c->control.is_enrolling)
        return;
    c->control.sent_us = c->now_us;
    c->control.is_enrolling = c->store->ops->enroll(c->store, on_enrolled, c) == LH_OK;
}

static void on_ticked(void *arg, enum lh_status status, const struct lh_error *error,
                      const struct lh_tick_answer *answer)
{
    struct lh_coordinator *c = arg;

    lh_turn_begin(c);
    c->control.is_ticking = false;
    if (status == LH_OK) {
        c->stats.last_tick_us = c->now_us;
        learn_clock(c, answer->database_now_us, c->control.sent_us, true);
        if (!answer->is_registered && c->control.is_up) {
            lh_warn("coordinator was taken for dead, registers again");
            c->control.is_enrolled = false;
            lh_core_reschedule(c);
            enroll(c);
        }
        for (size_t i = 0; i < answer->wake_count; i++)
            lh_control_wake(c, &answer->wakes[i]);
    } else {
        lh_debug("tick failed: %s", error != NULL ? error->message : lh_status_text(status));
    }
    lh_turn_end_event(c);
}

void lh_control_on_tick(struct lh_coordinator *c)
{
    struct lh_control *control = &c->control;

    lh_heap_set(&c->timers, &c->tick_timer, c->now_us + lh_core_jitter(c, TICK_US, 10));
    if (!control->is_up)
        return;
    if (!control->is_enrolled) {
        enroll(c);
    } else if (!control->is_ticking && !control->is_enrolling) {
        control->sent_us = c->now_us;
        control->is_ticking = c->store->ops->tick(c->store, lh_control_database_us(c), on_ticked, c) == LH_OK;
        lh_survey_on_tick(c);
    }
}

static void on_passed_on(void *arg, enum lh_status status, const struct lh_error *error)
{
    /* A hint that is lost is made good by the slow poll of whoever is first. */
}

/*
 * Not for one scope again and again: a place that nobody here knows of (of a batch that was committed after its
 * connection was given up) would be told to us each time.
 */
void lh_control_pass_on(struct lh_coordinator *c, const char *ns, const char *key, int64_t first_ticket)
{
    struct lh_wake wake = {ns, key, first_ticket};
    uint64_t hash = lh_hash(key, strlen(key), lh_hash(ns, strlen(ns), 0));
    struct lh_passed_on *last = &c->control.passed_on[hash % LH_PASSED_ON_MAX];

    if (c->state == LH_CORE_CLOSING || (last->hash == hash && c->now_us - last->at_us < PASS_ON_PAUSE_US))
        return;
    *last = (struct lh_passed_on){hash, c->now_us};
    c->store->ops->pass_on(c->store, &wake, on_passed_on, c);
}

void lh_control_on_up(void *arg)
{
    struct lh_coordinator *c = arg;
    lh_turn_begin(c);
    c->control.is_up = true;
    c->control.is_enrolled = false;
    enroll(c);
    lh_turn_end_event(c);
}

void lh_control_on_down(void *arg)
{
    struct lh_coordinator *c = arg;
    lh_turn_begin(c);
    c->control.is_up = false;
    c->control.is_enrolled = false;
    lh_watch_on_down(c);
    lh_core_reschedule(c);
    lh_turn_end_event(c);
}

void lh_control_start(struct lh_coordinator *c)
{
    c->tick_timer.kind = LH_TIMER_TICK;
    lh_heap_set(&c->timers, &c->tick_timer, c->now_us + lh_core_jitter(c, TICK_US, 10));
    lh_reaping_start(c);
}

void lh_control_stop(struct lh_coordinator *c)
{
    lh_heap_remove(&c->timers, &c->tick_timer);
    lh_reaping_drop(c);
    lh_watch_stop(c);
}
