/* How a lease ended, as its scope's row says it: [ended] of migrations/functions/columns.txt. */
#include "core.h"

#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#define ENDED_MAX 8 /* what a scope remembers: remember() in end_leases.sql */

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

/* leasehold_internal.remember(). */
static Datum remember(Datum list, Oid type, int16 size, char alignment, Datum one)
{
    Datum *values, kept[ENDED_MAX];
    int count, first;

    deconstruct_array(DatumGetArrayTypeP(list), type, size, false, alignment, &values, NULL, &count);
    first = Max(0, count - (ENDED_MAX - 1));
    for (int i = first; i < count; i++)
        kept[i - first] = values[i];
    kept[count - first] = one;
    return PointerGetDatum(construct_array(kept, count - first + 1, type, size, false, alignment));
}

void lh_core_set_ended(struct lh_core_row *row, const struct lh_core_result *result, TimestampTz now)
{
    Datum outcome = CStringGetTextDatum(result->is_failure ? "failed" : "ok");

    lh_core_set(row, SCOPE_ENDED_KEYS,
                remember(row->values[SCOPE_ENDED_KEYS], UUIDOID, UUID_LEN, 'c', row->values[SCOPE_LEASE_KEY]));
    lh_core_set(row, SCOPE_ENDED_OUTCOMES, remember(row->values[SCOPE_ENDED_OUTCOMES], TEXTOID, -1, 'i', outcome));
    lh_core_set(row, SCOPE_ENDED_AT, TimestampTzGetDatum(now));
    lh_core_set(row, SCOPE_LAST_OUTCOME, outcome);
    lh_core_set_null(row, SCOPE_LAST_RESULT);
    lh_core_set_null(row, SCOPE_LAST_ERROR);
    if (result->has_value)
        lh_core_set(row, result->is_failure ? SCOPE_LAST_ERROR : SCOPE_LAST_RESULT, result->value);
}
