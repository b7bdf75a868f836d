/* A scope's row: found by its name, and its next version written. */
#include "core.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#define CREATION_SLOTS 65536 /* rows of leasehold.creation; migrations/functions/queue.sql, creation_slot() */

static void read_row(const struct lh_core_heap *heap, struct lh_core_row *row)
{
    TupleTableSlot *slot = heap->found_slot;
    int count = slot->tts_tupleDescriptor->natts;

    slot_getallattrs(slot);
    row->tid = slot->tts_tid;
    if (heap->places == NULL) {
        memcpy(row->values, slot->tts_values, count * sizeof(row->values[0]));
        memcpy(row->nulls, slot->tts_isnull, count * sizeof(row->nulls[0]));
        return;
    }
    for (int i = 0; i < count; i++) {
        row->values[i] = slot->tts_values[heap->places[i]];
        row->nulls[i] = slot->tts_isnull[heap->places[i]];
    }
}

static bool find(struct lh_core_heap *heap, ScanKeyData *keys, int count, struct lh_core_row *row)
{
    index_rescan(heap->scan, keys, count, NULL, 0);
    if (!index_getnext_slot(heap->scan, ForwardScanDirection, heap->found_slot))
        return false;
    read_row(heap, row);
    return true;
}

bool lh_core_find(struct lh_core_call *call, Datum ns, Datum key, struct lh_core_row *row)
{
    ScanKeyData keys[2];

    lh_core_scope_keys(keys, ns, key);
    return find(&call->scope, keys, lengthof(keys), row);
}

bool lh_core_find_share(struct lh_core_call *call, Datum ns, Datum key, Datum lease_key, struct lh_core_row *row)
{
    ScanKeyData keys[3];

    lh_core_share_keys(keys, ns, key, lease_key);
    return find(&call->share, keys, lengthof(keys), row);
}

bool lh_core_lock(struct lh_core_call *call, struct lh_core_heap *heap, struct lh_core_row *row, LockTupleMode mode)
{
    TM_FailureData failure;
    ItemPointerData tid = row->tid;

    if (table_tuple_lock(heap->table, &tid, call->snapshot, heap->found_slot, call->command, mode, LockWaitSkip, 0,
                         &failure) != TM_Ok)
        return false;
    read_row(heap, row);
    return true;
}

bool lh_core_is_ours(const struct lh_core_call *call)
{
    HeapTuple tuple = ExecFetchSlotHeapTuple(call->scope.found_slot, false, NULL);
    uint16 mask = tuple->t_data->t_infomask;

    return TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data)) &&
           ((mask & HEAP_XMAX_INVALID) != 0 || HEAP_XMAX_IS_LOCKED_ONLY(mask));
}

static void add_index_entries(struct lh_core_heap *heap, bool is_update, bool only_summarizing)
{
    if (heap->estate == NULL)
        lh_core_open_indexes(heap, false);
#if PG_VERSION_NUM >= 160000
    list_free(ExecInsertIndexTuples(heap->result_rel, heap->new_slot, heap->estate, is_update, false, NULL, NIL,
                                    only_summarizing));
#elif PG_VERSION_NUM >= 140000
    list_free(ExecInsertIndexTuples(heap->result_rel, heap->new_slot, heap->estate, is_update, false, NULL, NIL));
#else
    list_free(ExecInsertIndexTuples(heap->new_slot, heap->estate, false, NULL, NIL));
#endif
    ResetPerTupleExprContext(heap->estate);
}

/* What the executor would check; here in builds with assertions, and after each soak for all rows. */
static void check_constraints(const struct lh_core_heap *heap, const struct lh_core_row *row)
{
#ifdef USE_ASSERT_CHECKING
    TupleDesc desc = RelationGetDescr(heap->table);

    for (int i = 0; i < desc->natts; i++)
        Assert(!TupleDescAttr(desc, heap->places == NULL ? i : heap->places[i])->attnotnull || !row->nulls[i]);
    if (desc->natts == SCOPE_COLUMNS) {
        bool is_held = lh_core_text_is(row, SCOPE_STATE, "held");
        Assert(is_held == !row->nulls[SCOPE_LEASE_KEY]);
        Assert(!is_held || DatumGetInt64(row->values[SCOPE_TOKEN]) > 0);
    }
#endif
}

