/* Which tables and indexes there are, and whether they are as the common path expects. */
#include "core.h"

#include "access/heapam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "nodes/value.h"
#include "parser/parse_func.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"

struct column {
    const char *name;
    Oid type;
};

static const struct column scope_columns[SCOPE_COLUMNS] = {
    {"namespace", TEXTOID},
    {"key", TEXTOID},
    {"state", TEXTOID},
    {"lease_key", UUIDOID},
    {"token", INT8OID},
    {"acquired_at", TIMESTAMPTZOID},
    {"heartbeat_at", TIMESTAMPTZOID},
    {"deadline", TIMESTAMPTZOID},
    {"heartbeats", INT8OID},
    {"incarnation", INT8OID},
    {"check_at", TIMESTAMPTZOID},
    {"ended_at", TIMESTAMPTZOID},
    {"granted_by", UUIDOID},
    {"reap_failures", INT4OID},
    {"lapsed", BOOLOID},
    {"queued", BOOLOID},
    {"duration", INTERVALOID},
    {"grace", INTERVALOID},
    {"owner", TEXTOID},
    {"labels", JSONBOID},
    {"last_outcome", TEXTOID},
    {"last_result", JSONBOID},
    {"last_error", TEXTOID},
    {"ended_keys", UUIDARRAYOID},
    {"ended_outcomes", TEXTARRAYOID},
    {"reap_error", TEXTOID},
    {"reap_failed_at", TIMESTAMPTZOID},
    {"next_try_at", TIMESTAMPTZOID},
    {"principal", TEXTOID},
    {"at_least", INTERVALOID},
    {"at_least_incarnation", INT8OID},
    {"units", INT4OID},
    {"holders", INT4OID},
    {"slots", INT4ARRAYOID},
    {"together", INT8ARRAYOID},
};

static struct lh_core_oids known;
static bool is_known;
static bool has_callback;

