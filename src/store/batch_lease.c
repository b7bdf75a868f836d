/* Batches about a lease that is held or waited for: heartbeats, releases, downgrades, leaving the queue. */
#include <string.h>

#include "base/log.h"
#include "store/store_internal.h"

static bool is_text(const PGresult *result, int row, int column, const char *text)
{
    const char *value = lh_pg_text(result, row, column);
    return value != NULL && strcmp(value, text) == 0;
}

/* Busy stays LH_OUTCOME_UNSPECIFIED; anything unknown too, and is asked again. */
static enum lh_outcome outcome_read(const PGresult *result, int row, int column)
{
    static const char *const words[] = {
        [LH_OUTCOME_OK] = "ok",
        [LH_OUTCOME_LOST] = "lost",
        [LH_OUTCOME_REJECTED] = "rejected",
        [LH_OUTCOME_INVALID] = "invalid",
    };
    int outcome = LH_WORD_READ(result, row, column, words);

    if (outcome >= 0)
        return (enum lh_outcome)outcome;
    if (is_text(result, row, column, "quota"))
        return LH_OUTCOME_INVALID; /* a downgrade's, which says so */
    if (!is_text(result, row, column, "busy") && !is_text(result, row, column, "hooked"))
        lh_err("a batch answered with an unknown outcome");
    return LH_OUTCOME_UNSPECIFIED;
}

/* --- operations of a holder --- */

/* Each holder's answer begins with these. */
enum { N, OUTCOME, END_REASON, MESSAGE, OTHER };

static void holder_read(struct lane *lane, struct lh_holder_item *item, const PGresult *result, int row, const int *at)
{
    item->outcome = outcome_read(result, row, at[OUTCOME]);
    item->is_hooked = is_text(result, row, at[OUTCOME], "hooked");
    item->is_busy = item->outcome == LH_OUTCOME_UNSPECIFIED && !item->is_hooked;
    if (item->is_hooked)
        item->hook_timeout_us = lh_hook_timeout_read(result, row, at[MESSAGE]);
    item->end_reason = lh_end_reason_read(result, row, at[END_REASON]);
    item->message = lh_text_read(result, row, at[MESSAGE], &lane->arena);
}

static void holder_set_busy(void *of)
{
    struct lh_holder_item *item = of;

    item->is_busy = true;
    item->is_hooked = item->wake = false;
    item->outcome = LH_OUTCOME_UNSPECIFIED;
    item->message = NULL;
}

static void set_decided(struct lane *lane, struct lh_holder_item *item, enum lh_outcome outcome, const char *message)
{
    item->is_busy = false;
    item->outcome = outcome;
    item->message = lh_arena_strdup(&lane->arena, message);
}

static void holder_set_invalid(struct lane *lane, void *item, const struct lh_error *error)
{
    set_decided(lane, item, LH_OUTCOME_INVALID, error->message);
}

static void holder_set_rejected(struct lane *lane, void *item, const char *message)
{
    set_decided(lane, item, LH_OUTCOME_REJECTED, message);
}

#define HOLDER(type, member)                                                                                           \
    {                                                                                                                  \
        type, .offset = offsetof(struct lh_holder_item, member)                                                        \
    }
#define HOLDER_SCOPE HOLDER(LH_PG_TEXT, ns), HOLDER(LH_PG_TEXT, key), HOLDER(LH_PG_UUID, lease_key)

#define HOLDER_KIND                                                                                                    \
    .set_busy = holder_set_busy, .set_rejected = holder_set_rejected,                                                  \
    .hook_timeout_at = offsetof(struct lh_holder_item, hook_timeout_us)

/* --- heartbeat --- */

/* Nothing but renewals: they may be lost in a crash (migrations/functions/relax_commit.sql). */
static const struct lh_pg_statement heartbeat_statement =
    LH_PG_STATEMENT("heartbeat_batch", "select * from leasehold_internal.heartbeat_batch($1, $2, $3, true)",
                    LH_PG_TEXT_ARRAY, LH_PG_TEXT_ARRAY, LH_PG_UUID_ARRAY);

