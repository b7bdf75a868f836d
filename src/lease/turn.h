/*
 * The ground that every file of this directory stands on: the time of this turn, its timers, and its two ends.
 * coordinator.c does the work of the end of a turn and hands it down.
 */
#ifndef LH_LEASE_TURN_H
#define LH_LEASE_TURN_H

#include "lease/coordinator_internal.h"

static inline void lh_turn_begin(struct lh_coordinator *c)
{
    c->turn_depth++;
    c->now_us = c->port.now_us(c->port.arg);
}

/* Ends a turn that a call of the API began. It delivers no answers. */
static inline void lh_turn_end_call(struct lh_coordinator *c)
{
    if (--c->turn_depth == 0)
        c->turn->end_call(c);
}

/* Ends a turn that a callback or a timer began. The coordinator may be freed in it. */
static inline void lh_turn_end_event(struct lh_coordinator *c)
{
    c->turn->end_event(c);
}

int64_t lh_turn_jitter(struct lh_coordinator *c, int64_t value_us, int percent);
/* Adds, and stops at LH_NEVER. */
int64_t lh_time_add(int64_t a_us, int64_t b_us);
/* Returns true while disconnects wait to be read, as after a stall: read them before granting. */
bool lh_turn_is_behind(const struct lh_coordinator *c);

#endif
