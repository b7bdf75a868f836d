/*
 * Scopes with items for a lane, by kind. Scopes of different clients are taken in turn, one scope a turn; scopes of one
 * client in the order in which they became ready. So a client with a long line delays another by about one batch.
 */
#ifndef LH_LEASE_QUEUE_READY_H
#define LH_LEASE_QUEUE_READY_H

#include "lease/queue/scope.h"

void lh_ready_create(struct lh_coordinator *c);
void lh_ready_destroy(struct lh_coordinator *c);
void lh_ready_join(struct lh_coordinator *c, struct lh_scope *scope, enum lh_kind kind, int64_t since_us);
void lh_ready_part(struct lh_coordinator *c, struct lh_scope *scope); /* does nothing to a scope that is not ready */

size_t lh_ready_scopes(const struct lh_coordinator *c, enum lh_kind kind);
/* Returns since when the scope whose turn it is waits; LH_NEVER if no scope is ready. */
int64_t lh_ready_since_us(const struct lh_coordinator *c, enum lh_kind kind);
/* Returns the scope whose turn it is and ends that turn; NULL if no scope is ready. `share`: how many of its items
   may go into a batch with `room`. */
struct lh_scope *lh_ready_next(struct lh_coordinator *c, enum lh_kind kind, size_t room, size_t *share);

#endif
