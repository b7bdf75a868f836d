/* Rows of leases as struct lh_embed_lease. */
#ifndef LH_EMBED_LEASE_ROW_H
#define LH_EMBED_LEASE_ROW_H

#include "embed/query.h"
#include "leasehold.h"

/* The columns to select of a row of leasehold.lease called l. An older schema has only the first of them. */
extern const char lh_embed_columns[], lh_embed_share_columns[];

/* `principal` and `labels` point into the result. */
void lh_lease_of_row(struct lh_embed_lease *lease, const PGresult *result, int row);

#endif
