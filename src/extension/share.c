/*
 * Shared leases. Several hold one scope, each with a row of its own in leasehold.share; the scope's row counts them and their units. The twins are
 * grant_shares() and end_shares() where nobody waits, and the renewal of shared holders in heartbeat_rest(). Who grants or ends one locks the
 * scope's row first; a renewal writes the holder's alone.
 */
#include "core.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* When the reaper looks at what has ended. */
#define LATER_US (60 * USECS_PER_SEC)

static void open_shares(struct lh_core_call *call)
{
    if (call->share.table != NULL)
        return;
    call->share.table = lh_core_table(call->oids->share, RowExclusiveLock);
    lh_core_open(call, &call->share, call->oids->share_pkey);
}

/* Read after the lock of the scope's row, which all take who queue for a scope that is not held exclusively. */
static bool has_waiter(const struct lh_core_call *call, Snapshot latest, Datum ns, Datum key)
{
    Relation waiter = lh_core_table(call->oids->waiter, AccessShareLock);
    bool has = lh_core_has_entry(waiter, call->oids->waiter_pkey, latest, ns, key);

    table_close(waiter, NoLock);
    return has;
}

static int32 count_of(const struct lh_core_row *row, enum lh_core_scope_column column)
{
    return row->nulls[column] ? 0 : DatumGetInt32(row->values[column]);
}

/* --- grant --- */

/* No lease of this key is there, or has been; its row would stay for a while. */
static bool are_new(const struct lh_core_call *call, Snapshot latest, const struct lh_core_joiner *joiners, int count,
                    Datum ns, Datum key)
{
    IndexScanDesc scan = lh_core_beginscan(call->share.table, call->share.index, latest, 3);
    TupleTableSlot *slot = call->share.found_slot;
    bool is_there = false;

    for (int i = 0; i < count && !is_there; i++) {
        ScanKeyData keys[3];
        lh_core_share_keys(keys, ns, key, joiners[i].wish.lease_key);
        index_rescan(scan, keys, 3, NULL, 0);
        is_there = index_getnext_slot(scan, ForwardScanDirection, slot);
    }
    ExecClearTuple(slot);
    index_endscan(scan);
    return !is_there;
}

static void mark_taken(Datum slots, bool *is_taken, int limit)
{
    ArrayType *list = DatumGetArrayTypeP(slots);
    const int32 *numbers = (const int32 *)ARR_DATA_PTR(list);
    int count = ArrayGetNItems(ARR_NDIM(list), ARR_DIMS(list));

    for (int i = 0; i < count; i++)
        if (numbers[i] >= 1 && numbers[i] <= limit)
            is_taken[numbers[i]] = true;
}

/* The lowest numbers that no holder has, ascending, as many as are wanted. Returns NULL where the holders' units are not those that the scope counts:
   an index without some of them would give a number twice. */
static int32 *free_numbers(const struct lh_core_call *call, Snapshot latest, Datum ns, Datum key, int32 units,
                           int32 wanted)
{
    Relation index = index_open(call->oids->share_held, AccessShareLock);
    IndexScanDesc scan = lh_core_beginscan(call->share.table, index, latest, 2);
    TupleTableSlot *slot = call->share.found_slot;
    int32 limit = units + wanted, found = 0, *numbers = palloc(wanted * sizeof(*numbers));
    bool *is_taken = palloc0((limit + 1) * sizeof(*is_taken));
    ScanKeyData keys[2];

    lh_core_scope_keys(keys, ns, key);
    index_rescan(scan, keys, 2, NULL, 0);
    while (index_getnext_slot(scan, ForwardScanDirection, slot)) {
        slot_getsomeattrs(slot, SHARE_SLOTS + 1);
        found += DatumGetInt32(slot->tts_values[SHARE_UNITS]);
        if (!slot->tts_isnull[SHARE_SLOTS])
            mark_taken(slot->tts_values[SHARE_SLOTS], is_taken, limit);
    }
    ExecClearTuple(slot);
    index_endscan(scan);
    index_close(index, NoLock);
    if (found == units)
        for (int32 number = 1, n = 0; n < wanted; number++)
            if (!is_taken[number])
                numbers[n++] = number;
    pfree(is_taken);
    return found == units ? numbers : NULL;
}

static Datum slots_of(const int32 *numbers, int32 count)
{
    Datum *values = palloc(count * sizeof(*values)), slots;

    for (int i = 0; i < count; i++)
        values[i] = Int32GetDatum(numbers[i]);
    slots = PointerGetDatum(construct_array(values, count, INT4OID, sizeof(int32), true, 'i'));
    pfree(values);
    return slots;
}

