/*
 * A hook lane: a connection of its own for items with hooks, so that no other item waits for one. Its session has
 * `leasehold.hooks` on, and statement_timeout is the limit of the item that comes next. Before each item, in the same
 * packet, the session is reset to that: a callback may have set anything. (In a run of reaps, when namespace or limit
 * change.)
 */
#ifndef LH_STORE_HOOK_LANE_H
#define LH_STORE_HOOK_LANE_H

#include "store/batch.h"

#define HOOK_LANE_WORDS_BYTES 80

/* For what is sent next: statement_timeout, and how long until its answer; 0: no limit. */
void lh_hook_lane_set_limits(struct lane *lane, int64_t timeout_us, int64_t answer_us);
void lh_hook_lane_set(struct lane *lane, int64_t timeout_us); /* the same for both */
void lh_hook_lane_timeout_words(int64_t timeout_us, char words[HOOK_LANE_WORDS_BYTES]);

/* The lane of the shortest line, or NULL: none is up. The caller sets its limit. */
struct lane *lh_hook_lane_any(struct pg_store *store);
/* Resets its session; the caller then sets the limit. */
void lh_hook_lane_lend(struct lane *lane);

#endif
