/*
 * The batch scheduler. The kinds take turns: a lane that is free takes the kind whose last batch was sent longest ago,
 * and everything of that kind up to batch_max, of different clients in turn; whatever arrives while it is out makes the
 * next batch. Where enough releases and acquires are ready at once, the acquires ride: they go behind the releases, in
 * one transaction with them. Acquires and releases share a lane as long as that is quicker (lane.c). Of three lanes and
 * more, renewals leave one to everything else, and everything else leaves one to renewals.
 */
#ifndef LH_LEASE_BATCH_H
#define LH_LEASE_BATCH_H

#include "lease/lane.h"

void lh_batches_dispatch(struct lh_coordinator *c);
bool lh_batches_could_dispatch(const struct lh_coordinator *c);
void lh_batch_on_lane_up(void *arg, unsigned index);
void lh_batch_on_lane_down(void *arg, unsigned index);

/* Steps of a batch, for both schedulers, after lh_lane_begin. False: nothing of the scope may go now; or the batch was refused, and
   all is back in its place. */
bool lh_batch_take(struct lh_lane *lane, enum lh_kind kind, struct lh_scope *scope, size_t room);
bool lh_batch_send(struct lh_lane *lane, lh_store_cb *on_done);
/* The answer, for its operation; what must wait until callers were answered is left to lh_batch_finish. */
void lh_batch_answer(struct lh_lane *lane, enum lh_status status, const struct lh_error *error);
/* After callers were answered: grants that no caller took are given back. The lane is free then. */
void lh_batch_finish(struct lh_coordinator *c);

#endif