static const struct lh_pg_statement core_heartbeat_statement =
    LH_PG_STATEMENT("core_heartbeat_batch", "select * from leasehold_core.heartbeat_batch($1, $2, $3, true)",
                    LH_PG_TEXT_ARRAY, LH_PG_TEXT_ARRAY, LH_PG_UUID_ARRAY);

static const struct batch_column heartbeat_columns[] = {HOLDER_SCOPE};

static const char *const heartbeat_names[] = {"n",        "outcome",    "end_reason", "message", "remaining_us",
                                              "deadline", "heartbeats", "token",      "units",   "has_slots",
                                              NULL};

static void heartbeat_read(struct lane *lane, void *of, const PGresult *result, int row,
                           const struct batch_answer_columns *found)
{
    enum { REMAINING = OTHER, DEADLINE, HEARTBEATS, TOKEN, UNITS, HAS_SLOTS };
    struct lh_holder_item *item = of;
    const int *at = found->at;

    holder_read(lane, item, result, row, at);
    item->remaining_us = lh_pg_int8(result, row, at[REMAINING]);
    item->deadline_us = lh_pg_timestamptz(result, row, at[DEADLINE]);
    item->heartbeats = lh_pg_int8(result, row, at[HEARTBEATS]);
    item->shared = (struct lh_shared_terms){.token = lh_pg_int8(result, row, at[TOKEN]),
                                            .units = lh_pg_int4(result, row, at[UNITS]),
                                            .has_slots = lh_pg_bool(result, row, at[HAS_SLOTS])};
}

const struct batch_kind lh_heartbeat_kind = {
    HOLDER_KIND,
    .name = "heartbeat",
    .statement = &heartbeat_statement,
    .core_statement = &core_heartbeat_statement,
    .columns = heartbeat_columns,
    .column_count = sizeof(heartbeat_columns) / sizeof(heartbeat_columns[0]),
    .answer_names = heartbeat_names,
    .read_item = heartbeat_read,
    .set_invalid = holder_set_invalid,
};

/* --- release --- */

static const struct lh_pg_statement release_statement = LH_PG_STATEMENT(
    "release_batch", "select * from leasehold_internal.release_batch($1, $2, $3, $4, $5, $6)", LH_BATCH_RELEASE_TYPES);

static const struct lh_pg_statement core_release_statement = LH_PG_STATEMENT(
    "core_release_batch", "select * from leasehold_core.release_batch($1, $2, $3, $4, $5, $6)", LH_BATCH_RELEASE_TYPES);

static void add_failure(struct lh_pg_params *params, const void *of)
{
    const struct lh_holder_item *item = of;

    if (item->is_unheard)
        lh_pg_add_null(params);
    else
        lh_pg_add_bool(params, item->is_failure);
}

static void add_value(struct lh_pg_params *params, const void *of)
{
    const struct lh_holder_item *item = of;
    bool is_no_result = item->value != NULL && *item->value == '\0' && !item->is_failure;

    lh_pg_add_text(params, is_no_result ? NULL : item->value);
}

static const struct batch_column release_columns[] = {
    HOLDER_SCOPE, {LH_PG_BOOL, .add = add_failure}, {LH_PG_TEXT, .add = add_value}};

static const char *const release_names[] = {"n", "outcome", "end_reason", "message", "wake", NULL};

static void release_read(struct lane *lane, void *of, const PGresult *result, int row,
                         const struct batch_answer_columns *found)
{
    struct lh_holder_item *item = of;

    holder_read(lane, item, result, row, found->at);
    item->wake = lh_pg_bool(result, row, found->at[OTHER]);
}

/* Only the result is data that the database judges: it is JSON to us, and more than that to PostgreSQL. */
static void release_set_invalid(struct lane *lane, void *of, const struct lh_error *error)
{
    struct lh_holder_item *item = of;
    struct lh_error named;

    lh_error_set(&named, error->status, "%s: %.480s", item->is_failure ? "failure" : "success", error->message);
    holder_set_invalid(lane, item, &named);
}

