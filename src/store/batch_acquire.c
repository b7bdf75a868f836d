/* Acquire batches: leasehold_internal.acquire_items; and one request for several scopes:
   leasehold_internal.acquire_all_one. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "pg/values.h"
#include "store/control.h"
#include "store/lease_row.h"

static const struct lh_pg_statement statement = {
    "acquire_items",
    "select * from leasehold_internal.acquire_items($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
    14,
    {LH_PG_UUID, LH_PG_TIMESTAMPTZ, LH_PG_TEXT_ARRAY, LH_PG_TEXT_ARRAY, LH_PG_UUID_ARRAY, LH_PG_TEXT_ARRAY,
     LH_PG_TEXT_ARRAY, LH_PG_INT8_ARRAY, LH_PG_BOOL_ARRAY, LH_PG_INT8_ARRAY, LH_PG_INT8_ARRAY, LH_PG_TEXT_ARRAY,
     LH_PG_INT8_ARRAY, LH_PG_INT4_ARRAY},
};

/* What leasehold_internal.acquired is, spelled out: the extension's functions know no type of ours. */
static const struct lh_pg_statement core_statement = {
    "core_acquire_items",
    "select * from leasehold_core.acquire_items($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"
    " as a (n integer, outcome text, token bigint, acquired_at timestamptz, grace_us bigint, expires_in_us bigint,"
    " suspected_in_us bigint, units_free integer, more leasehold_internal.answer)",
    14,
    {LH_PG_UUID, LH_PG_TIMESTAMPTZ, LH_PG_TEXT_ARRAY, LH_PG_TEXT_ARRAY, LH_PG_UUID_ARRAY, LH_PG_TEXT_ARRAY,
     LH_PG_TEXT_ARRAY, LH_PG_INT8_ARRAY, LH_PG_BOOL_ARRAY, LH_PG_INT8_ARRAY, LH_PG_INT8_ARRAY, LH_PG_TEXT_ARRAY,
     LH_PG_INT8_ARRAY, LH_PG_INT4_ARRAY},
};

static void write_items(struct lane *lane, const void *items, size_t n)
{
    lh_pg_add_uuid(&lane->params, &lane->store->base.coordinator);
    lh_acquire_write_arrays(lane, items, n);
}

/* NULL in place of an array in which nobody asks for a shared lease. */
static void write_units(struct lh_pg_params *params, struct lh_acquire_item *const *items, size_t n)
{
    size_t shared = 0;

    while (shared < n && items[shared]->units == 0)
        shared++;
    if (shared == n) {
        lh_pg_add_text(params, NULL);
        return;
    }
    lh_pg_array_begin(params, LH_PG_INT4);
    for (size_t i = 0; i < n; i++) {
        if (items[i]->units == 0)
            lh_pg_add_null(params);
        else
            lh_pg_add_int4(params, items[i]->units);
    }
    lh_pg_array_end(params);
}

static void write_scopes(struct lane *lane, struct lh_acquire_item *const *items, size_t n)
{
    struct lh_pg_params *params = &lane->params;

    lh_pg_store_add_clock(params, lane->clock_us == 0 ? 0 : lane->clock_us + lh_clock_us() - lane->sent_us);
    LH_PG_ARRAY(params, LH_PG_TEXT, n, lh_pg_add_text(params, items[i]->ns));
    LH_PG_ARRAY(params, LH_PG_TEXT, n, lh_pg_add_text(params, items[i]->key));
}

static void write_at_least(struct lh_pg_params *params, struct lh_acquire_item *const *items, size_t n)
{
    lh_pg_array_begin(params, LH_PG_INT8);
    for (size_t i = 0; i < n; i++) {
        if (items[i]->at_least_us == LH_AT_LEAST_POLICY)
            lh_pg_add_null(params);
        else
            lh_pg_add_int8(params, items[i]->at_least_us);
    }
    lh_pg_array_end(params);
}

