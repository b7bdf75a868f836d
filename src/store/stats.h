#ifndef LH_STORE_STATS_H
#define LH_STORE_STATS_H

#include "store/internal.h"

/* Measures the open connections. */
void lh_pg_store_measure(const struct pg_store *store, struct lh_store_stats *stats);

#endif
