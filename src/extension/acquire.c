/*
 * acquire_items(): a free scope that nobody waits for, and a scope that has no row yet, are granted here; who waits for one that another holds
 * gets its place (join.c), and who may share one gets its units (share.c). The twin is the statement for a batch of several in
 * migrations/functions/acquire_batch.sql, and what acquire_general() does about new scopes.
 */
#include "core.h"

#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#define KEY_BYTES_MAX 1024

PG_FUNCTION_INFO_V1(lh_core_acquire_items);

/* Promise 1. Free, and nobody waits: `queued` is set in the same transaction as the first waiter, and is true for all that is unusual. */
static bool may_have(const struct lh_core_row *row, Datum lease_key)
{
    return lh_core_text_is(row, SCOPE_STATE, "free") && !DatumGetBool(row->values[SCOPE_QUEUED]) &&
           !lh_core_has_ended(row, lease_key);
}

/* The caller says what the columns are; a grant has null in the last one, `more`. */
static void check_columns(const struct lh_core_call *call)
{
    static const Oid types[] = {INT4OID, TEXTOID, INT8OID, TIMESTAMPTZOID, INT8OID, INT8OID, INT8OID, INT4OID};
    bool is_right = call->row_type->natts == LH_CORE_MORE + 1;

    for (int i = 0; i < lengthof(types) && is_right; i++)
        is_right = TupleDescAttr(call->row_type, i)->atttypid == types[i];
    if (!is_right)
        ereport(ERROR, errcode(ERRCODE_DATATYPE_MISMATCH),
                errmsg("the columns of leasehold_core.acquire_items() are those of leasehold_internal.acquired"));
}

/* A row of leasehold_internal.acquired. */
static void answer(struct lh_core_call *call, int item, const struct lh_core_wish *wish, const struct lh_core_row *row)
{
    enum { N, OUTCOME, TOKEN, ACQUIRED_AT, GRACE, EXPIRES_IN, SUSPECTED_IN, UNITS_FREE, COLUMNS = LH_CORE_MORE + 1 };
    const struct lh_core_rules *rules = wish->rules;
    Datum values[COLUMNS] = {0};
    bool nulls[COLUMNS] = {[EXPIRES_IN] = rules->is_manual, [UNITS_FREE] = !rules->has_capacity, [LH_CORE_MORE] = true};

    values[N] = Int32GetDatum(item + 1);
    values[OUTCOME] = CStringGetTextDatum("granted");
    values[TOKEN] = row->values[SCOPE_TOKEN];
    values[ACQUIRED_AT] = row->values[SCOPE_ACQUIRED_AT];
    values[GRACE] = Int64GetDatum(rules->grace_us);
    values[EXPIRES_IN] = Int64GetDatum(wish->duration.time + rules->grace_us);
    values[SUSPECTED_IN] = Int64GetDatum(lh_core_suspected_in_us(wish));
    values[UNITS_FREE] = Int32GetDatum(0);
    lh_core_answer(call, item, values, nulls);
}

/* What key_problem() allows: no control characters, of those beyond ASCII U+0080 to U+009F. */
static bool is_key(Datum key)
{
    text *value = DatumGetTextPP(key);
    const unsigned char *bytes = (const unsigned char *)VARDATA_ANY(value);
    int size = VARSIZE_ANY_EXHDR(value);

    if (size == 0 || size > KEY_BYTES_MAX || GetDatabaseEncoding() != PG_UTF8)
        return false;
    for (int i = 0; i < size; i++)
        if (bytes[i] < 0x20 || bytes[i] == 0x7f || (bytes[i] == 0xc2 && i + 1 < size && bytes[i + 1] < 0xa0))
            return false;
    return true;
}

/* Columns that no grant sets are as their defaults. */
static void make_new(Datum ns, Datum key, struct lh_core_row *row)
{
    memset(row, 0, sizeof(*row));
    for (int i = 0; i < SCOPE_COLUMNS; i++)
        row->nulls[i] = true;
    lh_core_set(row, SCOPE_NAMESPACE, ns);
    lh_core_set(row, SCOPE_KEY, key);
    lh_core_set(row, SCOPE_QUEUED, BoolGetDatum(false));
    lh_core_set(row, SCOPE_ENDED_KEYS, PointerGetDatum(construct_empty_array(UUIDOID)));
    lh_core_set(row, SCOPE_ENDED_OUTCOMES, PointerGetDatum(construct_empty_array(TEXTOID)));
}

/* Promise 2. The name is taken before the token is drawn: between the two, another session could hold the scope, end its
   lease, and the reaper delete the row with the larger token. */
static bool create(struct lh_core_call *call, const struct lh_core_wish *wish, Datum ns, Datum key,
                   struct lh_core_row *row)
{
    if (!lh_core_take_name(call, ns, key))
        return false;
    make_new(ns, key, row);
    lh_core_set_held(call, wish, GetCurrentTimestamp(), row);
    lh_core_insert(call, &call->scope, row);
    return true;
}

