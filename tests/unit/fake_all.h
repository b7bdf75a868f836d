/* The fake database's rules of a request for several scopes, and what it shares with that for one (fake_rules.c). */
#ifndef LH_TESTS_FAKE_ALL_H
#define LH_TESTS_FAKE_ALL_H

#include "fake_rules.h"

void fake_acquire_all(struct fake_node *node, struct fake_batch *batch);

struct fake_scope *fake_grant(struct fake_node *node, struct fake_scope *scope, const struct lh_acquire_item *item);
void fake_enqueue(struct fake_node *node, struct fake_scope *scope, const struct lh_acquire_item *item,
                  uint64_t together);
void fake_tell_holders(struct fake_world *world, struct fake_scope *scope, struct lh_acquire_item *item,
                       struct lh_arena *strings);

#endif
