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

void hook_lane_create(struct lane *lane);
void hook_lane_destroy(struct lane *lane);

/* For what is sent next; 0: no limit. */
void hook_lane_set(struct lane *lane, int64_t timeout_us);
void hook_lane_timeout_words(int64_t timeout_us, char words[HOOK_LANE_WORDS_BYTES]);

/* The lane of the shortest line, or NULL: none is up. The caller sets its limit. */
struct lane *hook_lane_any(struct pg_store *store);
/* Resets its session; the caller then sets the limit. */
void hook_lane_lend(struct lane *lane);

enum lh_status hook_lane_reap(struct lane *lane, int64_t clock_us, struct lh_reap_item **items, size_t n,
                              lh_store_cb *on_done, void *arg);

#endif
