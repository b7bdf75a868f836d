/* What fake_rules.c leaves to hooks: their vetoes, and runs of reaps. */
#ifndef FAKE_REAPS_H
#define FAKE_REAPS_H

#include "fake_store.h"

/* Does a hook refuse? Then `message` has its words, of `strings`. */
bool fake_is_vetoed(struct fake_world *world, const char *key, struct lh_arena *strings, const char **message);
void fake_execute_run(struct fake_node *node, struct fake_batch *batch);
/* Some of them were answered before the connection was lost. */
void fake_scribble_run(struct fake_world *world, struct fake_batch *batch);

#endif
