/* The standing of each namespace: read behind a survey, and less often the longer the database takes for it.
   lh_pg_store_look_at_namespaces starts a read if it is due. */
#ifndef LH_STORE_STANDINGS_H
#define LH_STORE_STANDINGS_H

#include "store/internal.h"

void lh_pg_store_look_at_namespaces(struct pg_store *store);

#endif
