/* The parameters and answers of a batch by its kind's tables. */
#include "base/clock.h"
#include "store/store_internal.h"

void lh_lane_add_clock(struct lane *lane)
{
    lh_pg_store_add_clock(&lane->params, lane->clock_us == 0 ? 0 : lane->clock_us + lh_clock_us() - lane->sent_us);
}

static void *item_at(const void *items, size_t i)
{
    return ((void *const *)items)[i];
}

static void add_member(struct lh_pg_params *params, const struct batch_column *column, const void *item)
{
    const void *member = (const char *)item + column->offset;

    switch (column->type) {
    case LH_PG_TEXT:
        lh_pg_add_text(params, *(const char *const *)member);
        break;
    case LH_PG_UUID:
        lh_pg_add_uuid(params, member);
        break;
    case LH_PG_INT8:
        lh_pg_add_int8(params, *(const int64_t *)member);
        break;
    case LH_PG_BOOL:
        lh_pg_add_bool(params, *(const bool *)member);
        break;
    }
}

/* One walk a column, for an array is one run of bytes. */
static void write_column(struct lane *lane, const struct batch_kind *kind, const struct batch_column *column,
                         const void *items, size_t n)
{
    struct lh_pg_params *params = &lane->params;
    bool is_array = column->is_of_scope || !kind->is_whole;

    if (is_array)
        lh_pg_array_begin(params, column->type);
    for (size_t i = 0; i < (is_array ? n : 1); i++) {
        if (column->add != NULL)
            column->add(params, item_at(items, i));
        else
            add_member(params, column, item_at(items, i));
    }
    if (is_array && column->is_null_when_unused)
        lh_pg_array_end_or_null(params);
    else if (is_array)
        lh_pg_array_end(params);
}

void lh_batch_write_columns(struct lane *lane, const struct batch_kind *kind, const void *items, size_t n)
{
    for (size_t i = 0; i < kind->column_count; i++)
        write_column(lane, kind, &kind->columns[i], items, n);
}

void lh_batch_write(struct lane *lane, const struct batch_kind *kind, const void *items, size_t n)
{
    if (kind->write != NULL) {
        kind->write(lane, items, n);
        return;
    }
    if (kind->names_coordinator)
        lh_pg_add_uuid(&lane->params, &lane->store->base.coordinator);
    if (kind->tells_clock)
        lh_lane_add_clock(lane);
    lh_batch_write_columns(lane, kind, items, n);
}

void lh_batch_columns_find(const PGresult *result, const char *const *names, bool has_lease,
                           struct batch_answer_columns *found)
{
    size_t count = 0;

    while (names[count] != NULL)
        count++;
    lh_pg_result_columns(result, names, found->at, count);
    if (has_lease)
        lh_lease_columns_find(result, &found->lease);
}

void lh_batch_read_rows(struct lane *lane, const struct batch_kind *kind, const void *items, size_t n,
                        const PGresult *result, int first, int last)
{
    struct batch_answer_columns found;

    lh_batch_columns_find(result, kind->answer_names, kind->has_lease, &found);
    for (int row = first; row < last; row++) {
        int32_t number = lh_pg_int4(result, row, found.at[0]);
        if (number >= 1 && (size_t)number <= n)
            kind->read_item(lane, item_at(items, (size_t)number - 1), result, row, &found);
    }
}

void lh_batch_set_busy(const struct batch_kind *kind, const void *items, size_t n)
{
    for (size_t i = 0; i < n; i++)
        kind->set_busy(item_at(items, i));
}

void lh_batch_set_invalid(struct lane *lane, const void *items, const struct lh_error *error)
{
    lh_batch_set_busy(lane->kind, items, 1);
    lane->kind->set_invalid(lane, item_at(items, 0), error);
}

void lh_batch_set_rejected(struct lane *lane, const void *items, const char *message)
{
    lh_batch_set_busy(lane->kind, items, 1);
    lane->kind->set_rejected(lane, item_at(items, 0), message);
}

int64_t lh_batch_hook_timeout_us(const struct batch_kind *kind, const void *items)
{
    return *(const int64_t *)(const void *)((const char *)item_at(items, 0) + kind->hook_timeout_at);
}
