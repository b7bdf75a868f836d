/* Which tables and indexes there are, and whether they are as the common path expects. */
#include "core.h"

#include "access/heapam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "nodes/primnodes.h"
#include "nodes/value.h"
#include "parser/parse_func.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/relcache.h"
#include "utils/syscache.h"

struct column {
    const char *name;
    Oid type;
    bool is_never_null;
};

#define COLUMN(number, ...) {__VA_ARGS__},
static const struct column scope_columns[] = {LH_CORE_SCOPE_COLUMNS(COLUMN)};
static const struct column share_columns[] = {LH_CORE_SHARE_COLUMNS(COLUMN)};
static const struct column waiter_columns[] = {LH_CORE_WAITER_COLUMNS(COLUMN)};
static const struct column coordinator_columns[] = {
    {"id", UUIDOID, true},
    {"host", TEXTOID},
    {"pid", INT4OID},
    {"version", TEXTOID},
    {"started_at", TIMESTAMPTZOID},
    {"seen_at", TIMESTAMPTZOID, true},
    {"cannot_write", BOOLOID},
    {"spread_read_at", TIMESTAMPTZOID},
};
static const struct column creation_columns[] = {{"slot", INT4OID, true}};
static const struct column turn_columns[] = {{"name", TEXTOID, true}, {"seed", INT8OID}};

static struct lh_core_oids known;
static int scope_places[SCOPE_COLUMNS];
static bool is_known;
static bool has_callback;
static uint64 generation = 1;

static void on_relcache_change(Datum arg, Oid relation)
{
    const Oid *oids = (const Oid *)&known;

    if (relation == InvalidOid)
        is_known = false;
    for (size_t i = 0; i < sizeof(known) / sizeof(Oid); i++)
        if (oids[i] == relation)
            is_known = false;
}

/* The functions in SQL may be of another contract now. */
static void on_function_change(Datum arg, int cache, uint32 hash)
{
    generation++;
}

uint64 lh_core_generation(void)
{
    return generation;
}

/* A table that is written or read as it is: no triggers, rules, row security or inheritance would have a say. */
static const char *table_problem(Relation table)
{
    if (table->rd_rel->relkind != RELKIND_RELATION || table->rd_rel->relam != HEAP_TABLE_AM_OID)
        return "is no ordinary table";
    if (table->trigdesc != NULL)
        return "has triggers";
    if (table->rd_rules != NULL)
        return "has rules";
    if (table->rd_rel->relrowsecurity)
        return "has row security";
    if (table->rd_rel->relhassubclass || table->rd_rel->relispartition)
        return "has children or parents";
    return NULL;
}

static bool is_column(Form_pg_attribute attribute, const struct column *column)
{
    return !attribute->attisdropped && attribute->attgenerated == '\0' && attribute->atttypid == column->type &&
           (!column->is_never_null || attribute->attnotnull) && strcmp(NameStr(attribute->attname), column->name) == 0;
}

/* Returns true if there are just these columns: in this order, or where `places`, set here, says. */
static bool has_columns(Relation table, const struct column *columns, int count, int *places)
{
    TupleDesc desc = RelationGetDescr(table);

    if (desc->natts != count)
        return false;
    for (int i = 0; i < count; i++) {
        int place = places == NULL ? i : 0;
        while (places != NULL && place < count - 1 && !is_column(TupleDescAttr(desc, place), &columns[i]))
            place++;
        if (!is_column(TupleDescAttr(desc, place), &columns[i]))
            return false;
        if (places != NULL)
            places[i] = place;
    }
    return true;
}

/* A valid unique index of just these columns, in this order. */
static bool is_key(Relation index, int columns, const AttrNumber *numbers)
{
    Form_pg_index form = index->rd_index;

    if (!form->indisvalid || !form->indisunique || form->indnkeyatts != columns || form->indnatts != columns ||
        index->rd_rel->relam != BTREE_AM_OID || !heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL))
        return false;
    for (int i = 0; i < columns; i++)
        if (form->indkey.values[i] != numbers[i])
            return false;
    return true;
}

/* What is read by its columns, and by its primary key where there is one here. */
struct expected {
    const char *name;
    Oid table;
    Oid *pkey; /* found here, or NULL */
    const struct column *columns;
    int column_count, key_count; /* the key is the first columns */
    int *places;                 /* found here; NULL: they are in this order */
};

