/*
 * heartbeat_batch() and release_batch(): a live lease is renewed or ended by its holder; a shared one in share.c. Their twins are the statements
 * for a batch of several in the functions of the same names, and what end_leases() writes where nobody waits.
 */
#include "core.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

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

static void answer_renewal(struct lh_core_call *call, int item, const Interval *duration, Datum deadline,
                           Datum heartbeats, const struct lh_core_row *share)
{
    enum { N, OUTCOME, REMAINING, DEADLINE, HEARTBEATS, END_REASON, MESSAGE, TOKEN, UNITS, HAS_SLOTS, COLUMNS };
    Datum values[COLUMNS] = {0};
    bool nulls[COLUMNS] = {false};

    memset(nulls + END_REASON, true, COLUMNS - END_REASON);
    values[N] = Int32GetDatum(item + 1);
    values[OUTCOME] = CStringGetTextDatum("ok");
    values[REMAINING] = Int64GetDatum(duration->day * DAY_US + duration->time);
    values[DEADLINE] = deadline;
    values[HEARTBEATS] = heartbeats;
    if (share != NULL) {
        values[TOKEN] = share->values[SHARE_TOKEN];
        values[UNITS] = share->values[SHARE_UNITS];
        values[HAS_SLOTS] = BoolGetDatum(!share->nulls[SHARE_SLOTS]);
        nulls[TOKEN] = nulls[UNITS] = nulls[HAS_SLOTS] = false;
    }
    lh_core_answer(call, item, values, nulls);
}

static bool renew_share(struct lh_core_call *call, const struct refs *refs, int item)
{
    struct lh_core_row share;

    if (!lh_core_renew_share(call, refs->ns.values[item], refs->key.values[item], refs->lease_key.values[item], &share))
        return false;
    answer_renewal(call, item, DatumGetIntervalP(share.values[SHARE_DURATION]), share.values[SHARE_DEADLINE],
                   share.values[SHARE_HEARTBEATS], &share);
    return true;
}

static bool renew(struct lh_core_call *call, const struct refs *refs, int item)
{
    const struct lh_core_rules *rules = rules_of(call, refs, item);
    const Interval *duration;
    struct lh_core_row row;
    TimestampTz now;

    if (rules == NULL || rules->has_heartbeat_hook ||
        !lh_core_find(call, refs->ns.values[item], refs->key.values[item], &row))
        return false;
    if (lh_core_text_is(&row, SCOPE_STATE, "shared"))
        return renew_share(call, refs, item);
    if (!lh_core_is_held_by(&row, refs->lease_key.values[item]))
        return false;
    duration = DatumGetIntervalP(row.values[SCOPE_DURATION]);
    now = GetCurrentTimestamp();
    if (duration->month != 0 || !lh_core_is_live(call, &row, now))
        return false;
    lh_core_set(&row, SCOPE_HEARTBEAT_AT, TimestampTzGetDatum(now));
    lh_core_set(&row, SCOPE_HEARTBEATS, Int64GetDatum(DatumGetInt64(row.values[SCOPE_HEARTBEATS]) + 1));
    lh_core_set(&row, SCOPE_DEADLINE, TimestampTzGetDatum(lh_core_plus(now, duration)));
    lh_core_set(&row, SCOPE_INCARNATION, Int64GetDatum(call->life.id));
    if (!lh_core_update(call, &call->scope, &row, false))
        return false;
    answer_renewal(call, item, duration, row.values[SCOPE_DEADLINE], row.values[SCOPE_HEARTBEATS], NULL);
    return true;
}

