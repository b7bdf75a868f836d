/*
 * The control calls of several stores as one: a call about a namespace goes to the store of its database, lists go
 * through all of them, tokens are the home's. It has no batches and is never started.
 */
#ifndef LH_SERVICE_PLACED_STORE_H
#define LH_SERVICE_PLACED_STORE_H

#include "lease/store.h"

struct lh_places;

/* Borrows `places`. */
struct lh_store *lh_placed_store_create(const struct lh_places *places);
/* Call it after the last answer of its stores; NULL does nothing. */
void lh_placed_store_destroy(struct lh_store *store);

#endif
