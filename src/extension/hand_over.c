/*
 * hand_over_batch(): one lease that passes from its holder to its first waiter is one new version of the scope's row. The
 * twin is the statement in migrations/functions/hand_over_batch.sql. All else is left to SQL whole, for a release and the
 * acquire that follows it belong together.
 */
#include "core.h"

#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

/* Waiters that are looked at until one is live; beyond it SQL looks. */
#define LOOKED_AT_MAX 64

PG_FUNCTION_INFO_V1(lh_core_hand_over_batch);

enum {
    RELEASER,
    NS,
    KEY,
    LEASE_KEY,
    FAILED,
    VALUE,
    CLOCK,
    NEXT_NS,
    NEXT_KEY,
    NEXT_LEASE_KEY,
    NEXT_OWNER,
    NEXT_LABELS,
    NEXT_DURATION
};
enum { NEXT_QUEUE = NEXT_DURATION + 1, NEXT_WAIT, NEXT_TICKET, NEXT_PRINCIPALS, NEXT_AT_LEAST, NEXT_UNITS };

/* What the queue of the scope says. */
struct found {
    bool is_ours;        /* its first live waiter is the one who is to have it, at the coordinator that asks */
    bool has_others;     /* others wait, live or not */
    ItemPointerData tid; /* of the first one's row */
};

/* Read after the lock of the scope's row: whoever is in it was there before. */
static void read_queue(const struct lh_core_call *call, Relation waiter, const struct lh_core_wish *wish, Datum ns,
                       Datum key, TimestampTz now, struct found *found)
{
    Snapshot latest = RegisterSnapshot(GetLatestSnapshot());
    bool has_head = false;
    int looked_at = 0;
    struct lh_core_queue queue;

    *found = (struct found){.is_ours = false};
    if (lh_core_has_entry(waiter, call->oids->waiter_by_priority, latest, ns, key)) {
        UnregisterSnapshot(latest);
        return;
    }
    lh_core_queue_begin(call, waiter, latest, ns, key, now, &queue);
    while ((!has_head || !found->has_others) && looked_at++ < LOOKED_AT_MAX && lh_core_queue_next(&queue)) {
        const Datum *values = queue.slot->tts_values;
        const bool *nulls = queue.slot->tts_isnull;
        bool is_next = memcmp(DatumGetUUIDP(values[WAITER_LEASE_KEY]), DatumGetUUIDP(wish->lease_key), UUID_LEN) == 0;

        found->has_others = found->has_others || !is_next;
        if (!has_head && lh_core_queue_is_live(&queue)) {
            has_head = true;
            found->is_ours =
                is_next && !nulls[WAITER_COORDINATOR] && nulls[WAITER_ITEMS] &&
                memcmp(DatumGetUUIDP(values[WAITER_COORDINATOR]), DatumGetUUIDP(wish->coordinator), UUID_LEN) == 0;
            found->tid = queue.slot->tts_tid;
        }
    }
    lh_core_queue_end(&queue);
    UnregisterSnapshot(latest);
}

/* Only of the version that was read, and only where nobody has it locked. */
static bool remove_waiter(const struct lh_core_call *call, Relation waiter, ItemPointer tid)
{
    TM_FailureData failure;

    return table_tuple_delete(waiter, tid, call->command, call->snapshot, InvalidSnapshot, false, &failure, false) ==
           TM_Ok;
}

static bool pass_on(struct lh_core_call *call, Relation waiter, const struct lh_core_wish *wish,
                    const struct lh_core_result *result, Datum ns, Datum key, Datum lease_key, struct lh_core_row *row)
{
    struct found found;
    TimestampTz now;

    if (!lh_core_find(call, ns, key, row) || !lh_core_is_held_by(row, lease_key) || !row->nulls[SCOPE_AT_LEAST] ||
        !row->nulls[SCOPE_HOLDERS] || lh_core_has_ended(row, wish->lease_key) ||
        lh_core_uuid_is(row, SCOPE_LEASE_KEY, wish->lease_key) ||
        !lh_core_lock(call, &call->scope, row, LockTupleExclusive))
        return false;
    now = GetCurrentTimestamp();
    if (!lh_core_is_live(call, row, now))
        return false;
    read_queue(call, waiter, wish, ns, key, now, &found);
    if (!found.is_ours || !remove_waiter(call, waiter, &found.tid))
        return false;
    lh_core_set_ended(row, result, now);
    lh_core_set_held(call, wish, now, row);
    lh_core_set(row, SCOPE_QUEUED, BoolGetDatum(found.has_others));
    return lh_core_update(call, &call->scope, row, true);
}

