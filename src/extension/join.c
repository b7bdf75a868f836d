/*
 * Waits behind a holder: the last places in the queue of a scope that somebody holds exclusively. The twin is the first statement for a batch
 * of one in migrations/functions/acquire_batch.sql, and what acquire_general() does about items that are queued.
 */
#include "core.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

/* live_tickets() in migrations/functions/queue.sql: places beyond are told as so many ahead. */
#define AHEAD_MAX 1000
#define DAY_US INT64CONST(86400000000)

/* --- the table of waiters, open from the first join of a call to the last --- */

static void open_joins(struct lh_core_call *call, struct lh_core_joins *joins)
{
    joins->waiter = lh_core_table(call->oids->waiter, RowExclusiveLock);
    joins->slot = table_slot_create(joins->waiter, NULL);
    joins->estate = CreateExecutorState();
    joins->result_rel = makeNode(ResultRelInfo);
    InitResultRelInfo(joins->result_rel, joins->waiter, 0, NULL, 0);
    ExecOpenIndices(joins->result_rel, true);
#if PG_VERSION_NUM < 140000
    joins->estate->es_result_relation_info = joins->result_rel;
#endif
}

void lh_core_close_joins(struct lh_core_joins *joins)
{
    if (joins->waiter == NULL)
        return;
    ExecCloseIndices(joins->result_rel);
    ExecResetTupleTable(joins->estate->es_tupleTable, false);
    FreeExecutorState(joins->estate);
    ExecDropSingleTupleTableSlot(joins->slot);
    table_close(joins->waiter, NoLock);
}

/* The lease key has a place in this queue. The lock of the scope's row, which all take who join, keeps another from inserting it meanwhile: a
   speculative insertion, as of ON CONFLICT, would write one WAL record more. */
static bool has_place(struct lh_core_joins *joins)
{
    ItemPointerData unused;

#if PG_VERSION_NUM >= 180000
    return !ExecCheckIndexConstraints(joins->result_rel, joins->slot, joins->estate, &unused, &joins->slot->tts_tid,
                                      NIL);
#elif PG_VERSION_NUM >= 140000
    return !ExecCheckIndexConstraints(joins->result_rel, joins->slot, joins->estate, &unused, NIL);
#else
    return !ExecCheckIndexConstraints(joins->slot, joins->estate, &unused, NIL);
#endif
}

static void insert(struct lh_core_call *call, struct lh_core_joins *joins)
{
    TupleTableSlot *slot = joins->slot;
    EState *estate = joins->estate;

    table_tuple_insert(joins->waiter, slot, call->command, 0, NULL);
#if PG_VERSION_NUM >= 160000
    list_free(ExecInsertIndexTuples(joins->result_rel, slot, estate, false, false, NULL, NIL, false));
#elif PG_VERSION_NUM >= 140000
    list_free(ExecInsertIndexTuples(joins->result_rel, slot, estate, false, false, NULL, NIL));
#else
    list_free(ExecInsertIndexTuples(slot, estate, false, NULL, NIL));
#endif
    ResetPerTupleExprContext(estate);
}

static void set(TupleTableSlot *slot, enum lh_core_waiter_column column, Datum value)
{
    slot->tts_values[column] = value;
    slot->tts_isnull[column] = value == (Datum)0;
}

static void fill(struct lh_core_joins *joins, const struct lh_core_wish *wish, Datum ns, Datum key, int64 ticket,
                 TimestampTz now)
{
    TupleTableSlot *slot = joins->slot;
    Interval wait = {.time = wish->wait_us};

    ExecClearTuple(slot);
    memset(slot->tts_isnull, true, WAITER_COLUMNS * sizeof(bool));
    set(slot, WAITER_NAMESPACE, ns);
    set(slot, WAITER_KEY, key);
    set(slot, WAITER_TICKET, Int64GetDatum(ticket));
    set(slot, WAITER_LEASE_KEY, wish->lease_key);
    set(slot, WAITER_COORDINATOR, wish->coordinator);
    set(slot, WAITER_ENQUEUED_AT, TimestampTzGetDatum(now));
    if (wish->has_wait)
        set(slot, WAITER_WAIT_UNTIL, TimestampTzGetDatum(lh_core_plus(now, &wait)));
    set(slot, WAITER_DURATION, IntervalPGetDatum(&wish->duration));
    set(slot, WAITER_OWNER, wish->owner);
    set(slot, WAITER_PRINCIPAL, wish->principal);
    slot->tts_values[WAITER_PRIORITY] = Int32GetDatum(0);
    slot->tts_isnull[WAITER_PRIORITY] = false;
    ExecStoreVirtualTuple(slot);
}

/* All are looked at before one is inserted, for the answer to each tells how many are before it, and SQL may change the place of one that has one. No
   ticket is drawn for it: no place has none. */
static bool has_one_a_place(struct lh_core_joins *joins, const struct lh_core_joiner *joiners, int count, Datum ns,
                            Datum key, TimestampTz now)
{
    for (int i = 0; i < count; i++) {
        fill(joins, &joiners[i].wish, ns, key, 0, now);
        if (has_place(joins))
            return true;
        ResetPerTupleExprContext(joins->estate);
    }
    return false;
}