void lh_core_make(struct lh_core_heap *heap, const struct lh_core_row *row)
{
    Datum values[LH_CORE_COLUMNS_MAX];
    bool nulls[LH_CORE_COLUMNS_MAX];
    HeapTuple tuple;

    for (int i = 0; i < RelationGetNumberOfAttributes(heap->table); i++) {
        int place = heap->places == NULL ? i : heap->places[i];
        values[place] = row->values[i];
        nulls[place] = row->nulls[i];
    }
    tuple = heap_form_tuple(RelationGetDescr(heap->table), values, nulls);
    tuple->t_tableOid = RelationGetRelid(heap->table);
    check_constraints(heap, row);
    ExecStoreHeapTuple(tuple, heap->new_slot, true);
}

/* heap_update() that does not wait answers that somebody has the row, as its callers in PostgreSQL never ask it: a build
   with assertions ends there. In such a one the row is locked first, which costs a WAL record. */
static bool may_update(const struct lh_core_call *call, const struct lh_core_heap *heap, const struct lh_core_row *row)
{
#ifdef USE_ASSERT_CHECKING
    TM_FailureData failure;
    ItemPointerData tid = row->tid;
    TupleTableSlot *slot = table_slot_create(heap->table, NULL);
    bool is_locked = table_tuple_lock(heap->table, &tid, call->snapshot, slot, call->command, LockTupleNoKeyExclusive,
                                      LockWaitSkip, 0, &failure) == TM_Ok;
    ExecDropSingleTupleTableSlot(slot);
    return is_locked;
#else
    return true;
#endif
}

#ifdef USE_ASSERT_CHECKING
#define WAITS_FOR_NOBODY true /* it is locked */
#else
#define WAITS_FOR_NOBODY false
#endif

/* With `is_locked` it waits for nobody either: the lock keeps all others off. */
bool lh_core_update(struct lh_core_call *call, struct lh_core_heap *heap, const struct lh_core_row *row, bool is_locked)
{
    TM_FailureData failure;
    LockTupleMode mode;
    ItemPointerData tid = row->tid;
    TM_Result result;
#if PG_VERSION_NUM >= 160000
    TU_UpdateIndexes update_indexes;
#else
    bool update_indexes;
#endif

    if (!is_locked && !may_update(call, heap, row))
        return false;
    lh_core_make(heap, row);
    result = table_tuple_update(heap->table, &tid, heap->new_slot, call->command, call->snapshot, InvalidSnapshot,
                                is_locked || WAITS_FOR_NOBODY, &failure, &mode, &update_indexes);
    if (result != TM_Ok) {
        if (is_locked)
            elog(ERROR, "leasehold_core: a locked row could not be updated (%d)", (int)result);
        return false;
    }
#if PG_VERSION_NUM >= 160000
    if (update_indexes != TU_None)
        add_index_entries(heap, true, update_indexes == TU_Summarizing);
#else
    if (update_indexes)
        add_index_entries(heap, true, false);
#endif
    return true;
}

/* --- new rows --- */

static bool read_seed(Oid turn_oid, Snapshot snapshot, uint64 *seed)
{
    Relation turn = lh_core_table(turn_oid, AccessShareLock);
    TupleTableSlot *slot = table_slot_create(turn, NULL);
    TableScanDesc scan = table_beginscan_strat(turn, snapshot, 0, NULL, true, false);
    bool is_there = false;

    while (!is_there && table_scan_getnextslot(scan, ForwardScanDirection, slot)) {
        text *name;
        slot_getallattrs(slot);
        name = DatumGetTextPP(slot->tts_values[0]);
        is_there = !slot->tts_isnull[1] && VARSIZE_ANY_EXHDR(name) == strlen("creation") &&
                   memcmp(VARDATA_ANY(name), "creation", strlen("creation")) == 0;
        if (is_there)
            *seed = (uint64)DatumGetInt64(slot->tts_values[1]);
    }
    table_endscan(scan);
    ExecDropSingleTupleTableSlot(slot);
    table_close(turn, NoLock);
    return is_there;
}

/* leasehold_internal.creation_slot(). */
static int32 slot_number(Datum ns, Datum key, uint64 seed)
{
    text *ns_text = DatumGetTextPP(ns), *key_text = DatumGetTextPP(key);
    int ns_size = VARSIZE_ANY_EXHDR(ns_text), key_size = VARSIZE_ANY_EXHDR(key_text);
    unsigned char *name = palloc(ns_size + 1 + key_size);
    uint64 hash;

    memcpy(name, VARDATA_ANY(ns_text), ns_size);
    name[ns_size] = '\n';
    memcpy(name + ns_size + 1, VARDATA_ANY(key_text), key_size);
    hash = DatumGetUInt64(hash_any_extended(name, ns_size + 1 + key_size, seed));
    pfree(name);
    return (int32)(hash & (CREATION_SLOTS - 1));
}

