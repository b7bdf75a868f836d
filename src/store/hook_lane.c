/*
 * The story of a run of reaps: a few statements are on their way at any time, each a transaction of its own, so that
 * neither side waits for the other. All but the last may commit lazily; the last one's commit flushes what they wrote.
 * Where the last had nothing to write, a record that means nothing is flushed in its place. After one that took long no
 * more are sent: whoever waits for this lane shall not wait for all of them.
 *
 * A statement that fails as a whole tells why, and its failure is recorded by the next run. A lost connection ends the
 * run, after all that was on its way has been answered.
 */
#include "store/hook_lane.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "pg/result.h"
#include "store/internal.h"
#include "store/lease_row.h"

#define WINDOW 8 /* on their way at most... */
#define REFILL 4 /* ...and no more are sent before so few are: a packet wakes the other side, several cost no more */
#define LONG_US (100 * LH_US_PER_MS)
#define NOT_SET INT64_C(-1)

struct hook_run {
    struct lh_reap_item **items;
    size_t n; /* that will be sent */
    size_t sent;
    size_t answered;
    size_t in_flight; /* statements */
    size_t durable;   /* how many there were with the one that does not commit lazily; 0: it was not sent */
    int64_t timeout_us;
    int64_t answered_us;
    bool is_lazy_open; /* something was committed that may not be flushed */
    enum lh_status status;
    struct lh_error error;
    struct reap_columns columns;
    bool has_columns;
};

static const struct batch_kind run_kind = {.name = "reap"};

void hook_lane_create(struct lane *lane)
{
    lane->is_hook = true;
    lane->run = lh_alloc_zero(1, sizeof(*lane->run));
}

void hook_lane_destroy(struct lane *lane)
{
    free(lane->run);
}

/* --- limits --- */

/* That it failed shows in what follows: the connection is lost. */
static void on_set(void *arg, enum lh_status status, const PGresult *result, const struct lh_error *error)
{
}

void hook_lane_set(struct lane *lane, int64_t timeout_us)
{
    static const struct lh_pg_statement statement = {
        "hook_lane_set",
        "select pg_catalog.set_config('statement_timeout', $1::text, false),"
        " pg_catalog.set_config('leasehold.hooks', 'on', false)",
        1,
        {LH_PG_TEXT},
    };
    char text[24];

    snprintf(text, sizeof(text), "%lld", (long long)((timeout_us + LH_US_PER_MS - 1) / LH_US_PER_MS));
    lh_pg_params_reset(&lane->params);
    lh_pg_add_text(&lane->params, text);
    lh_pg_conn_set_answer_limit(lane->conn, timeout_us);
    lh_pg_query(lane->conn, &statement, &lane->params, on_set, lane);
    lane->run->timeout_us = timeout_us;
}

void hook_lane_touched(struct lane *lane)
{
    lh_pg_conn_set_answer_limit(lane->conn, 0);
    lane->run->timeout_us = NOT_SET;
}

void hook_lane_timeout_words(int64_t timeout_us, char words[HOOK_LANE_WORDS_BYTES])
{
    char limit[LH_DURATION_TEXT_BYTES];
    lh_duration_format(timeout_us, limit);
    snprintf(words, HOOK_LANE_WORDS_BYTES, LH_HOOK_TIMEOUT_WORDS " of %s", limit);
}

struct lane *hook_lane_any(struct pg_store *store)
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

/* --- runs --- */

static void on_answer(void *arg, enum lh_status status, const PGresult *result, const struct lh_error *error);
static void on_flushed(void *arg, enum lh_status status, const PGresult *result, const struct lh_error *error);

static void finish(struct lane *lane)
{
    struct hook_run *run = lane->run;
    lh_store_cb *on_done = lane->on_done;

    lane->kind = NULL;
    on_done(lane->arg, run->status, run->status == LH_OK ? NULL : &run->error);
    if (lane->store->state == STORE_FINISHING)
        lh_defer(lane->store->loop, &lane->store->advance);
}

/* All are answered as lost where one is. */
static void lose(struct hook_run *run, enum lh_status status, const struct lh_error *error)
{
    run->n = run->sent;
    if (run->status != LH_OK)
        return;
    run->status = status;
    if (error != NULL)
        run->error = *error;
    else
        lh_error_set(&run->error, status, "the connection was lost");
}

static enum lh_status send_one(struct lane *lane, const struct lh_reap_item *item, bool is_last)
{
    static const struct lh_pg_statement reap = {
        "reap_hooked",
        "select kind, error, reap_failures, next_try_at, wake from leasehold.reap_hooked($1, $2, $3, $4, $5)",
        5,
        {LH_PG_UUID, LH_PG_TIMESTAMPTZ, LH_PG_TEXT, LH_PG_TEXT, LH_PG_INT8},
    };
    /* The settings end with the transaction. They are made first, for the call needs them. */
    static const struct lh_pg_statement lazy_reap = {
        "reap_hooked_lazily",
        "select r.kind, r.error, r.reap_failures, r.next_try_at, r.wake"
        "  from (select pg_catalog.set_config('synchronous_commit', 'off', true) as a,"
        "               pg_catalog.set_config('leasehold.lazy', 'on', true) as b offset 0) s"
        " cross join lateral leasehold.reap_hooked($1, $2, $3, $4, case when s.a = s.b then null else $5 end) r",
        5,
        {LH_PG_UUID, LH_PG_TIMESTAMPTZ, LH_PG_TEXT, LH_PG_TEXT, LH_PG_INT8},
    };
    static const struct lh_pg_statement fail = {
        "reap_failed",
        "select kind, error, reap_failures, next_try_at, wake from leasehold.reap_failed($1, $2, $3, $4, $5)",
        5,
        {LH_PG_UUID, LH_PG_TEXT, LH_PG_TEXT, LH_PG_INT8, LH_PG_TEXT},
    };
    const struct lh_pg_statement *statement = item->loss != NULL ? &fail : is_last ? &reap : &lazy_reap;
    struct lh_pg_params *params = &lane->params;