/* Read after the lock of the scope's row: its waiters were there before. `is_live`: the coordinator that asks is. */
static int count_ahead(const struct lh_core_call *call, const struct lh_core_joins *joins, Datum coordinator, Datum ns,
                       Datum key, TimestampTz now, bool *is_live)
{
    Snapshot latest = RegisterSnapshot(GetLatestSnapshot());
    struct lh_core_queue queue;
    int ahead = 0;

    lh_core_queue_begin(call, joins->waiter, latest, ns, key, now, &queue);
    while (ahead < AHEAD_MAX && lh_core_queue_next(&queue))
        ahead += lh_core_queue_is_live(&queue) ? 1 : 0;
    *is_live = lh_core_queue_knows(&queue, coordinator);
    lh_core_queue_end(&queue);
    UnregisterSnapshot(latest);
    return ahead;
}

/* --- the answer --- */

static Datum liveness(TimestampTz now, TimestampTz suspected_at, TimestampTz overdue_at)
{
    return CStringGetTextDatum(now >= suspected_at ? "suspected_dead" : now >= overdue_at ? "overdue" : "alive");
}

static int64 us_of(const struct lh_core_row *row, enum lh_core_scope_column column)
{
    const Interval *interval = DatumGetIntervalP(row->values[column]);
    return interval->day * DAY_US + interval->time;
}

static Datum labels_of(const struct lh_core_row *row)
{
    Jsonb *labels = DatumGetJsonbP(row->values[SCOPE_LABELS]);
    return CStringGetTextDatum(JsonbToCString(NULL, &labels->root, VARSIZE(labels)));
}

enum { LH_CORE_ANSWER_COLUMNS, COLUMNS };

/* A row of leasehold_internal.answer, whose place is still to be set. */
struct place_answer {
    TupleDesc type;
    Datum values[COLUMNS];
    bool nulls[COLUMNS];
};

/* The holder as lease_facts() tells of it. */
static void tell_holder(const struct lh_core_call *call, const struct lh_core_rules *rules,
                        const struct lh_core_row *row, TimestampTz now, struct place_answer *told)
{
    static const int copied[][2] = {{TOKEN, SCOPE_TOKEN},
                                    {OWNER, SCOPE_OWNER},
                                    {PRINCIPAL, SCOPE_PRINCIPAL},
                                    {ACQUIRED_AT, SCOPE_ACQUIRED_AT},
                                    {DEADLINE, SCOPE_DEADLINE},
                                    {HEARTBEATS, SCOPE_HEARTBEATS},
                                    {HEARTBEAT_AT, SCOPE_HEARTBEAT_AT}};
    TimestampTz acquired_at = DatumGetTimestampTz(row->values[SCOPE_ACQUIRED_AT]),
                heartbeat_at = DatumGetTimestampTz(row->values[SCOPE_HEARTBEAT_AT]),
                deadline = DatumGetTimestampTz(row->values[SCOPE_DEADLINE]);
    Interval silence = lh_core_suspected_after(rules, DatumGetIntervalP(row->values[SCOPE_DURATION]));
    TimestampTz suspected_at = lh_core_plus(heartbeat_at, &silence),
                overdue_at = lh_core_plus(acquired_at, &rules->max_hold);
    Datum *values = told->values;
    bool *nulls = told->nulls;

    memset(told, 0, sizeof(*told));
    told->type = lookup_rowtype_tupdesc(TupleDescAttr(call->row_type, LH_CORE_MORE)->atttypid, -1);
    if (told->type->natts != COLUMNS)
        ereport(ERROR, errcode(ERRCODE_DATATYPE_MISMATCH), errmsg("leasehold_internal.answer has %d columns", COLUMNS));
    nulls[MESSAGE] = nulls[FIELD] = nulls[BOUND] = nulls[RESTS_IN] = nulls[SLOTS] = true;
    for (size_t i = 0; i < lengthof(copied); i++) {
        values[copied[i][0]] = row->values[copied[i][1]];
        nulls[copied[i][0]] = row->nulls[copied[i][1]];
    }
    values[OUTCOME] = CStringGetTextDatum("queued");
    values[EXPIRES_IN] = Int64GetDatum(deadline + us_of(row, SCOPE_GRACE) - now);
    nulls[EXPIRES_IN] = rules->is_manual;
    values[SUSPECTED_IN] = Int64GetDatum(Max(0, Min(suspected_at, overdue_at) - now));
    values[LABELS] = labels_of(row);
    values[DURATION] = Int64GetDatum(us_of(row, SCOPE_DURATION));
    values[GRACE] = Int64GetDatum(us_of(row, SCOPE_GRACE));
    values[REMAINING] = Int64GetDatum(deadline - now);
    values[HELD] = Int64GetDatum(now - acquired_at);
    values[SILENT] = Int64GetDatum(now - heartbeat_at);
    values[LIVENESS] = liveness(now, suspected_at, overdue_at);
    values[IS_MANUAL] = BoolGetDatum(rules->is_manual);
    values[MODE] = CStringGetTextDatum("exclusive");
    values[UNITS] = values[UNITS_FREE] = Int32GetDatum(0);
    nulls[UNITS_FREE] = !rules->has_capacity;
    values[HOLDERS] = Int32GetDatum(1);
}