const struct batch_kind lh_release_kind = {
    HOLDER_KIND,
    .name = "release",
    .statement = &release_statement,
    .core_statement = &core_release_statement,
    .names_coordinator = true,
    .columns = release_columns,
    .column_count = sizeof(release_columns) / sizeof(release_columns[0]),
    .answer_names = release_names,
    .read_item = release_read,
    .set_invalid = release_set_invalid,
};

/* --- downgrade --- */

/* One call of the function for each: they are few. (unnest of several arrays is syntax, and takes no schema.) */
static const struct lh_pg_statement downgrade_statement =
    LH_PG_STATEMENT("downgrade",
                    "select u.n::integer, d.* from unnest($3, $4, $5, $6, $7) with ordinality"
                    " u (namespace, key, lease_key, units, principal, n), lateral leasehold_internal.downgrade_one("
                    "$1, $2, u.namespace, u.key, u.lease_key, u.units, u.principal) d",
                    LH_PG_UUID, LH_PG_TIMESTAMPTZ, LH_PG_TEXT_ARRAY, LH_PG_TEXT_ARRAY, LH_PG_UUID_ARRAY,
                    LH_PG_INT4_ARRAY, LH_PG_TEXT_ARRAY);

static void add_downgrade_units(struct lh_pg_params *params, const void *item)
{
    lh_pg_add_int4(params, ((const struct lh_holder_item *)item)->downgrade->units);
}

static void add_downgrade_principal(struct lh_pg_params *params, const void *item)
{
    lh_pg_add_text(params, ((const struct lh_holder_item *)item)->downgrade->principal);
}

static const struct batch_column downgrade_columns[] = {
    HOLDER_SCOPE, {LH_PG_INT4, .add = add_downgrade_units}, {LH_PG_TEXT, .add = add_downgrade_principal}};

/* The message of a lost one is how the lease ended. */
static const char *const downgrade_names[] = {"n", "outcome", "message", "message", "wake", "field", "bound", NULL};

static void downgrade_read(struct lane *lane, void *of, const PGresult *result, int row,
                           const struct batch_answer_columns *found)
{
    enum { WAKE = OTHER, FIELD, BOUND };
    struct lh_holder_item *item = of;
    struct lh_downgrade *downgrade = item->downgrade;
    const int *at = found->at;

    holder_read(lane, item, result, row, at);
    if (item->outcome == LH_OUTCOME_LOST)
        item->message = NULL; /* it is how the lease ended, and no sentence */
    item->wake = lh_pg_bool(result, row, at[WAKE]);
    downgrade->is_over_quota = is_text(result, row, at[OUTCOME], "quota");
    downgrade->field = lh_text_read(result, row, at[FIELD], &lane->arena);
    downgrade->bound = lh_text_read(result, row, at[BOUND], &lane->arena);
    lh_lease_read(result, row, &found->lease, &lane->arena, &downgrade->lease);
    downgrade->lease.ns = item->ns;
    downgrade->lease.key = item->key;
    downgrade->lease.lease_key = item->lease_key;
}

const struct batch_kind lh_downgrade_kind = {
    HOLDER_KIND,
    .name = "downgrade",
    .statement = &downgrade_statement,
    .names_coordinator = true,
    .tells_clock = true,
    .columns = downgrade_columns,
    .column_count = sizeof(downgrade_columns) / sizeof(downgrade_columns[0]),
    .answer_names = downgrade_names,
    .has_lease = true,
    .read_item = downgrade_read,
    .set_invalid = holder_set_invalid,
};

/* --- leave --- */

static const struct lh_pg_statement leave_statement =
    LH_PG_STATEMENT("leave_batch", "select * from leasehold_internal.leave_batch($1, $2, $3, $4, $5, $6)", LH_PG_UUID,
                    LH_PG_TEXT_ARRAY, LH_PG_TEXT_ARRAY, LH_PG_UUID_ARRAY, LH_PG_BOOL_ARRAY, LH_PG_TIMESTAMPTZ_ARRAY);

