/*
 * Leases for people. All times are the database's; an age is computed from the database's own time of the answer, which
 * every lease brings along (deadline - remaining), never from this machine's clock.
 */
#ifndef LH_CLI_LEASE_TEXT_H
#define LH_CLI_LEASE_TEXT_H

#include <stdio.h>

#include "cli/print.h"
#include "leasehold.h"
#include "leasehold/v1/leasehold.pb-c.h"

/* Return "payments.invoices"; "(root)" without segments; in quotes if it has a '/', which stands before the key. All
   texts are in the arena, or borrowed. */
const char *lh_namespace_text_of(const char *ns, struct lh_arena *arena);
const char *lh_namespace_text(char *const *segments, size_t count, struct lh_arena *arena);

/* Return "payments.invoices/invoice-42". */
const char *lh_scope_text(const Leasehold__V1__Scope *scope, struct lh_arena *arena);
const char *lh_scope_text_of(const char *ns, const char *key, struct lh_arena *arena);

/* Returns ", alive", ", suspected dead" ..., to stand behind the holder; "": not known. */
const char *lh_holder_liveness_words(enum lh_holder_liveness liveness);

/* Returns "released", "failed" ... */
const char *lh_end_reason_text(Leasehold__V1__EndReason reason);

/* Returns "1,2,5"; "" without slots. */
const char *lh_slots_text(const int32_t *slots, size_t count, struct lh_arena *arena);

/* Adds rows "name  value" to a grid of two columns. */
void lh_add_lease_rows(struct lh_grid *card, const Leasehold__V1__Lease *lease);
/* Adds a row with the principal; none if it is unknown. */
void lh_add_principal(struct lh_grid *card, const char *principal);

/* Columns of a table of leases. */
#define LH_LEASE_TABLE_COLUMNS 12
#define LH_LEASE_TABLE_RIGHT 0x920u /* token, heartbeats, units */
/* Fits the table to a terminal: namespace, key, state and owner are cut to fit, and the others left out, from the
   right. */
void lh_lease_table_fit(struct lh_grid *table, FILE *out);
void lh_add_lease_table_header(struct lh_grid *table);
void lh_add_lease_table_row(struct lh_grid *table, const Leasehold__V1__Lease *lease);

/* Add rows: how long the scope still rests, if it does, and how many units of its capacity are free. `contention`
   may be NULL. */
void lh_add_rest(struct lh_grid *card, const Leasehold__V1__Contention *contention);
void lh_add_units_free(struct lh_grid *card, const Leasehold__V1__Contention *contention);

/* Prints the holder that is in the way: since when, heartbeats, the last one, waiters ahead. */
void lh_print_contention(FILE *out, const Leasehold__V1__Contention *contention);

#endif
