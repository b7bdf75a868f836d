/*
 * What the common path needs to know: this life of the database, and the rules of a namespace. SQL says both
 * (migrations/functions/core.sql); they are kept for as long as the rows that they come from are the same versions. A
 * row's version is its place and the transaction that wrote it; both are read in the call's own snapshot, so a change
 * counts from its commit on, as in SQL.
 */
#include "core.h"

#include "access/heapam.h"
#include "catalog/pg_am.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* Namespaces whose rules are kept, about 900 bytes each; beyond it all are read again. */
#define RULES_MAX 4096
/* Pages of leasehold.policy that are worth reading in each call; beyond it SQL does. */
#define PAGES_MAX 16

static struct lh_core_life life;
static uint64 life_version, rules_version;
static uint64 life_generation, rules_generation;
static HTAB *rules;
static SPIPlanPtr life_plan, rules_plan;

/* Of all rows that the snapshot sees; 0 where there are too many to look at. */
static uint64 version_of(Oid oid, Snapshot snapshot, uint64 version)
{
    Relation table = lh_core_table(oid, AccessShareLock);
    TableScanDesc scan = table_beginscan_strat(table, snapshot, 0, NULL, true, false);
    /* The scan has asked the kernel for the size already. */
    bool is_small = table->rd_rel->relam == HEAP_TABLE_AM_OID && ((HeapScanDesc)scan)->rs_nblocks <= PAGES_MAX;
    TupleTableSlot *slot = table_slot_create(table, NULL);

    while (is_small && table_scan_getnextslot(scan, ForwardScanDirection, slot)) {
        HeapTuple tuple = ExecFetchSlotHeapTuple(slot, false, NULL);
        uint64 place =
            (uint64)ItemPointerGetBlockNumber(&slot->tts_tid) << 16 | ItemPointerGetOffsetNumber(&slot->tts_tid);
        version = hash_combine64(version, place << 32 | HeapTupleHeaderGetRawXmin(tuple->t_data));
    }
    table_endscan(scan);
    ExecDropSingleTupleTableSlot(slot);
    table_close(table, NoLock);
    return !is_small ? 0 : version == 0 ? 1 : version;
}

/* A statement whose plan is kept; it finds one row, or none. Who owns the function in SQL may have replaced it. */
static bool run(SPIPlanPtr *plan, const char *sql, Oid type, Datum argument, const Oid *types, int count)
{
    if (*plan == NULL) {
        SPIPlanPtr made = SPI_prepare(sql, OidIsValid(type) ? 1 : 0, &type);
        if (made == NULL)
            elog(ERROR, "leasehold_core: cannot prepare \"%s\"", sql);
        SPI_keepplan(made);
        *plan = made;
    }
    if (SPI_execute_plan(*plan, &argument, NULL, true, 1) != SPI_OK_SELECT)
        elog(ERROR, "leasehold_core: cannot run \"%s\"", sql);
    for (int i = 0; i < count; i++)
        if (SPI_gettypeid(SPI_tuptable->tupdesc, i + 1) != types[i])
            elog(ERROR, "leasehold_core: column %d of \"%s\" is of another type", i + 1, sql);
    return SPI_processed == 1;
}

static Datum column(int number, bool *is_null)
{
    bool unused;
    return SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, number, is_null == NULL ? &unused : is_null);
}

bool lh_core_life(const struct lh_core_oids *oids, Snapshot snapshot, struct lh_core_life *answer, const char **reason)
{
    static const Oid types[] = {INT8OID, TIMESTAMPTZOID, BOOLOID, INT4OID};
    static bool is_same, is_of_contract;
    uint64 version = version_of(oids->incarnation, snapshot, 0);

    if (version == 0 || version != life_version || life_generation != lh_core_generation()) {
        life_generation = lh_core_generation();
        life_version = 0;
        is_same = is_of_contract = false;
        SPI_connect();
        if (run(&life_plan, "select id, started_at, is_same, contract from leasehold_internal.core_life()", InvalidOid,
                (Datum)0, types, lengthof(types))) {
            life.id = DatumGetInt64(column(1, NULL));
            life.started_at = DatumGetTimestampTz(column(2, NULL));
            is_same = DatumGetBool(column(3, NULL));
            is_of_contract = DatumGetInt32(column(4, NULL)) == LH_CORE_CONTRACT;
        }
        SPI_finish();
        /* Not kept where it may become true without a change of the row. */
        if (is_same && is_of_contract)
            life_version = version;
    }
    if (!is_of_contract)
        *reason = "the schema's functions are of another contract than the extension: update the older one";
    else if (!is_same)
        *reason = "the database has begun a new life that no daemon has noticed yet";
    *answer = life;
    return is_same && is_of_contract;
}