/* A row of leasehold_internal.acquired that says all in its last column. */
static void answer(struct lh_core_call *call, int item, int64 ticket, int ahead, struct place_answer *told)
{
    Datum values[LH_CORE_MORE + 1] = {0};
    bool nulls[LH_CORE_MORE + 1];

    told->values[N] = values[N] = Int32GetDatum(item + 1);
    told->values[TICKET] = Int64GetDatum(ticket);
    told->values[AHEAD] = Int32GetDatum(ahead);
    values[OUTCOME] = told->values[OUTCOME];
    values[LH_CORE_MORE] = heap_copy_tuple_as_datum(heap_form_tuple(told->type, told->values, told->nulls), told->type);
    memset(nulls, true, sizeof(nulls));
    nulls[N] = nulls[OUTCOME] = nulls[LH_CORE_MORE] = false;
    lh_core_answer_wait(call, item, values, nulls);
}

/* --- the join --- */

/* Held by another, by nobody's leave but its own, and written in this life: all else is for SQL to judge. */
static bool may_wait(const struct lh_core_call *call, const struct lh_core_wish *wish, const struct lh_core_row *row)
{
    const Interval *duration, *grace;

    if (!lh_core_text_is(row, SCOPE_STATE, "held") || DatumGetBool(row->values[SCOPE_LAPSED]) ||
        lh_core_uuid_is(row, SCOPE_LEASE_KEY, wish->lease_key) || lh_core_has_ended(row, wish->lease_key) ||
        !row->nulls[SCOPE_AT_LEAST] || !row->nulls[SCOPE_HOLDERS] ||
        DatumGetInt32(row->values[SCOPE_REAP_FAILURES]) > 0)
        return false;
    duration = DatumGetIntervalP(row->values[SCOPE_DURATION]);
    grace = DatumGetIntervalP(row->values[SCOPE_GRACE]);
    return duration->month == 0 && grace->month == 0 && !row->nulls[SCOPE_INCARNATION] &&
           DatumGetInt64(row->values[SCOPE_INCARNATION]) == call->life.id;
}

/* Locks the row FOR NO KEY UPDATE, by the change where it needs one. What this transaction handed over is locked. */
static bool lock(struct lh_core_call *call, struct lh_core_row *row)
{
    if (DatumGetBool(row->values[SCOPE_QUEUED]))
        return lh_core_is_ours(call) || lh_core_lock(call, row, LockTupleNoKeyExclusive);
    lh_core_set(row, SCOPE_QUEUED, BoolGetDatum(true));
    return lh_core_update(call, row, false);
}

static bool may_all_wait(const struct lh_core_call *call, const struct lh_core_joiner *joiners, int count,
                         const struct lh_core_row *row)
{
    for (int i = 0; i < count; i++)
        if (!may_wait(call, &joiners[i].wish, row))
            return false;
    return true;
}

/* In the order of the items, which is that of their tickets (promise 6). */
static void take_places(struct lh_core_call *call, struct lh_core_joins *joins, const struct lh_core_joiner *joiners,
                        int count, Datum ns, Datum key, const struct lh_core_row *row, TimestampTz now)
{
    struct place_answer told;
    bool is_live;
    int ahead = count_ahead(call, joins, joiners[0].wish.coordinator, ns, key, now, &is_live);

    tell_holder(call, joiners[0].wish.rules, row, now, &told);
    for (int i = 0; i < count; i++) {
        const struct lh_core_wish *wish = &joiners[i].wish;
        int64 ticket = nextval_internal(call->oids->ticket, false);

        fill(joins, wish, ns, key, ticket, now);
        insert(call, joins);
        answer(call, joiners[i].item, ticket, ahead, &told);
        if (is_live && (!wish->has_wait || wish->wait_us > 0) && ahead < AHEAD_MAX)
            ahead++;
    }
    joins->count += count;
    ReleaseTupleDesc(told.type);
}

bool lh_core_join(struct lh_core_call *call, struct lh_core_joins *joins, const struct lh_core_joiner *joiners,
                  int count, Datum ns, Datum key, struct lh_core_row *row)
{
    const struct lh_core_wish *first = &joiners[0].wish;
    TimestampTz now;

    if (first->coordinator == (Datum)0 || !first->rules->may_wait || !may_all_wait(call, joiners, count, row) ||
        !lh_core_is_live(call, row, GetCurrentTimestamp()) || !lock(call, row))
        return false;
    if (joins->waiter == NULL)
        open_joins(call, joins);
    now = GetCurrentTimestamp();
    if (!lh_core_is_live(call, row, now) || has_one_a_place(joins, joiners, count, ns, key, now))
        return false;
    take_places(call, joins, joiners, count, ns, key, row, now);
    return true;
}
