/*
 * What is checked of a request for a lease (is_plain() in migrations/functions/single_item.sql), what an exclusive grant writes into the
 * scope's row ([grant] of migrations/functions/columns.txt), and what each grant is answered with.
 */
#include "core.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "mb/pg_wchar.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"
#include "utils/uuid.h"

#define OWNER_BYTES_MAX 255
#define LABELS_MAX 16
#define LABEL_NAME_BYTES_MAX 63
#define LABEL_VALUE_BYTES_MAX 255
/* What shared holders of one scope take together, at most. */
#define UNITS_MAX 1000000
#define SHORTEST_US 100000
/* Beyond it an interval reckons in floating point otherwise than here. */
#define LONGEST_US INT64CONST(4503599627370496)

static bool is_null(const struct lh_core_array *array, int item)
{
    return array->n < 0 || array->nulls[item];
}

static Datum value_or_null(const struct lh_core_array *array, int item)
{
    return is_null(array, item) ? (Datum)0 : array->values[item];
}

void lh_core_wishes(FunctionCallInfo fcinfo, const struct lh_core_wish_arguments *at, struct lh_core_wishes *wishes)
{
    struct lh_core_array ticket = lh_core_array(fcinfo, at->ticket, INT8OID);

    wishes->coordinator = PG_ARGISNULL(at->coordinator) ? (Datum)0 : PG_GETARG_DATUM(at->coordinator);
    wishes->ns = lh_core_array(fcinfo, at->ns, TEXTOID);
    wishes->key = lh_core_array(fcinfo, at->key, TEXTOID);
    wishes->lease_key = lh_core_array(fcinfo, at->lease_key, UUIDOID);
    wishes->owner = lh_core_array(fcinfo, at->owner, TEXTOID);
    wishes->labels = lh_core_array(fcinfo, at->labels, TEXTOID);
    wishes->duration = lh_core_array(fcinfo, at->duration, INT8OID);
    wishes->queue = lh_core_array(fcinfo, at->queue, BOOLOID);
    wishes->wait = lh_core_array(fcinfo, at->wait, INT8OID);
    wishes->principal = lh_core_array(fcinfo, at->principal, TEXTOID);
    wishes->at_least = lh_core_array(fcinfo, at->at_least, INT8OID);
    wishes->units = lh_core_array(fcinfo, at->units, INT4OID);
    wishes->count = wishes->key.n < 0 ? 0 : wishes->ns.n;
    wishes->has_places = false;
    for (int i = 0; i < ticket.n; i++)
        wishes->has_places = wishes->has_places || (!ticket.nulls[i] && DatumGetInt64(ticket.values[i]) != 0);
}

/* What labels_problem() allows. What is no JSON at all is an error here as there. */
static bool are_labels(Datum text_value, Datum *labels)
{
    char *json = TextDatumGetCString(text_value);
    Jsonb *value;
    JsonbIterator *iterator;
    JsonbIteratorToken token;
    JsonbValue part;

    *labels = DirectFunctionCall1(jsonb_in, CStringGetDatum(json));
    if (strcmp(json, "{}") == 0)
        return true;
    value = DatumGetJsonbP(*labels);
    if (!JB_ROOT_IS_OBJECT(value) || JB_ROOT_COUNT(value) > LABELS_MAX)
        return false;
    iterator = JsonbIteratorInit(&value->root);
    while ((token = JsonbIteratorNext(&iterator, &part, true)) != WJB_DONE) {
        if (token == WJB_KEY && (part.val.string.len == 0 || part.val.string.len > LABEL_NAME_BYTES_MAX))
            return false;
        if (token == WJB_VALUE && (part.type != jbvString || part.val.string.len > LABEL_VALUE_BYTES_MAX))
            return false;
    }
    return true;
}

static bool is_between(const Interval *value, const Interval *min, const Interval *max)
{
    return DatumGetBool(DirectFunctionCall2(interval_ge, IntervalPGetDatum(value), IntervalPGetDatum(min))) &&
           DatumGetBool(DirectFunctionCall2(interval_le, IntervalPGetDatum(value), IntervalPGetDatum(max)));
}

/* has_key() of migrations/functions/spread.sql. The slot is that of the key in UTF-8. */
static bool has_key(const struct lh_core_rules *rules, Datum key)
{
    const unsigned char *hash;
    unsigned slot;

    if (!rules->has_slots)
        return true;
    if (GetDatabaseEncoding() != PG_UTF8)
        return false;
    hash = (const unsigned char *)VARDATA_ANY(DatumGetByteaPP(DirectFunctionCall1(sha256_bytea, key)));
    slot = (unsigned)hash[0] << 4 | hash[1] >> 4;
    return (rules->slots[slot / 8] >> slot % 8 & 1) != 0;
}

