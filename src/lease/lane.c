#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "lease/batch_internal.h"

void lh_lane_set_state(struct lh_lane *lane, enum lh_lane_state state)
{
    struct lh_lanes *lanes = &lane->coordinator->lanes;
    unsigned *up = lane->index < lanes->count ? &lanes->up : &lanes->hook_up;

    /* Each may follow each but: only an idle lane gets busy. */
    assert(state != LH_LANE_BUSY || lane->state == LH_LANE_IDLE);
    *up += (state != LH_LANE_DOWN) - (lane->state != LH_LANE_DOWN);
    lanes->busy += (state == LH_LANE_BUSY) - (lane->state == LH_LANE_BUSY);
    lane->state = state;
}

void lh_lanes_create(struct lh_coordinator *c)
{
    const struct lh_store_ops *ops = c->store->ops;
    struct lh_lanes *lanes = &c->lanes;

    lanes->count = ops->lane_count(c->store);
    lanes->trips = (struct lh_trips){.quickest_us = LH_NEVER, .window_us = LH_NEVER};
    lanes->hook_count = ops->hook_lane_count(c->store);
    lanes->all = lh_alloc_zero(lanes->count + lanes->hook_count, sizeof(lanes->all[0]));
    for (unsigned i = 0; i < lanes->count + lanes->hook_count; i++) {
        struct lh_lane *lane = &lanes->all[i];
        size_t batch_max =
            i < lanes->count && c->options.batch_max > LH_ALL_ITEMS_MAX ? c->options.batch_max : LH_ALL_ITEMS_MAX;
        lane->coordinator = c;
        lane->index = i;
        lane->late_timer.kind = LH_TIMER_LANE;
        lane->items = lh_alloc_zero(i < lanes->count ? batch_max : LH_REAP_PIPELINE_MAX, sizeof(lane->items[0]));
        lane->entries = lh_alloc_zero(batch_max, sizeof(lane->entries[0]));
        lane->acquires = lh_alloc_zero(batch_max, sizeof(lane->acquires[0]));
        lane->leaves = lh_alloc_zero(batch_max, sizeof(lane->leaves[0]));
        lane->riders = lh_alloc_zero(batch_max, sizeof(lane->riders[0]));
    }
}

void lh_lanes_destroy(struct lh_coordinator *c)
{
    for (unsigned i = 0; i < c->lanes.count + c->lanes.hook_count; i++) {
        struct lh_lane *lane = &c->lanes.all[i];
        free(lane->items);
        free(lane->entries);
        free(lane->acquires);
        free(lane->leaves);
        free(lane->riders);
        lh_arena_finish(&lane->strings);
    }
    free(c->lanes.all);
}

void lh_lane_begin(struct lh_lane *lane, enum lh_kind kind)
{
    lane->kind = kind;
    lane->n = 0;
    lane->rider_count = 0;
    lane->is_waited_for = false;
    lane->is_sent = true;
    lane->sent_us = lane->coordinator->now_us;
    lh_arena_reset(&lane->strings);
}

bool lh_lanes_are_up(const struct lh_coordinator *c)
{
    return c->lanes.up > 0;
}

bool lh_lanes_have_hook_lane(const struct lh_coordinator *c)
{
    return c->lanes.hook_up > 0;
}

bool lh_lanes_are_quiet(const struct lh_coordinator *c)
{
    return c->lanes.busy == 0;
}

struct lh_lane *lh_lanes_idle(const struct lh_coordinator *c)
{
    for (unsigned i = 0; i < c->lanes.count; i++) {
        if (c->lanes.all[i].state == LH_LANE_IDLE)
            return &c->lanes.all[i];
    }
    return NULL;
}

/*
 * Who was answered often asks again at once, and one batch of a few costs little more than one of one. So what is ready
 * within this time of a small batch's answer waits until there are as many as were answered, and were ready then. Where
 * they do not come, the next answers are passed over, twice as many each time; where they do, a quarter fewer, so that
 * callers who have nothing to do with each other, and meet by chance, do not wait. What has to do with a scope that
 * somebody waits for does not wait: a hand-off is one after the other. Where a usual trip to the database takes longer,
 * callers on the same machine do, too: then the time is that of such a trip.
 */