void lh_acquire_write_arrays(struct lane *lane, const void *all, size_t n)
{
    struct lh_acquire_item *const *items = all;
    struct lh_pg_params *params = &lane->params;

    write_scopes(lane, items, n);
    LH_PG_ARRAY(params, LH_PG_UUID, n, lh_pg_add_uuid(params, &items[i]->lease_key));
    LH_PG_ARRAY(params, LH_PG_TEXT, n, lh_pg_add_text(params, items[i]->owner));
    lh_pg_array_begin(params, LH_PG_TEXT);
    for (size_t i = 0; i < n; i++)
        lh_pg_add_text(params, items[i]->labels == NULL ? "{}" : items[i]->labels);
    lh_pg_array_end(params);
    LH_PG_ARRAY(params, LH_PG_INT8, n, lh_pg_add_int8(params, items[i]->duration_us));
    LH_PG_ARRAY(params, LH_PG_BOOL, n, lh_pg_add_bool(params, items[i]->queue));
    lh_pg_array_begin(params, LH_PG_INT8);
    for (size_t i = 0; i < n; i++) {
        if (items[i]->wait_us == LH_NEVER)
            lh_pg_add_null(params);
        else
            lh_pg_add_int8(params, items[i]->wait_us);
    }
    lh_pg_array_end(params);
    LH_PG_ARRAY(params, LH_PG_INT8, n, lh_pg_add_int8(params, items[i]->ticket));
    LH_PG_ARRAY(params, LH_PG_TEXT, n, lh_pg_add_text(params, items[i]->principal));
    write_at_least(params, items, n);
    write_units(params, items, n);
}

static bool outcome_of(const char *text, enum lh_acquire_outcome *outcome)
{
    static const struct {
        const char *text;
        enum lh_acquire_outcome outcome;
    } map[] = {
        {"granted", LH_ACQUIRE_GRANTED},   {"renewed", LH_ACQUIRE_RENEWED}, {"queued", LH_ACQUIRE_QUEUED},
        {"held", LH_ACQUIRE_HELD},         {"busy", LH_ACQUIRE_BUSY},       {"frozen", LH_ACQUIRE_FROZEN},
        {"quota", LH_ACQUIRE_QUOTA},       {"ended", LH_ACQUIRE_ENDED},     {"invalid", LH_ACQUIRE_INVALID},
        {"rejected", LH_ACQUIRE_REJECTED}, {"hooked", LH_ACQUIRE_HOOKED},
    };
    for (size_t i = 0; text != NULL && i < sizeof(map) / sizeof(map[0]); i++) {
        if (strcmp(map[i].text, text) == 0) {
            *outcome = map[i].outcome;
            return true;
        }
    }
    return false;
}

enum {
    N,
    OUTCOME,
    TICKET,
    WAITERS_AHEAD,
    RESTS_IN,
    EXPIRES_IN,
    SUSPECTED_IN,
    MESSAGE,
    FIELD,
    BOUND,
    HOLDERS,
    UNITS_FREE,
    COLUMN_COUNT
};

struct answer_columns {
    int at[COLUMN_COUNT];
    struct lease_columns lease;
};

static void answer_columns_find(const PGresult *result, struct answer_columns *columns)
{
    static const char *const names[COLUMN_COUNT] = {
        "n",       "outcome", "ticket", "waiters_ahead", "rests_in_us", "expires_in_us", "suspected_in_us",
        "message", "field",   "bound",  "holder_count",  "units_free",
    };
    lh_pg_result_columns(result, names, columns->at, COLUMN_COUNT);
    lh_lease_columns_find(result, &columns->lease);
}

static void read_item(struct lane *lane, struct lh_acquire_item *item, const PGresult *result, int row,
                      const struct answer_columns *columns)
{
    const int *at = columns->at;

    if (!outcome_of(lh_pg_text(result, row, at[OUTCOME]), &item->outcome)) {
        lh_err("an acquire was answered with an unknown outcome");
        return;
    }
    item->new_ticket = lh_pg_int8(result, row, at[TICKET]);
    item->waiters_ahead = lh_pg_int4(result, row, at[WAITERS_AHEAD]);
    item->rests_in_us = lh_pg_int8(result, row, at[RESTS_IN]);
    item->expires_in_us = lh_pg_int8(result, row, at[EXPIRES_IN]);
    if (lh_pg_is_null(result, row, at[EXPIRES_IN]))
        item->expires_in_us = LH_NEVER;
    else if (item->expires_in_us < 0)
        item->expires_in_us = 0;
    item->suspected_in_us = lh_pg_int8(result, row, at[SUSPECTED_IN]);
    item->message = lh_text_read(result, row, at[MESSAGE], &lane->arena);
    if (item->outcome == LH_ACQUIRE_HOOKED)
        item->hook_timeout_us = lh_hook_timeout_read(result, row, at[MESSAGE]);
    item->field = lh_text_read(result, row, at[FIELD], &lane->arena);
    item->bound = lh_text_read(result, row, at[BOUND], &lane->arena);
    item->holder_count = lh_pg_int4(result, row, at[HOLDERS]);
    item->units_free = lh_units_free_read(result, row, at[UNITS_FREE]);
    item->has_lease = lh_lease_read(result, row, &columns->lease, &lane->arena, &item->lease);
    item->lease.ns = item->ns;
    item->lease.key = item->key;
    if (item->outcome == LH_ACQUIRE_GRANTED || item->outcome == LH_ACQUIRE_RENEWED)
        item->lease.lease_key = item->lease_key;
}

