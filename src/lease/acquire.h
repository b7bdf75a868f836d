/* The operation acquire, and its riders: acquires in the transaction of a release. */
#ifndef LH_LEASE_ACQUIRE_H
#define LH_LEASE_ACQUIRE_H

#include "lease/lane.h"

extern const struct lh_operation lh_acquire_operation;

/* The first waiter of `scope` rides with the releases that were just taken of it, where there is one that may. */
void lh_acquire_ride(struct lh_lane *lane, struct lh_scope *scope);
void lh_acquire_on_riders_done(struct lh_lane *lane, enum lh_status status, const struct lh_error *error);

#endif
