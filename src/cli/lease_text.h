/*
 * Leases for people. All times are the database's; how long ago something was is reckoned against the database's own
 * time of the answer, which every lease brings along (deadline - remaining), never against this machine's clock.
 */
#ifndef LH_CLI_LEASE_TEXT_H
#define LH_CLI_LEASE_TEXT_H

#include <stdio.h>

#include "cli/print.h"
#include "leasehold/v1/leasehold.pb-c.h"

/* "payments.invoices"; "(root)" for no segments; in quotes if it has a '/', which stands before the key. A new string. */
char *lh_namespace_text(char *const *segments, size_t count);

/* "payments.invoices/invoice-42". New strings. */
char *lh_scope_text(const Leasehold__V1__Scope *scope);
char *lh_scope_text_of(const char *ns, const char *key);

/* "released", "failed" ... */
const char *lh_end_reason_text(Leasehold__V1__EndReason reason);

/* "1,2,5"; "" for none. A new string. */
char *lh_slots_text(const int32_t *slots, size_t count);

/* Rows "name  value" for a grid of two columns. */
void lh_add_lease_rows(struct lh_grid *card, const Leasehold__V1__Lease *lease);
/* A row of it; none where it is unknown. */
void lh_add_principal(struct lh_grid *card, const char *principal);

/* Header and row of a table of leases. */
#define LH_LEASE_TABLE_COLUMNS 12
#define LH_LEASE_TABLE_RIGHT 0x920u /* token, heartbeats, units */
/* On a terminal: namespace, key, state and owner are cut to fit, and the others left out, from the right. */
void lh_lease_table_fit(struct lh_grid *table, FILE *out);
void lh_add_lease_table_header(struct lh_grid *table);
void lh_add_lease_table_row(struct lh_grid *table, const Leasehold__V1__Lease *lease);

/* Rows of how long the scope still rests, if it does, and of what is left of its capacity. `contention` may be NULL. */
void lh_add_rest(struct lh_grid *card, const Leasehold__V1__Contention *contention);
void lh_add_units_free(struct lh_grid *card, const Leasehold__V1__Contention *contention);

/* The holder that stands in the way: since when, heartbeats, the last one, waiters ahead. */
void lh_print_contention(FILE *out, const Leasehold__V1__Contention *contention);

#endif
