/*
 * The lanes of a node: a batch at a time on each, which the database executes after half of a round trip and answers
 * after the other half. What is sent breaks the test when it is not what a store may be sent.
 */
#ifndef LH_TESTS_FAKE_LANES_H
#define LH_TESTS_FAKE_LANES_H

#include "fake_store.h"

void fake_lanes_init(struct fake_node *node);
void fake_lanes_finish(struct fake_node *node);
bool fake_lanes_are_idle(const struct fake_node *node);
void fake_lanes_kill(struct fake_node *node); /* nobody hears what becomes of the batches under way */

/* Of struct lh_store_ops. */
enum lh_status fake_lane_send(struct lh_store *store, unsigned lane, enum lh_kind kind, int64_t clock_us, void **items,
                              size_t n, lh_store_cb *on_done, void *arg);
size_t fake_lane_worth_a_batch(struct lh_store *store);
enum lh_status fake_lane_hand_over(struct lh_store *store, unsigned lane, int64_t clock_us,
                                   struct lh_holder_item **items, size_t n, struct lh_acquire_item **riders,
                                   size_t rider_count, lh_store_cb *on_done, void *arg);

/* Defined by fake_store.c, and called after each answer: a stop waits until all of them are idle. */
void fake_stop_when_idle(struct fake_node *node);

#endif
