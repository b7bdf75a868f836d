/* Batches about a lease that is held or waited for: heartbeats, releases, downgrades, leaving the queue. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "pg/values.h"
#include "store/control.h"
#include "store/lease_row.h"

/* The three arrays that every batch has. One walk an array, for an array is one run of bytes. */
#define WRITE_REFS(params, items, n)                                                                                   \
    do {                                                                                                               \
        LH_PG_ARRAY(params, LH_PG_TEXT, n, lh_pg_add_text(params, (items)[i]->ns));                                    \
        LH_PG_ARRAY(params, LH_PG_TEXT, n, lh_pg_add_text(params, (items)[i]->key));                                   \
        LH_PG_ARRAY(params, LH_PG_UUID, n, lh_pg_add_uuid(params, &(items)[i]->lease_key));                            \
    } while (0)

static bool is_text(const PGresult *result, int row, int column, const char *text)
{
    const char *value = lh_pg_text(result, row, column);
    return value != NULL && strcmp(value, text) == 0;
}

/* Busy stays LH_OUTCOME_UNSPECIFIED; anything unknown too, and is asked again. */
static enum lh_outcome outcome_read(const PGresult *result, int row, int column)
{
    static const struct {
        const char *text;
        enum lh_outcome outcome;
    } map[] = {
        {"ok", LH_OUTCOME_OK},           {"lost", LH_OUTCOME_LOST},     {"rejected", LH_OUTCOME_REJECTED},
        {"invalid", LH_OUTCOME_INVALID}, {"quota", LH_OUTCOME_INVALID}, /* of a downgrade, which says so */
    };
    for (size_t i = 0; i < sizeof(map) / sizeof(map[0]); i++)
        if (is_text(result, row, column, map[i].text))
            return map[i].outcome;
    if (!is_text(result, row, column, "busy") && !is_text(result, row, column, "hooked"))
        lh_err("a batch answered with an unknown outcome");
    return LH_OUTCOME_UNSPECIFIED;
}

/* --- heartbeat and release --- */

static void item_read(struct lane *lane, struct lh_holder_item *item, const PGresult *result, int row, int outcome_at,
                      int end_reason_at, int message_at)
{
    item->outcome = outcome_read(result, row, outcome_at);
    item->is_hooked = is_text(result, row, outcome_at, "hooked");
    item->is_busy = item->outcome == LH_OUTCOME_UNSPECIFIED && !item->is_hooked;
    if (item->is_hooked)
        item->hook_timeout_us = lh_hook_timeout_read(result, row, message_at);
    item->end_reason = lh_end_reason_read(result, row, end_reason_at);
    item->message = lh_text_read(result, row, message_at, &lane->arena);
}

static void holder_set_busy(const void *all, size_t n)
{
    struct lh_holder_item *const *items = all;
    for (size_t i = 0; i < n; i++) {
        items[i]->is_busy = true;
        items[i]->is_hooked = items[i]->wake = false;
        items[i]->outcome = LH_OUTCOME_UNSPECIFIED;
        items[i]->message = NULL;
    }
}

static void set_decided(struct lane *lane, struct lh_holder_item *item, enum lh_outcome outcome, const char *message)
{
    item->is_busy = item->is_hooked = item->wake = false;
    item->outcome = outcome;
    item->message = lh_arena_strdup(&lane->arena, message);
}

static void holder_set_invalid(struct lane *lane, const void *all, const struct lh_error *error)
{
    struct lh_holder_item *const *items = all;
    set_decided(lane, items[0], LH_OUTCOME_INVALID, error->message);
}

static void holder_set_rejected(struct lane *lane, const void *all, const char *message)
{
    struct lh_holder_item *const *items = all;
    set_decided(lane, items[0], LH_OUTCOME_REJECTED, message);
}

static int64_t holder_hook_timeout_us(const void *all)
{
    return ((struct lh_holder_item *const *)all)[0]->hook_timeout_us;
}

static const void *holder_skip(const void *all, size_t n)
{
    return (struct lh_holder_item *const *)all + n;
}

static const struct lh_pg_statement heartbeat_statement = {
    "heartbeat_batch",
    /* Nothing but renewals: they may be lost in a crash (migrations/functions/relax_commit.sql). */
    "select * from leasehold_internal.heartbeat_batch($1, $2, $3, true)",
    3,
    {LH_PG_TEXT_ARRAY, LH_PG_TEXT_ARRAY, LH_PG_UUID_ARRAY},
};

static const struct lh_pg_statement core_heartbeat_statement = {
    "core_heartbeat_batch",
    "select * from leasehold_core.heartbeat_batch($1, $2, $3, true)",
    3,
    {LH_PG_TEXT_ARRAY, LH_PG_TEXT_ARRAY, LH_PG_UUID_ARRAY},
};