static void on_relcache_change(Datum arg, Oid relation)
{
    const Oid *oids = (const Oid *)&known;

    if (relation == InvalidOid)
        is_known = false;
    for (size_t i = 0; i < sizeof(known) / sizeof(Oid); i++)
        if (oids[i] == relation)
            is_known = false;
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

static const char *columns_problem(Relation table)
{
    TupleDesc desc = RelationGetDescr(table);

    if (desc->natts != SCOPE_COLUMNS)
        return "has other columns";
    for (int i = 0; i < SCOPE_COLUMNS; i++) {
        Form_pg_attribute attribute = TupleDescAttr(desc, i);
        if (attribute->attisdropped || attribute->attgenerated != '\0' ||
            attribute->atttypid != scope_columns[i].type ||
            strcmp(NameStr(attribute->attname), scope_columns[i].name) != 0)
            return "has other columns";
    }
    return NULL;
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

static const char *scope_problem(const struct lh_core_oids *oids)
{
    static const AttrNumber key[] = {SCOPE_NAMESPACE + 1, SCOPE_KEY + 1};
    Relation scope = table_open(oids->scope, AccessShareLock);
    Relation pkey = index_open(oids->scope_pkey, AccessShareLock);
    const char *problem = table_problem(scope);

    if (problem == NULL)
        problem = columns_problem(scope);
    if (problem == NULL && scope->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
        problem = "is not logged";
    if (problem == NULL && (pkey->rd_index->indrelid != oids->scope || !is_key(pkey, 2, key)))
        problem = "has another primary key";
    index_close(pkey, AccessShareLock);
    table_close(scope, AccessShareLock);
    return problem;
}

static const char *creation_problem(const struct lh_core_oids *oids)
{
    static const AttrNumber slot[] = {1};
    Relation creation = table_open(oids->creation, AccessShareLock);
    Relation pkey = index_open(oids->creation_pkey, AccessShareLock);
    const char *problem = table_problem(creation);

    if (problem == NULL && (creation->rd_att->natts != 1 || TupleDescAttr(creation->rd_att, 0)->atttypid != INT4OID ||
                            pkey->rd_index->indrelid != oids->creation || !is_key(pkey, 1, slot)))
        problem = "has other columns";
    index_close(pkey, AccessShareLock);
    table_close(creation, AccessShareLock);
    return problem;
}

/* leasehold.turn (name text, seed bigint). */
static const char *turn_problem(const struct lh_core_oids *oids)
{
    Relation turn = table_open(oids->turn, AccessShareLock);
    const char *problem = table_problem(turn);

    if (problem == NULL && (turn->rd_att->natts != 2 || TupleDescAttr(turn->rd_att, 0)->atttypid != TEXTOID ||
                            TupleDescAttr(turn->rd_att, 1)->atttypid != INT8OID))
        problem = "has other columns";
    table_close(turn, AccessShareLock);
    return problem;
}

static bool find(Oid schema, const char *name, char kind, Oid *oid)
{
    *oid = get_relname_relid(name, schema);
    return OidIsValid(*oid) && get_rel_relkind(*oid) == kind;
}

static bool find_all(struct lh_core_oids *oids)
{
    Oid schema = get_namespace_oid("leasehold", true);

    return OidIsValid(schema) && find(schema, "scope", RELKIND_RELATION, &oids->scope) &&
           find(schema, "scope_pkey", RELKIND_INDEX, &oids->scope_pkey) &&
           find(schema, "token", RELKIND_SEQUENCE, &oids->token) &&
           find(schema, "incarnation", RELKIND_RELATION, &oids->incarnation) &&
           find(schema, "policy", RELKIND_RELATION, &oids->policy) &&
           find(schema, "registered_hook", RELKIND_RELATION, &oids->hook) &&
           find(schema, "watch", RELKIND_RELATION, &oids->watch) &&
           find(schema, "waiter", RELKIND_RELATION, &oids->waiter) &&
           find(schema, "waiter_sql_user", RELKIND_INDEX, &oids->waiter_sql_user) &&
           find(schema, "creation", RELKIND_RELATION, &oids->creation) &&
           find(schema, "creation_pkey", RELKIND_INDEX, &oids->creation_pkey) &&
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
    const char *problem;

    if (is_known)
        return &known;
    if (!has_callback)
        CacheRegisterRelcacheCallback(on_relcache_change, (Datum)0);
    has_callback = true;
    lh_core_forget_facts();
    if (!find_all(&known) || !has_facts()) {
        *reason = "the schema leasehold is missing, or is of another version";
        return NULL;
    }
    /* A change that arrives while they are looked at sets it to false again. */
    is_known = true;
    problem = scope_problem(&known);
    *reason = problem == NULL ? NULL : psprintf("leasehold.scope %s", problem);
    if (problem == NULL && (problem = creation_problem(&known)) != NULL)
        *reason = psprintf("leasehold.creation %s", problem);
    if (problem == NULL && (problem = turn_problem(&known)) != NULL)
        *reason = psprintf("leasehold.turn %s", problem);
    if (problem != NULL)
        is_known = false;
    return problem == NULL ? &known : NULL;
}

void lh_core_open(struct lh_core_call *call)
{
    call->scope = table_open(call->oids->scope, RowExclusiveLock);
    call->scope_pkey = index_open(call->oids->scope_pkey, RowExclusiveLock);
#if PG_VERSION_NUM >= 180000
    call->scan = index_beginscan(call->scope, call->scope_pkey, call->snapshot, NULL, 2, 0);
#else
    call->scan = index_beginscan(call->scope, call->scope_pkey, call->snapshot, 2, 0);
#endif
    call->found_slot = table_slot_create(call->scope, NULL);
    call->new_slot = MakeSingleTupleTableSlot(RelationGetDescr(call->scope), &TTSOpsHeapTuple);
}

/* The locks stay to the transaction's end, as those of statements do. */
void lh_core_close(struct lh_core_call *call)
{
    if (call->estate != NULL) {
        ExecCloseIndices(call->result_rel);
        ExecResetTupleTable(call->estate->es_tupleTable, false);
        FreeExecutorState(call->estate);
    }
    ExecDropSingleTupleTableSlot(call->new_slot);
    ExecDropSingleTupleTableSlot(call->found_slot);
    index_endscan(call->scan);
    index_close(call->scope_pkey, NoLock);
    table_close(call->scope, NoLock);
}

bool lh_core_has_row(Oid table_oid, Oid index_oid, Snapshot snapshot)
{
    Relation table = table_open(table_oid, AccessShareLock);
    TupleTableSlot *slot = table_slot_create(table, NULL);
    bool has_row;

    if (OidIsValid(index_oid)) {
        Relation index = index_open(index_oid, AccessShareLock);
#if PG_VERSION_NUM >= 180000
        IndexScanDesc scan = index_beginscan(table, index, snapshot, NULL, 0, 0);
#else
        IndexScanDesc scan = index_beginscan(table, index, snapshot, 0, 0);
#endif
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
