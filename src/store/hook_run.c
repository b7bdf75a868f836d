/*
 * The story of a run of reaps: a few statements are in flight at any time, each a transaction of its own, so that
 * neither side waits for the other. All but the last may commit lazily; the last one's commit flushes what they wrote.
 * If the last one had nothing to write, an empty record is flushed in its place. After one that took long no more are
 * sent, so that an item that waits for this lane does not wait for all of them.
 *
 * A statement reaps one lease, or those that are joined: of these it does all or none, and has little time. Leases that
 * it has not done are answered ALONE. A statement for one lease that fails as a whole returns the reason, and its
 * failure is recorded by the next run. A lost connection ends the run, after all statements in flight have been
 * answered.
 */
#include "store/store_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

#define WINDOW 8 /* on their way at most... */
#define REFILL 4 /* ...and no more are sent before so few are: a packet wakes the other side, several cost no more */
#define LONG_US (100 * LH_US_PER_MS)
/* For those that are joined, who need a tenth of it: what they lock, others wait for. It is less than any
   deadlock_timeout in use (1 s), so that a deadlock ends here, and never with its other party. */
#define TOGETHER_TIMEOUT_US (200 * LH_US_PER_MS)

struct hook_run {
    struct lh_reap_item **items;
    size_t n; /* that will be sent */
    size_t sent;
    size_t answered;
    size_t in_flight;   /* statements */
    int64_t limit_us;   /* of the one that was sent last */
    size_t durable;     /* how many there were with the one that does not commit lazily; 0: it was not sent */
    int64_t longest_us; /* limit of any of its statements; 0: one has none */
    int64_t answered_us;
    bool is_lazy_open; /* something was committed that may not be flushed */
    enum lh_status status;
    struct lh_error error;
    struct reap_columns columns;
    bool has_columns;
};

static const struct batch_kind run_kind = {.name = "reap"};

void lh_hook_run_create(struct lane *lane)
{
    lane->is_hook = true;
    lane->run = lh_alloc_zero(1, sizeof(*lane->run));
}

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

/* How many items from the first one on are one statement's. */
static size_t group_size(const struct hook_run *run, size_t first)
{
    size_t n = 1;
    while (first + n < run->n && run->items[first + n]->is_joined)
        n++;
    return n;
}

static int64_t limit_of(const struct hook_run *run, size_t first)
{
    int64_t timeout_us = run->items[first]->hook_timeout_us;
    bool is_short = timeout_us > 0 && timeout_us < TOGETHER_TIMEOUT_US;
    return group_size(run, first) == 1 || is_short ? timeout_us : TOGETHER_TIMEOUT_US;
}

/* An earlier statement that is still on its way may have a longer limit than the next one. */
static int64_t longest_limit(const struct hook_run *run)
{
    int64_t longest_us = 0;

    for (size_t i = 0; i < run->n; i++) {
        if (run->items[i]->hook_timeout_us == 0)
            return 0;
        if (run->items[i]->hook_timeout_us > longest_us)
            longest_us = run->items[i]->hook_timeout_us;
    }
    return longest_us;
}

/* Of one namespace with one limit, what a hook has left in the session is the namespace's own. */
static bool needs_reset(const struct hook_run *run)
{
    const struct lh_reap_item *const *next = (const struct lh_reap_item *const *)run->items + run->sent;
    return run->sent == 0 || strcmp(next[0]->ns, next[-1]->ns) != 0 || limit_of(run, run->sent) != run->limit_us;
}

static enum lh_status send_next(struct lane *lane)
{
    struct hook_run *run = lane->run;
    size_t n = group_size(run, run->sent);
    bool is_last = run->sent + n == run->n;
    enum lh_status status;

    if (needs_reset(run))
        lh_hook_lane_set_limits(lane, limit_of(run, run->sent), run->longest_us);
    status = lh_hook_reap_send(lane, run->items + run->sent, n, is_last, on_answer);
    if (status != LH_OK)
        return status;
    run->limit_us = limit_of(run, run->sent);
    run->sent += n;
    run->in_flight++;
    if (is_last)
        run->durable = run->sent;
    return LH_OK;
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
        if (send_next(lane) != LH_OK)
            lose(run, LH_DATABASE_UNAVAILABLE, NULL);
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
        lh_reap_columns_find(result, &run->columns);
    run->has_columns = true;
    item->outcome = LH_REAP_GONE;
    if (PQntuples(result) == 0)
        return;
    lh_reap_row_read(&item->reaped, result, 0, &run->columns, &lane->arena);
    item->outcome = item->reaped.is_failure ? LH_REAP_FAILED : LH_REAP_DONE;
    run->is_lazy_open = !is_durable && item->loss == NULL;
}

/* Those that were reaped are told in their order. */
static void read_joined(struct lane *lane, struct lh_reap_item **items, size_t n, const PGresult *result,
                        bool is_durable)
{
    int row = 0;

    for (size_t i = 0; i < n; i++) {
        bool is_done = row < PQntuples(result) && lh_pg_int8(result, row, 0) == items[i]->token;
        items[i]->outcome = is_done ? LH_REAP_DONE : LH_REAP_ALONE;
        items[i]->reaped = (struct lh_reaped){0};
        row += is_done;
    }
    if (row > 0)
        lane->run->is_lazy_open = !is_durable;
}

static void read_error(struct lane *lane, struct lh_reap_item **items, size_t n, const struct lh_error *error)
{
    if (n == 1) {
        items[0]->outcome = LH_REAP_ERROR;
        items[0]->reaped.error = lh_arena_strdup(&lane->arena, error->message);
        return;
    }
    lh_debug("%zu leases were not reaped together namespace=%s: %s", n, items[0]->ns, error->message);
    for (size_t i = 0; i < n; i++)
        items[i]->outcome = LH_REAP_ALONE;
}

static void on_answer(void *arg, enum lh_status status, const PGresult *result, const struct lh_error *error)
{
    struct lane *lane = arg;
    struct hook_run *run = lane->run;
    struct lh_reap_item **items = run->items + run->answered;
    size_t n = group_size(run, run->answered);
    int64_t now_us = lh_clock_us();
    int64_t took_us = now_us - run->answered_us;

    lh_pg_lane_refresh_arena(lane);
    for (size_t i = 0; i < n; i++)
        items[i]->took_us = took_us / (int64_t)n;
    run->answered_us = now_us;
    run->answered += n;
    run->in_flight--;
    /* Not `run->n`: where the run was cut short, its last one was not sent as such. */
    if (status == LH_DATABASE_UNAVAILABLE || status == LH_CANCELED)
        lose(run, status, error);
    else if (status != LH_OK)
        read_error(lane, items, n, error);
    else if (n > 1)
        read_joined(lane, items, n, result, run->answered == run->durable);
    else
        read_item(lane, items[0], result, run->answered == run->durable);
    if (took_us > LONG_US)
        run->n = run->sent;
    go_on(lane);
}

enum lh_status lh_hook_run_start(struct lane *lane, int64_t clock_us, struct lh_reap_item **items, size_t n,
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
    *run = (struct hook_run){
        .items = items, .n = n, .answered_us = lane->sent_us, .columns = run->columns, .has_columns = run->has_columns};
    run->longest_us = longest_limit(run);
    if (send_next(lane) != LH_OK) {
        lane->kind = NULL;
        return LH_DATABASE_UNAVAILABLE;
    }
    go_on(lane);
    return LH_OK;
}