static void make_rules(void)
{
    HASHCTL control = {
        .keysize = LH_CORE_NAMESPACE_MAX + 1, .entrysize = sizeof(struct lh_core_rules), .hcxt = TopMemoryContext};
#ifdef HASH_STRINGS
    rules = hash_create("leasehold_core rules", 64, &control, HASH_ELEM | HASH_CONTEXT | HASH_STRINGS);
#else
    rules = hash_create("leasehold_core rules", 64, &control, HASH_ELEM | HASH_CONTEXT);
#endif
}

bool lh_core_refresh_rules(const struct lh_core_oids *oids, Snapshot snapshot)
{
    uint64 version = version_of(oids->policy, snapshot, 1);

    /* mark_hooks() writes a row there with each change of a hook: of those there may be thousands. */
    if (version != 0)
        version = version_of(oids->turn, snapshot, version);
    if (version == 0)
        return false;
    if (version != rules_version || rules_generation != lh_core_generation() || rules == NULL ||
        hash_get_num_entries(rules) >= RULES_MAX) {
        if (rules != NULL)
            hash_destroy(rules);
        rules = NULL;
        make_rules();
        rules_version = version;
        rules_generation = lh_core_generation();
    }
    return true;
}

static void read_interval(int number, Interval *interval, int64 *us, bool *is_there)
{
    bool is_null;
    Datum value = column(number, &is_null);

    if (is_there != NULL)
        *is_there = !is_null;
    if (is_null)
        return;
    *interval = *DatumGetIntervalP(value);
    if (us != NULL)
        *us = DatumGetInt64(column(number + 1, NULL));
}

static void read_slots(int number, struct lh_core_rules *read)
{
    bool is_null;
    Datum value = column(number, &is_null);
    bytea *slots;

    read->has_slots = !is_null;
    if (is_null)
        return;
    slots = DatumGetByteaPP(value);
    if (VARSIZE_ANY_EXHDR(slots) != LH_CORE_SLOT_BYTES)
        elog(ERROR, "leasehold_core: the slots of a namespace have %d bytes", (int)VARSIZE_ANY_EXHDR(slots));
    memcpy(read->slots, VARDATA_ANY(slots), LH_CORE_SLOT_BYTES);
}

static void read_rules(struct lh_core_rules *read)
{
    bool has_no_capacity;

    read->is_known = true;
    read->is_plain = DatumGetBool(column(1, NULL));
    read->is_manual = DatumGetBool(column(2, NULL));
    read->capacity = DatumGetInt32(column(3, &has_no_capacity));
    read->has_capacity = !has_no_capacity;
    read->has_history = DatumGetBool(column(4, NULL));
    read->has_acquire_hook = DatumGetBool(column(5, NULL));
    read->has_heartbeat_hook = DatumGetBool(column(6, NULL));
    read->has_release_ok_hook = DatumGetBool(column(7, NULL));
    read->has_release_fail_hook = DatumGetBool(column(8, NULL));
    read_interval(9, &read->min_duration, NULL, NULL);
    read_interval(10, &read->max_duration, NULL, NULL);
    read_interval(11, &read->grace, &read->grace_us, NULL);
    read_interval(13, &read->dead_after, &read->dead_after_us, &read->has_dead_after);
    read_interval(15, &read->max_hold, &read->max_hold_us, NULL);
    read->may_wait = DatumGetBool(column(17, NULL));
    read_slots(18, read);
}

/* NULL where it cannot be a namespace. What is returned lasts until lh_core_refresh_rules(). */
const struct lh_core_rules *lh_core_rules(Datum ns)
{
    static const char sql[] = "select is_plain, is_manual, capacity, has_history, has_acquire_hook, "
                              "has_heartbeat_hook, has_release_ok_hook,"
                              " has_release_fail_hook, min_duration, max_duration, grace, grace_us, dead_after, "
                              "dead_after_us, max_hold, max_hold_us, may_wait, slots"
                              " from leasehold_internal.core_rules($1)";
    static const Oid types[] = {BOOLOID,     BOOLOID, INT4OID,     BOOLOID,     BOOLOID,     BOOLOID,
                                BOOLOID,     BOOLOID, INTERVALOID, INTERVALOID, INTERVALOID, INT8OID,
                                INTERVALOID, INT8OID, INTERVALOID, INT8OID,     BOOLOID,     BYTEAOID};
    char name[LH_CORE_NAMESPACE_MAX + 1] = "";
    text *value = DatumGetTextPP(ns);
    struct lh_core_rules fresh = {.is_known = false}, *found;

    if (VARSIZE_ANY_EXHDR(value) > LH_CORE_NAMESPACE_MAX)
        return NULL;
    memcpy(name, VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value));
    found = hash_search(rules, name, HASH_FIND, NULL);
    if (found != NULL)
        return found->is_known ? found : NULL;
    SPI_connect();
    if (run(&rules_plan, sql, TEXTOID, ns, types, lengthof(types)))
        read_rules(&fresh);
    SPI_finish();
    /* Beyond the limit a call reads them for itself. */
    memcpy(fresh.namespace, name, sizeof(name));
    found = hash_search(rules, name, HASH_ENTER, NULL);
    *found = fresh;
    return found->is_known ? found : NULL;
}