Datum lh_core_heartbeat_batch(PG_FUNCTION_ARGS)
{
    enum { NS, KEY, LEASE_KEY, RELAX };
    struct refs refs = {lh_core_array(fcinfo, NS, TEXTOID), lh_core_array(fcinfo, KEY, TEXTOID),
                        lh_core_array(fcinfo, LEASE_KEY, UUIDOID)};
    struct lh_core_call call;

    if (!lh_core_begin(&call, fcinfo, "heartbeat_batch", count_of(&refs)))
        return (Datum)0;
    for (int i = 0; i < call.count; i++)
        if (!renew(&call, &refs, i))
            leave(&call, &refs, i);
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

struct releases {
    struct refs refs;
    struct lh_core_array failed, value;
};

static bool has_leaver(const struct lh_core_leaver *leavers, int count, Datum lease_key)
{
    for (int i = 0; i < count; i++)
        if (memcmp(DatumGetUUIDP(leavers[i].lease_key), DatumGetUUIDP(lease_key), UUID_LEN) == 0)
            return true;
    return false;
}

/* The call's releases of this scope, from `item` on, which is the first. Returns their count, or 0 where SQL has to look at one of them. */
static int gather(struct lh_core_call *call, const struct releases *releases, const struct lh_core_rules *rules,
                  int item, struct lh_core_leaver *leavers)
{
    const struct refs *refs = &releases->refs;
    int count = 0;

    for (int i = item; i < call->count; i++) {
        struct lh_core_leaver *next = &leavers[count];
        if (!lh_core_is_same_scope(call, &refs->ns, &refs->key, item, i))
            continue;
        if (refs->lease_key.nulls[i] || has_leaver(leavers, count, refs->lease_key.values[i]) ||
            !lh_core_result(&releases->failed, &releases->value, i, rules, &next->result))
            return 0;
        next->item = i;
        next->lease_key = refs->lease_key.values[i];
        count++;
    }
    return count;
}

static bool end_shares(struct lh_core_call *call, const struct releases *releases, const struct lh_core_rules *rules,
                       int item, struct lh_core_row *row)
{
    const struct refs *refs = &releases->refs;
    struct lh_core_leaver *leavers = palloc((call->count - item) * sizeof(*leavers));
    int count = gather(call, releases, rules, item, leavers);
    bool is_done =
        count > 0 && lh_core_end_shares(call, leavers, count, refs->ns.values[item], refs->key.values[item], row);

    for (int i = 0; is_done && i < count; i++) {
        call->is_shared[leavers[i].item] = true;
        answer_release(call, leavers[i].item);
    }
    pfree(leavers);
    return is_done;
}

/* Promise 5: a guard's KEY SHARE keeps the lock off, which is taken before anything is written. */
static bool end_lease(struct lh_core_call *call, const struct releases *releases, const struct lh_core_rules *rules,
                      int item, struct lh_core_row *row)
{
    struct lh_core_result result;
    TimestampTz now;

    if (!lh_core_result(&releases->failed, &releases->value, item, rules, &result) ||
        !lh_core_is_held_by(row, releases->refs.lease_key.values[item]) || DatumGetBool(row->values[SCOPE_QUEUED]) ||
        !lh_core_lock(call, &call->scope, row, LockTupleExclusive))
        return false;
    now = GetCurrentTimestamp();
    if (!lh_core_is_live(call, row, now))
        return false;
    lh_core_set_ended(row, &result, now);
    set_free(row, now);
    if (!lh_core_update(call, &call->scope, row, true))
        return false;
    answer_release(call, item);
    return true;
}

static bool end(struct lh_core_call *call, const struct releases *releases, int item)
{
    const struct refs *refs = &releases->refs;
    const struct lh_core_rules *rules = rules_of(call, refs, item);
    struct lh_core_row row;

    if (rules == NULL || !lh_core_find(call, refs->ns.values[item], refs->key.values[item], &row))
        return false;
    call->has_history = call->has_history || rules->has_history;
    if (lh_core_text_is(&row, SCOPE_STATE, "shared"))
        return end_shares(call, releases, rules, item, &row);
    return end_lease(call, releases, rules, item, &row);
}

Datum lh_core_release_batch(PG_FUNCTION_ARGS)
{
    enum { COORDINATOR, NS, KEY, LEASE_KEY, FAILED, VALUE };
    struct releases releases = {.refs = {lh_core_array(fcinfo, NS, TEXTOID), lh_core_array(fcinfo, KEY, TEXTOID),
                                         lh_core_array(fcinfo, LEASE_KEY, UUIDOID)},
                                .failed = lh_core_array(fcinfo, FAILED, BOOLOID),
                                .value = lh_core_array(fcinfo, VALUE, TEXTOID)};
    bool is_even = releases.failed.n == releases.refs.ns.n && releases.value.n == releases.refs.ns.n;
    struct lh_core_call call;

    if (!lh_core_begin(&call, fcinfo, "release_batch", is_even ? count_of(&releases.refs) : 0))
        return (Datum)0;
    for (int i = 0; i < call.count; i++)
        if (!call.is_done[i] && !end(&call, &releases, i)) /* with an earlier one of its scope */
            leave(&call, &releases.refs, i);
    return lh_core_end(&call, "core_released");
}
