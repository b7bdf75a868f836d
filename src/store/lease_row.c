#include "store/store_internal.h"

#include <stdlib.h>
#include <string.h>

#include "lease/store.h"

enum {
    TOKEN,
    OWNER,
    PRINCIPAL,
    LABELS,
    DURATION,
    GRACE,
    ACQUIRED_AT,
    DEADLINE,
    REMAINING,
    HELD,
    SILENT,
    HEARTBEATS,
    HEARTBEAT_AT,
    LIVENESS,
    IS_MANUAL,
    UNITS,
    SLOTS
};

void lh_lease_columns_find(const PGresult *result, struct lease_columns *columns)
{
    static const char *const names[LEASE_COLUMNS] = {
        "token",        "owner",    "principal",    "labels",  "duration_us", "grace_us",
        "acquired_at",  "deadline", "remaining_us", "held_us", "silent_us",   "heartbeats",
        "heartbeat_at", "liveness", "is_manual",    "units",   "slots",
    };
    lh_pg_result_columns(result, names, columns->at, LEASE_COLUMNS);
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

const char *lh_text_read(const PGresult *result, int row, int column, struct lh_arena *arena)
{
    const char *text = lh_pg_text(result, row, column);
    if (text == NULL)
        return NULL;
    return *text == '\0' ? "" : lh_arena_strdup(arena, text);
}

int64_t lh_hook_timeout_read(const PGresult *result, int row, int column)
{
    const char *text = lh_pg_text(result, row, column);
    int64_t timeout_us = text == NULL ? 0 : strtoll(text, NULL, 10);
    return timeout_us < 0 ? 0 : timeout_us;
}

int32_t lh_units_free_read(const PGresult *result, int row, int column)
{
    return lh_pg_is_null(result, row, column) ? LH_UNITS_UNBOUNDED : lh_pg_int4(result, row, column);
}

int lh_word_read(const PGresult *result, int row, int column, const char *const *words, size_t count)
{
    const char *text = lh_pg_text(result, row, column);

    for (size_t i = 0; text != NULL && i < count; i++)
        if (words[i] != NULL && strcmp(words[i], text) == 0)
            return (int)i;
    return -1;
}

static enum lh_liveness liveness_read(const PGresult *result, int row, int column)
{
    static const char *const words[] = {
        [LH_LIVENESS_ALIVE] = "alive",
        [LH_LIVENESS_SUSPECTED_DEAD] = "suspected_dead",
        [LH_LIVENESS_OVERDUE] = "overdue",
        [LH_LIVENESS_EXPIRED] = "expired",
    };
    int liveness = LH_WORD_READ(result, row, column, words);

    return liveness < 0 ? LH_LIVENESS_UNSPECIFIED : (enum lh_liveness)liveness;
}

enum lh_end_reason lh_end_reason_read(const PGresult *result, int row, int column)
{
    static const char *const words[] = {
        [LH_END_RELEASED] = "released", [LH_END_FAILED] = "failed",   [LH_END_EXPIRED] = "expired",
        [LH_END_FORCED] = "forced",     [LH_END_UNKNOWN] = "unknown", [LH_END_MAX_HOLD] = "max_hold",
    };
    int reason = LH_WORD_READ(result, row, column, words);

    if (reason >= 0)
        return (enum lh_end_reason)reason;
    return lh_pg_is_null(result, row, column) ? LH_END_UNSPECIFIED : LH_END_UNKNOWN;
}

bool lh_lease_read(const PGresult *result, int row, const struct lease_columns *columns, struct lh_arena *arena,
                   struct lh_held_lease *lease)
{
    const int *at = columns->at;
    const char *owner, *principal, *labels;

    memset(lease, 0, sizeof(*lease));
    lease->owner = "";
    lease->principal = "";
    lease->labels = "{}";
    if (lh_pg_is_null(result, row, at[TOKEN]))
        return false;
    owner = lh_text_read(result, row, at[OWNER], arena);
    principal = lh_text_read(result, row, at[PRINCIPAL], arena);
    labels = lh_pg_text(result, row, at[LABELS]);
    if (owner != NULL)
        lease->owner = owner;
    if (principal != NULL)
        lease->principal = principal;
    if (labels != NULL && strcmp(labels, "{}") != 0)
        lease->labels = lh_arena_strdup(arena, labels);
    lease->token = lh_pg_int8(result, row, at[TOKEN]);
    lease->duration_us = lh_pg_int8(result, row, at[DURATION]);
    lease->grace_us = lh_pg_int8(result, row, at[GRACE]);
    lease->acquired_at_us = lh_pg_timestamptz(result, row, at[ACQUIRED_AT]);
    lease->deadline_us = lh_pg_timestamptz(result, row, at[DEADLINE]);
    lease->remaining_us = lh_pg_int8(result, row, at[REMAINING]);
    lease->held_us = lh_pg_int8(result, row, at[HELD]);
    lease->silent_us = lh_pg_int8(result, row, at[SILENT]);
    lease->heartbeats = lh_pg_int8(result, row, at[HEARTBEATS]);
    lease->heartbeat_at_us = lh_pg_is_null(result, row, at[HEARTBEAT_AT])
                                 ? lease->acquired_at_us
                                 : lh_pg_timestamptz(result, row, at[HEARTBEAT_AT]);
    lease->liveness = liveness_read(result, row, at[LIVENESS]);
    lease->is_manual = lh_pg_bool(result, row, at[IS_MANUAL]);
    /* Any other deadline is the last renewal + the duration. */
    lease->is_final = lease->deadline_us < lease->heartbeat_at_us + lease->duration_us;
    lease->units = lh_pg_int4(result, row, at[UNITS]);
    lease->slot_count = lh_pg_int4_array(result, row, at[SLOTS], arena, &lease->slots);
    return true;
}

/* --- reaps --- */

enum { KIND, NAMESPACE, KEY, ERROR, REAP_FAILURES, NEXT_TRY_AT, WAKE, LEASE_KEY, REAP_COLUMN_COUNT };

void lh_reap_columns_find(const PGresult *result, struct reap_columns *columns)
{
    static const char *const names[REAP_COLUMN_COUNT] = {"kind",          "namespace",   "key",  "error",
                                                         "reap_failures", "next_try_at", "wake", "lease_key"};
    lh_pg_result_columns(result, names, columns->at, REAP_COLUMN_COUNT);
    lh_lease_columns_find(result, &columns->lease);
}

const char *lh_reap_row_kind(const PGresult *result, int row, const struct reap_columns *columns)
{
    return lh_pg_text(result, row, columns->at[KIND]);
}

void lh_reap_row_read(struct lh_reaped *reaped, const PGresult *result, int row, const struct reap_columns *columns,
                      struct lh_arena *arena)
{
    const int *at = columns->at;
    const char *kind = lh_reap_row_kind(result, row, columns);

    memset(reaped, 0, sizeof(*reaped));
    lh_lease_read(result, row, &columns->lease, arena, &reaped->lease);
    reaped->lease.ns = lh_text_read(result, row, at[NAMESPACE], arena);
    reaped->lease.key = lh_text_read(result, row, at[KEY], arena);
    reaped->lease.lease_key = lh_pg_uuid(result, row, at[LEASE_KEY]);
    reaped->is_failure = kind != NULL && strcmp(kind, "failed") == 0;
    reaped->is_hooked = kind != NULL && strcmp(kind, "hooked") == 0;
    if (reaped->is_hooked)
        reaped->hook_timeout_us = lh_hook_timeout_read(result, row, at[ERROR]);
    else
        reaped->error = lh_text_read(result, row, at[ERROR], arena);
    reaped->reap_failures = lh_pg_int4(result, row, at[REAP_FAILURES]);
    reaped->next_try_at_us =
        lh_pg_is_null(result, row, at[NEXT_TRY_AT]) ? INT64_MAX : lh_pg_timestamptz(result, row, at[NEXT_TRY_AT]);
    reaped->wake = lh_pg_bool(result, row, at[WAKE]);
}
