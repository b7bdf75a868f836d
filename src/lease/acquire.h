/* The operation acquire, and its riders: acquires in the transaction of releases. */
#ifndef LH_LEASE_ACQUIRE_H
#define LH_LEASE_ACQUIRE_H

#include "lease/lane.h"

extern const struct lh_operation lh_acquire_operation;

/* Puts an acquire for the first waiter of `scope` behind the releases of the scope in the lane's batch. Does nothing
   if no waiter may be asked for now. */
void lh_acquire_ride(struct lh_lane *lane, struct lh_scope *scope);
void lh_acquire_on_riders_done(struct lh_lane *lane, enum lh_status status, const struct lh_error *error);

/* Parts for acquire_all. lh_acquire_write fills item `place` of the lane's batch for the requests of `waiter`;
   lh_acquire_on_answer and lh_acquire_on_error apply the answer of an item to these requests. */
void lh_acquire_write(struct lh_lane *lane, size_t place, struct lh_waiter *waiter, struct lh_scope *scope,
                      int32_t units, int64_t at_least_us);
const struct lh_acquire *lh_acquire_newest(const struct lh_waiter *waiter);
void lh_acquire_on_answer(struct lh_lane *lane, struct lh_entry *entry);
void lh_acquire_on_error(struct lh_lane *lane, struct lh_entry *entry, enum lh_status status,
                         const struct lh_error *error);

#endif
