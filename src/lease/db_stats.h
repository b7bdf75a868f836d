/*
 * Measurements of the database for metrics and for the log: behind a tick, on the control lane, one at a time. An open
 * transaction keeps every dead row from being removed, and each heartbeat makes one: so the log names its session.
 */
#ifndef LH_LEASE_DB_STATS_H
#define LH_LEASE_DB_STATS_H

#include "lease/turn.h"

void lh_db_stats_on_tick(struct lh_coordinator *c);

#endif
