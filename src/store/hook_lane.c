#include "store/hook_lane.h"

#include <stdio.h>

#include "base/text.h"
#include "store/internal.h"

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

void lh_hook_lane_lend(struct lane *lane)
{
    lh_pg_conn_set_answer_limit(lane->conn, 0);
    lh_pg_conn_reset_session(lane->conn, lane->store->options.statement_timeout_us);
}

void lh_hook_lane_timeout_words(int64_t timeout_us, char words[HOOK_LANE_WORDS_BYTES])
{
    char limit[LH_DURATION_TEXT_BYTES];
    lh_duration_format(timeout_us, limit);
    snprintf(words, HOOK_LANE_WORDS_BYTES, LH_HOOK_TIMEOUT_WORDS " of %s", limit);
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
