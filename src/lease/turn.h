/*
 * The ground that every file of this directory stands on: the time of this turn, its timers, and its two ends. What the
 * end of a turn does is in coordinator.c, which hands it down.
 */
#ifndef LH_LEASE_TURN_H
#define LH_LEASE_TURN_H

#include "lease/coordinator_internal.h"

static inline void lh_turn_begin(struct lh_coordinator *c)
{
    c->turn_depth++;
    c->now_us = c->port.now_us(c->port.arg);
}

/* Of a call of the API: it delivers no answers. */
static inline void lh_turn_end_call(struct lh_coordinator *c)
{
    if (--c->turn_depth == 0)
        c->turn->end_call(c);
}

/* Of a callback or a timer: the coordinator may be gone afterwards. */
static inline void lh_turn_end_event(struct lh_coordinator *c)
{
    c->turn->end_event(c);
}

int64_t lh_turn_jitter(struct lh_coordinator *c, int64_t value_us, int percent);
int64_t lh_time_add(int64_t a_us, int64_t b_us); /* stops at LH_NEVER */
/* After a stall, disconnects are pending: read them before granting. */
bool lh_turn_is_behind(const struct lh_coordinator *c);

#endif
