/*
 * The statements of a run of reaps. All but the last commit lazily: the settings for that end with the transaction, and
 * come first, because the call needs them.
 */
#include "store/hook_reap.h"

#include "base/clock.h"
#include "store/control.h"

static void add_clock(struct lane *lane)
{
    lh_pg_store_add_clock(&lane->params, lane->clock_us == 0 ? 0 : lane->clock_us + lh_clock_us() - lane->sent_us);
}

static enum lh_status send_one(struct lane *lane, const struct lh_reap_item *item, bool is_last,
                               lh_pg_query_cb *on_answer)
{
    static const struct lh_pg_statement reap = LH_PG_STATEMENT(
        "reap_hooked",
        "select kind, error, reap_failures, next_try_at, wake from leasehold_internal.reap_hooked($1, $2, $3, $4, $5)",
        LH_PG_UUID, LH_PG_TIMESTAMPTZ, LH_PG_TEXT, LH_PG_TEXT, LH_PG_INT8);
    static const struct lh_pg_statement lazy_reap = LH_PG_STATEMENT(
        "reap_hooked_lazily",
        "select r.kind, r.error, r.reap_failures, r.next_try_at, r.wake"
        "  from (select pg_catalog.set_config('synchronous_commit', 'off', true) as a,"
        "               pg_catalog.set_config('leasehold.lazy', 'on', true) as b offset 0) s"
        " cross join lateral leasehold_internal.reap_hooked($1, $2, $3, $4, case when s.a = s.b then null else $5 end) "
        "r",
        LH_PG_UUID, LH_PG_TIMESTAMPTZ, LH_PG_TEXT, LH_PG_TEXT, LH_PG_INT8);
    static const struct lh_pg_statement fail = LH_PG_STATEMENT(
        "reap_failed",
        "select kind, error, reap_failures, next_try_at, wake from leasehold_internal.reap_failed($1, $2, $3, $4, $5)",
        LH_PG_UUID, LH_PG_TEXT, LH_PG_TEXT, LH_PG_INT8, LH_PG_TEXT);
    const struct lh_pg_statement *statement = item->loss != NULL ? &fail : is_last ? &reap : &lazy_reap;
    struct lh_pg_params *params = &lane->params;

    lh_pg_params_reset(params);
    lh_pg_add_uuid(params, &lane->store->base.coordinator);
    if (item->loss == NULL)
        add_clock(lane);
    lh_pg_add_text(params, item->ns);
    lh_pg_add_text(params, item->key);
    lh_pg_add_int8(params, item->token);
    if (item->loss != NULL)
        lh_pg_add_text(params, item->loss);
    return lh_pg_query(lane->conn, statement, params, on_answer, lane);
}

static enum lh_status send_joined(struct lane *lane, struct lh_reap_item *const *items, size_t n, bool is_last,
                                  lh_pg_query_cb *on_answer)
{
    static const struct lh_pg_statement reap =
        LH_PG_STATEMENT("reap_together", "select t from leasehold_internal.reap_together($1, $2, $3, $4) t",
                        LH_PG_TIMESTAMPTZ, LH_PG_TEXT, LH_PG_TEXT_ARRAY, LH_PG_INT8_ARRAY);
    static const struct lh_pg_statement lazy_reap = LH_PG_STATEMENT(
        "reap_together_lazily",
        "select t"
        "  from (select pg_catalog.set_config('synchronous_commit', 'off', true) as a,"
        "               pg_catalog.set_config('leasehold.lazy', 'on', true) as b offset 0) s"
        " cross join lateral leasehold_internal.reap_together($1, case when s.a = s.b then null else $2 end, $3, $4) t",
        LH_PG_TIMESTAMPTZ, LH_PG_TEXT, LH_PG_TEXT_ARRAY, LH_PG_INT8_ARRAY);
    struct lh_pg_params *params = &lane->params;

    lh_pg_params_reset(params);
    add_clock(lane);
    lh_pg_add_text(params, items[0]->ns);
    LH_PG_ARRAY(params, LH_PG_TEXT, n, lh_pg_add_text(params, items[i]->key));
    LH_PG_ARRAY(params, LH_PG_INT8, n, lh_pg_add_int8(params, items[i]->token));
    return lh_pg_query(lane->conn, is_last ? &reap : &lazy_reap, params, on_answer, lane);
}

enum lh_status lh_hook_reap_send(struct lane *lane, struct lh_reap_item *const *items, size_t n, bool is_last,
                                 lh_pg_query_cb *on_answer)
{
    return n == 1 ? send_one(lane, items[0], is_last, on_answer) : send_joined(lane, items, n, is_last, on_answer);
}
