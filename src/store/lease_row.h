/* The columns token..is_manual, units and slots, which the functions of the schema return in one form, as a struct
   lh_held_lease. */
#ifndef LH_STORE_LEASE_ROW_H
#define LH_STORE_LEASE_ROW_H

#include <libpq-fe.h>

#include "base/memory.h"
#include "lease/types.h"

#define LEASE_COLUMNS 17

struct lease_columns {
    int at[LEASE_COLUMNS];
};

void lh_lease_columns_find(const PGresult *result, struct lease_columns *columns);

/*
 * Reads a lease. Returns false, with `lease` cleared, if there is none (token is null). The strings are copied into the
 * arena; the caller fills ns, key and lease_key.
 */
bool lh_lease_read(const PGresult *result, int row, const struct lease_columns *columns, struct lh_arena *arena,
                   struct lh_held_lease *lease);

/* Reads units_free; null is LH_UNITS_UNBOUNDED. */
int32_t lh_units_free_read(const PGresult *result, int row, int column);

/* Copies a text to the arena; NULL for null. */
const char *lh_text_read(const PGresult *result, int row, int column, struct lh_arena *arena);

/* The columns of reap_batch, reap_hooked, reap_failed. */
struct reap_columns {
    int at[8];
    struct lease_columns lease;
};

struct lh_reaped;
void lh_reap_columns_find(const PGresult *result, struct reap_columns *columns);
/* Returns `reaped`, `failed` or `hooked`; read the row's kind first. */
const char *lh_reap_row_kind(const PGresult *result, int row, const struct reap_columns *columns);
void lh_reap_row_read(struct lh_reaped *reaped, const PGresult *result, int row, const struct reap_columns *columns,
                      struct lh_arena *arena);

/* Reads, from the answer HOOKED, how long the hooks of an item may run. */
int64_t lh_hook_timeout_read(const PGresult *result, int row, int column);

enum lh_end_reason lh_end_reason_read(const PGresult *result, int row, int column);

#endif