/* Locks the slot as the SQL functions do, and holds it to the transaction's end. */
static bool lock_slot(const struct lh_core_call *call, int32 number)
{
    Relation creation = lh_core_table(call->oids->creation, RowShareLock);
    Relation pkey = index_open(call->oids->creation_pkey, RowShareLock);
    TupleTableSlot *slot = table_slot_create(creation, NULL);
    ScanKeyData key;
    IndexScanDesc scan;
    bool is_locked = false;

    ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(number));
    scan = lh_core_beginscan(creation, pkey, call->snapshot, 1);
    index_rescan(scan, &key, 1, NULL, 0);
    if (index_getnext_slot(scan, ForwardScanDirection, slot)) {
        TM_FailureData failure;
        ItemPointerData tid = slot->tts_tid;
        is_locked = table_tuple_lock(creation, &tid, call->snapshot, slot, call->command, LockTupleExclusive,
                                     LockWaitSkip, 0, &failure) == TM_Ok;
    }
    index_endscan(scan);
    ExecDropSingleTupleTableSlot(slot);
    index_close(pkey, NoLock);
    table_close(creation, NoLock);
    return is_locked;
}

/* Looked at again under the lock: the one who had it before may have committed the row. */
static bool is_created(const struct lh_core_call *call, Datum ns, Datum key)
{
    Snapshot latest = RegisterSnapshot(GetLatestSnapshot());
    bool is_there = lh_core_has_entry(call->scope.table, call->oids->scope_pkey, latest, ns, key);

    UnregisterSnapshot(latest);
    return is_there;
}

bool lh_core_take_name(struct lh_core_call *call, Datum ns, Datum key)
{
    uint64 seed;

    return read_seed(call->oids->turn, call->snapshot, &seed) && lock_slot(call, slot_number(ns, key, seed)) &&
           !is_created(call, ns, key);
}

void lh_core_insert(struct lh_core_call *call, struct lh_core_heap *heap, const struct lh_core_row *row)
{
    lh_core_make(heap, row);
    table_tuple_insert(heap->table, heap->new_slot, call->command, 0, NULL);
    add_index_entries(heap, false, false);
}

/* --- what a row says --- */

bool lh_core_text_is(const struct lh_core_row *row, int column, const char *text)
{
    struct varlena *value;

    if (row->nulls[column])
        return false;
    value = PG_DETOAST_DATUM_PACKED(row->values[column]);
    return VARSIZE_ANY_EXHDR(value) == strlen(text) && memcmp(VARDATA_ANY(value), text, strlen(text)) == 0;
}

bool lh_core_uuid_is(const struct lh_core_row *row, int column, Datum uuid)
{
    return !row->nulls[column] &&
           memcmp(DatumGetUUIDP(row->values[column]), DatumGetUUIDP(uuid), sizeof(pg_uuid_t)) == 0;
}

bool lh_core_is_held_by(const struct lh_core_row *row, Datum lease_key)
{
    return lh_core_uuid_is(row, SCOPE_LEASE_KEY, lease_key) && !DatumGetBool(row->values[SCOPE_LAPSED]);
}

TimestampTz lh_core_plus(TimestampTz at, const Interval *interval)
{
    return DatumGetTimestampTz(
        DirectFunctionCall2(timestamptz_pl_interval, TimestampTzGetDatum(at), IntervalPGetDatum(interval)));
}

/* The expiry counts from the start of this life where the lease was not renewed in it. */
static bool is_before_expiry(const struct lh_core_call *call, const struct lh_core_row *row, int incarnation,
                             int deadline, int duration, int grace, TimestampTz now)
{
    const Interval *allowed = DatumGetIntervalP(row->values[grace]);
    TimestampTz end;

    if (!row->nulls[incarnation] && DatumGetInt64(row->values[incarnation]) == call->life.id)
        end = DatumGetTimestampTz(row->values[deadline]);
    else
        end = lh_core_plus(call->life.started_at, DatumGetIntervalP(row->values[duration]));
    return now < lh_core_plus(end, allowed);
}

bool lh_core_is_live(const struct lh_core_call *call, const struct lh_core_row *row, TimestampTz now)
{
    return is_before_expiry(call, row, SCOPE_INCARNATION, SCOPE_DEADLINE, SCOPE_DURATION, SCOPE_GRACE, now);
}

bool lh_core_is_live_share(const struct lh_core_call *call, const struct lh_core_row *row, TimestampTz now)
{
    return !DatumGetBool(row->values[SHARE_LAPSED]) &&
           is_before_expiry(call, row, SHARE_INCARNATION, SHARE_DEADLINE, SHARE_DURATION, SHARE_GRACE, now);
}