/* The rows of the function in SQL: that of the release, then that of the grant. */
static void answer(struct lh_core_call *call, const struct lh_core_wish *wish, const struct lh_core_row *row)
{
    enum { PART, END_REASON, WAKE, LH_CORE_ANSWER_COLUMNS, COLUMNS };
    Datum values[COLUMNS] = {0};
    bool nulls[COLUMNS];

    if (call->row_type->natts != COLUMNS)
        ereport(ERROR, errcode(ERRCODE_DATATYPE_MISMATCH), errmsg("hand_over_batch() has %d columns", COLUMNS));
    memset(nulls, true, sizeof(nulls));
    nulls[PART] = nulls[WAKE] = nulls[N] = nulls[OUTCOME] = false;
    values[PART] = CStringGetTextDatum("release");
    values[WAKE] = BoolGetDatum(true);
    values[N] = Int32GetDatum(1);
    values[OUTCOME] = CStringGetTextDatum("ok");
    lh_core_answer(call, 0, values, nulls);

    lh_core_tell_grant(wish, DatumGetInt64(row->values[SCOPE_TOKEN]),
                       DatumGetTimestampTz(row->values[SCOPE_ACQUIRED_AT]), values + N, nulls + N);
    nulls[WAKE] = true;
    nulls[AHEAD] = false;
    values[PART] = CStringGetTextDatum("acquire");
    values[N] = Int32GetDatum(1);
    values[AHEAD] = Int32GetDatum(0);
    tuplestore_putvalues(call->rows, call->row_type, values, nulls);
}

static bool is_same_text(Datum a, Datum b)
{
    return DatumGetBool(DirectFunctionCall2Coll(texteq, C_COLLATION_OID, a, b));
}

/* One release, and the request of one waiter for the same scope: all that is judged before any row is read. */
static bool is_plain(const struct lh_core_wishes *wishes, const struct lh_core_array *ns,
                     const struct lh_core_array *key, const struct lh_core_array *lease_key)
{
    return wishes->coordinator != (Datum)0 && !ns->nulls[0] && !key->nulls[0] && !lease_key->nulls[0] &&
           !wishes->ns.nulls[0] && !wishes->key.nulls[0] && is_same_text(ns->values[0], wishes->ns.values[0]) &&
           is_same_text(key->values[0], wishes->key.values[0]);
}

/* Its two events cannot be told from one row: the releases are repeated by themselves. */
static void refuse_watched(const struct lh_core_call *call)
{
    Snapshot latest = RegisterSnapshot(GetLatestSnapshot());
    bool is_watched = lh_core_has_row(call->oids->watch, NULL, latest);

    UnregisterSnapshot(latest);
    if (is_watched)
        ereport(ERROR, errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
                errmsg("somebody began to watch in the same instant"));
}

Datum lh_core_hand_over_batch(PG_FUNCTION_ARGS)
{
    static const struct lh_core_wish_arguments at = {
        RELEASER,   NEXT_NS,   NEXT_KEY,    NEXT_LEASE_KEY,  NEXT_OWNER,    NEXT_LABELS, NEXT_DURATION,
        NEXT_QUEUE, NEXT_WAIT, NEXT_TICKET, NEXT_PRINCIPALS, NEXT_AT_LEAST, NEXT_UNITS};
    struct lh_core_array ns = lh_core_array(fcinfo, NS, TEXTOID), key = lh_core_array(fcinfo, KEY, TEXTOID),
                         lease_key = lh_core_array(fcinfo, LEASE_KEY, UUIDOID),
                         failed = lh_core_array(fcinfo, FAILED, BOOLOID), value = lh_core_array(fcinfo, VALUE, TEXTOID);
    struct lh_core_wishes wishes;
    struct lh_core_wish wish;
    struct lh_core_result result;
    struct lh_core_row row;
    struct lh_core_call call;
    bool is_single;

    lh_core_wishes(fcinfo, &at, &wishes);
    is_single = wishes.count == 1 && ns.n == 1 && key.n == 1 && lease_key.n == 1 && failed.n == 1 && value.n == 1;
    if (!lh_core_begin(&call, fcinfo, "hand_over_batch", is_single ? 1 : 0))
        return (Datum)0;
    if (is_plain(&wishes, &ns, &key, &lease_key) && lh_core_wish(&wishes, 0, &wish) && wish.units == 0 &&
        !wish.rules->has_history && lh_core_result(&failed, &value, 0, wish.rules, &result) &&
        !lh_core_has_row(call.oids->watch, NULL, call.snapshot)) {
        Relation waiter = lh_core_table(call.oids->waiter, RowExclusiveLock);
        if (pass_on(&call, waiter, &wish, &result, ns.values[0], key.values[0], lease_key.values[0], &row)) {
            answer(&call, &wish, &row);
            refuse_watched(&call);
        }
        table_close(waiter, NoLock);
    }
    return lh_core_end(&call, NULL);
}
