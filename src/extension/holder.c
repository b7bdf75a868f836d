/*
 * heartbeat_batch() and release_batch(): a live lease is renewed or ended by its holder. Their twins are the statements
 * for a batch of several in the functions of the same names, and what end_leases() writes where nobody waits.
 */
#include "core.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#define DAY_US INT64CONST(86400000000)

PG_FUNCTION_INFO_V1(lh_core_heartbeat_batch);
PG_FUNCTION_INFO_V1(lh_core_release_batch);

struct refs {
    struct lh_core_array ns, key, lease_key;
};

static int count_of(const struct refs *refs)
{
    bool is_even = refs->ns.n == refs->key.n && refs->ns.n == refs->lease_key.n;
    return is_even ? refs->ns.n : 0;
}

/* The rules where the item says what it is about, and nothing was left for its scope. */
static const struct lh_core_rules *rules_of(struct lh_core_call *call, const struct refs *refs, int item)
{
    if (refs->ns.nulls[item] || refs->key.nulls[item] || refs->lease_key.nulls[item] ||
        lh_core_is_left(call, refs->ns.values[item], refs->key.values[item]))
        return NULL;
    return lh_core_rules(refs->ns.values[item]);
}

static void leave(struct lh_core_call *call, const struct refs *refs, int item)
{
    if (!refs->ns.nulls[item] && !refs->key.nulls[item])
        lh_core_leave(call, refs->ns.values[item], refs->key.values[item]);
}

/* --- heartbeat --- */

static bool renew(struct lh_core_call *call, const struct refs *refs, int item, struct lh_core_row *row)
{
    const struct lh_core_rules *rules = rules_of(call, refs, item);
    const Interval *duration;
    TimestampTz now;

    if (rules == NULL || rules->has_heartbeat_hook ||
        !lh_core_find(call, refs->ns.values[item], refs->key.values[item], row) ||
        !lh_core_is_held_by(row, refs->lease_key.values[item]))
        return false;
    duration = DatumGetIntervalP(row->values[SCOPE_DURATION]);
    now = GetCurrentTimestamp();
    if (duration->month != 0 || !lh_core_is_live(call, row, now))
        return false;
    lh_core_set(row, SCOPE_HEARTBEAT_AT, TimestampTzGetDatum(now));
    lh_core_set(row, SCOPE_HEARTBEATS, Int64GetDatum(DatumGetInt64(row->values[SCOPE_HEARTBEATS]) + 1));
    lh_core_set(row, SCOPE_DEADLINE, TimestampTzGetDatum(lh_core_plus(now, duration)));
    lh_core_set(row, SCOPE_INCARNATION, Int64GetDatum(call->life.id));
    return lh_core_update(call, row, false);
}

static void answer_renewal(struct lh_core_call *call, int item, const struct lh_core_row *row)
{
    enum { N, OUTCOME, REMAINING, DEADLINE, HEARTBEATS, END_REASON, MESSAGE, TOKEN, UNITS, HAS_SLOTS, COLUMNS };
    const Interval *duration = DatumGetIntervalP(row->values[SCOPE_DURATION]);
    Datum values[COLUMNS] = {0};
    bool nulls[COLUMNS] = {false};

    memset(nulls + END_REASON, true, COLUMNS - END_REASON);
    values[N] = Int32GetDatum(item + 1);
    values[OUTCOME] = CStringGetTextDatum("ok");
    values[REMAINING] = Int64GetDatum(duration->day * DAY_US + duration->time);
    values[DEADLINE] = row->values[SCOPE_DEADLINE];
    values[HEARTBEATS] = row->values[SCOPE_HEARTBEATS];
    lh_core_answer(call, item, values, nulls);
}

