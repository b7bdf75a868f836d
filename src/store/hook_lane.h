/*
 * A hook lane: a connection of its own for what runs callbacks, so that nobody else waits for one. Its session has
 * `leasehold.hooks` on, and statement_timeout is the limit of the item that comes next: both are set before each, in
 * the same packet, for a callback may have changed them.
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

/* The lane of the shortest line, or NULL: none is up. Its limit is set by whoever uses it. */
struct lane *hook_lane_any(struct pg_store *store);
/* Somebody else has set its limit. */
void hook_lane_touched(struct lane *lane);

enum lh_status hook_lane_reap(struct lane *lane, int64_t clock_us, struct lh_reap_item **items, size_t n,
                              lh_store_cb *on_done, void *arg);

#endif
