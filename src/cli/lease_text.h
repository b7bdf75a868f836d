/*
 * Leases for people. All times are the database's; how long ago something was is reckoned against the database's own
 * time of the answer, which every lease brings along (deadline - remaining), never against this machine's clock.
 */
#ifndef LH_CLI_LEASE_TEXT_H
#define LH_CLI_LEASE_TEXT_H

#include <stdio.h>

#include "cli/print.h"
#include "leasehold/v1/leasehold.pb-c.h"

/* "payments.invoices"; "(root)" for no segments. A new string. */
char *lh_namespace_text(char *const *segments, size_t count);

/* "alive", "suspected dead", "overdue", "expired". */
const char *lh_liveness_text(Leasehold__V1__Liveness liveness);

/* "released", "failed" ... */
const char *lh_end_reason_text(Leasehold__V1__EndReason reason);

/* Rows "name  value" for a grid of two columns. */
void lh_add_lease_rows(struct lh_grid *card, const Leasehold__V1__Lease *lease);

/* Header and row of a table of leases. */
#define LH_LEASE_TABLE_COLUMNS 8
#define LH_LEASE_TABLE_RIGHT 0xa0u /* token, heartbeats */
void lh_add_lease_table_header(struct lh_grid *table);
void lh_add_lease_table_row(struct lh_grid *table, const Leasehold__V1__Lease *lease);

/* Who stands in the way: holder, since when, heartbeats, the last one, waiters ahead. */
void lh_print_contention(FILE *out, const Leasehold__V1__Contention *contention);

#endif