int32 lh_core_units_max(const struct lh_core_rules *rules)
{
    return rules->has_capacity ? Min(rules->capacity, UNITS_MAX) : UNITS_MAX;
}

bool lh_core_wish(const struct lh_core_wishes *wishes, int item, struct lh_core_wish *wish)
{
    int64 us;

    if (is_null(&wishes->ns, item) || is_null(&wishes->key, item) || is_null(&wishes->lease_key, item) ||
        is_null(&wishes->duration, item) || is_null(&wishes->labels, item) || !is_null(&wishes->at_least, item))
        return false;
    wish->rules = lh_core_rules(wishes->ns.values[item]);
    if (wish->rules == NULL || !wish->rules->is_plain || wish->rules->has_acquire_hook ||
        !has_key(wish->rules, wishes->key.values[item]))
        return false;
    wish->units = is_null(&wishes->units, item) ? 0 : DatumGetInt32(wishes->units.values[item]);
    if (!is_null(&wishes->units, item) && (wish->units < 1 || wish->units > lh_core_units_max(wish->rules)))
        return false;
    us = DatumGetInt64(wishes->duration.values[item]);
    wish->duration = (Interval){.time = us};
    if (us < SHORTEST_US || us > LONGEST_US ||
        !is_between(&wish->duration, &wish->rules->min_duration, &wish->rules->max_duration))
        return false;
    wish->has_wait = !is_null(&wishes->wait, item);
    wish->wait_us = wish->has_wait ? DatumGetInt64(wishes->wait.values[item]) : 0;
    if (wish->wait_us < 0 || wish->wait_us > LONGEST_US)
        return false;
    if (!is_null(&wishes->owner, item) &&
        VARSIZE_ANY_EXHDR(DatumGetTextPP(wishes->owner.values[item])) > OWNER_BYTES_MAX)
        return false;
    wish->lease_key = wishes->lease_key.values[item];
    wish->owner = value_or_null(&wishes->owner, item);
    wish->principal = value_or_null(&wishes->principal, item);
    wish->coordinator = wishes->coordinator;
    return are_labels(wishes->labels.values[item], &wish->labels);
}

bool lh_core_has_ended(const struct lh_core_row *row, Datum lease_key)
{
    ArrayType *list = DatumGetArrayTypeP(row->values[SCOPE_ENDED_KEYS]);
    const char *elements = ARR_DATA_PTR(list);
    int count = ArrayGetNItems(ARR_NDIM(list), ARR_DIMS(list));

    if (ARR_HASNULL(list))
        return true; /* never so; SQL decides */
    for (int i = 0; i < count; i++)
        if (memcmp(elements + i * UUID_LEN, DatumGetUUIDP(lease_key), UUID_LEN) == 0)
            return true;
    return false;
}

/* Promise 2. */
void lh_core_set_held(struct lh_core_call *call, const struct lh_core_wish *wish, TimestampTz now,
                      struct lh_core_row *row)
{
    TimestampTz deadline = lh_core_plus(now, &wish->duration), expiry = lh_core_plus(deadline, &wish->rules->grace);

    lh_core_set(row, SCOPE_STATE, CStringGetTextDatum("held"));
    lh_core_set(row, SCOPE_LEASE_KEY, wish->lease_key);
    lh_core_set(row, SCOPE_TOKEN, Int64GetDatum(nextval_internal(call->oids->token, false)));
    lh_core_set_or_null(row, SCOPE_OWNER, wish->owner);
    lh_core_set_or_null(row, SCOPE_PRINCIPAL, wish->principal);
    lh_core_set(row, SCOPE_LABELS, wish->labels);
    lh_core_set(row, SCOPE_DURATION, IntervalPGetDatum(&wish->duration));
    lh_core_set(row, SCOPE_GRACE, IntervalPGetDatum(&wish->rules->grace));
    lh_core_set(row, SCOPE_ACQUIRED_AT, TimestampTzGetDatum(now));
    lh_core_set(row, SCOPE_HEARTBEAT_AT, TimestampTzGetDatum(now));
    lh_core_set(row, SCOPE_HEARTBEATS, Int64GetDatum(0));
    lh_core_set(row, SCOPE_DEADLINE, TimestampTzGetDatum(deadline));
    lh_core_set(row, SCOPE_INCARNATION, Int64GetDatum(call->life.id));
    lh_core_set_or_null(row, SCOPE_GRANTED_BY, wish->coordinator);
    lh_core_set(row, SCOPE_LAPSED, BoolGetDatum(false));
    lh_core_set(row, SCOPE_REAP_FAILURES, Int32GetDatum(0));
    if (row->nulls[SCOPE_CHECK_AT] || DatumGetTimestampTz(row->values[SCOPE_CHECK_AT]) > expiry)
        lh_core_set(row, SCOPE_CHECK_AT, TimestampTzGetDatum(expiry));
}

