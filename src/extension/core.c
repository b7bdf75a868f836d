/* The frame of a call: whether it may take the common path, its answers, and what is left to SQL. */
#include "core.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "replication/syncrep.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/uuid.h"

/* Where the twins in SQL are. The tests build it once more, to stand in their place. */
#ifndef LH_CORE_SQL_SCHEMA
#define LH_CORE_SQL_SCHEMA "leasehold_internal"
#endif

#define FUNCTIONS_MAX 8
#define ARGUMENTS_MAX 20

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(lh_core_trouble);

struct kept_plan {
    const char *name; /* of the function */
    SPIPlanPtr plan;
};

static struct kept_plan plans[FUNCTIONS_MAX];

/* --- what a session may be like --- */

static const char *session_trouble(void)
{
    if (XactIsoLevel != XACT_READ_COMMITTED)
        return "the transaction is not READ COMMITTED";
    if (XactReadOnly || RecoveryInProgress())
        return "the transaction is read-only";
    if (IsInParallelMode())
        return "the query runs in parallel";
    if (synchronous_commit == SYNCHRONOUS_COMMIT_OFF)
        return "synchronous_commit is off";
    return NULL;
}

/* As leasehold_internal.runs_hooks. */
static bool runs_hooks(void)
{
    const char *hooks = GetConfigOption("leasehold.hooks", true, false);
    return hooks != NULL && (strcmp(hooks, "on") == 0 || strcmp(hooks, "inline") == 0 || strcmp(hooks, "reap") == 0);
}

void lh_core_relax_commit(void)
{
    if (SyncRepStandbyNames[0] == '\0' && !runs_hooks())
        set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
}

/* NULL: the common path is taken in this database. */
Datum lh_core_trouble(PG_FUNCTION_ARGS)
{
    const char *reason = session_trouble();
    const struct lh_core_oids *oids;
    struct lh_core_life life;

    if (reason == NULL && (oids = lh_core_oids(&reason)) != NULL &&
        !lh_core_life(oids, GetActiveSnapshot(), &life, &reason))
        Assert(reason != NULL);
    if (reason == NULL)
        PG_RETURN_NULL();
    PG_RETURN_TEXT_P(cstring_to_text(reason));
}

/* --- arguments and rows --- */

struct lh_core_array lh_core_array(FunctionCallInfo fcinfo, int argument, Oid type)
{
    struct lh_core_array array = {.n = -1};
    ArrayType *value;
    int16 size;
    bool by_value;
    char alignment;

    if (PG_ARGISNULL(argument))
        return array;
    value = PG_GETARG_ARRAYTYPE_P(argument);
    if (ARR_NDIM(value) > 1 || ARR_ELEMTYPE(value) != type)
        ereport(ERROR, errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR), errmsg("argument %d must be a list", argument + 1));
    get_typlenbyvalalign(type, &size, &by_value, &alignment);
    deconstruct_array(value, type, size, by_value, alignment, &array.values, &array.nulls, &array.n);
    return array;
}

static void prepare_rows(struct lh_core_call *call)
{
    ReturnSetInfo *info = (ReturnSetInfo *)call->fcinfo->resultinfo;
    MemoryContext old;

    if (info == NULL || !IsA(info, ReturnSetInfo) || (info->allowedModes & SFRM_Materialize) == 0 ||
        info->expectedDesc == NULL)
        ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                errmsg("leasehold_core.%s() belongs into FROM, with its columns", call->name));
    old = MemoryContextSwitchTo(info->econtext->ecxt_per_query_memory);
    call->row_type = CreateTupleDescCopy(info->expectedDesc);
    call->rows = tuplestore_begin_heap((info->allowedModes & SFRM_Materialize_Random) != 0, false, work_mem);
    info->returnMode = SFRM_Materialize;
    info->setResult = call->rows;
    info->setDesc = call->row_type;
    MemoryContextSwitchTo(old);
}

/* --- what SQL does --- */

