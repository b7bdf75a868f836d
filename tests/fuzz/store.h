/*
 * The fake store of the unit tests with what it lacks for a whole server: lists, policies, watches. Every scope there is
 * or is not is one of its own. Answers come when fake_run() has come so far.
 */
#ifndef LH_FUZZ_STORE_H
#define LH_FUZZ_STORE_H

#include "fake_store.h"

/* Before the node's service is made. */
void fuzz_store_complete(struct fake_node *node);

#endif
