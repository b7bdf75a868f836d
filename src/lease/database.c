#include <assert.h>

#include "base/clock.h"
#include "base/log.h"
#include "lease/coordinator_internal.h"

#define RTT_SLACK_US (100 * LH_US_PER_MS)

static const char *const state_names[] = {"down", "up", "registered"};

#define TO(state) (1u << LH_DATABASE_##state)
static const unsigned legal_moves[] = {
    [LH_DATABASE_DOWN] = TO(DOWN) | TO(UP),                        /* lost before it was used; connected */
    [LH_DATABASE_UP] = TO(UP) | TO(DOWN) | TO(REGISTERED),         /* connected anew; lost; it knows this coordinator */
    [LH_DATABASE_REGISTERED] = TO(UP) | TO(DOWN) | TO(REGISTERED), /* taken for dead, or connected anew; lost */
};
#undef TO

void lh_database_set_state(struct lh_coordinator *c, enum lh_database_state state)
{
    assert(legal_moves[c->database.state] & (1u << state));
    lh_debug("database %s -> %s", state_names[c->database.state], state_names[state]);
    c->database.state = state;
}

bool lh_database_is_up(const struct lh_coordinator *c)
{
    return c->database.state != LH_DATABASE_DOWN;
}

bool lh_database_is_registered(const struct lh_coordinator *c)
{
    return c->database.state == LH_DATABASE_REGISTERED;
}

int64_t lh_database_us(const struct lh_coordinator *c)
{
    return c->database.knows_clock ? c->now_us + c->database.offset_us : 0;
}

/*
 * A good offset is kept over worse ones, unless they contradict it: then the clock stepped, and the tick that told us
 * has dealt with it. An enrolment tells only the first offset, for it does not compare clocks: the tick has to see a
 * step.
 */
void lh_database_learn_clock(struct lh_coordinator *c, int64_t database_us, int64_t sent_us, bool is_tick)
{
    struct lh_database *database = &c->database;
    int64_t rtt_us = c->now_us - sent_us;
    int64_t offset_us = database_us - (sent_us + rtt_us / 2);
    int64_t off_us =
        offset_us > database->offset_us ? offset_us - database->offset_us : database->offset_us - offset_us;

    if (database->knows_clock && !is_tick)
        return;
    if (!database->knows_clock || rtt_us <= database->rtt_us || off_us > rtt_us / 2 + RTT_SLACK_US) {
        database->knows_clock = true;
        database->offset_us = offset_us;
        database->rtt_us = rtt_us;
    } else {
        database->rtt_us += database->rtt_us / 16 + 1;
    }
    c->stats.clock_offset_us = database->offset_us;
}
