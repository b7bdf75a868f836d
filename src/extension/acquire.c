/*
 * acquire_items(): a free scope that nobody waits for, and a scope that has no row yet, are granted here. The twin is the
 * statement for a batch of several in migrations/functions/acquire_batch.sql, and what acquire_general() does about new
 * scopes; is_plain() in single_item.sql is what is checked of an item.
 */
#include "core.h"

#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#define OWNER_BYTES_MAX 255
#define LABELS_MAX 16
#define LABEL_NAME_BYTES_MAX 63
#define LABEL_VALUE_BYTES_MAX 255
#define KEY_BYTES_MAX 1024
#define SHORTEST_US 100000
/* Beyond it an interval reckons in floating point otherwise than here. */
#define LONGEST_US INT64CONST(4503599627370496)

PG_FUNCTION_INFO_V1(lh_core_acquire_items);

struct items {
    struct lh_core_array ns, key, lease_key, owner, labels, duration, wait, principal, at_least, units;
    Datum coordinator;
    bool has_coordinator;
};

struct grant {
    int item;
    const struct lh_core_rules *rules;
    Interval duration;
    Datum labels;
};

static bool is_null(const struct lh_core_array *array, int item)
{
    return array->n < 0 || array->nulls[item];
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

/* The values of the item alone; nothing was read yet. */
static bool is_plain(const struct items *items, int item, struct grant *grant)
{
    int64 us;

    if (is_null(&items->ns, item) || is_null(&items->key, item) || is_null(&items->lease_key, item) ||
        is_null(&items->duration, item) || is_null(&items->labels, item) || !is_null(&items->at_least, item) ||
        !is_null(&items->units, item))
        return false;
    grant->item = item;
    grant->rules = lh_core_rules(items->ns.values[item]);
    if (grant->rules == NULL || !grant->rules->is_plain || grant->rules->has_acquire_hook)
        return false;
    us = DatumGetInt64(items->duration.values[item]);
    grant->duration = (Interval){.time = us};
    if (us < SHORTEST_US || us > LONGEST_US ||
        !is_between(&grant->duration, &grant->rules->min_duration, &grant->rules->max_duration))
        return false;
    if (!is_null(&items->wait, item) && DatumGetInt64(items->wait.values[item]) < 0)
        return false;
    if (!is_null(&items->owner, item) && VARSIZE_ANY_EXHDR(DatumGetTextPP(items->owner.values[item])) > OWNER_BYTES_MAX)
        return false;
    return are_labels(items->labels.values[item], &grant->labels);
}

static bool is_among(Datum lease_keys, Datum lease_key)
{
    ArrayType *list = DatumGetArrayTypeP(lease_keys);
    const char *elements = ARR_DATA_PTR(list);
    int count = ArrayGetNItems(ARR_NDIM(list), ARR_DIMS(list));

    if (ARR_HASNULL(list))
        return true; /* never so; SQL decides */
    for (int i = 0; i < count; i++)
        if (memcmp(elements + i * UUID_LEN, DatumGetUUIDP(lease_key), UUID_LEN) == 0)
            return true;
    return false;
}

/* Free, and nobody waits: `queued` is set in the same transaction as the first waiter, and is true for all that is unusual. */
static bool may_have(const struct lh_core_row *row, Datum lease_key)
{
    return lh_core_text_is(row, SCOPE_STATE, "free") && !DatumGetBool(row->values[SCOPE_QUEUED]) &&
           !is_among(row->values[SCOPE_ENDED_KEYS], lease_key);
}

static void set_or_null(struct lh_core_row *row, enum lh_core_scope_column column, const struct lh_core_array *array,
                        int item)
{
    if (is_null(array, item))
        lh_core_set_null(row, column);
    else
        lh_core_set(row, column, array->values[item]);
}

/* The token is drawn here, after the row was read that the update insists on: promise 2. */
static void set_held(struct lh_core_call *call, const struct items *items, const struct grant *grant, TimestampTz now,
                     struct lh_core_row *row)
{
    TimestampTz deadline = lh_core_plus(now, &grant->duration), expiry = lh_core_plus(deadline, &grant->rules->grace);

    lh_core_set(row, SCOPE_STATE, CStringGetTextDatum("held"));
    lh_core_set(row, SCOPE_LEASE_KEY, items->lease_key.values[grant->item]);
    lh_core_set(row, SCOPE_TOKEN, Int64GetDatum(nextval_internal(call->oids->token, false)));
    set_or_null(row, SCOPE_OWNER, &items->owner, grant->item);
    set_or_null(row, SCOPE_PRINCIPAL, &items->principal, grant->item);
    lh_core_set(row, SCOPE_LABELS, grant->labels);
    lh_core_set(row, SCOPE_DURATION, IntervalPGetDatum(&grant->duration));
    lh_core_set(row, SCOPE_GRACE, IntervalPGetDatum(&grant->rules->grace));
    lh_core_set(row, SCOPE_ACQUIRED_AT, TimestampTzGetDatum(now));
    lh_core_set(row, SCOPE_HEARTBEAT_AT, TimestampTzGetDatum(now));
    lh_core_set(row, SCOPE_HEARTBEATS, Int64GetDatum(0));
    lh_core_set(row, SCOPE_DEADLINE, TimestampTzGetDatum(deadline));
    lh_core_set(row, SCOPE_INCARNATION, Int64GetDatum(call->life.id));
    if (items->has_coordinator)
        lh_core_set(row, SCOPE_GRANTED_BY, items->coordinator);
    else
        lh_core_set_null(row, SCOPE_GRANTED_BY);
    lh_core_set(row, SCOPE_LAPSED, BoolGetDatum(false));
    lh_core_set(row, SCOPE_REAP_FAILURES, Int32GetDatum(0));
    if (row->nulls[SCOPE_CHECK_AT] || DatumGetTimestampTz(row->values[SCOPE_CHECK_AT]) > expiry)
        lh_core_set(row, SCOPE_CHECK_AT, TimestampTzGetDatum(expiry));
}

static int64 suspected_in_us(const struct grant *grant)
{
    const struct lh_core_rules *rules = grant->rules;
    Interval two_thirds;
    int64 us = rules->dead_after_us;
    const Interval *first = &rules->dead_after;

    if (!rules->has_dead_after) {
        Datum twice = DirectFunctionCall2(interval_mul, IntervalPGetDatum(&grant->duration), Float8GetDatum(2));
        two_thirds = *DatumGetIntervalP(DirectFunctionCall2(interval_div, twice, Float8GetDatum(3)));
        first = &two_thirds;
        us = two_thirds.time;
    }
    if (DatumGetInt32(
            DirectFunctionCall2(interval_cmp, IntervalPGetDatum(&rules->max_hold), IntervalPGetDatum(first))) < 0)
        us = rules->max_hold_us;
    return us;
}

/* A row of leasehold_internal.acquired. */
static void answer(struct lh_core_call *call, const struct grant *grant, const struct lh_core_row *row)
{
    enum { N, OUTCOME, TOKEN, ACQUIRED_AT, GRACE, EXPIRES_IN, SUSPECTED_IN, UNITS_FREE, MORE, COLUMNS };
    const struct lh_core_rules *rules = grant->rules;
    Datum values[COLUMNS] = {0};
    bool nulls[COLUMNS] = {[EXPIRES_IN] = rules->is_manual, [UNITS_FREE] = !rules->has_capacity, [MORE] = true};

    if (call->row_type->natts != COLUMNS)
        ereport(ERROR, errcode(ERRCODE_DATATYPE_MISMATCH), errmsg("acquire_items() has %d columns", COLUMNS));
    values[N] = Int32GetDatum(grant->item + 1);
    values[OUTCOME] = CStringGetTextDatum("granted");
    values[TOKEN] = row->values[SCOPE_TOKEN];
    values[ACQUIRED_AT] = row->values[SCOPE_ACQUIRED_AT];
    values[GRACE] = Int64GetDatum(rules->grace_us);
    values[EXPIRES_IN] = Int64GetDatum(grant->duration.time + rules->grace_us);
    values[SUSPECTED_IN] = Int64GetDatum(suspected_in_us(grant));
    values[UNITS_FREE] = Int32GetDatum(0);
    lh_core_answer(call, grant->item, values, nulls);
}

/* What key_problem() allows: no control characters, of those beyond ASCII U+0080 to U+009F. */
static bool is_key(Datum key)
{
    text *value = DatumGetTextPP(key);
    const unsigned char *bytes = (const unsigned char *)VARDATA_ANY(value);
    int size = VARSIZE_ANY_EXHDR(value);

    if (size == 0 || size > KEY_BYTES_MAX)
        return false;
    for (int i = 0; i < size; i++)
        if (bytes[i] < 0x20 || bytes[i] == 0x7f || (bytes[i] == 0xc2 && i + 1 < size && bytes[i + 1] < 0xa0))
            return false;
    return true;
}

/* Columns that no grant sets are as their defaults. */
static void make_new(const struct items *items, const struct grant *grant, struct lh_core_row *row)
{
    memset(row, 0, sizeof(*row));
    for (int i = 0; i < SCOPE_COLUMNS; i++)
        row->nulls[i] = true;
    lh_core_set(row, SCOPE_NAMESPACE, items->ns.values[grant->item]);
    lh_core_set(row, SCOPE_KEY, items->key.values[grant->item]);
    lh_core_set(row, SCOPE_QUEUED, BoolGetDatum(false));
    lh_core_set(row, SCOPE_ENDED_KEYS, PointerGetDatum(construct_empty_array(UUIDOID)));
    lh_core_set(row, SCOPE_ENDED_OUTCOMES, PointerGetDatum(construct_empty_array(TEXTOID)));
}

static void acquire_one(struct lh_core_call *call, const struct items *items, int item)
{
    struct grant grant;
    struct lh_core_row row;
    Datum ns = items->ns.values[item], key = items->key.values[item], lease_key = items->lease_key.values[item];
    bool is_granted = false;

    if (is_plain(items, item, &grant) && !lh_core_is_left(call, ns, key)) {
        if (lh_core_find(call, ns, key, &row)) {
            if (may_have(&row, lease_key)) {
                set_held(call, items, &grant, GetCurrentTimestamp(), &row);
                is_granted = lh_core_update(call, &row, false);
            }
        } else if (is_key(key)) {
            make_new(items, &grant, &row);
            set_held(call, items, &grant, GetCurrentTimestamp(), &row);
            is_granted = lh_core_insert(call, &row);
            lh_core_leave(call, ns, key); /* a later item does not see the row in this command */
        }
    }
    if (is_granted)
        answer(call, &grant, &row);
    else if (!is_null(&items->ns, item) && !is_null(&items->key, item))
        lh_core_leave(call, ns, key);
}

Datum lh_core_acquire_items(PG_FUNCTION_ARGS)
{
    enum {
        COORDINATOR,
        CLOCK,
        NS,
        KEY,
        LEASE_KEY,
        OWNER,
        LABELS,
        DURATION,
        QUEUE,
        WAIT,
        TICKET,
        PRINCIPALS,
        AT_LEAST,
        UNITS
    };
    struct lh_core_call call;
    struct items items = {
        .ns = lh_core_array(fcinfo, NS, TEXTOID),
        .key = lh_core_array(fcinfo, KEY, TEXTOID),
        .lease_key = lh_core_array(fcinfo, LEASE_KEY, UUIDOID),
        .owner = lh_core_array(fcinfo, OWNER, TEXTOID),
        .labels = lh_core_array(fcinfo, LABELS, TEXTOID),
        .duration = lh_core_array(fcinfo, DURATION, INT8OID),
        .wait = lh_core_array(fcinfo, WAIT, INT8OID),
        .principal = lh_core_array(fcinfo, PRINCIPALS, TEXTOID),
        .at_least = lh_core_array(fcinfo, AT_LEAST, INT8OID),
        .units = lh_core_array(fcinfo, UNITS, INT4OID),
        .has_coordinator = !PG_ARGISNULL(COORDINATOR),
        .coordinator = PG_ARGISNULL(COORDINATOR) ? (Datum)0 : PG_GETARG_DATUM(COORDINATOR),
    };
    const struct lh_core_array *arrays[] = {&items.key,       &items.lease_key, &items.owner,
                                            &items.labels,    &items.duration,  &items.wait,
                                            &items.principal, &items.at_least,  &items.units};
    int count = items.ns.n;

    for (size_t i = 0; i < lengthof(arrays); i++)
        if (arrays[i]->n >= 0 && arrays[i]->n != items.ns.n)
            count = 0; /* SQL says what that means */
    if (items.key.n < 0 || items.lease_key.n < 0 || items.duration.n < 0 || items.labels.n < 0)
        count = 0;
    if (!lh_core_begin(&call, fcinfo, "acquire_items", count))
        return (Datum)0;
    /* A SQL user joins a held scope without changing its row: where one waits anywhere, SQL looks where. */
    if (!lh_core_has_row(call.oids->waiter, call.oids->waiter_sql_user, call.snapshot))
        for (int i = 0; i < count; i++)
            acquire_one(&call, &items, i);
    return lh_core_end(&call, "core_granted");
}