static const char *pkey_problem(Relation table, const struct expected *expected)
{
    static const AttrNumber first[] = {1, 2, 3};
    Relation pkey;
    bool is_right;

    list_free(RelationGetIndexList(table)); /* which finds it */
    *expected->pkey = table->rd_pkindex;
    if (!OidIsValid(table->rd_pkindex))
        return "has no primary key";
    pkey = index_open(table->rd_pkindex, AccessShareLock);
    is_right = is_key(pkey, expected->key_count, first);
    index_close(pkey, AccessShareLock);
    return is_right ? NULL : "has another primary key";
}

static const char *problem_of(const struct expected *expected)
{
    Relation table = table_open(expected->table, AccessShareLock);
    const char *problem = table_problem(table);

    if (problem == NULL && !has_columns(table, expected->columns, expected->column_count, expected->places))
        problem = "has other columns";
    if (problem == NULL && table->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
        problem = "is not logged";
    if (problem == NULL && expected->pkey != NULL)
        problem = pkey_problem(table, expected);
    table_close(table, AccessShareLock);
    return problem == NULL ? NULL : psprintf("leasehold.%s %s", expected->name, problem);
}

static bool find(Oid schema, const char *name, char kind, Oid *oid)
{
    *oid = get_relname_relid(name, schema);
    return OidIsValid(*oid) && get_rel_relkind(*oid) == kind;
}

/* Returns NULL unless the predicate is one condition of this kind. */
static Node *only_condition(List *predicate, NodeTag tag)
{
    Node *test = list_length(predicate) == 1 ? (Node *)linitial(predicate) : NULL;

    return test != NULL && nodeTag(test) == tag ? test : NULL;
}

static bool is_column_of(const void *node, int column)
{
    return IsA(node, Var) && ((const Var *)node)->varattno == column + 1;
}

/* One of other rows has no entry for some waiters with a priority. */
static bool is_by_priority(Form_pg_index form, List *predicate)
{
    OpExpr *test = (OpExpr *)only_condition(predicate, T_OpExpr);
    Node *value = test != NULL && list_length(test->args) == 2 ? lsecond(test->args) : NULL;

    return form->indnkeyatts >= 2 && form->indkey.values[0] == WAITER_NAMESPACE + 1 &&
           form->indkey.values[1] == WAITER_KEY + 1 && value != NULL && test->opfuncid == F_INT4GT &&
           is_column_of(linitial(test->args), WAITER_PRIORITY) && IsA(value, Const) &&
           DatumGetInt32(((Const *)value)->constvalue) == 0;
}

/* One of other rows has no entry for some SQL users who wait. */
static bool is_of_sql_users(Form_pg_index form, List *predicate)
{
    NullTest *test = (NullTest *)only_condition(predicate, T_NullTest);

    return test != NULL && test->nulltesttype == IS_NULL && is_column_of(test->arg, WAITER_COORDINATOR);
}

/* One of other rows is noticed by their units (share.c). */
static bool is_of_holders(Form_pg_index form, List *predicate)
{
    return form->indnkeyatts >= 2 && form->indkey.values[0] == SHARE_NAMESPACE + 1 &&
           form->indkey.values[1] == SHARE_KEY + 1;
}

/* Looked for again under the table's lock: while that is waited for, another index may take the name. */
static const char *index_problem(Oid table_oid, const char *name, Oid *oid, bool (*is_right)(Form_pg_index, List *))
{
    Relation table = table_open(table_oid, AccessShareLock);
    bool is_there = find(RelationGetNamespace(table), name, RELKIND_INDEX, oid);

    if (is_there) {
        Relation index = index_open(*oid, AccessShareLock);
        is_there = index->rd_index->indrelid == table_oid && index->rd_index->indisvalid &&
                   is_right(index->rd_index, RelationGetIndexPredicate(index));
        index_close(index, AccessShareLock);
    }
    table_close(table, AccessShareLock);
    return is_there ? NULL : psprintf("leasehold.%s is not valid", name);
}

static const char *find_problem(struct lh_core_oids *oids)
{
    const struct expected all[] = {
        {"scope", oids->scope, &oids->scope_pkey, scope_columns, SCOPE_COLUMNS, 2, scope_places},
        {"share", oids->share, &oids->share_pkey, share_columns, SHARE_COLUMNS, 3},
        {"waiter", oids->waiter, &oids->waiter_pkey, waiter_columns, WAITER_COLUMNS, 3},
        {"coordinator", oids->coordinator, NULL, coordinator_columns, lengthof(coordinator_columns), 0},
        {"creation", oids->creation, &oids->creation_pkey, creation_columns, lengthof(creation_columns), 1},
        {"turn", oids->turn, NULL, turn_columns, lengthof(turn_columns), 0},
    };
    const char *problem = NULL;

    for (size_t i = 0; i < lengthof(all) && problem == NULL; i++)
        problem = problem_of(&all[i]);
    if (problem == NULL)
        problem = index_problem(oids->share, "share_held", &oids->share_held, is_of_holders);
    if (problem == NULL)
        problem = index_problem(oids->waiter, "waiter_sql_user", &oids->waiter_sql_user, is_of_sql_users);
    if (problem == NULL)
        problem = index_problem(oids->waiter, "waiter_by_priority", &oids->waiter_by_priority, is_by_priority);
    return problem;
}

static bool find_all(struct lh_core_oids *oids)
{
    Oid schema = get_namespace_oid("leasehold", true);

    return OidIsValid(schema) && find(schema, "scope", RELKIND_RELATION, &oids->scope) &&
           find(schema, "token", RELKIND_SEQUENCE, &oids->token) &&
           find(schema, "ticket", RELKIND_SEQUENCE, &oids->ticket) &&
           find(schema, "incarnation", RELKIND_RELATION, &oids->incarnation) &&
           find(schema, "policy", RELKIND_RELATION, &oids->policy) &&
           find(schema, "watch", RELKIND_RELATION, &oids->watch) &&
           find(schema, "coordinator", RELKIND_RELATION, &oids->coordinator) &&
           find(schema, "coordinator_seen_at", RELKIND_INDEX, &oids->coordinator_seen_at) &&
           find(schema, "share", RELKIND_RELATION, &oids->share) &&
           find(schema, "share_held", RELKIND_INDEX, &oids->share_held) &&
           find(schema, "waiter", RELKIND_RELATION, &oids->waiter) &&
           find(schema, "waiter_sql_user", RELKIND_INDEX, &oids->waiter_sql_user) &&
           find(schema, "waiter_by_priority", RELKIND_INDEX, &oids->waiter_by_priority) &&
           find(schema, "creation", RELKIND_RELATION, &oids->creation) &&
           find(schema, "turn", RELKIND_RELATION, &oids->turn);
}

/* A schema from before the extension has no functions for it. */
static bool has_facts(void)
{
    return OidIsValid(get_namespace_oid("leasehold_internal", true)) &&
           OidIsValid(LookupFuncName(
               list_make2(makeString(pstrdup("leasehold_internal")), makeString(pstrdup("core_life"))), 0, NULL, true));
}

const struct lh_core_oids *lh_core_oids(const char **reason)
{
    if (is_known)
        return &known;
    if (!has_callback) {
        CacheRegisterRelcacheCallback(on_relcache_change, (Datum)0);
        CacheRegisterSyscacheCallback(PROCOID, on_function_change, (Datum)0);
    }
    has_callback = true;
    generation++;
    if (!find_all(&known) || !has_facts()) {
        *reason = "the schema leasehold is missing, or is of another version";
        return NULL;
    }
    /* A change that arrives while they are looked at sets it to false again. */
    is_known = true;
    *reason = find_problem(&known);
    if (*reason != NULL)
        is_known = false;
    return *reason == NULL ? &known : NULL;
}

/* With the lock nothing about it changes any more; what had changed before is looked at again. */
Relation lh_core_table(Oid oid, LOCKMODE mode)
{
    Relation table = table_open(oid, mode);
    const char *reason;

    if (!is_known && lh_core_oids(&reason) == NULL)
        ereport(ERROR, errcode(ERRCODE_T_R_SERIALIZATION_FAILURE), errmsg("leasehold_core: meanwhile %s", reason));
    return table;
}

IndexScanDesc lh_core_beginscan(Relation table, Relation index, Snapshot snapshot, int keys)
{
#if PG_VERSION_NUM >= 180000
    return index_beginscan(table, index, snapshot, NULL, keys, 0);
#else
    return index_beginscan(table, index, snapshot, keys, 0);
#endif
}

void lh_core_open(const struct lh_core_call *call, struct lh_core_heap *heap, Oid index)
{
    if (OidIsValid(index)) {
        heap->index = index_open(index, RowExclusiveLock);
        heap->scan = lh_core_beginscan(heap->table, heap->index, call->snapshot, heap->index->rd_index->indnkeyatts);
    }
    heap->places = RelationGetRelid(heap->table) == call->oids->scope ? scope_places : NULL;
    heap->found_slot = table_slot_create(heap->table, NULL);
    heap->new_slot = MakeSingleTupleTableSlot(RelationGetDescr(heap->table), &TTSOpsHeapTuple);
}

void lh_core_open_indexes(struct lh_core_heap *heap, bool is_speculative)
{
    heap->estate = CreateExecutorState();
    heap->result_rel = makeNode(ResultRelInfo);
    InitResultRelInfo(heap->result_rel, heap->table, 0, NULL, 0);
    ExecOpenIndices(heap->result_rel, is_speculative);
#if PG_VERSION_NUM < 140000
    heap->estate->es_result_relation_info = heap->result_rel;
#endif
}

/* The locks stay to the transaction's end, as those of statements do. */
static void close_heap(struct lh_core_heap *heap)
{
    if (heap->table == NULL)
        return;
    if (heap->estate != NULL) {
        ExecCloseIndices(heap->result_rel);
        ExecResetTupleTable(heap->estate->es_tupleTable, false);
        FreeExecutorState(heap->estate);
    }
    ExecDropSingleTupleTableSlot(heap->new_slot);
    ExecDropSingleTupleTableSlot(heap->found_slot);
    if (heap->index != NULL) {
        index_endscan(heap->scan);
        index_close(heap->index, NoLock);
    }
    table_close(heap->table, NoLock);
}

void lh_core_close(struct lh_core_call *call)
{
    close_heap(&call->waiter);
    close_heap(&call->share);
    close_heap(&call->scope);
}

void lh_core_scope_keys(ScanKeyData *keys, Datum ns, Datum key)
{
    ScanKeyEntryInitialize(&keys[0], 0, 1, BTEqualStrategyNumber, TEXTOID, C_COLLATION_OID, F_TEXTEQ, ns);
    ScanKeyEntryInitialize(&keys[1], 0, 2, BTEqualStrategyNumber, TEXTOID, C_COLLATION_OID, F_TEXTEQ, key);
}

void lh_core_share_keys(ScanKeyData *keys, Datum ns, Datum key, Datum lease_key)
{
    lh_core_scope_keys(keys, ns, key);
    ScanKeyInit(&keys[2], 3, BTEqualStrategyNumber, F_UUID_EQ, lease_key);
}

bool lh_core_has_row(Oid table_oid, const Oid *index_oid, Snapshot snapshot)
{
    Relation table = lh_core_table(table_oid, AccessShareLock);
    TupleTableSlot *slot = table_slot_create(table, NULL);
    bool has_row;

    if (index_oid != NULL) {
        Relation index = index_open(*index_oid, AccessShareLock);
        IndexScanDesc scan = lh_core_beginscan(table, index, snapshot, 0);
        index_rescan(scan, NULL, 0, NULL, 0);
        has_row = index_getnext_slot(scan, ForwardScanDirection, slot);
        index_endscan(scan);
        index_close(index, NoLock);
    } else {
        TableScanDesc scan = table_beginscan_strat(table, snapshot, 0, NULL, true, false);
        has_row = table_scan_getnextslot(scan, ForwardScanDirection, slot);
        table_endscan(scan);
    }
    ExecDropSingleTupleTableSlot(slot);
    table_close(table, NoLock);
    return has_row;
}

bool lh_core_has_entry(Relation table, Oid index_oid, Snapshot snapshot, Datum ns, Datum key)
{
    Relation index = index_open(index_oid, AccessShareLock);
    IndexScanDesc scan = lh_core_beginscan(table, index, snapshot, 2);
    TupleTableSlot *slot = table_slot_create(table, NULL);
    ScanKeyData keys[2];
    bool has_entry;

    lh_core_scope_keys(keys, ns, key);
    index_rescan(scan, keys, 2, NULL, 0);
    has_entry = index_getnext_slot(scan, ForwardScanDirection, slot);
    ExecDropSingleTupleTableSlot(slot);
    index_endscan(scan);
    index_close(index, NoLock);
    return has_entry;
}
