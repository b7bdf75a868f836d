/* Acquire batches: leasehold_internal.acquire_items; one request for several scopes: acquire_all_one; and releases with
   their scopes' first waiters as riders: hand_over_batch, which answers with the rows of both. */
#include <string.h>

#include "base/log.h"
#include "store/store_internal.h"

/* --- parameters --- */

static void add_labels(struct lh_pg_params *params, const void *item)
{
    const char *labels = ((const struct lh_acquire_item *)item)->terms.labels;
    lh_pg_add_text(params, labels == NULL ? "{}" : labels);
}

static void add_wait(struct lh_pg_params *params, const void *item)
{
    lh_pg_add_int8_unless(params, ((const struct lh_acquire_item *)item)->wait_us, LH_NEVER);
}

static void add_at_least(struct lh_pg_params *params, const void *item)
{
    lh_pg_add_int8_unless(params, ((const struct lh_acquire_item *)item)->at_least_us, LH_AT_LEAST_POLICY);
}

static void add_units(struct lh_pg_params *params, const void *item)
{
    int32_t units = ((const struct lh_acquire_item *)item)->units;
    if (units == 0)
        lh_pg_add_null(params);
    else
        lh_pg_add_int4(params, units);
}

static void add_priority(struct lh_pg_params *params, const void *item)
{
    int32_t priority = ((const struct lh_acquire_item *)item)->terms.priority;
    if (priority == 0)
        lh_pg_add_null(params);
    else
        lh_pg_add_int4(params, priority);
}

#define AT(member) .offset = offsetof(struct lh_acquire_item, member)

/* An item's parameters, in the order of each of the statements. They and ITEM_TYPES are the place for a new one. The last
   are LH_ACQUIRE_NUMBERS, which a request for several scopes has not. */
static const struct batch_column columns[] = {
    {LH_PG_TEXT, AT(ns), .is_of_scope = true},
    {LH_PG_TEXT, AT(key), .is_of_scope = true},
    {LH_PG_UUID, AT(lease_key)},
    {LH_PG_TEXT, AT(terms.owner)},
    {LH_PG_TEXT, .add = add_labels},
    {LH_PG_INT8, AT(terms.duration_us)},
    {LH_PG_BOOL, AT(queue)},
    {LH_PG_INT8, .add = add_wait},
    {LH_PG_INT8, AT(ticket)},
    {LH_PG_TEXT, AT(terms.principal)},
    {LH_PG_INT8, .add = add_at_least, .is_of_scope = true},
    {LH_PG_INT4, .add = add_units, .is_of_scope = true, .is_null_when_unused = true},
    {LH_PG_INT4, .add = add_priority, .is_null_when_unused = true},
};

#define COLUMN_COUNT (sizeof(columns) / sizeof(columns[0]))

#define ITEM_TYPES                                                                                                     \
    LH_PG_TEXT_ARRAY, LH_PG_TEXT_ARRAY, LH_PG_UUID_ARRAY, LH_PG_TEXT_ARRAY, LH_PG_TEXT_ARRAY, LH_PG_INT8_ARRAY,        \
        LH_PG_BOOL_ARRAY, LH_PG_INT8_ARRAY, LH_PG_INT8_ARRAY, LH_PG_TEXT_ARRAY, LH_PG_INT8_ARRAY, LH_PG_INT4_ARRAY,    \
        LH_PG_INT4_ARRAY
#define ALL_ARGUMENTS "($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"
#define ARGUMENTS "($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"

/* --- the answer about an item --- */

static const char *const outcomes[] = {
    [LH_ACQUIRE_GRANTED] = "granted", [LH_ACQUIRE_RENEWED] = "renewed",   [LH_ACQUIRE_QUEUED] = "queued",
    [LH_ACQUIRE_HELD] = "held",       [LH_ACQUIRE_BUSY] = "busy",         [LH_ACQUIRE_FROZEN] = "frozen",
    [LH_ACQUIRE_QUOTA] = "quota",     [LH_ACQUIRE_ENDED] = "ended",       [LH_ACQUIRE_INVALID] = "invalid",
    [LH_ACQUIRE_DENIED] = "denied",   [LH_ACQUIRE_REJECTED] = "rejected", [LH_ACQUIRE_ELSEWHERE] = "elsewhere",
    [LH_ACQUIRE_HOOKED] = "hooked",
};

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
    UNITS_FREE
};

static const char *const answer_names[] = {
    "n",     "outcome", "ticket",       "waiters_ahead", "rests_in_us", "expires_in_us", "suspected_in_us", "message",
    "field", "bound",   "holder_count", "units_free",    NULL,
};