#define AGAIN_US 400
#define AGAIN_MAX 20 /* from here on two halves that take turns are quicker */
#define PASSED_OVER_MAX 63

/*
 * A few callers and the database follow one another, and much of the time goes on each waking the next. So while nothing
 * else is out the daemon looks for news without sleeping: for callers that come again as above, then for their answer,
 * which is to come within this time, or that of two usual trips. It learns whether they come in the same way.
 */
#define POLL_US 600

/*
 * What a transaction costs beside its items is most of what a small one costs. So while a batch of acquires and releases
 * is out, whatever comes meanwhile makes the next batch on the same lane, or on another one once there are as many as
 * are out. Nothing waits behind a few items, behind a batch that is late, and where the database is so far away that the
 * time goes on the way. The bounds were measured.
 */
#define SOME_MIN 4 /* with fewer out, two batches beside each other are quicker */
#define LATE_US (3 * LH_US_PER_MS)
#define LATE_ITEM_US 30 /* for each of its items: what one takes in SQL */
#define FAR_US (1 * LH_US_PER_MS)
#define ITEM_US 5 /* what the database works on one at least */
#define TRIPS_IN_WINDOW 64
#define TRIPS_IN_MEAN 16

static size_t item_count(const struct lh_lane *lane)
{
    return lane->n + lane->rider_count;
}

static int64_t late_us(const struct lh_lane *lane)
{
    return lane->sent_us + LATE_US + (int64_t)item_count(lane) * LATE_ITEM_US;
}

static bool is_small(const struct lh_lane *lane)
{
    return lh_lane_is_for_both(lane->kind) && item_count(lane) <= AGAIN_MAX;
}

bool lh_lane_is_worth(const struct lh_coordinator *c, size_t items)
{
    return items >= c->store->ops->worth_a_batch(c->store);
}

/* Of those behind a batch: all of them, or those that are fewer. */
static bool keeps_all(const struct lh_lane *lane)
{
    return lh_lane_is_for_both(lane->kind) && lh_lane_is_worth(lane->coordinator, item_count(lane));
}

static bool keeps_fewer(const struct lh_lane *lane)
{
    return lh_lane_is_for_both(lane->kind) && item_count(lane) >= SOME_MIN;
}

static bool is_far(const struct lh_trips *trips)
{
    return trips->window_us > FAR_US && trips->quickest_us > FAR_US;
}

/* The time of a usual trip, within these bounds. */
static int64_t usual_us(const struct lh_coordinator *c, int64_t least_us)
{
    int64_t us = c->lanes.trips.usual_us;

    if (us < least_us)
        return least_us;
    return us < FAR_US ? us : FAR_US;
}

static size_t ready_for_both(const struct lh_coordinator *c)
{
    return c->queue.ready.scopes[LH_KIND_ACQUIRE] + c->queue.ready.scopes[LH_KIND_RELEASE];
}

static bool may_hope(struct lh_hope *hope)
{
    if (hope->passing_over == 0)
        return true;
    hope->passing_over--;
    return false;
}

static void learn(struct lh_hope *hope, bool has_come)
{
    if (has_come)
        hope->in_vain = hope->in_vain * 3 / 4;
    else if (hope->in_vain < PASSED_OVER_MAX)
        hope->in_vain = 2 * hope->in_vain + 1;
    hope->passing_over = hope->in_vain;
}

/* NULL and 0: for nothing. */
static void poll_for(struct lh_coordinator *c, struct lh_hope *expected, int64_t until_us)
{
    c->lanes.polling.expected = expected;
    c->lanes.polling.until_us = until_us;
    if (c->port.poll_until != NULL)
        c->port.poll_until(c->port.arg, until_us);
}

static void start_polling(struct lh_coordinator *c, struct lh_hope *expected, int64_t until_us)
{
    if (c->lanes.busy == 1 && may_hope(expected))
        poll_for(c, expected, until_us);
}

