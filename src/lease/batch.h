/*
 * The batch scheduler. The kinds take turns: an idle lane takes the kind whose last batch was sent longest ago, and all
 * ready items of that kind up to batch_max, of different clients in turn. Items that arrive while the batch is out make
 * the next one. If enough releases and acquires are ready at once, the acquires ride: they go behind the releases, in
 * one transaction with them. Acquires and releases share a lane as long as that is quicker (lane.c). With three lanes
 * or more, renewals leave one lane to the other kinds, and the other kinds leave one to renewals.
 */
#ifndef LH_LEASE_BATCH_H
#define LH_LEASE_BATCH_H

#include "lease/lane.h"

void lh_batches_dispatch(struct lh_coordinator *c);
bool lh_batches_could_dispatch(const struct lh_coordinator *c);
void lh_batch_on_lane_up(void *arg, unsigned index);
void lh_batch_on_lane_down(void *arg, unsigned index);

/* Steps of a batch, for both schedulers, after lh_lane_begin. lh_batch_take adds items of the scope; it returns
   false if no item of it may go now. lh_batch_send returns false if the store refused the batch; its items are back
   in their scopes then. */
bool lh_batch_take(struct lh_lane *lane, enum lh_kind kind, struct lh_scope *scope, size_t room);
bool lh_batch_send(struct lh_lane *lane, lh_store_cb *on_done);
/* Hands the answer to the batch's operation. The lane stays busy until lh_batch_finish. */
void lh_batch_answer(struct lh_lane *lane, enum lh_status status, const struct lh_error *error);
/* Releases the grants of the answered batch that no caller took, and frees its lane. Call it after callers were
   answered. */
void lh_batch_finish(struct lh_coordinator *c);

#endif
