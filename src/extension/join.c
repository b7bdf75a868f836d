/*
 * Waits behind a holder: the last places in the queue of a scope that somebody holds exclusively. The twin is the first statement for a batch
 * of one in migrations/functions/acquire_batch.sql, and what acquire_general() does about items that are queued.
 */
#include "core.h"

#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* live_tickets() in migrations/functions/queue.sql: places beyond are told as so many ahead. */
#define AHEAD_MAX 1000
#define DAY_US INT64CONST(86400000000)

/* --- the table of waiters --- */

static void open_waiters(struct lh_core_call *call)
{
    if (call->waiter.table != NULL)
        return;
    call->waiter.table = lh_core_table(call->oids->waiter, RowExclusiveLock);
    lh_core_open(call, &call->waiter, InvalidOid);
    lh_core_open_indexes(&call->waiter, true);
}

/* The lease key has a place in this queue. The lock of the scope's row, which all take who join, keeps another from inserting it meanwhile: a
   speculative insertion, as of ON CONFLICT, would write one WAL record more. */
static bool has_place(struct lh_core_heap *waiter, const struct lh_core_row *row)
{
    ItemPointerData unused;
    bool has;

    lh_core_make(waiter, row);
#if PG_VERSION_NUM >= 180000
    has = !ExecCheckIndexConstraints(waiter->result_rel, waiter->new_slot, waiter->estate, &unused,
                                     &waiter->new_slot->tts_tid, NIL);
#elif PG_VERSION_NUM >= 140000
    has = !ExecCheckIndexConstraints(waiter->result_rel, waiter->new_slot, waiter->estate, &unused, NIL);
#else
    has = !ExecCheckIndexConstraints(waiter->new_slot, waiter->estate, &unused, NIL);
#endif
    ResetPerTupleExprContext(waiter->estate);
    return has;
}

static void fill(const struct lh_core_wish *wish, Datum ns, Datum key, int64 ticket, TimestampTz now,
                 struct lh_core_row *row)
{
    Interval wait = {.time = wish->wait_us};

    memset(row->nulls, true, sizeof(row->nulls));
    lh_core_set(row, WAITER_NAMESPACE, ns);
    lh_core_set(row, WAITER_KEY, key);
    lh_core_set(row, WAITER_TICKET, Int64GetDatum(ticket));
    lh_core_set(row, WAITER_LEASE_KEY, wish->lease_key);
    lh_core_set(row, WAITER_COORDINATOR, wish->coordinator);
    lh_core_set(row, WAITER_ENQUEUED_AT, TimestampTzGetDatum(now));
    if (wish->has_wait)
        lh_core_set(row, WAITER_WAIT_UNTIL, TimestampTzGetDatum(lh_core_plus(now, &wait)));
    lh_core_set(row, WAITER_DURATION, IntervalPGetDatum(&wish->duration));
    lh_core_set_or_null(row, WAITER_OWNER, wish->owner);
    lh_core_set_or_null(row, WAITER_PRINCIPAL, wish->principal);
    lh_core_set(row, WAITER_PRIORITY, Int32GetDatum(0));
}

/* All are looked at before one is inserted, for the answer to each tells how many are before it, and SQL may change the place of one that has one. No
   ticket is drawn for it: no place has none. */
static bool has_one_a_place(struct lh_core_call *call, const struct lh_core_joiner *joiners, int count, Datum ns,
                            Datum key, TimestampTz now)
{
    struct lh_core_row row;

    for (int i = 0; i < count; i++) {
        fill(&joiners[i].wish, ns, key, 0, now, &row);
        if (has_place(&call->waiter, &row))
            return true;
    }
    return false;
}

/* Read after the lock of the scope's row: its waiters were there before. `is_live`: the coordinator that asks is. */
static int count_ahead(const struct lh_core_call *call, Datum coordinator, Datum ns, Datum key, TimestampTz now,
                       bool *is_live)
{
    Snapshot latest = RegisterSnapshot(GetLatestSnapshot());
    struct lh_core_queue queue;
    int ahead = 0;

    lh_core_queue_begin(call, call->waiter.table, latest, ns, key, now, &queue);
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
    Datum values[COLUMNS];
    bool nulls[COLUMNS];
};

/* The holder as lease_facts() tells of it. */
static void tell_holder(const struct lh_core_rules *rules, const struct lh_core_row *row, TimestampTz now,
                        struct place_answer *told)
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
        return lh_core_is_ours(call) || lh_core_lock(call, &call->scope, row, LockTupleNoKeyExclusive);
    lh_core_set(row, SCOPE_QUEUED, BoolGetDatum(true));
    return lh_core_update(call, &call->scope, row, false);
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
static void take_places(struct lh_core_call *call, const struct lh_core_joiner *joiners, int count, Datum ns, Datum key,
                        const struct lh_core_row *row, TimestampTz now)
{
    struct place_answer told;
    struct lh_core_row place;
    bool is_live;
    int ahead = count_ahead(call, joiners[0].wish.coordinator, ns, key, now, &is_live);

    tell_holder(joiners[0].wish.rules, row, now, &told);
    for (int i = 0; i < count; i++) {
        const struct lh_core_wish *wish = &joiners[i].wish;
        int64 ticket = nextval_internal(call->oids->ticket, false);

        fill(wish, ns, key, ticket, now, &place);
        lh_core_insert(call, &call->waiter, &place);
        told.values[TICKET] = Int64GetDatum(ticket);
        told.values[AHEAD] = Int32GetDatum(ahead);
        lh_core_answer_more(call, joiners[i].item, false, told.values, told.nulls);
        if (is_live && (!wish->has_wait || wish->wait_us > 0) && ahead < AHEAD_MAX)
            ahead++;
    }
    call->place_count += count;
}

bool lh_core_join(struct lh_core_call *call, const struct lh_core_joiner *joiners, int count, Datum ns, Datum key,
                  struct lh_core_row *row)
{
    const struct lh_core_wish *first = &joiners[0].wish;
    TimestampTz now;

    if (first->coordinator == (Datum)0 || !first->rules->may_wait || !may_all_wait(call, joiners, count, row) ||
        !lh_core_is_live(call, row, GetCurrentTimestamp()) || !lock(call, row))
        return false;
    open_waiters(call);
    now = GetCurrentTimestamp();
    if (!lh_core_is_live(call, row, now) || has_one_a_place(call, joiners, count, ns, key, now))
        return false;
    take_places(call, joiners, count, ns, key, row, now);
    return true;
}