/* Learns whether what has come was expected in time, and returns it. */
static bool end_polling(struct lh_coordinator *c, struct lh_hope *what)
{
    struct lh_polling *polling = &c->lanes.polling;
    bool was_expected = polling->expected == what;
    bool is_in_time = was_expected && c->now_us <= polling->until_us;

    if (was_expected)
        learn(what, is_in_time);
    if (polling->expected != NULL)
        poll_for(c, NULL, 0);
    return is_in_time;
}

static bool is_gathering(const struct lh_coordinator *c)
{
    return c->lanes.gathering.wanted > ready_for_both(c) && c->now_us < c->lanes.gathering.until_us &&
           !c->queue.ready.is_urgent;
}

static void gather(struct lh_lane *lane)
{
    struct lh_coordinator *c = lane->coordinator;
    struct lh_gathering *gathering = &c->lanes.gathering;
    size_t wanted = item_count(lane) + ready_for_both(c);

    if (!lh_lane_is_for_both(lane->kind) || lane->is_waited_for || wanted < 2 || wanted > AGAIN_MAX ||
        wanted > c->options.batch_max || is_far(&c->lanes.trips) || !may_hope(&gathering->hope))
        return;
    if (!is_gathering(c)) {
        gathering->until_us = c->now_us + usual_us(c, AGAIN_US);
        lh_heap_set(&c->timers, &lane->late_timer, gathering->until_us);
    }
    gathering->wanted = wanted;
}

/* Learns whether they came. */
static void end_gathering(const struct lh_lane *lane)
{
    struct lh_coordinator *c = lane->coordinator;
    struct lh_gathering *gathering = &c->lanes.gathering;
    bool was_gathering = gathering->wanted > 0 && !c->queue.ready.is_urgent;

    if (!lh_lane_is_for_both(lane->kind))
        return;
    if (was_gathering)
        learn(&gathering->hope, item_count(lane) + ready_for_both(c) >= gathering->wanted);
    gathering->wanted = 0;
    c->queue.ready.is_urgent = false;
}

void lh_lane_note_sent(struct lh_lane *lane)
{
    struct lh_coordinator *c = lane->coordinator;

    end_gathering(lane);
    if (end_polling(c, &c->lanes.polling.callers))
        start_polling(c, &c->lanes.polling.answers, lane->sent_us + 2 * usual_us(c, POLL_US / 2));
    if (keeps_all(lane) || keeps_fewer(lane))
        lh_heap_set(&c->timers, &lane->late_timer, late_us(lane));
}

static void note_trip(const struct lh_lane *lane)
{
    struct lh_trips *trips = &lane->coordinator->lanes.trips;
    int64_t trip_us = lane->coordinator->now_us - lane->sent_us - (int64_t)item_count(lane) * ITEM_US;

    if (is_small(lane))
        trips->usual_us += ((trip_us < LATE_US ? trip_us : LATE_US) - trips->usual_us) / TRIPS_IN_MEAN;
    if (trip_us < trips->window_us)
        trips->window_us = trip_us;
    if (++trips->count == TRIPS_IN_WINDOW) {
        trips->quickest_us = trips->window_us;
        trips->window_us = LH_NEVER;
        trips->count = 0;
    }
}

void lh_lane_note_answered(struct lh_lane *lane)
{
    struct lh_coordinator *c = lane->coordinator;

    note_trip(lane);
    end_polling(c, &c->lanes.polling.answers);
    if (is_small(lane))
        start_polling(c, &c->lanes.polling.callers, c->now_us + usual_us(c, AGAIN_US));
    gather(lane);
}

static bool keeps(const struct lh_lane *lane, size_t ready)
{
    return lane->state == LH_LANE_BUSY && lane->coordinator->now_us < late_us(lane) &&
           (keeps_all(lane) || (keeps_fewer(lane) && ready < item_count(lane)));
}

bool lh_lanes_keep(const struct lh_coordinator *c, enum lh_kind kind, size_t ready)
{
    const struct lh_lanes *lanes = &c->lanes;

    if (!lh_lane_is_for_both(kind) || is_far(&lanes->trips))
        return false;
    for (unsigned i = 0; i < lanes->count; i++) {
        if (keeps(&lanes->all[i], ready))
            return true;
    }
    return is_gathering(c);
}