static void read_item(struct lane *lane, void *of, const PGresult *result, int row,
                      const struct batch_answer_columns *found)
{
    struct lh_acquire_item *item = of;
    const int *at = found->at;
    int outcome;

    outcome = LH_WORD_READ(result, row, at[OUTCOME], outcomes);
    if (outcome < 0) {
        lh_err("an acquire was answered with an unknown outcome");
        return;
    }
    item->outcome = (enum lh_acquire_outcome)outcome;
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
    item->has_lease = lh_lease_read(result, row, &found->lease, &lane->arena, &item->lease);
    item->lease.ns = item->ns;
    item->lease.key = item->key;
    if (item->outcome == LH_ACQUIRE_GRANTED || item->outcome == LH_ACQUIRE_RENEWED)
        item->lease.lease_key = item->lease_key;
}

static void set_busy(void *of)
{
    struct lh_acquire_item *item = of;

    item->outcome = LH_ACQUIRE_BUSY;
    item->new_ticket = 0;
    item->has_lease = false;
    item->holder_count = 0;
    item->units_free = LH_UNITS_UNBOUNDED;
    item->waiters_ahead = 0;
    item->rests_in_us = 0;
    item->expires_in_us = LH_NEVER;
    item->suspected_in_us = 0;
    item->message = item->field = item->bound = NULL;
}

/* Beside what the functions judge themselves, only two fields are more to PostgreSQL than bytes. */
static void set_invalid(struct lane *lane, void *of, const struct lh_error *error)
{
    struct lh_acquire_item *item = of;
    bool is_overflow = strcmp(error->sqlstate, "22008") == 0 || strcmp(error->sqlstate, "22003") == 0;

    item->outcome = LH_ACQUIRE_INVALID;
    item->message = lh_arena_strdup(&lane->arena, error->message);
    if (error->field[0] != '\0')
        item->field = lh_arena_strdup(&lane->arena, error->field);
    else
        item->field = is_overflow ? "duration" : "labels";
    if (error->bound[0] != '\0')
        item->bound = lh_arena_strdup(&lane->arena, error->bound);
}

static void set_rejected(struct lane *lane, void *of, const char *message)
{
    struct lh_acquire_item *item = of;

    item->outcome = LH_ACQUIRE_REJECTED;
    item->message = lh_arena_strdup(&lane->arena, message);
}

/* --- a batch of them --- */

static const struct lh_pg_statement statement =
    LH_PG_STATEMENT("acquire_items", "select * from leasehold_internal.acquire_items" ARGUMENTS, LH_PG_UUID,
                    LH_PG_TIMESTAMPTZ, ITEM_TYPES);

/* What leasehold_internal.acquired is, spelled out: the extension's functions know no type of ours. They get none of
   LH_ACQUIRE_NUMBERS: those parameters are the last, and not used. */
static const struct lh_pg_statement core_statement = LH_PG_STATEMENT(
    "core_acquire_items",
    "select * from leasehold_core.acquire_items" ALL_ARGUMENTS
    " as a (n integer, outcome text, token bigint, acquired_at timestamptz, grace_us bigint, expires_in_us bigint,"
    " suspected_in_us bigint, units_free integer, more leasehold_internal.answer)",
    LH_PG_UUID, LH_PG_TIMESTAMPTZ, ITEM_TYPES);

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
        .owner = item->terms.owner == NULL ? "" : item->terms.owner,
        .principal = item->terms.principal == NULL ? "" : item->terms.principal,
        .labels = item->terms.labels == NULL ? "{}" : item->terms.labels,
        .duration_us = item->terms.duration_us,
        .grace_us = lh_pg_int8(result, row, at[GRACE]),
        .remaining_us = item->terms.duration_us,
        .deadline_us = acquired_at_us + item->terms.duration_us,
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
    static const char *const more_names[] = {
        "n",           "outcome",     "ticket",     "waiters_ahead", "expires_in_us", "suspected_in_us",
        "message",     "field",       "bound",      "token",         "owner",         "principal",
        "labels",      "duration_us", "grace_us",   "acquired_at",   "deadline",      "remaining_us",
        "held_us",     "silent_us",   "heartbeats", "heartbeat_at",  "liveness",      "is_manual",
        "rests_in_us", "mode",        "units",      "slots",         "units_free",    "holder_count",
    };
    struct lh_acquire_item *const *items = all;
    struct batch_answer_columns found;
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
            more = lh_pg_composites(result, at[MORE], more_names, sizeof(more_names) / sizeof(more_names[0]));
            lh_batch_columns_find(more, answer_names, true, &found);
        }
        read_item(lane, items[number - 1], more, row, &found);
    }
    PQclear(more);
}