static SPIPlanPtr sql_function(const struct lh_core_call *call)
{
    int count = call->fcinfo->nargs;
    Oid types[ARGUMENTS_MAX];
    StringInfoData sql;
    int i = 0;

    while (plans[i].name != NULL && strcmp(plans[i].name, call->name) != 0)
        i++;
    if (plans[i].name != NULL)
        return plans[i].plan;
    initStringInfo(&sql);
    appendStringInfo(&sql, "select * from " LH_CORE_SQL_SCHEMA ".%s(", call->name);
    for (int a = 0; a < count; a++) {
        types[a] = get_fn_expr_argtype(call->fcinfo->flinfo, a);
        appendStringInfo(&sql, "%s$%d", a > 0 ? ", " : "", a + 1);
    }
    appendStringInfoChar(&sql, ')');
    plans[i].plan = SPI_prepare(sql.data, count, types);
    if (plans[i].plan == NULL)
        elog(ERROR, "leasehold_core: cannot prepare \"%s\"", sql.data);
    SPI_keepplan(plans[i].plan);
    plans[i].name = call->name;
    return plans[i].plan;
}

/* `left` has the places of the items that the rows are about, or is NULL: of all. */
static void add_rows_of_sql(struct lh_core_call *call, const int *left)
{
    TupleDesc from = SPI_tuptable->tupdesc;
    Datum *values = palloc(from->natts * sizeof(Datum));
    bool *nulls = palloc(from->natts * sizeof(bool));

    if (from->natts != call->row_type->natts)
        ereport(
            ERROR, errcode(ERRCODE_DATATYPE_MISMATCH),
            errmsg("leasehold_core.%s() has %d columns, and not %d", call->name, from->natts, call->row_type->natts));
    for (int i = 0; i < from->natts; i++)
        if (TupleDescAttr(from, i)->atttypid != TupleDescAttr(call->row_type, i)->atttypid)
            ereport(ERROR, errcode(ERRCODE_DATATYPE_MISMATCH),
                    errmsg("column %d of leasehold_core.%s() is of another type", i + 1, call->name));
    for (uint64 row = 0; row < SPI_processed; row++) {
        heap_deform_tuple(SPI_tuptable->vals[row], from, values, nulls);
        if (left != NULL && !nulls[0])
            values[0] = Int32GetDatum(left[DatumGetInt32(values[0]) - 1] + 1);
        tuplestore_putvalues(call->rows, call->row_type, values, nulls);
    }
}

/* The same array with just these elements. */
static Datum part_of(Datum array, Oid array_type, const int *left, int count)
{
    Oid type = get_element_type(array_type);
    ArrayType *value = DatumGetArrayTypeP(array);
    Datum *all, *values = palloc(count * sizeof(Datum));
    bool *all_nulls, *nulls = palloc(count * sizeof(bool));
    int size[] = {count}, first[] = {1}, n;
    int16 length;
    bool by_value;
    char alignment;

    get_typlenbyvalalign(type, &length, &by_value, &alignment);
    deconstruct_array(value, type, length, by_value, alignment, &all, &all_nulls, &n);
    for (int i = 0; i < count; i++) {
        values[i] = all[left[i]];
        nulls[i] = all_nulls[left[i]];
    }
    return PointerGetDatum(construct_md_array(values, nulls, 1, size, first, type, length, by_value, alignment));
}

static void ask_sql(struct lh_core_call *call, const int *left, int count)
{
    Datum values[ARGUMENTS_MAX];
    char nulls[ARGUMENTS_MAX];

    for (int a = 0; a < call->fcinfo->nargs; a++) {
        Oid type = get_fn_expr_argtype(call->fcinfo->flinfo, a);
        nulls[a] = call->fcinfo->args[a].isnull ? 'n' : ' ';
        values[a] = call->fcinfo->args[a].value;
        if (left != NULL && nulls[a] == ' ' && OidIsValid(get_element_type(type)))
            values[a] = part_of(values[a], type, left, count);
    }
    SPI_connect();
    if (SPI_execute_plan(sql_function(call), values, nulls, false, 0) != SPI_OK_SELECT)
        elog(ERROR, "leasehold_core: %s() in SQL failed", call->name);
    add_rows_of_sql(call, left);
    SPI_finish();
}

/* --- the call --- */

/* Arrays of another length: SQL says what that means. */
static bool are_arrays_of(FunctionCallInfo fcinfo, int count)
{
    for (int a = 0; a < fcinfo->nargs; a++) {
        ArrayType *array;
        if (fcinfo->args[a].isnull || !OidIsValid(get_element_type(get_fn_expr_argtype(fcinfo->flinfo, a))))
            continue;
        array = PG_GETARG_ARRAYTYPE_P(a);
        if (ARR_NDIM(array) != 1 || ARR_DIMS(array)[0] != count)
            return false;
    }
    return true;
}