static void heartbeat_write(struct lane *lane, const void *all, size_t n)
{
    struct lh_holder_item *const *items = all;
    WRITE_REFS(&lane->params, items, n);
}

static void heartbeat_read(struct lane *lane, const void *all, size_t n, const PGresult *result)
{
    enum { N, OUTCOME, REMAINING, DEADLINE, HEARTBEATS, END_REASON, MESSAGE, TOKEN, UNITS, HAS_SLOTS, COLUMN_COUNT };
    static const char *const names[COLUMN_COUNT] = {"n",          "outcome", "remaining_us", "deadline", "heartbeats",
                                                    "end_reason", "message", "token",        "units",    "has_slots"};
    struct lh_holder_item *const *items = all;
    int at[COLUMN_COUNT];

    lh_pg_result_columns(result, names, at, COLUMN_COUNT);
    for (int row = 0; row < PQntuples(result); row++) {
        int32_t number = lh_pg_int4(result, row, at[N]);
        struct lh_holder_item *item;
        if (number < 1 || (size_t)number > n)
            continue;
        item = items[number - 1];
        item_read(lane, item, result, row, at[OUTCOME], at[END_REASON], at[MESSAGE]);
        item->remaining_us = lh_pg_int8(result, row, at[REMAINING]);
        item->deadline_us = lh_pg_timestamptz(result, row, at[DEADLINE]);
        item->heartbeats = lh_pg_int8(result, row, at[HEARTBEATS]);
        item->shared = (struct lh_shared_terms){.token = lh_pg_int8(result, row, at[TOKEN]),
                                                .units = lh_pg_int4(result, row, at[UNITS]),
                                                .has_slots = lh_pg_bool(result, row, at[HAS_SLOTS])};
    }
}

const struct batch_kind lh_heartbeat_kind = {
    "heartbeat",    &heartbeat_statement,      heartbeat_write,
    heartbeat_read, holder_set_busy,           holder_set_invalid,
    holder_skip,    holder_set_rejected,       holder_hook_timeout_us,
    false,          &core_heartbeat_statement,
};

/* --- release --- */

static const struct lh_pg_statement release_statement = {
    "release_batch",
    "select * from leasehold_internal.release_batch($1, $2, $3, $4, $5, $6)",
    6,
    {LH_PG_UUID, LH_PG_TEXT_ARRAY, LH_PG_TEXT_ARRAY, LH_PG_UUID_ARRAY, LH_PG_BOOL_ARRAY, LH_PG_TEXT_ARRAY},
};

static const struct lh_pg_statement core_release_statement = {
    "core_release_batch",
    "select * from leasehold_core.release_batch($1, $2, $3, $4, $5, $6)",
    6,
    {LH_PG_UUID, LH_PG_TEXT_ARRAY, LH_PG_TEXT_ARRAY, LH_PG_UUID_ARRAY, LH_PG_BOOL_ARRAY, LH_PG_TEXT_ARRAY},
};

static void release_write(struct lane *lane, const void *all, size_t n)
{
    struct lh_holder_item *const *items = all;
    struct lh_pg_params *params = &lane->params;

    lh_pg_add_uuid(params, &lane->store->base.coordinator);
    WRITE_REFS(params, items, n);
    lh_pg_array_begin(params, LH_PG_BOOL);
    for (size_t i = 0; i < n; i++)
        if (items[i]->is_unheard)
            lh_pg_add_null(params);
        else
            lh_pg_add_bool(params, items[i]->is_failure);
    lh_pg_array_end(params);
    lh_pg_array_begin(params, LH_PG_TEXT);
    for (size_t i = 0; i < n; i++) {
        const char *value = items[i]->value;
        bool is_no_result = value != NULL && *value == '\0' && !items[i]->is_failure;
        lh_pg_add_text(params, is_no_result ? NULL : value);
    }
    lh_pg_array_end(params);
}

void lh_release_read_rows(struct lane *lane, const void *all, size_t n, const PGresult *result, int first, int last)
{
    enum { N, OUTCOME, END_REASON, MESSAGE, WAKE, COLUMN_COUNT };
    static const char *const names[COLUMN_COUNT] = {"n", "outcome", "end_reason", "message", "wake"};
    struct lh_holder_item *const *items = all;
    int at[COLUMN_COUNT];

    lh_pg_result_columns(result, names, at, COLUMN_COUNT);
    for (int row = first; row < last; row++) {
        int32_t number = lh_pg_int4(result, row, at[N]);
        struct lh_holder_item *item;
        if (number < 1 || (size_t)number > n)
            continue;
        item = items[number - 1];
        item_read(lane, item, result, row, at[OUTCOME], at[END_REASON], at[MESSAGE]);
        item->wake = lh_pg_bool(result, row, at[WAKE]);
    }
}