    lh_pg_params_reset(params);
    lh_pg_add_uuid(params, &lane->store->base.coordinator);
    if (item->loss == NULL)
        pg_store_add_clock(params, lane->clock_us == 0 ? 0 : lane->clock_us + lh_clock_us() - lane->sent_us);
    lh_pg_add_text(params, item->ns);
    lh_pg_add_text(params, item->key);
    lh_pg_add_int8(params, item->token);
    if (item->loss != NULL)
        lh_pg_add_text(params, item->loss);
    if (is_last)
        lane->run->durable = lane->run->sent + 1;
    return lh_pg_query(lane->conn, statement, params, on_answer, lane);
}

static void flush(struct lane *lane)
{
    static const struct lh_pg_statement statement = {
        "flush", "select pg_catalog.pg_logical_emit_message(true, 'leasehold', '')", 0, {0}};
    struct hook_run *run = lane->run;

    run->is_lazy_open = false;
    if (lh_pg_query(lane->conn, &statement, NULL, on_flushed, lane) == LH_OK)
        run->in_flight++;
    else
        lose(run, LH_DATABASE_UNAVAILABLE, NULL);
}

static void go_on(struct lane *lane)
{
    struct hook_run *run = lane->run;

    bool is_low = run->in_flight <= REFILL;

    while (is_low && run->status == LH_OK && run->sent < run->n && run->in_flight < WINDOW) {
        const struct lh_reap_item *item = run->items[run->sent];
        if (item->hook_timeout_us != run->timeout_us)
            hook_lane_set(lane, item->hook_timeout_us);
        if (send_one(lane, item, run->sent + 1 == run->n) == LH_OK) {
            run->sent++;
            run->in_flight++;
        } else {
            lose(run, LH_DATABASE_UNAVAILABLE, NULL);
        }
    }
    if (run->in_flight > 0)
        return;
    if (run->status == LH_OK && run->is_lazy_open)
        flush(lane);
    if (run->in_flight == 0)
        finish(lane);
}

static void on_flushed(void *arg, enum lh_status status, const PGresult *result, const struct lh_error *error)
{
    struct lane *lane = arg;

    lane->run->in_flight--;
    if (status != LH_OK)
        lose(lane->run, status, error);
    go_on(lane);
}

static void read_item(struct lane *lane, struct lh_reap_item *item, const PGresult *result, bool is_durable)
{
    struct hook_run *run = lane->run;

    if (!run->has_columns)
        reap_columns_find(result, &run->columns);
    run->has_columns = true;
    item->outcome = LH_REAP_GONE;
    if (PQntuples(result) == 0)
        return;
    reap_row_read(&item->reaped, result, 0, &run->columns, &lane->arena);
    item->outcome = item->reaped.is_failure ? LH_REAP_FAILED : LH_REAP_DONE;
    run->is_lazy_open = !is_durable && item->loss == NULL;
}

static void on_answer(void *arg, enum lh_status status, const PGresult *result, const struct lh_error *error)
{
    struct lane *lane = arg;
    struct hook_run *run = lane->run;
    struct lh_reap_item *item = run->items[run->answered];
    int64_t now_us = lh_clock_us();

    lane_refresh_arena(lane);
    item->took_us = now_us - run->answered_us;
    run->answered_us = now_us;
    run->answered++;
    run->in_flight--;
    if (status == LH_DATABASE_UNAVAILABLE || status == LH_CANCELED) {
        lose(run, status, error);
    } else if (status != LH_OK) {
        item->outcome = LH_REAP_ERROR;
        item->reaped.error = lh_arena_strdup(&lane->arena, error->message);
    } else {
        /* Not `run->n`: where the run was cut short, its last one was not sent as such. */
        read_item(lane, item, result, run->answered == run->durable);
    }
    if (item->took_us > LONG_US)
        run->n = run->sent;
    go_on(lane);
}

enum lh_status hook_lane_reap(struct lane *lane, int64_t clock_us, struct lh_reap_item **items, size_t n,
                              lh_store_cb *on_done, void *arg)
{
    struct hook_run *run = lane->run;

    if (lane->store->state != STORE_RUNNING || !lh_pg_conn_is_up(lane->conn))
        return LH_DATABASE_UNAVAILABLE;
    lane->is_arena_stale = true;
    lane->kind = &run_kind;
    lane->clock_us = clock_us;
    lane->sent_us = lh_clock_us();
    lane->on_done = on_done;
    lane->arg = arg;
    *run = (struct hook_run){.items = items,
                             .n = n,
                             .timeout_us = NOT_SET,
                             .answered_us = lane->sent_us,
                             .columns = run->columns,
                             .has_columns = run->has_columns};
    hook_lane_set(lane, items[0]->hook_timeout_us);
    if (send_one(lane, items[0], n == 1) != LH_OK) {
        lane->kind = NULL;
        return LH_DATABASE_UNAVAILABLE;
    }
    run->sent = run->in_flight = 1;
    go_on(lane);
    return LH_OK;
}
