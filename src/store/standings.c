#include "store/standings.h"

#include <string.h>

#include "base/clock.h"
#include "pg/values.h"
#include "store/control.h"

/* At most a hundredth of the time of one of the database's processes, and of one connection. */
#define REST_FACTOR 100

static void read_namespaces(struct control_call *call, enum lh_status status, const PGresult *result,
                            const struct lh_error *error)
{
    static const char *const names[] = {"namespace", "overdue",        "silent",         "held_too_long",
                                        "expired",   "oldest_hold_us", "longest_wait_us"};
    struct pg_store *store = call->store;
    int64_t now_us = lh_clock_us();
    int at[7];

    store->standings_due_us = now_us + REST_FACTOR * (now_us - store->standings_asked_us);
    store->is_looking_at_namespaces = false;
    if (status != LH_OK)
        return;
    lh_pg_result_columns(result, names, at, 7);
    store->standing_count = 0;
    for (int row = 0; row < PQntuples(result) && row < LH_STORE_STANDINGS_MAX; row++) {
        const char *ns = lh_pg_text(result, row, at[0]);
        struct lh_store_standing *standing = &store->standings[store->standing_count++];
        snprintf(standing->ns, sizeof(standing->ns), "%s", ns == NULL ? "" : ns);
        standing->overdue = (uint64_t)lh_pg_int8(result, row, at[1]);
        standing->silent = (uint64_t)lh_pg_int8(result, row, at[2]);
        standing->held_too_long = (uint64_t)lh_pg_int8(result, row, at[3]);
        standing->expired = (uint64_t)lh_pg_int8(result, row, at[4]);
        standing->oldest_hold_us = lh_pg_int8(result, row, at[5]);
        standing->longest_wait_us = lh_pg_int8(result, row, at[6]);
    }
}

void lh_pg_store_look_at_namespaces(struct pg_store *store)
{
    static const struct lh_pg_statement statement =
        LH_PG_STATEMENT("survey_namespaces", "select * from leasehold_internal.survey_namespaces($1)", LH_PG_INT4);
    struct control_call *call;

    if (store->is_looking_at_namespaces || lh_clock_us() < store->standings_due_us)
        return;
    store->standings_asked_us = lh_clock_us();
    call = lh_control_call_begin(store, read_namespaces, NULL, NULL);
    /* The coordinator's own calls do not wait behind it. */
    call->is_clients = true;
    lh_pg_add_int4(&store->params, store->options.named_namespaces);
    store->is_looking_at_namespaces = lh_control_call_send(call, &statement) == LH_OK;
}

const struct lh_store_standing *lh_store_standings(const struct lh_store *base, size_t *count)
{
    const struct pg_store *store = (const struct pg_store *)(const void *)base;

    *count = store->standing_count;
    return store->standings;
}
