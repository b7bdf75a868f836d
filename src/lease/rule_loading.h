/*
 * Access rules: read from the database when a tick reports another version than the one read last, one read at a time,
 * and handed to on_rules. While the database is away the last rules stay in force.
 */
#ifndef LH_LEASE_RULE_LOADING_H
#define LH_LEASE_RULE_LOADING_H

#include "lease/turn.h"

void lh_rule_loading_on_tick(struct lh_coordinator *c, int64_t version);

#endif