static bool has_number(const void *of)
{
    const struct lh_acquire_terms *terms = &((const struct lh_acquire_item *)of)->terms;
    const int32_t numbers[] = {LH_ACQUIRE_NUMBERS(LH_NUMBER_VALUE, terms)};

    for (size_t i = 0; i < LH_ACQUIRE_NUMBER_COUNT; i++)
        if (numbers[i] != 0)
            return true;
    return false;
}

const struct batch_kind lh_acquire_kind = {
    .name = "acquire",
    .statement = &statement,
    .core_statement = &core_statement,
    .is_for_sql = has_number,
    .names_coordinator = true,
    .tells_clock = true,
    .columns = columns,
    .column_count = COLUMN_COUNT,
    .read = read_items,
    .set_busy = set_busy,
    .set_invalid = set_invalid,
    .set_rejected = set_rejected,
    .hook_timeout_at = offsetof(struct lh_acquire_item, hook_timeout_us),
};

/* --- several scopes, all or none --- */

static const struct lh_pg_statement all_statement =
    LH_PG_STATEMENT("acquire_all", "select * from leasehold_internal.acquire_all_one" ALL_ARGUMENTS, LH_PG_UUID,
                    LH_PG_TIMESTAMPTZ, LH_PG_TEXT_ARRAY, LH_PG_TEXT_ARRAY, LH_PG_UUID, LH_PG_TEXT, LH_PG_TEXT,
                    LH_PG_INT8, LH_PG_BOOL, LH_PG_INT8, LH_PG_INT8, LH_PG_TEXT, LH_PG_INT8_ARRAY, LH_PG_INT4_ARRAY);

const struct batch_kind lh_acquire_all_kind = {
    .name = "acquire_all",
    .statement = &all_statement,
    .names_coordinator = true,
    .tells_clock = true,
    .columns = columns,
    .column_count = COLUMN_COUNT - LH_ACQUIRE_NUMBER_COUNT,
    .answer_names = answer_names,
    .has_lease = true,
    .read_item = read_item,
    .set_busy = set_busy,
    .set_invalid = set_invalid,
    .set_rejected = set_rejected,
    .hook_timeout_at = offsetof(struct lh_acquire_item, hook_timeout_us),
    .is_whole = true,
};

/* --- releases and riders --- */

#define CORE_HAND_OVER_ARGUMENTS                                                                                       \
    "($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)"
#define HAND_OVER_ARGUMENTS                                                                                            \
    "($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)"
#define HAND_OVER_TYPES LH_BATCH_RELEASE_TYPES, LH_PG_TIMESTAMPTZ, ITEM_TYPES

static const struct lh_pg_statement hand_over_statement = LH_PG_STATEMENT(
    "hand_over_batch", "select * from leasehold_internal.hand_over_batch" HAND_OVER_ARGUMENTS, HAND_OVER_TYPES);

static const struct lh_pg_statement core_hand_over_statement = LH_PG_STATEMENT(
    "core_hand_over_batch", "select * from leasehold_core.hand_over_batch" CORE_HAND_OVER_ARGUMENTS, HAND_OVER_TYPES);

/* Of the first of the riders. */
static void write_hand_over(struct lane *lane, const void *items, size_t n)
{
    lh_batch_write(lane, &lh_release_kind, items, n);
    lh_lane_add_clock(lane);
    lh_batch_write_columns(lane, &lh_acquire_kind, lane->riders, 1);
}

static void read_hand_over(struct lane *lane, const void *items, size_t n, const PGresult *result)
{
    int part = PQfnumber(result, "part");
    int row_count = PQntuples(result);
    int releases = 0;

    while (releases < row_count && strcmp(lh_pg_text(result, releases, part), "release") == 0)
        releases++;
    lh_batch_read_rows(lane, &lh_release_kind, items, n, result, 0, releases);
    lh_batch_set_busy(&lh_acquire_kind, lane->riders, 1);
    lh_batch_read_rows(lane, &lh_acquire_all_kind, lane->riders, 1, result, releases, row_count);
}

static void set_release_busy(void *item)
{
    lh_release_kind.set_busy(item);
}

/* What fails is sent again as releases and acquires. */
const struct batch_kind lh_hand_over_kind = {
    .name = "hand-over",
    .statement = &hand_over_statement,
    .core_statement = &core_hand_over_statement,
    .write = write_hand_over,
    .read = read_hand_over,
    .set_busy = set_release_busy,
    .rider_kind = &lh_acquire_kind,
};