Datum lh_core_heartbeat_batch(PG_FUNCTION_ARGS)
{
    enum { NS, KEY, LEASE_KEY, RELAX };
    struct refs refs = {lh_core_array(fcinfo, NS, TEXTOID), lh_core_array(fcinfo, KEY, TEXTOID),
                        lh_core_array(fcinfo, LEASE_KEY, UUIDOID)};
    struct lh_core_call call;
    struct lh_core_row row;

    if (!lh_core_begin(&call, fcinfo, "heartbeat_batch", count_of(&refs)))
        return (Datum)0;
    for (int i = 0; i < call.count; i++) {
        if (renew(&call, &refs, i, &row))
            answer_renewal(&call, i, &row);
        else
            leave(&call, &refs, i);
    }
    if (call.done_count == call.count && !PG_ARGISNULL(RELAX) && PG_GETARG_BOOL(RELAX))
        lh_core_relax_commit();
    return lh_core_end(&call, NULL);
}

/* --- release --- */

static void set_free(struct lh_core_row *row, TimestampTz now)
{
    static const int64 soon_us = 120 * USECS_PER_SEC, later_us = 60 * USECS_PER_SEC;

    lh_core_set(row, SCOPE_STATE, CStringGetTextDatum("free"));
    lh_core_set_null(row, SCOPE_LEASE_KEY);
    lh_core_set(row, SCOPE_LAPSED, BoolGetDatum(false));
    lh_core_set(row, SCOPE_REAP_FAILURES, Int32GetDatum(0));
    if (DatumGetTimestampTz(row->values[SCOPE_CHECK_AT]) > now + soon_us)
        lh_core_set(row, SCOPE_CHECK_AT, TimestampTzGetDatum(now + later_us));
}

/* Promise 5: a guard's KEY SHARE keeps the lock off, which is taken before anything is written. */
static bool end(struct lh_core_call *call, const struct refs *refs, const struct lh_core_array *failed,
                const struct lh_core_array *value, int item)
{
    const struct lh_core_rules *rules = rules_of(call, refs, item);
    struct lh_core_row row;
    struct lh_core_result result;
    TimestampTz now;

    if (rules == NULL || !lh_core_result(failed, value, item, rules, &result) ||
        !lh_core_find(call, refs->ns.values[item], refs->key.values[item], &row) ||
        !lh_core_is_held_by(&row, refs->lease_key.values[item]) || DatumGetBool(row.values[SCOPE_QUEUED]) ||
        !lh_core_lock(call, &row, LockTupleExclusive))
        return false;
    now = GetCurrentTimestamp();
    if (!lh_core_is_live(call, &row, now))
        return false;
    lh_core_set_ended(&row, &result, now);
    set_free(&row, now);
    call->has_history = call->has_history || rules->has_history;
    return lh_core_update(call, &row, true);
}

static void answer_release(struct lh_core_call *call, int item)
{
    enum { N, OUTCOME, END_REASON, MESSAGE, WAKE, COLUMNS };
    Datum values[COLUMNS] = {0};
    bool nulls[COLUMNS] = {[END_REASON] = true, [MESSAGE] = true};

    values[N] = Int32GetDatum(item + 1);
    values[OUTCOME] = CStringGetTextDatum("ok");
    values[WAKE] = BoolGetDatum(false);
    lh_core_answer(call, item, values, nulls);
}

Datum lh_core_release_batch(PG_FUNCTION_ARGS)
{
    enum { COORDINATOR, NS, KEY, LEASE_KEY, FAILED, VALUE };
    struct refs refs = {lh_core_array(fcinfo, NS, TEXTOID), lh_core_array(fcinfo, KEY, TEXTOID),
                        lh_core_array(fcinfo, LEASE_KEY, UUIDOID)};
    struct lh_core_array failed = lh_core_array(fcinfo, FAILED, BOOLOID), value = lh_core_array(fcinfo, VALUE, TEXTOID);
    bool is_even = failed.n == refs.ns.n && value.n == refs.ns.n;
    struct lh_core_call call;

    if (!lh_core_begin(&call, fcinfo, "release_batch", is_even ? count_of(&refs) : 0))
        return (Datum)0;
    for (int i = 0; i < call.count; i++) {
        if (end(&call, &refs, &failed, &value, i))
            answer_release(&call, i);
        else
            leave(&call, &refs, i);
    }
    return lh_core_end(&call, "core_released");
}
