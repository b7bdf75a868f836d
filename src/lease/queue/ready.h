/*
 * Scopes with something for a lane, by kind. Those of different clients are taken in turn, a scope a turn; those of one
 * client in the order in which they became ready. So a client with a long line delays another by a batch or so.
 */
#ifndef LH_LEASE_QUEUE_READY_H
#define LH_LEASE_QUEUE_READY_H

#include "lease/queue/scope.h"

void lh_ready_create(struct lh_coordinator *c);
void lh_ready_destroy(struct lh_coordinator *c);
void lh_ready_join(struct lh_coordinator *c, struct lh_scope *scope, enum lh_kind kind, int64_t since_us);
void lh_ready_part(struct lh_coordinator *c, struct lh_scope *scope); /* does nothing to one that is not ready */

size_t lh_ready_scopes(const struct lh_coordinator *c, enum lh_kind kind);
/* Since when the scope whose turn it is waits; LH_NEVER where there is none. */
int64_t lh_ready_since_us(const struct lh_coordinator *c, enum lh_kind kind);
/* The scope whose turn it is, and how many of its items may go into a batch with `room`; NULL. */
struct lh_scope *lh_ready_next(struct lh_coordinator *c, enum lh_kind kind, size_t room, size_t *share);

#endif