static void add_is_away(struct lh_pg_params *params, const void *item)
{
    lh_pg_add_bool(params, ((const struct lh_leave_item *)item)->kind == LH_LEAVE_AWAY);
}

static void add_unheard_since(struct lh_pg_params *params, const void *of)
{
    const struct lh_leave_item *item = of;
    lh_pg_store_add_clock(params, item->kind == LH_LEAVE_AWAY ? 0 : item->unheard_since_us);
}

#define LEAVE(type, member)                                                                                            \
    {                                                                                                                  \
        type, .offset = offsetof(struct lh_leave_item, member)                                                         \
    }

static const struct batch_column leave_columns[] = {
    LEAVE(LH_PG_TEXT, ns),
    LEAVE(LH_PG_TEXT, key),
    LEAVE(LH_PG_UUID, lease_key),
    {LH_PG_BOOL, .add = add_is_away},
    {LH_PG_TIMESTAMPTZ, .add = add_unheard_since},
};

static const char *const leave_names[] = {
    "n", "outcome", "wake", "waiters_ahead", "rests_in_us", "duration_us", "holder_count", "units_free", NULL};

static void leave_read(struct lane *lane, void *of, const PGresult *result, int row,
                       const struct batch_answer_columns *found)
{
    enum { WAKE = OUTCOME + 1, WAITERS_AHEAD, RESTS_IN, DURATION, HOLDERS, UNITS_FREE };
    struct lh_leave_item *item = of;
    const int *at = found->at;

    item->wake = lh_pg_bool(result, row, at[WAKE]);
    item->waiters_ahead = lh_pg_int4(result, row, at[WAITERS_AHEAD]);
    item->holder_count = lh_pg_int4(result, row, at[HOLDERS]);
    item->units_free = lh_units_free_read(result, row, at[UNITS_FREE]);
    item->rests_in_us = lh_pg_int8(result, row, at[RESTS_IN]);
    item->was_granted = is_text(result, row, at[OUTCOME], "granted");
    item->is_hooked = is_text(result, row, at[OUTCOME], "hooked");
    if (item->is_hooked)
        item->hook_timeout_us = lh_pg_int8(result, row, at[DURATION]);
    item->is_busy = !item->was_granted && !item->is_hooked && !is_text(result, row, at[OUTCOME], "ok");
    item->has_lease = lh_lease_read(result, row, &found->lease, &lane->arena, &item->lease);
    item->lease.ns = item->ns;
    item->lease.key = item->key;
    if (item->was_granted)
        item->lease.lease_key = item->lease_key;
}

static void leave_set_busy(void *of)
{
    struct lh_leave_item *item = of;

    item->is_busy = true;
    item->is_hooked = false;
    item->was_granted = item->has_lease = item->wake = false;
    item->holder_count = 0;
    item->units_free = LH_UNITS_UNBOUNDED;
    item->waiters_ahead = 0;
    item->rests_in_us = 0;
}

/* What the database cannot even read has no place in a queue: it has left. */
static void leave_set_invalid(struct lane *lane, void *item, const struct lh_error *error)
{
    ((struct lh_leave_item *)item)->is_busy = false;
}

/* It ran too long, and the lease that it was to end goes by its deadline: as busy. */
static void leave_set_rejected(struct lane *lane, void *item, const char *message)
{
}

const struct batch_kind lh_leave_kind = {
    .name = "leave",
    .statement = &leave_statement,
    .names_coordinator = true,
    .columns = leave_columns,
    .column_count = sizeof(leave_columns) / sizeof(leave_columns[0]),
    .answer_names = leave_names,
    .has_lease = true,
    .read_item = leave_read,
    .set_busy = leave_set_busy,
    .set_invalid = leave_set_invalid,
    .set_rejected = leave_set_rejected,
    .hook_timeout_at = offsetof(struct lh_leave_item, hook_timeout_us),
};