static bool may_queue(const struct lh_core_wishes *wishes, int item)
{
    return wishes->queue.n > 0 && !wishes->queue.nulls[item] && DatumGetBool(wishes->queue.values[item]);
}

static bool has_joiner(const struct lh_core_joiner *joiners, int count, Datum lease_key)
{
    for (int i = 0; i < count; i++)
        if (memcmp(DatumGetUUIDP(joiners[i].wish.lease_key), DatumGetUUIDP(lease_key), UUID_LEN) == 0)
            return true;
    return false;
}

/* The requests of the call for this scope, in their order, from `item` on, which is the first that is not answered. Returns their count, or 0 where one
   is of another kind than the first: the items of one scope are decided, and answered, with each other, so SQL decides about all of them. */
static int gather(struct lh_core_call *call, const struct lh_core_wishes *wishes, int item,
                  const struct lh_core_wish *wish, struct lh_core_joiner *joiners)
{
    bool is_shared = wish->units > 0;
    int count = 1;

    joiners[0] = (struct lh_core_joiner){item, *wish};
    for (int i = 0; i < call->count; i++) {
        struct lh_core_joiner *next = &joiners[count];
        if (i == item || !lh_core_is_same_scope(call, &wishes->ns, &wishes->key, item, i))
            continue;
        if (i < item || !(is_shared || may_queue(wishes, i)) || !lh_core_wish(wishes, i, &next->wish) ||
            (next->wish.units > 0) != is_shared || has_joiner(joiners, count, next->wish.lease_key))
            return 0;
        next->item = i;
        count++;
    }
    return count;
}

/* Its share, or its place in the queue, together with those that want the same. */
static bool take_part(struct lh_core_call *call, const struct lh_core_wishes *wishes, int item,
                      const struct lh_core_wish *wish, struct lh_core_row *row)
{
    Datum ns = wishes->ns.values[item], key = wishes->key.values[item];
    struct lh_core_joiner *joiners;
    bool is_done = false;
    int count;

    if (wishes->has_places || !(wish->units > 0 || may_queue(wishes, item)))
        return false;
    joiners = palloc((call->count - item) * sizeof(*joiners));
    count = gather(call, wishes, item, wish, joiners);
    if (count > 0)
        is_done = wish->units > 0 ? lh_core_share(call, joiners, count, ns, key, row)
                                  : lh_core_join(call, joiners, count, ns, key, row);
    pfree(joiners);
    return is_done;
}

static void acquire_one(struct lh_core_call *call, const struct lh_core_wishes *wishes, int item)
{
    struct lh_core_wish wish;
    struct lh_core_row row;
    Datum ns = wishes->ns.values[item], key = wishes->key.values[item];
    bool is_granted = false;

    if (lh_core_wish(wishes, item, &wish) && !lh_core_is_left(call, ns, key)) {
        if (lh_core_find(call, ns, key, &row)) {
            if (wish.units == 0 && may_have(&row, wish.lease_key)) {
                lh_core_set_held(call, &wish, GetCurrentTimestamp(), &row);
                is_granted = lh_core_update(call, &call->scope, &row, false);
            } else if (take_part(call, wishes, item, &wish, &row)) {
                return;
            }
        } else if (wish.units == 0 && !wishes->has_places && is_key(key)) {
            is_granted = create(call, &wish, ns, key, &row);
            lh_core_leave(call, ns, key); /* a later item does not see the row in this command */
        }
    }
    if (is_granted)
        answer(call, item, &wish, &row);
    else if (!wishes->ns.nulls[item] && !wishes->key.nulls[item])
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
    static const struct lh_core_wish_arguments at = {COORDINATOR, NS,   KEY,    LEASE_KEY,  OWNER,    LABELS, DURATION,
                                                     QUEUE,       WAIT, TICKET, PRINCIPALS, AT_LEAST, UNITS};
    struct lh_core_wishes wishes;
    struct lh_core_call call;

    lh_core_wishes(fcinfo, &at, &wishes);
    if (!lh_core_begin(&call, fcinfo, "acquire_items", wishes.count))
        return (Datum)0;
    check_columns(&call);
    /* A SQL user joins a held scope without changing its row: where one waits anywhere, SQL looks where. */
    if (!lh_core_has_row(call.oids->waiter, &call.oids->waiter_sql_user, call.snapshot))
        for (int i = 0; i < call.count; i++)
            if (!call.is_done[i]) /* with an earlier one of its scope */
                acquire_one(&call, &wishes, i);
    if (call.is_alone && call.count == 1 && call.place_count == 1)
        lh_core_relax_commit();
    return lh_core_end(&call, "core_granted");
}