static void release_read(struct lane *lane, const void *items, size_t n, const PGresult *result)
{
    lh_release_read_rows(lane, items, n, result, 0, PQntuples(result));
}

/* Only the result is data that the database judges: it is JSON to us, and more than that to PostgreSQL. */
static void release_set_invalid(struct lane *lane, const void *all, const struct lh_error *error)
{
    struct lh_holder_item *const *items = all;
    struct lh_error named;

    lh_error_set(&named, error->status, "%s: %.480s", items[0]->is_failure ? "failure" : "success", error->message);
    holder_set_invalid(lane, all, &named);
}

const struct batch_kind lh_release_kind = {
    "release",    &release_statement,      release_write,
    release_read, holder_set_busy,         release_set_invalid,
    holder_skip,  holder_set_rejected,     holder_hook_timeout_us,
    false,        &core_release_statement,
};

/* --- downgrade --- */

/* One call of the function for each: they are few. (unnest of several arrays is syntax, and takes no schema.) */
static const struct lh_pg_statement downgrade_statement = {
    "downgrade",
    "select u.n::integer, d.* from unnest($3, $4, $5, $6, $7) with ordinality"
    " u (namespace, key, lease_key, units, principal, n), lateral leasehold_internal.downgrade_one("
    "$1, $2, u.namespace, u.key, u.lease_key, u.units, u.principal) d",
    7,
    {LH_PG_UUID, LH_PG_TIMESTAMPTZ, LH_PG_TEXT_ARRAY, LH_PG_TEXT_ARRAY, LH_PG_UUID_ARRAY, LH_PG_INT4_ARRAY,
     LH_PG_TEXT_ARRAY},
};

static void downgrade_write(struct lane *lane, const void *all, size_t n)
{
    struct lh_holder_item *const *items = all;
    struct lh_pg_params *params = &lane->params;

    lh_pg_add_uuid(params, &lane->store->base.coordinator);
    lh_pg_store_add_clock(params, lane->clock_us == 0 ? 0 : lane->clock_us + lh_clock_us() - lane->sent_us);
    WRITE_REFS(params, items, n);
    LH_PG_ARRAY(params, LH_PG_INT4, n, lh_pg_add_int4(params, items[i]->downgrade->units));
    LH_PG_ARRAY(params, LH_PG_TEXT, n, lh_pg_add_text(params, items[i]->downgrade->principal));
}

static void downgrade_read(struct lane *lane, const void *all, size_t n, const PGresult *result)
{
    enum { N, OUTCOME, MESSAGE, WAKE, FIELD, BOUND, COLUMN_COUNT };
    static const char *const names[COLUMN_COUNT] = {"n", "outcome", "message", "wake", "field", "bound"};
    struct lh_holder_item *const *items = all;
    struct lease_columns lease_at;
    int at[COLUMN_COUNT];

    lh_pg_result_columns(result, names, at, COLUMN_COUNT);
    lh_lease_columns_find(result, &lease_at);
    for (int row = 0; row < PQntuples(result); row++) {
        int32_t number = lh_pg_int4(result, row, at[N]);
        struct lh_holder_item *item;
        if (number < 1 || (size_t)number > n)
            continue;
        item = items[number - 1];
        item_read(lane, item, result, row, at[OUTCOME], at[MESSAGE], at[MESSAGE]);
        if (item->outcome == LH_OUTCOME_LOST)
            item->message = NULL; /* it is how the lease ended, and no sentence */
        item->wake = lh_pg_bool(result, row, at[WAKE]);
        item->downgrade->is_over_quota = is_text(result, row, at[OUTCOME], "quota");
        item->downgrade->field = lh_text_read(result, row, at[FIELD], &lane->arena);
        item->downgrade->bound = lh_text_read(result, row, at[BOUND], &lane->arena);
        lh_lease_read(result, row, &lease_at, &lane->arena, &item->downgrade->lease);
        item->downgrade->lease.ns = item->ns;
        item->downgrade->lease.key = item->key;
        item->downgrade->lease.lease_key = item->lease_key;
    }
}

const struct batch_kind lh_downgrade_kind = {
    "downgrade",
    &downgrade_statement,
    downgrade_write,
    downgrade_read,
    holder_set_busy,
    holder_set_invalid,
    holder_skip,
    holder_set_rejected,
    holder_hook_timeout_us,
    false,
    NULL,
};

/* --- leave --- */