/* The scope's table first: it may be waited for, and all that is looked at is looked at after it. */
static bool take_common_path(struct lh_core_call *call)
{
    const char *reason;

    call->scope.table = lh_core_table(call->oids->scope, RowExclusiveLock);
    /* As for each statement of the function in SQL. */
    CommandCounterIncrement();
    PushActiveSnapshot(GetTransactionSnapshot());
    call->snapshot = GetActiveSnapshot();
    if (lh_core_life(call->oids, call->snapshot, &call->life, &reason) &&
        lh_core_refresh_rules(call->oids, call->snapshot)) {
        call->is_alone = !TransactionIdIsValid(GetTopTransactionIdIfAny());
        call->command = GetCurrentCommandId(true);
        call->is_done = palloc0(call->count * sizeof(bool));
        call->is_change = palloc0(call->count * sizeof(bool));
        call->is_shared = palloc0(call->count * sizeof(bool));
        lh_core_open(call, &call->scope, call->oids->scope_pkey);
        return true;
    }
    PopActiveSnapshot();
    table_close(call->scope.table, NoLock);
    return false;
}

bool lh_core_begin(struct lh_core_call *call, FunctionCallInfo fcinfo, const char *name, int count)
{
    const char *reason;

    memset(call, 0, sizeof(*call));
    call->fcinfo = fcinfo;
    call->name = name;
    call->count = count;
    prepare_rows(call);
    if (count >= 1 && are_arrays_of(fcinfo, count) && session_trouble() == NULL &&
        (call->oids = lh_core_oids(&reason)) != NULL && take_common_path(call))
        return true;
    ask_sql(call, NULL, 0);
    return false;
}

static uint32 scope_hash(Datum ns, Datum key)
{
    text *ns_text = DatumGetTextPP(ns), *key_text = DatumGetTextPP(key);
    uint32 hash = hash_bytes((const unsigned char *)VARDATA_ANY(ns_text), VARSIZE_ANY_EXHDR(ns_text));
    hash = hash_combine(hash, hash_bytes((const unsigned char *)VARDATA_ANY(key_text), VARSIZE_ANY_EXHDR(key_text)));
    return hash == 0 ? 1 : hash;
}

static void make_hashes(struct lh_core_call *call, const struct lh_core_array *ns, const struct lh_core_array *key)
{
    call->hashes = palloc(call->count * sizeof(call->hashes[0]));
    for (int i = 0; i < call->count; i++)
        call->hashes[i] = ns->nulls[i] || key->nulls[i] ? 0 : scope_hash(ns->values[i], key->values[i]);
}

static bool is_same(Datum a, Datum b)
{
    text *one = DatumGetTextPP(a), *other = DatumGetTextPP(b);
    return VARSIZE_ANY_EXHDR(one) == VARSIZE_ANY_EXHDR(other) &&
           memcmp(VARDATA_ANY(one), VARDATA_ANY(other), VARSIZE_ANY_EXHDR(one)) == 0;
}

bool lh_core_is_same_scope(struct lh_core_call *call, const struct lh_core_array *ns, const struct lh_core_array *key,
                           int item, int other)
{
    if (call->hashes == NULL)
        make_hashes(call, ns, key);
    return call->hashes[item] == call->hashes[other] && is_same(key->values[item], key->values[other]) &&
           is_same(ns->values[item], ns->values[other]);
}

/* Its place in the table of hashes, or the free one where it would be. */
static uint32 *place_of(const struct lh_core_call *call, uint32 hash)
{
    int at = (int)(hash % (uint32)call->left_slots);

    while (call->left[at] != 0 && call->left[at] != hash)
        at = (at + 1) % call->left_slots;
    return &call->left[at];
}

/* Another scope of the same hash is left too, which does no harm. */
bool lh_core_is_left(const struct lh_core_call *call, Datum ns, Datum key)
{
    return call->left != NULL && *place_of(call, scope_hash(ns, key)) != 0;
}

