/* Facts about a scope's holder, learnt from answers. */
#ifndef LH_LEASE_QUEUE_HOLDER_LIVENESS_H
#define LH_LEASE_QUEUE_HOLDER_LIVENESS_H

#include "lease/queue/scope.h"

void lh_scope_learn_queued(struct lh_coordinator *c, struct lh_scope *scope, const struct lh_waiter *waiter,
                           const struct lh_acquire_item *item);
/* `rests_in_us` as in lh_acquire_item. */
void lh_scope_learn_grant(struct lh_coordinator *c, struct lh_scope *scope, const struct lh_held_lease *lease,
                          int64_t rests_in_us);
/* Learns the scope's holder. `lease` NULL: the scope is free or at rest, or its holder is not known yet. */
void lh_scope_learn_holder(struct lh_coordinator *c, struct lh_scope *scope, const struct lh_held_lease *lease,
                           int64_t rests_in_us);
void lh_scope_learn_heartbeat(struct lh_coordinator *c, struct lh_scope *scope, int64_t remaining_us);

#endif