/* [share_grant] of migrations/functions/columns.txt. Promise 2: the token is drawn under the scope's lock. */
static void fill(struct lh_core_call *call, const struct lh_core_wish *wish, Datum ns, Datum key, const int32 *numbers,
                 TimestampTz now, struct lh_core_row *share)
{
    TimestampTz deadline = lh_core_plus(now, &wish->duration);

    memset(share->nulls, true, sizeof(share->nulls));
    lh_core_set(share, SHARE_NAMESPACE, ns);
    lh_core_set(share, SHARE_KEY, key);
    lh_core_set(share, SHARE_LEASE_KEY, wish->lease_key);
    lh_core_set(share, SHARE_STATE, CStringGetTextDatum("held"));
    lh_core_set(share, SHARE_TOKEN, Int64GetDatum(nextval_internal(call->oids->token, false)));
    lh_core_set(share, SHARE_UNITS, Int32GetDatum(wish->units));
    if (numbers != NULL)
        lh_core_set(share, SHARE_SLOTS, slots_of(numbers, wish->units));
    lh_core_set(share, SHARE_ACQUIRED_AT, TimestampTzGetDatum(now));
    lh_core_set(share, SHARE_HEARTBEAT_AT, TimestampTzGetDatum(now));
    lh_core_set(share, SHARE_DEADLINE, TimestampTzGetDatum(deadline));
    lh_core_set(share, SHARE_HEARTBEATS, Int64GetDatum(0));
    lh_core_set(share, SHARE_INCARNATION, Int64GetDatum(call->life.id));
    lh_core_set(share, SHARE_CHECK_AT, TimestampTzGetDatum(lh_core_plus(deadline, &wish->rules->grace)));
    lh_core_set_or_null(share, SHARE_GRANTED_BY, wish->coordinator);
    lh_core_set(share, SHARE_LAPSED, BoolGetDatum(false));
    lh_core_set(share, SHARE_DURATION, IntervalPGetDatum(&wish->duration));
    lh_core_set(share, SHARE_GRACE, IntervalPGetDatum(&wish->rules->grace));
    lh_core_set_or_null(share, SHARE_OWNER, wish->owner);
    lh_core_set_or_null(share, SHARE_PRINCIPAL, wish->principal);
    lh_core_set(share, SHARE_LABELS, wish->labels);
    lh_core_set(share, SHARE_REAP_FAILURES, Int32GetDatum(0));
}

/* [share_bounds] of migrations/functions/columns.txt: the scope's row has the first end of any holder, and the shortest duration. */
static void add_holder(struct lh_core_row *row, const struct lh_core_row *share, const struct lh_core_wish *wish)
{
    Datum until = TimestampTzGetDatum(lh_core_plus(DatumGetTimestampTz(share->values[SHARE_DEADLINE]),
                                                   DatumGetIntervalP(share->values[SHARE_GRACE])));
    int32 holders = count_of(row, SCOPE_HOLDERS);

    if (holders == 0) {
        lh_core_set(row, SCOPE_DEADLINE, until);
        lh_core_set(row, SCOPE_DURATION, share->values[SHARE_DURATION]);
        lh_core_set(row, SCOPE_ACQUIRED_AT, share->values[SHARE_ACQUIRED_AT]);
        lh_core_set(row, SCOPE_HEARTBEAT_AT, share->values[SHARE_HEARTBEAT_AT]);
        lh_core_set(row, SCOPE_INCARNATION, share->values[SHARE_INCARNATION]);
    } else {
        lh_core_set(row, SCOPE_DEADLINE, DirectFunctionCall2(timestamp_smaller, row->values[SCOPE_DEADLINE], until));
        lh_core_set(row, SCOPE_DURATION,
                    DirectFunctionCall2(interval_smaller, row->values[SCOPE_DURATION], share->values[SHARE_DURATION]));
    }
    lh_core_set(row, SCOPE_STATE, CStringGetTextDatum("shared"));
    lh_core_set(row, SCOPE_TOKEN, share->values[SHARE_TOKEN]);
    lh_core_set(row, SCOPE_UNITS, Int32GetDatum(count_of(row, SCOPE_UNITS) + wish->units));
    lh_core_set(row, SCOPE_HOLDERS, Int32GetDatum(holders + 1));
    lh_core_set(row, SCOPE_QUEUED, BoolGetDatum(true));
}

/* `row`: the scope's, with all of them. */
static void answer(struct lh_core_call *call, const struct lh_core_joiner *joiner, const struct lh_core_row *share,
                   const struct lh_core_row *row)
{
    enum { LH_CORE_ANSWER_COLUMNS, COLUMNS };
    const struct lh_core_wish *wish = &joiner->wish;
    Datum values[COLUMNS] = {0};
    bool nulls[COLUMNS];

    lh_core_tell_grant(wish, DatumGetInt64(share->values[SHARE_TOKEN]),
                       DatumGetTimestampTz(share->values[SHARE_ACQUIRED_AT]), values, nulls);
    values[MODE] = CStringGetTextDatum("shared");
    values[UNITS] = Int32GetDatum(wish->units);
    values[SLOTS] = share->values[SHARE_SLOTS];
    nulls[SLOTS] = share->nulls[SHARE_SLOTS];
    values[UNITS_FREE] = Int32GetDatum(wish->rules->capacity - count_of(row, SCOPE_UNITS));
    values[HOLDERS] = row->values[SCOPE_HOLDERS];
    call->is_shared[joiner->item] = true;
    lh_core_answer_more(call, joiner->item, true, values, nulls);
}

