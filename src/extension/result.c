/* How a lease ended, as its scope's row says it: [ended] of migrations/functions/columns.txt. */
#include "core.h"

#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

/* What a scope remembers: remember() in end_leases.sql. */
#define KEYS_MAX 16
#define KEYS_KEPT 7

bool lh_core_result(const struct lh_core_array *failed, const struct lh_core_array *value, int item,
                    const struct lh_core_rules *rules, struct lh_core_result *result)
{
    if (failed->nulls[item])
        return false;
    result->is_failure = DatumGetBool(failed->values[item]);
    result->has_value = !value->nulls[item];
    if (result->is_failure ? rules->has_release_fail_hook : rules->has_release_ok_hook)
        return false;
    if (!result->has_value)
        return true;
    result->value = value->values[item];
    /* What is no JSON is an error here as there. */
    if (!result->is_failure)
        result->value = DirectFunctionCall1(jsonb_in, CStringGetDatum(TextDatumGetCString(result->value)));
    return true;
}

static int first_subscript(ArrayType *list)
{
    return ARR_NDIM(list) == 0 ? 1 : ARR_LBOUND(list)[0];
}

/* leasehold_internal.remember(). */
static Datum remember(ArrayType *keys, Datum key)
{
    Datum *values, kept[KEYS_MAX];
    int count, first = first_subscript(keys) - 1;

    deconstruct_array(keys, UUIDOID, UUID_LEN, false, 'c', &values, NULL, &count);
    if (count >= KEYS_MAX) {
        count = KEYS_KEPT;
        first = 0;
    }
    kept[0] = key;
    memcpy(kept + 1, values, count * sizeof(Datum));
    count++;
    return PointerGetDatum(construct_md_array(kept, NULL, 1, &count, &first, UUIDOID, UUID_LEN, false, 'c'));
}

/* The outcomes of the keys that are kept, from subscript 1; none where they are all ok. */
static Datum keep_outcomes(Datum outcomes, int first)
{
    Datum kept[KEYS_KEPT], ok = CStringGetTextDatum("ok");
    bool nulls[KEYS_KEPT], all_ok = true;
    int count = KEYS_KEPT, one = 1;

    for (int i = 0, at = first; i < KEYS_KEPT; i++, at++) {
        kept[i] = array_get_element(outcomes, 1, &at, -1, -1, false, 'i', &nulls[i]);
        all_ok = all_ok && (nulls[i] || DatumGetBool(DirectFunctionCall2Coll(texteq, C_COLLATION_OID, kept[i], ok)));
    }
    return PointerGetDatum(all_ok ? construct_empty_array(TEXTOID)
                                  : construct_md_array(kept, nulls, 1, &count, &one, TEXTOID, -1, false, 'i'));
}

/* leasehold_internal.remember_outcome(). */
static Datum remember_outcome(ArrayType *keys, Datum outcomes, Datum outcome, bool is_failure)
{
    int first = first_subscript(keys), place = first - 1;

    if (ArrayGetNItems(ARR_NDIM(keys), ARR_DIMS(keys)) >= KEYS_MAX) {
        outcomes = keep_outcomes(outcomes, first);
        place = 0;
    }
    return is_failure ? array_set_element(outcomes, 1, &place, outcome, false, -1, -1, false, 'i') : outcomes;
}

void lh_core_set_ended(struct lh_core_row *row, const struct lh_core_result *result, TimestampTz now)
{
    Datum outcome = CStringGetTextDatum(result->is_failure ? "failed" : "ok");
    ArrayType *keys = DatumGetArrayTypeP(row->values[SCOPE_ENDED_KEYS]);

    lh_core_set(row, SCOPE_ENDED_OUTCOMES,
                remember_outcome(keys, row->values[SCOPE_ENDED_OUTCOMES], outcome, result->is_failure));
    lh_core_set(row, SCOPE_ENDED_KEYS, remember(keys, row->values[SCOPE_LEASE_KEY]));
    lh_core_set(row, SCOPE_ENDED_AT, TimestampTzGetDatum(now));
    lh_core_set(row, SCOPE_LAST_OUTCOME, outcome);
    lh_core_set_null(row, SCOPE_LAST_RESULT);
    lh_core_set_null(row, SCOPE_LAST_ERROR);
    if (result->has_value)
        lh_core_set(row, result->is_failure ? SCOPE_LAST_ERROR : SCOPE_LAST_RESULT, result->value);
}