static const struct lh_pg_statement leave_statement = {
    "leave_batch",
    "select * from leasehold_internal.leave_batch($1, $2, $3, $4, $5)",
    5,
    {LH_PG_UUID, LH_PG_TEXT_ARRAY, LH_PG_TEXT_ARRAY, LH_PG_UUID_ARRAY, LH_PG_BOOL_ARRAY},
};

static void leave_write(struct lane *lane, const void *all, size_t n)
{
    struct lh_leave_item *const *items = all;
    struct lh_pg_params *params = &lane->params;

    lh_pg_add_uuid(params, &lane->store->base.coordinator);
    WRITE_REFS(params, items, n);
    LH_PG_ARRAY(params, LH_PG_BOOL, n, lh_pg_add_bool(params, items[i]->kind == LH_LEAVE_AWAY));
}

static void leave_read_item(struct lane *lane, struct lh_leave_item *item, const PGresult *result, int row,
                            int outcome_at, int duration_at, const struct lease_columns *lease_at)
{
    item->was_granted = is_text(result, row, outcome_at, "granted");
    item->is_hooked = is_text(result, row, outcome_at, "hooked");
    if (item->is_hooked)
        item->hook_timeout_us = lh_pg_int8(result, row, duration_at);
    item->is_busy = !item->was_granted && !item->is_hooked && !is_text(result, row, outcome_at, "ok");
    item->has_lease = lh_lease_read(result, row, lease_at, &lane->arena, &item->lease);
    item->lease.ns = item->ns;
    item->lease.key = item->key;
    if (item->was_granted)
        item->lease.lease_key = item->lease_key;
}

static void leave_read(struct lane *lane, const void *all, size_t n, const PGresult *result)
{
    enum { N, OUTCOME, WAKE, WAITERS_AHEAD, RESTS_IN, DURATION, HOLDERS, UNITS_FREE, COLUMN_COUNT };
    static const char *const names[COLUMN_COUNT] = {"n",           "outcome",     "wake",         "waiters_ahead",
                                                    "rests_in_us", "duration_us", "holder_count", "units_free"};
    struct lh_leave_item *const *items = all;
    struct lease_columns lease_at;
    int at[COLUMN_COUNT];

    lh_pg_result_columns(result, names, at, COLUMN_COUNT);
    lh_lease_columns_find(result, &lease_at);
    for (int row = 0; row < PQntuples(result); row++) {
        int32_t number = lh_pg_int4(result, row, at[N]);
        if (number < 1 || (size_t)number > n)
            continue;
        items[number - 1]->wake = lh_pg_bool(result, row, at[WAKE]);
        items[number - 1]->waiters_ahead = lh_pg_int4(result, row, at[WAITERS_AHEAD]);
        items[number - 1]->holder_count = lh_pg_int4(result, row, at[HOLDERS]);
        items[number - 1]->units_free = lh_units_free_read(result, row, at[UNITS_FREE]);
        items[number - 1]->rests_in_us = lh_pg_int8(result, row, at[RESTS_IN]);
        leave_read_item(lane, items[number - 1], result, row, at[OUTCOME], at[DURATION], &lease_at);
    }
}

static void leave_set_busy(const void *all, size_t n)
{
    struct lh_leave_item *const *items = all;
    for (size_t i = 0; i < n; i++) {
        items[i]->is_busy = true;
        items[i]->is_hooked = false;
        items[i]->was_granted = items[i]->has_lease = items[i]->wake = false;
        items[i]->holder_count = 0;
        items[i]->units_free = LH_UNITS_UNBOUNDED;
        items[i]->waiters_ahead = 0;
        items[i]->rests_in_us = 0;
    }
}

/* What the database cannot even read has no place in a queue: it has left. */
static void leave_set_invalid(struct lane *lane, const void *all, const struct lh_error *error)
{
    struct lh_leave_item *const *items = all;
    leave_set_busy(all, 1);
    items[0]->is_busy = false;
}

/* It ran too long, and the lease that it was to end goes by its deadline. */
static void leave_set_rejected(struct lane *lane, const void *all, const char *message)
{
    leave_set_busy(all, 1);
}

static int64_t leave_hook_timeout_us(const void *all)
{
    return ((struct lh_leave_item *const *)all)[0]->hook_timeout_us;
}

static const void *leave_skip(const void *all, size_t n)
{
    return (struct lh_leave_item *const *)all + n;
}

const struct batch_kind lh_leave_kind = {
    "leave",    &leave_statement,   leave_write,           leave_read, leave_set_busy, leave_set_invalid,
    leave_skip, leave_set_rejected, leave_hook_timeout_us, false,      NULL,
};
