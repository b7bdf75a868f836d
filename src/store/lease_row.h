/* The columns token..is_manual, units and slots, which the functions of the schema return in one form, as a struct lh_held_lease. */
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
 * False, and `lease` is cleared, when there is none (token is NULL). The strings are copied into the arena; ns, key and
 * lease_key are the caller's to fill.
 */
bool lh_lease_read(const PGresult *result, int row, const struct lease_columns *columns, struct lh_arena *arena,
                   struct lh_held_lease *lease);

/* NULL is LH_UNITS_UNBOUNDED. */
int32_t lh_units_free_read(const PGresult *result, int row, int column);

/* A copy in the arena; NULL for NULL. */
const char *lh_text_read(const PGresult *result, int row, int column, struct lh_arena *arena);

/* The columns of reap_batch, reap_hooked, reap_failed. */
struct reap_columns {
    int at[8];
    struct lease_columns lease;
};

struct lh_reaped;
void lh_reap_columns_find(const PGresult *result, struct reap_columns *columns);
/* `reaped` or `failed` or `hooked`; read the row's kind first. */
const char *lh_reap_row_kind(const PGresult *result, int row, const struct reap_columns *columns);
void lh_reap_row_read(struct lh_reaped *reaped, const PGresult *result, int row, const struct reap_columns *columns,
                      struct lh_arena *arena);

/* What an item is answered that has hooks: how long they may run, as text. */
int64_t lh_hook_timeout_read(const PGresult *result, int row, int column);

enum lh_end_reason lh_end_reason_read(const PGresult *result, int row, int column);

#endif
