/*
 * Measurements of the database for metrics and log, behind a tick, on the control lane, one at a time. An open
 * transaction keeps dead rows from being removed, and each heartbeat makes one, so the log names the session of the
 * oldest.
 */
#ifndef LH_LEASE_DB_STATS_H
#define LH_LEASE_DB_STATS_H

#include "lease/turn.h"

void lh_db_stats_on_tick(struct lh_coordinator *c);

#endif