void lh_acquire_read_rows(struct lane *lane, const void *all, size_t n, const PGresult *result, int first, int last)
{
    struct lh_acquire_item *const *items = all;
    struct answer_columns columns;

    answer_columns_find(result, &columns);
    for (int row = first; row < last; row++) {
        int32_t number = lh_pg_int4(result, row, columns.at[N]);
        if (number >= 1 && (size_t)number <= n)
            read_item(lane, items[number - 1], result, row, &columns);
    }
}

enum { NUMBER, MORE, TOKEN, ACQUIRED_AT, GRACE, EXPIRES, SUSPECTED, FREE, GRANT_COLUMN_COUNT };

/* A free scope was granted: what the row leaves out is what the item asked for. */
static void read_grant(struct lh_acquire_item *item, const PGresult *result, int row, const int *at)
{
    int64_t acquired_at_us = lh_pg_timestamptz(result, row, at[ACQUIRED_AT]);

    item->outcome = LH_ACQUIRE_GRANTED;
    item->expires_in_us = lh_pg_is_null(result, row, at[EXPIRES]) ? LH_NEVER : lh_pg_int8(result, row, at[EXPIRES]);
    item->suspected_in_us = lh_pg_int8(result, row, at[SUSPECTED]);
    item->holder_count = 1;
    item->units_free = lh_units_free_read(result, row, at[FREE]);
    item->has_lease = true;
    item->lease = (struct lh_held_lease){
        .ns = item->ns,
        .key = item->key,
        .lease_key = item->lease_key,
        .token = lh_pg_int8(result, row, at[TOKEN]),
        .owner = item->owner == NULL ? "" : item->owner,
        .principal = item->principal == NULL ? "" : item->principal,
        .labels = item->labels == NULL ? "{}" : item->labels,
        .duration_us = item->duration_us,
        .grace_us = lh_pg_int8(result, row, at[GRACE]),
        .remaining_us = item->duration_us,
        .deadline_us = acquired_at_us + item->duration_us,
        .acquired_at_us = acquired_at_us,
        .heartbeat_at_us = acquired_at_us,
        .liveness = LH_LIVENESS_ALIVE,
        .is_manual = item->expires_in_us == LH_NEVER,
    };
}

/* leasehold_internal.acquired: a grant, or `more`, whose attributes are those of leasehold_internal.answer in their order. */
static void read_items(struct lane *lane, const void *all, size_t n, const PGresult *result)
{
    static const char *const names[GRANT_COLUMN_COUNT] = {"n",        "more",          "token",           "acquired_at",
                                                          "grace_us", "expires_in_us", "suspected_in_us", "units_free"};
    static const char *const answer_names[] = {
        "n",           "outcome",     "ticket",     "waiters_ahead", "expires_in_us", "suspected_in_us",
        "message",     "field",       "bound",      "token",         "owner",         "principal",
        "labels",      "duration_us", "grace_us",   "acquired_at",   "deadline",      "remaining_us",
        "held_us",     "silent_us",   "heartbeats", "heartbeat_at",  "liveness",      "is_manual",
        "rests_in_us", "mode",        "units",      "slots",         "units_free",    "holder_count",
    };
    struct lh_acquire_item *const *items = all;
    struct answer_columns columns;
    PGresult *more = NULL;
    int at[GRANT_COLUMN_COUNT];

    lh_pg_result_columns(result, names, at, GRANT_COLUMN_COUNT);
    for (int row = 0; row < PQntuples(result); row++) {
        int32_t number = lh_pg_int4(result, row, at[NUMBER]);
        if (number < 1 || (size_t)number > n)
            continue;
        if (lh_pg_is_null(result, row, at[MORE])) {
            read_grant(items[number - 1], result, row, at);
            continue;
        }
        if (more == NULL) {
            more = lh_pg_composites(result, at[MORE], answer_names, sizeof(answer_names) / sizeof(answer_names[0]));
            answer_columns_find(more, &columns);
        }
        read_item(lane, items[number - 1], more, row, &columns);
    }
    PQclear(more);
}