/* In the order of the items. */
static void grant(struct lh_core_call *call, const struct lh_core_joiner *joiners, int count, Datum ns, Datum key,
                  const int32 *numbers, struct lh_core_row *row)
{
    struct lh_core_row *shares = palloc(count * sizeof(*shares));
    TimestampTz now = GetCurrentTimestamp();

    for (int i = 0; i < count; i++) {
        fill(call, &joiners[i].wish, ns, key, numbers, now, &shares[i]);
        lh_core_insert(call, &call->share, &shares[i]);
        add_holder(row, &shares[i], &joiners[i].wish);
        if (numbers != NULL)
            numbers += joiners[i].wish.units;
    }
    lh_core_update(call, &call->scope, row, true);
    for (int i = 0; i < count; i++)
        answer(call, &joiners[i], &shares[i], row);
    pfree(shares);
}

/* Free or shared, and not at rest. */
static bool may_share(const struct lh_core_joiner *joiners, int count, const struct lh_core_row *row)
{
    if (!row->nulls[SCOPE_AT_LEAST] ||
        !(lh_core_text_is(row, SCOPE_STATE, "free") || lh_core_text_is(row, SCOPE_STATE, "shared")))
        return false;
    for (int i = 0; i < count; i++)
        if (lh_core_has_ended(row, joiners[i].wish.lease_key))
            return false;
    return true;
}

/* Promise 1: under the scope's lock, all of them fit. */
bool lh_core_share(struct lh_core_call *call, const struct lh_core_joiner *joiners, int count, Datum ns, Datum key,
                   struct lh_core_row *row)
{
    const struct lh_core_rules *rules = joiners[0].wish.rules;
    int32 units = count_of(row, SCOPE_UNITS), *numbers = NULL;
    int64 wanted = 0;
    Snapshot latest;
    bool is_right;

    for (int i = 0; i < count; i++)
        wanted += joiners[i].wish.units;
    if (units + wanted > lh_core_units_max(rules) || !may_share(joiners, count, row) ||
        !lh_core_lock(call, &call->scope, row, LockTupleNoKeyExclusive))
        return false;
    open_shares(call);
    latest = RegisterSnapshot(GetLatestSnapshot());
    is_right = !has_waiter(call, latest, ns, key) && are_new(call, latest, joiners, count, ns, key);
    if (is_right && rules->has_capacity)
        is_right = (numbers = free_numbers(call, latest, ns, key, units, (int32)wanted)) != NULL;
    UnregisterSnapshot(latest);
    if (is_right)
        grant(call, joiners, count, ns, key, numbers, row);
    return is_right;
}

/* --- renewal --- */

bool lh_core_renew_share(struct lh_core_call *call, Datum ns, Datum key, Datum lease_key, struct lh_core_row *share)
{
    const Interval *duration;
    TimestampTz now;

    open_shares(call);
    if (!lh_core_find_share(call, ns, key, lease_key, share) || !lh_core_text_is(share, SHARE_STATE, "held"))
        return false;
    duration = DatumGetIntervalP(share->values[SHARE_DURATION]);
    now = GetCurrentTimestamp();
    if (duration->month != 0 || !lh_core_is_live_share(call, share, now))
        return false;
    lh_core_set(share, SHARE_HEARTBEAT_AT, TimestampTzGetDatum(now));
    lh_core_set(share, SHARE_HEARTBEATS, Int64GetDatum(DatumGetInt64(share->values[SHARE_HEARTBEATS]) + 1));
    lh_core_set(share, SHARE_DEADLINE, TimestampTzGetDatum(lh_core_plus(now, duration)));
    lh_core_set(share, SHARE_INCARNATION, Int64GetDatum(call->life.id));
    return lh_core_update(call, &call->share, share, false);
}

/* --- end --- */

/* Promise 5: a guard's KEY SHARE keeps the lock off. The row outlives the next that is found. */
static bool lock_held(struct lh_core_call *call, Datum ns, Datum key, Datum lease_key, TimestampTz now,
                      struct lh_core_row *share)
{
    if (!lh_core_find_share(call, ns, key, lease_key, share) || !lh_core_text_is(share, SHARE_STATE, "held") ||
        !lh_core_lock(call, &call->share, share, LockTupleExclusive) || !lh_core_is_live_share(call, share, now))
        return false;
    heap_deform_tuple(ExecCopySlotHeapTuple(call->share.found_slot), RelationGetDescr(call->share.table), share->values,
                      share->nulls);
    return true;
}

