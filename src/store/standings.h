/* How it stands in each namespace: asked behind a survey, the more seldom the longer the database takes for it. */
#ifndef LH_STORE_STANDINGS_H
#define LH_STORE_STANDINGS_H

#include "store/internal.h"

void lh_pg_store_look_at_namespaces(struct pg_store *store);

#endif
