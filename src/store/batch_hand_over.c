/* Releases with their scopes' first waiters as riders: leasehold_internal.hand_over_batch, which answers with the
   rows of both. */
#include <string.h>

#include "pg/values.h"
#include "store/internal.h"

static const struct lh_pg_statement statement = {
    "hand_over_batch",
    "select * from leasehold_internal.hand_over_batch($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, "
    "$15, $16, $17, $18, $19)",
    19,
    {LH_PG_UUID, LH_PG_TEXT_ARRAY, LH_PG_TEXT_ARRAY, LH_PG_UUID_ARRAY, LH_PG_BOOL_ARRAY, LH_PG_TEXT_ARRAY,
     LH_PG_TIMESTAMPTZ, LH_PG_TEXT_ARRAY, LH_PG_TEXT_ARRAY, LH_PG_UUID_ARRAY, LH_PG_TEXT_ARRAY, LH_PG_TEXT_ARRAY,
     LH_PG_INT8_ARRAY, LH_PG_BOOL_ARRAY, LH_PG_INT8_ARRAY, LH_PG_INT8_ARRAY, LH_PG_TEXT_ARRAY, LH_PG_INT8_ARRAY,
     LH_PG_INT4_ARRAY},
};

static const struct lh_pg_statement core_statement = {
    "core_hand_over_batch",
    "select * from leasehold_core.hand_over_batch($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, "
    "$15, $16, $17, $18, $19)",
    19,
    {LH_PG_UUID, LH_PG_TEXT_ARRAY, LH_PG_TEXT_ARRAY, LH_PG_UUID_ARRAY, LH_PG_BOOL_ARRAY, LH_PG_TEXT_ARRAY,
     LH_PG_TIMESTAMPTZ, LH_PG_TEXT_ARRAY, LH_PG_TEXT_ARRAY, LH_PG_UUID_ARRAY, LH_PG_TEXT_ARRAY, LH_PG_TEXT_ARRAY,
     LH_PG_INT8_ARRAY, LH_PG_BOOL_ARRAY, LH_PG_INT8_ARRAY, LH_PG_INT8_ARRAY, LH_PG_TEXT_ARRAY, LH_PG_INT8_ARRAY,
     LH_PG_INT4_ARRAY},
};

static void write_items(struct lane *lane, const void *items, size_t n)
{
    lh_release_kind.write(lane, items, n);
    lh_acquire_write_arrays(lane, lane->riders, lane->rider_count);
}

static void read_items(struct lane *lane, const void *items, size_t n, const PGresult *result)
{
    static const char *const names[] = {"part"};
    int row_count = PQntuples(result);
    int releases = 0;
    int at;

    lh_pg_result_columns(result, names, &at, 1);
    while (releases < row_count && strcmp(lh_pg_text(result, releases, at), "release") == 0)
        releases++;
    lh_release_read_rows(lane, items, n, result, 0, releases);
    lh_acquire_kind.set_busy(lane->riders, lane->rider_count);
    lh_acquire_read_rows(lane, lane->riders, lane->rider_count, result, releases, row_count);
}

static void set_busy(const void *items, size_t n)
{
    lh_release_kind.set_busy(items, n);
}

/* What fails is sent again as releases and acquires. */
const struct batch_kind lh_hand_over_kind = {
    .name = "hand-over",
    .statement = &statement,
    .write = write_items,
    .read = read_items,
    .set_busy = set_busy,
    .core_statement = &core_statement,
};
