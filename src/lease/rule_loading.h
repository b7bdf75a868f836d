/*
 * Access rules: read from the database whenever a tick tells another version of them than the one that was read last,
 * one read at a time, and handed to whoever decides by them. While the database is away the last ones stay in force.
 */
#ifndef LH_LEASE_RULE_LOADING_H
#define LH_LEASE_RULE_LOADING_H

#include "lease/turn.h"

void lh_rule_loading_on_tick(struct lh_coordinator *c, int64_t version);

#endif