/* [share_ended] of migrations/functions/columns.txt. */
static void set_ended(struct lh_core_row *share, const struct lh_core_result *result, TimestampTz now)
{
    lh_core_set(share, SHARE_STATE, CStringGetTextDatum("ended"));
    lh_core_set(share, SHARE_LAPSED, BoolGetDatum(false));
    lh_core_set(share, SHARE_REAP_FAILURES, Int32GetDatum(0));
    lh_core_set(share, SHARE_ENDED_AT, TimestampTzGetDatum(now));
    lh_core_set(share, SHARE_OUTCOME, CStringGetTextDatum(result->is_failure ? "failed" : "ok"));
    lh_core_set_null(share, SHARE_RESULT);
    lh_core_set_null(share, SHARE_ERROR);
    if (result->has_value)
        lh_core_set(share, result->is_failure ? SHARE_ERROR : SHARE_RESULT, result->value);
    lh_core_set(share, SHARE_CHECK_AT, TimestampTzGetDatum(now + LATER_US));
}

/* [share_last] of migrations/functions/columns.txt: the scope tells of the newest of those that ended together. */
static void tell_last(struct lh_core_row *row, const struct lh_core_row *share)
{
    static const int copied[][2] = {{SCOPE_OWNER, SHARE_OWNER},        {SCOPE_PRINCIPAL, SHARE_PRINCIPAL},
                                    {SCOPE_ENDED_AT, SHARE_ENDED_AT},  {SCOPE_LAST_OUTCOME, SHARE_OUTCOME},
                                    {SCOPE_LAST_RESULT, SHARE_RESULT}, {SCOPE_LAST_ERROR, SHARE_ERROR}};

    for (size_t i = 0; i < lengthof(copied); i++) {
        row->values[copied[i][0]] = share->values[copied[i][1]];
        row->nulls[copied[i][0]] = share->nulls[copied[i][1]];
    }
}

static void remove_holders(struct lh_core_row *row, const struct lh_core_row *shares, int count, TimestampTz now)
{
    int32 holders = count_of(row, SCOPE_HOLDERS) - count, units = count_of(row, SCOPE_UNITS);
    const struct lh_core_row *last = &shares[0];

    for (int i = 0; i < count; i++) {
        units -= DatumGetInt32(shares[i].values[SHARE_UNITS]);
        if (DatumGetInt64(shares[i].values[SHARE_TOKEN]) > DatumGetInt64(last->values[SHARE_TOKEN]))
            last = &shares[i];
    }
    lh_core_set(row, SCOPE_HOLDERS, Int32GetDatum(holders));
    lh_core_set(row, SCOPE_UNITS, Int32GetDatum(units));
    row->nulls[SCOPE_UNITS] = units == 0;
    lh_core_set(row, SCOPE_STATE, CStringGetTextDatum(holders > 0 ? "shared" : "free"));
    tell_last(row, last);
    if (DatumGetTimestampTz(row->values[SCOPE_CHECK_AT]) > now + LATER_US)
        lh_core_set(row, SCOPE_CHECK_AT, TimestampTzGetDatum(now + LATER_US));
}

static bool lock_all(struct lh_core_call *call, const struct lh_core_leaver *leavers, int count, Datum ns, Datum key,
                     TimestampTz now, struct lh_core_row *shares)
{
    for (int i = 0; i < count; i++)
        if (!lock_held(call, ns, key, leavers[i].lease_key, now, &shares[i]))
            return false;
    return true;
}

bool lh_core_end_shares(struct lh_core_call *call, const struct lh_core_leaver *leavers, int count, Datum ns, Datum key,
                        struct lh_core_row *row)
{
    struct lh_core_row *shares;
    Snapshot latest;
    TimestampTz now;
    bool is_awaited;

    if (!lh_core_lock(call, &call->scope, row, LockTupleExclusive))
        return false;
    open_shares(call);
    latest = RegisterSnapshot(GetLatestSnapshot());
    is_awaited = has_waiter(call, latest, ns, key);
    UnregisterSnapshot(latest);
    shares = palloc(count * sizeof(*shares));
    now = GetCurrentTimestamp();
    if (is_awaited || !lock_all(call, leavers, count, ns, key, now, shares))
        return false;
    for (int i = 0; i < count; i++) {
        set_ended(&shares[i], &leavers[i].result, now);
        lh_core_update(call, &call->share, &shares[i], true);
    }
    remove_holders(row, shares, count, now);
    lh_core_update(call, &call->scope, row, true);
    return true;
}