void lh_core_leave(struct lh_core_call *call, Datum ns, Datum key)
{
    uint32 hash = scope_hash(ns, key);

    if (call->count == 1)
        return;
    if (call->left == NULL) {
        call->left_slots = 2 * call->count + 1;
        call->left = palloc0(call->left_slots * sizeof(call->left[0]));
    }
    *place_of(call, hash) = hash;
}

void lh_core_answer(struct lh_core_call *call, int item, const Datum *values, const bool *nulls)
{
    lh_core_answer_wait(call, item, values, nulls);
    call->is_change[item] = true;
    call->change_count++;
}

void lh_core_answer_wait(struct lh_core_call *call, int item, const Datum *values, const bool *nulls)
{
    tuplestore_putvalues(call->rows, call->row_type, (Datum *)values, (bool *)nulls);
    call->is_done[item] = true;
    call->done_count++;
}

/* Asked after the change: a watch that begins waits for who has changed something, and not for who is about to. */
static bool has_followers(struct lh_core_call *call, bool is_end)
{
    Snapshot latest = RegisterSnapshot(GetLatestSnapshot());
    bool has = lh_core_has_row(call->oids->watch, NULL, latest) ||
               (is_end && lh_core_has_row(call->oids->waiter, &call->oids->waiter_sql_user, latest));
    UnregisterSnapshot(latest);
    return has;
}

/* The lease keys of those that are shared; null for the others. */
static Datum keys_of_shared(const struct lh_core_call *call, int argument, const int *changed)
{
    struct lh_core_array keys = lh_core_array(call->fcinfo, argument, UUIDOID);
    int count = call->change_count, first = 1;
    Datum *values = palloc(count * sizeof(Datum));
    bool *nulls = palloc(count * sizeof(bool));

    for (int i = 0; i < count; i++) {
        values[i] = keys.values[changed[i]];
        nulls[i] = !call->is_shared[changed[i]];
    }
    return PointerGetDatum(construct_md_array(values, nulls, 1, &count, &first, UUIDOID, UUID_LEN, false, 'c'));
}

static void tell_followers(struct lh_core_call *call, const char *after)
{
    static const char *names[2];
    static SPIPlanPtr kept[2];
    Oid types[3] = {TEXTARRAYOID, TEXTARRAYOID, UUIDARRAYOID};
    int *changed = palloc(call->change_count * sizeof(int)), n = 0, place = 0, ns_argument = 0;
    Datum values[3];

    for (int i = 0; i < call->count; i++)
        if (call->is_change[i])
            changed[n++] = i;
    while (get_fn_expr_argtype(call->fcinfo->flinfo, ns_argument) != TEXTARRAYOID)
        ns_argument++;
    for (int i = 0; i < 2; i++)
        values[i] = part_of(call->fcinfo->args[ns_argument + i].value, TEXTARRAYOID, changed, n);
    values[2] = keys_of_shared(call, ns_argument + 2, changed);
    SPI_connect();
    while (names[place] != NULL && strcmp(names[place], after) != 0)
        place++;
    if (names[place] == NULL) {
        SPIPlanPtr plan = SPI_prepare(psprintf("select leasehold_internal.%s($1, $2, $3)", after), 3, types);
        if (plan == NULL)
            elog(ERROR, "leasehold_core: cannot prepare %s()", after);
        SPI_keepplan(plan);
        kept[place] = plan;
        names[place] = after;
    }
    if (SPI_execute_plan(kept[place], values, NULL, false, 0) != SPI_OK_SELECT)
        elog(ERROR, "leasehold_core: %s() failed", after);
    SPI_finish();
}

Datum lh_core_end(struct lh_core_call *call, const char *after)
{
    int *left, count = 0;

    lh_core_close(call);
    PopActiveSnapshot();
    CommandCounterIncrement();
    if (call->change_count > 0 && after != NULL &&
        (call->has_history || has_followers(call, strcmp(after, "core_released") == 0)))
        tell_followers(call, after);
    if (call->done_count == call->count)
        return (Datum)0;
    left = palloc(call->count * sizeof(int));
    for (int i = 0; i < call->count; i++)
        if (!call->is_done[i])
            left[count++] = i;
    ask_sql(call, call->done_count == 0 ? NULL : left, count);
    return (Datum)0;
}