static void read_all(struct lane *lane, const void *items, size_t n, const PGresult *result)
{
    lh_acquire_read_rows(lane, items, n, result, 0, PQntuples(result));
}

static void set_busy(const void *all, size_t n)
{
    struct lh_acquire_item *const *items = all;
    for (size_t i = 0; i < n; i++) {
        items[i]->outcome = LH_ACQUIRE_BUSY;
        items[i]->new_ticket = 0;
        items[i]->has_lease = false;
        items[i]->holder_count = 0;
        items[i]->units_free = LH_UNITS_UNBOUNDED;
        items[i]->waiters_ahead = 0;
        items[i]->rests_in_us = 0;
        items[i]->expires_in_us = LH_NEVER;
        items[i]->suspected_in_us = 0;
        items[i]->message = items[i]->field = items[i]->bound = NULL;
    }
}

/* Beside what the functions judge themselves, only two fields are more to PostgreSQL than bytes. */
static void set_invalid(struct lane *lane, const void *all, const struct lh_error *error)
{
    struct lh_acquire_item *const *items = all;
    bool is_overflow = strcmp(error->sqlstate, "22008") == 0 || strcmp(error->sqlstate, "22003") == 0;

    set_busy(all, 1);
    items[0]->outcome = LH_ACQUIRE_INVALID;
    items[0]->message = lh_arena_strdup(&lane->arena, error->message);
    if (error->field[0] != '\0')
        items[0]->field = lh_arena_strdup(&lane->arena, error->field);
    else
        items[0]->field = is_overflow ? "duration" : "labels";
    if (error->bound[0] != '\0')
        items[0]->bound = lh_arena_strdup(&lane->arena, error->bound);
}

static const void *skip(const void *all, size_t n)
{
    return (struct lh_acquire_item *const *)all + n;
}

static void set_rejected(struct lane *lane, const void *all, const char *message)
{
    struct lh_acquire_item *const *items = all;
    set_busy(all, 1);
    items[0]->outcome = LH_ACQUIRE_REJECTED;
    items[0]->message = lh_arena_strdup(&lane->arena, message);
}

static int64_t hook_timeout_us(const void *all)
{
    return ((struct lh_acquire_item *const *)all)[0]->hook_timeout_us;
}

const struct batch_kind lh_acquire_kind = {
    "acquire", &statement,   write_items,     read_items, set_busy,        set_invalid,
    skip,      set_rejected, hook_timeout_us, false,      &core_statement,
};

/* --- several scopes, all or none --- */

static const struct lh_pg_statement all_statement = {
    "acquire_all",
    "select * from leasehold_internal.acquire_all_one($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
    14,
    {LH_PG_UUID, LH_PG_TIMESTAMPTZ, LH_PG_TEXT_ARRAY, LH_PG_TEXT_ARRAY, LH_PG_UUID, LH_PG_TEXT, LH_PG_TEXT, LH_PG_INT8,
     LH_PG_BOOL, LH_PG_INT8, LH_PG_INT8, LH_PG_TEXT, LH_PG_INT8_ARRAY, LH_PG_INT4_ARRAY},
};

static void write_all(struct lane *lane, const void *all, size_t n)
{
    struct lh_acquire_item *const *items = all;
    struct lh_pg_params *params = &lane->params;

    lh_pg_add_uuid(params, &lane->store->base.coordinator);
    write_scopes(lane, items, n);
    lh_pg_add_uuid(params, &items[0]->lease_key);
    lh_pg_add_text(params, items[0]->owner);
    lh_pg_add_text(params, items[0]->labels == NULL ? "{}" : items[0]->labels);
    lh_pg_add_int8(params, items[0]->duration_us);
    lh_pg_add_bool(params, items[0]->queue);
    if (items[0]->wait_us == LH_NEVER)
        lh_pg_add_text(params, NULL);
    else
        lh_pg_add_int8(params, items[0]->wait_us);
    lh_pg_add_int8(params, items[0]->ticket);
    lh_pg_add_text(params, items[0]->principal);
    write_at_least(params, items, n);
    write_units(params, items, n);
}

const struct batch_kind lh_acquire_all_kind = {
    "acquire_all", &all_statement, write_all,       read_all, set_busy, set_invalid,
    skip,          set_rejected,   hook_timeout_us, true,     NULL,
};
