/*
 * A hook lane: a connection of its own for items with hooks, so that no other item waits for a hook. Its session has
 * `leasehold.hooks` on, and statement_timeout is the limit of the next item. Before each item, in the same packet, the
 * session is reset to that, because a callback may have changed any setting. (In a run of reaps, when namespace or
 * limit change.)
 */
#include <stdio.h>

#include "base/text.h"
#include "store/store_internal.h"

/* That it failed shows in what follows: the connection is lost. */
static void on_set(void *arg, enum lh_status status, const PGresult *result, const struct lh_error *error)
{
}

void lh_hook_lane_set_limits(struct lane *lane, int64_t timeout_us, int64_t answer_us)
{
    static const struct lh_pg_statement statement = {
        "hook_lane_set", "select pg_catalog.set_config('leasehold.hooks', 'on', false)", 0, {0}};

    lh_pg_conn_set_answer_limit(lane->conn, answer_us);
    if (lh_pg_conn_reset_session(lane->conn, timeout_us) == LH_OK)
        lh_pg_query(lane->conn, &statement, NULL, on_set, lane);
}

void lh_hook_lane_set(struct lane *lane, int64_t timeout_us)
{
    lh_hook_lane_set_limits(lane, timeout_us, timeout_us);
}

void lh_hook_lane_timeout_words(int64_t timeout_us, char words[HOOK_LANE_WORDS_BYTES])
{
    snprintf(words, HOOK_LANE_WORDS_BYTES, LH_HOOK_TIMEOUT_WORDS " of %s", LH_DURATION_TEXT(timeout_us));
}

struct lane *lh_hook_lane_any(struct pg_store *store)
{
    struct lane *best = NULL;

    for (unsigned i = store->options.lanes; i < store->options.lanes + store->options.hook_lanes; i++) {
        struct lane *lane = &store->lanes[i];
        if (lh_pg_conn_is_up(lane->conn) &&
            (best == NULL || lh_pg_conn_in_flight(lane->conn) < lh_pg_conn_in_flight(best->conn)))
            best = lane;
    }
    return best;
}

/*
 * The statements of a run of reaps. All but the last commit lazily: the settings for that end with the transaction, and
 * come first, because the call needs them.
 */
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
        lh_lane_add_clock(lane);
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
    lh_lane_add_clock(lane);
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
