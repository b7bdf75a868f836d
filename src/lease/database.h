/*
 * The database as the coordinator knows it: whether it is connected, whether this coordinator is registered there, its
 * clock. Also passes wake-ups on to the first waiter of a queue.
 */
#ifndef LH_LEASE_DATABASE_H
#define LH_LEASE_DATABASE_H

#include "lease/turn.h"

void lh_database_set_state(struct lh_coordinator *c, enum lh_database_state state);
bool lh_database_is_up(const struct lh_coordinator *c);
/* Acquires wait until this is true, so that no waiter is queued under an unknown coordinator. */
bool lh_database_is_registered(const struct lh_coordinator *c);

/* The database's clock now; 0: unknown. */
int64_t lh_database_us(const struct lh_coordinator *c);
void lh_database_learn_clock(struct lh_coordinator *c, int64_t database_us, int64_t sent_us, bool is_tick);

void lh_database_pass_on(struct lh_coordinator *c, const char *ns, const char *key, int64_t first_ticket);

#endif