Interval lh_core_suspected_after(const struct lh_core_rules *rules, const Interval *duration)
{
    Datum twice;

    if (rules->has_dead_after)
        return rules->dead_after;
    twice = DirectFunctionCall2(interval_mul, IntervalPGetDatum(duration), Float8GetDatum(2));
    return *DatumGetIntervalP(DirectFunctionCall2(interval_div, twice, Float8GetDatum(3)));
}

int64 lh_core_suspected_in_us(const struct lh_core_wish *wish)
{
    const struct lh_core_rules *rules = wish->rules;
    Interval silence = lh_core_suspected_after(rules, &wish->duration);

    if (DatumGetInt32(
            DirectFunctionCall2(interval_cmp, IntervalPGetDatum(&rules->max_hold), IntervalPGetDatum(&silence))) < 0)
        return rules->max_hold_us;
    return rules->has_dead_after ? rules->dead_after_us : silence.time;
}

void lh_core_tell_grant(const struct lh_core_wish *wish, int64 token, TimestampTz now, Datum *values, bool *nulls)
{
    enum { LH_CORE_ANSWER_COLUMNS, COLUMNS };
    static const int always[] = {N,           OUTCOME,   SUSPECTED_IN, TOKEN, LABELS, DURATION,   GRACE,
                                 ACQUIRED_AT, DEADLINE,  REMAINING,    HELD,  SILENT, HEARTBEATS, HEARTBEAT_AT,
                                 LIVENESS,    IS_MANUAL, MODE,         UNITS, HOLDERS};
    const struct lh_core_rules *rules = wish->rules;
    int64 duration_us = wish->duration.time;
    Jsonb *labels = DatumGetJsonbP(wish->labels);

    memset(nulls, true, COLUMNS * sizeof(bool));
    for (size_t i = 0; i < lengthof(always); i++)
        nulls[always[i]] = false;
    nulls[EXPIRES_IN] = rules->is_manual;
    nulls[UNITS_FREE] = !rules->has_capacity;
    nulls[OWNER] = wish->owner == (Datum)0;
    nulls[PRINCIPAL] = wish->principal == (Datum)0;
    values[OUTCOME] = CStringGetTextDatum("granted");
    values[EXPIRES_IN] = Int64GetDatum(duration_us + rules->grace_us);
    values[SUSPECTED_IN] = Int64GetDatum(lh_core_suspected_in_us(wish));
    values[TOKEN] = Int64GetDatum(token);
    values[OWNER] = wish->owner;
    values[PRINCIPAL] = wish->principal;
    values[LABELS] = CStringGetTextDatum(JsonbToCString(NULL, &labels->root, VARSIZE(labels)));
    values[DURATION] = values[REMAINING] = Int64GetDatum(duration_us);
    values[GRACE] = Int64GetDatum(rules->grace_us);
    values[ACQUIRED_AT] = values[HEARTBEAT_AT] = TimestampTzGetDatum(now);
    values[DEADLINE] = TimestampTzGetDatum(lh_core_plus(now, &wish->duration));
    values[HELD] = values[SILENT] = values[HEARTBEATS] = Int64GetDatum(0);
    values[LIVENESS] = CStringGetTextDatum("alive");
    values[IS_MANUAL] = BoolGetDatum(rules->is_manual);
    values[MODE] = CStringGetTextDatum("exclusive");
    values[UNITS] = values[UNITS_FREE] = Int32GetDatum(0);
    values[HOLDERS] = Int32GetDatum(1);
}

void lh_core_answer_more(struct lh_core_call *call, int item, bool is_change, Datum *told, bool *told_nulls)
{
    enum { LH_CORE_ANSWER_COLUMNS, COLUMNS };
    TupleDesc type = lookup_rowtype_tupdesc(TupleDescAttr(call->row_type, LH_CORE_MORE)->atttypid, -1);
    Datum values[LH_CORE_MORE + 1] = {0};
    bool nulls[LH_CORE_MORE + 1];

    if (type->natts != COLUMNS)
        ereport(ERROR, errcode(ERRCODE_DATATYPE_MISMATCH), errmsg("leasehold_internal.answer has %d columns", COLUMNS));
    told[N] = values[N] = Int32GetDatum(item + 1);
    values[OUTCOME] = told[OUTCOME];
    values[LH_CORE_MORE] = heap_copy_tuple_as_datum(heap_form_tuple(type, told, told_nulls), type);
    memset(nulls, true, sizeof(nulls));
    nulls[N] = nulls[OUTCOME] = nulls[LH_CORE_MORE] = false;
    ReleaseTupleDesc(type);
    if (is_change)
        lh_core_answer(call, item, values, nulls);
    else
        lh_core_answer_wait(call, item, values, nulls);
}
