/*
 * A hook lane: a connection of its own for items with hooks, so that no other item waits for a hook. Its session has
 * `leasehold.hooks` on, and statement_timeout is the limit of the next item. Before each item, in the same packet, the
 * session is reset to that, because a callback may have changed any setting. (In a run of reaps, when namespace or
 * limit change.)
 */
#ifndef LH_STORE_HOOK_LANE_H
#define LH_STORE_HOOK_LANE_H

#include "store/batch.h"

#define HOOK_LANE_WORDS_BYTES 80

/* Sets the limits of the next statement: statement_timeout, and how long to wait for its answer; 0: no limit. */
void lh_hook_lane_set_limits(struct lane *lane, int64_t timeout_us, int64_t answer_us);
void lh_hook_lane_set(struct lane *lane, int64_t timeout_us); /* sets both limits */
void lh_hook_lane_timeout_words(int64_t timeout_us, char words[HOOK_LANE_WORDS_BYTES]);

/* Returns the lane with the shortest line, or NULL if none is up. The caller sets its limit. */
struct lane *lh_hook_lane_any(struct pg_store *store);
/* Lends the lane to a control call: resets its session and lifts its limit on answers. The caller then sets its
   limit. */
void lh_hook_lane_lend(struct lane *lane);

#endif
