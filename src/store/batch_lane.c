/*
 * A lane: a connection that carries one batch at a time.
 *
 * The story of a batch: it is sent as one statement and answered as one result. When the data of an item make the whole
 * statement fail, the batch is halved, and the halves are sent one after the other, in order, until the culprit is
 * alone and gets its own bad outcome. A batch that is one request for several scopes stays whole: its first item gets
 * the bad outcome. When the server has no room in its lock table, the batch is halved too, but a single item is then
 * busy. A serialization failure or a deadlock is repeated a few times, and ends as busy, which the coordinator repeats
 * with its own patience; so does a statement that timed out, unless a hook timed out: then it is rejected. A lost
 * connection ends all of it.
 *
 * Riders are acquires in the transaction of a batch of releases. When that fails for any reason but a lost connection,
 * the releases are sent alone, and then the riders as a batch of their own.
 *
 * A hook lane carries one item, after a statement that sets its session's limits; or a run of reaps (hook_run.h).
 */
#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "pg/error.h"
#include "store/store_internal.h"

#define ATTEMPTS_MAX 4

static void send_part(struct lane *lane);

/* --- the parameters and answers of a batch by its kind's tables --- */

static void *item_at(const void *items, size_t i)
{
    return ((void *const *)items)[i];
}

static void add_member(struct lh_pg_params *params, const struct batch_column *column, const void *item)
{
    const void *member = (const char *)item + column->offset;

    switch (column->type) {
    case LH_PG_TEXT:
        lh_pg_add_text(params, *(const char *const *)member);
        break;
    case LH_PG_UUID:
        lh_pg_add_uuid(params, member);
        break;
    case LH_PG_INT8:
        lh_pg_add_int8(params, *(const int64_t *)member);
        break;
    case LH_PG_BOOL:
        lh_pg_add_bool(params, *(const bool *)member);
        break;
    }
}

/* One walk a column, for an array is one run of bytes. */
static void write_column(struct lane *lane, const struct batch_kind *kind, const struct batch_column *column,
                         const void *items, size_t n)
{
    struct lh_pg_params *params = &lane->params;
    bool is_array = column->is_of_scope || !kind->is_whole;

    if (is_array)
        lh_pg_array_begin(params, column->type);
    for (size_t i = 0; i < (is_array ? n : 1); i++) {
        if (column->add != NULL)
            column->add(params, item_at(items, i));
        else
            add_member(params, column, item_at(items, i));
    }
    if (is_array && column->is_null_when_unused)
        lh_pg_array_end_or_null(params);
    else if (is_array)
        lh_pg_array_end(params);
}

void lh_batch_write_columns(struct lane *lane, const struct batch_kind *kind, const void *items, size_t n)
{
    for (size_t i = 0; i < kind->column_count; i++)
        write_column(lane, kind, &kind->columns[i], items, n);
}

void lh_batch_write(struct lane *lane, const struct batch_kind *kind, const void *items, size_t n)
{
    if (kind->write != NULL) {
        kind->write(lane, items, n);
        return;
    }
    if (kind->names_coordinator)
        lh_pg_add_uuid(&lane->params, &lane->store->base.coordinator);
    if (kind->tells_clock)
        lh_lane_add_clock(lane);
    lh_batch_write_columns(lane, kind, items, n);
}

void lh_batch_read_rows(struct lane *lane, const struct batch_kind *kind, const void *items, size_t n,
                        const PGresult *result, int first, int last)
{
    struct batch_answer_columns found;

    lh_batch_columns_find(result, kind->answer_names, kind->has_lease, &found);
    for (int row = first; row < last; row++) {
        int32_t number = lh_pg_int4(result, row, found.at[0]);
        if (number >= 1 && (size_t)number <= n)
            kind->read_item(lane, item_at(items, (size_t)number - 1), result, row, &found);
    }
}

void lh_batch_set_busy(const struct batch_kind *kind, const void *items, size_t n)
{
    for (size_t i = 0; i < n; i++)
        kind->set_busy(item_at(items, i));
}

static void set_invalid(struct lane *lane, const void *items, const struct lh_error *error)
{
    lh_batch_set_busy(lane->kind, items, 1);
    lane->kind->set_invalid(lane, item_at(items, 0), error);
}

static void set_rejected(struct lane *lane, const void *items, const char *message)
{
    lh_batch_set_busy(lane->kind, items, 1);
    lane->kind->set_rejected(lane, item_at(items, 0), message);
}

static int64_t hook_timeout_us(const struct batch_kind *kind, const void *items)
{
    return *(const int64_t *)(const void *)((const char *)item_at(items, 0) + kind->hook_timeout_at);
}
/* --- the parts of a batch --- */

void lh_pg_lane_refresh_arena(struct lane *lane)
{
    if (lane->is_arena_stale)
        lh_arena_reset(&lane->arena);
    lane->is_arena_stale = false;
}

static struct part *current_part(struct lane *lane)
{
    return &lane->parts[lane->part_count - 1];
}

static const void *current_items(struct lane *lane)
{
    return (const char *)lane->items + current_part(lane)->first * sizeof(void *);
}

static void begin_parts(struct lane *lane, const struct batch_kind *kind, const void *items, size_t n)
{
    lane->kind = kind;
    lane->items = items;
    lane->parts[0] = (struct part){0, n};
    lane->part_count = 1;
    lane->attempts = 0;
}

static void set_idle(struct lane *lane)
{
    lane->kind = NULL;
    lane->part_count = 0;
    lane->rider_count = 0;
}

/* The lane is free before the caller hears of it, for it may send the next batch at once. */
static void finish(struct lane *lane, enum lh_status status, const struct lh_error *error)
{
    lh_store_cb *on_done = lane->on_done;

    set_idle(lane);
    on_done(lane->arg, status, error);
    if (lane->store->state == STORE_FINISHING)
        lh_defer(lane->store->loop, &lane->store->advance);
}

static void next_part(struct lane *lane)
{
    lane->is_partly_done = true;
    lane->attempts = 0;
    lane->part_count--;
    if (lane->part_count == 0 && lane->rider_count == 0) {
        finish(lane, LH_OK, NULL);
        return;
    }
    if (lane->part_count == 0) {
        begin_parts(lane, lane->hand_over->rider_kind, lane->riders, lane->rider_count);
        lane->rider_count = 0;
    }
    send_part(lane);
}

/* The first half goes first: items of one scope keep their order. */
static void halve_part(struct lane *lane)
{
    struct part *whole = current_part(lane);
    struct part first = {whole->first, whole->count / 2};

    assert(lane->part_count < PARTS_MAX && whole->count > 1);
    whole->first += first.count;
    whole->count -= first.count;
    lane->parts[lane->part_count++] = first;
    lane->attempts = 0;
    send_part(lane);
}

static bool is_state(const struct lh_error *error, const char *beginnings)
{
    return lh_pg_is_state(error->sqlstate, beginnings);
}

/*
 * What a hook does wrong fails in it, or at the commit, where its deferred triggers run. What is wrong in an item was
 * found out before by a lane without hooks; what LH002 names is its own all the same.
 */
static bool is_of_hook(const struct lane *lane, const struct lh_error *error)
{
    return lane->is_hook && is_state(error, "0A 21 22 23 27 2F 38 39 42 44 54 P0");
}

/* The server's words for its limit are those for an administrator's cancel too. */
static bool is_over_limit(const struct lane *lane, const struct lh_error *error)
{
    int64_t limit_us = lane->is_hook ? hook_timeout_us(lane->kind, lane->items) : 0;
    return is_state(error, "57014") && limit_us > 0 && lh_clock_us() - lane->part_sent_us >= limit_us;
}

/* Is it one of the fields, or what a function or a constraint of ours did not expect? */
static bool names_field(const struct lh_error *error)
{
    return is_state(error, "2200 22021 22P02 22P05 2203 LH");
}

static void give_up_part_as_busy(struct lane *lane)
{
    lh_batch_set_busy(lane->kind, current_items(lane), current_part(lane)->count);
    next_part(lane);
}

/* The extension, its module or the right to it is gone: it was dropped, or a package was taken away. SQL does the same. */
static bool is_core_gone(const struct lane *lane, const struct lh_error *error)
{
    return lane->is_by_core && is_state(error, "42883 3F000 42501 58P01");
}

/* Nothing is wrong with it: others were in its way, or a migration changed the functions while it ran. */
static bool is_passing(const struct lh_error *error)
{
    return is_state(error, "40001 40P01 42883");
}

static void note_failure(struct lane *lane, const struct lh_error *error)
{
    if (lane->kind == &lh_heartbeat_kind)
        lh_pg_store_note_failure(lane->store, error);
}

static void on_part_failed(struct lane *lane, enum lh_status status, const struct lh_error *error)
{
    bool is_single = current_part(lane)->count == 1 || lane->kind->is_whole;
    char words[HOOK_LANE_WORDS_BYTES];

    lh_pg_lane_refresh_arena(lane);
    if (status == LH_DATABASE_UNAVAILABLE || status == LH_CANCELED) {
        finish(lane, status, error);
    } else if (is_core_gone(lane, error)) {
        lh_pg_store_lose_core(lane->store, error->message);
        send_part(lane);
    } else if (lane->is_riding) {
        lh_debug("releases and their riders are sent one after the other: %s (%s)", error->message, error->sqlstate);
        lane->is_riding = false;
        send_part(lane);
    } else if (is_over_limit(lane, error)) {
        lh_hook_lane_timeout_words(hook_timeout_us(lane->kind, lane->items), words);
        set_rejected(lane, lane->items, words);
        next_part(lane);
    } else if (is_of_hook(lane, error)) {
        set_rejected(lane, lane->items, error->message);
        next_part(lane);
    } else if (is_state(error, "22 23 54 LH") && !is_single) {
        /* The same items would fail again, because of the data of one of them. */
        halve_part(lane);
    } else if (names_field(error)) {
        lh_info("%s refused for its data: %s (%s)", lane->kind->name, error->message, error->sqlstate);
        set_invalid(lane, current_items(lane), error);
        next_part(lane);
    } else if (is_state(error, "53200") && !is_single) {
        halve_part(lane);
    } else if (is_passing(error) && ++lane->attempts < ATTEMPTS_MAX) {
        send_part(lane);
    } else if (is_state(error, "40001 40P01 55P03 57014 53200")) {
        note_failure(lane, error);
        give_up_part_as_busy(lane);
    } else {
        note_failure(lane, error);
        lh_err("%s batch of %zu failed: %s (%s)", lane->kind->name, current_part(lane)->count, error->message,
               error->sqlstate);
        /* "Nothing was committed" would be wrong after a first part was; busy items are asked again. */
        if (lane->is_partly_done)
            give_up_part_as_busy(lane);
        else
            finish(lane, status, error);
    }
}

/* An item without a row of its own is a fault of ours; that it is asked again does no harm. */
static void read_rows(struct lane *lane, const struct batch_kind *kind, const void *items, size_t n,
                      const PGresult *result)
{
    lh_pg_lane_refresh_arena(lane);
    lh_batch_set_busy(kind, items, n);
    if (kind->read != NULL)
        kind->read(lane, items, n, result);
    else
        lh_batch_read_rows(lane, kind, items, n, result, 0, PQntuples(result));
}

static bool is_of_scope(const struct lh_acquire_item *rider, const struct lh_holder_item *release)
{
    return strcmp(release->ns, rider->ns) == 0 && strcmp(release->key, rider->key) == 0;
}

/* One release, and behind it the rider that its scope is for: there is a statement for that. The others, if any, have no place in that queue, so that
   they come after it. */
static bool is_hand_over(const struct lane *lane)
{
    const struct lh_holder_item *release = ((struct lh_holder_item *const *)lane->items)[0];
    struct lh_acquire_item *const *riders = lane->riders;

    if (lane->parts[0].count != 1 || !is_of_scope(riders[0], release))
        return false;
    for (size_t i = 1; i < lane->rider_count; i++)
        if (riders[i]->ticket != 0 && is_of_scope(riders[i], release))
            return false;
    return true;
}

/* The statement of the releases, and how many riders are in it. */
static const struct batch_kind *kind_ahead(const struct lane *lane, size_t *rider_count)
{
    *rider_count = is_hand_over(lane) ? 1 : 0;
    return *rider_count > 0 ? lane->hand_over : lane->kind;
}

static void on_answer_ahead(void *arg, enum lh_status status, const PGresult *result, const struct lh_error *error)
{
    struct lane *lane = arg;
    size_t ahead;

    read_rows(lane, kind_ahead(lane, &ahead), lane->items, lane->parts[0].count, result);
}

static const void *riders_from(const struct lane *lane, size_t first)
{
    return (const char *)lane->riders + first * sizeof(void *);
}

static void on_riders_answer(struct lane *lane, const PGresult *result)
{
    size_t ahead;
    const struct batch_kind *kind = kind_ahead(lane, &ahead);

    if (ahead == lane->rider_count)
        read_rows(lane, kind, lane->items, 1, result);
    else
        read_rows(lane, lane->hand_over->rider_kind, riders_from(lane, ahead), lane->rider_count - ahead, result);
    lane->rider_count = 0;
}

static void on_answer(void *arg, enum lh_status status, const PGresult *result, const struct lh_error *error)
{
    struct lane *lane = arg;

    if (status != LH_OK) {
        on_part_failed(lane, status, error);
        return;
    }
    if (lane->is_riding)
        on_riders_answer(lane, result);
    else
        read_rows(lane, lane->kind, current_items(lane), current_part(lane)->count, result);
    next_part(lane);
}

static const struct lh_pg_statement *write(struct lane *lane, const struct batch_kind *kind, const void *items,
                                           size_t n)
{
    lh_pg_params_reset(&lane->params);
    lh_batch_write(lane, kind, items, n);
    return lane->is_by_core ? kind->core_statement : kind->statement;
}

static bool may_go_by_core(const struct lane *lane, const struct batch_kind *kind, const void *all, size_t n)
{
    const void *const *items = all;

    if (kind->core_statement == NULL || !lane->store->has_core || lane->is_hook)
        return false;
    for (size_t i = 0; kind->is_for_sql != NULL && i < n; i++)
        if (kind->is_for_sql(items[i]))
            return false;
    return true;
}

/* Riders are answered by one statement with the releases, or behind them, or both. */
static enum lh_status query_with_riders(struct lane *lane)
{
    const struct batch_kind *rider_kind = lane->hand_over->rider_kind;
    const struct lh_pg_statement *statement;
    enum lh_status status;
    size_t ahead;
    const struct batch_kind *kind = kind_ahead(lane, &ahead);

    lane->is_by_core = may_go_by_core(lane, rider_kind, lane->riders, lane->rider_count);
    statement = write(lane, kind, lane->items, lane->parts[0].count);
    if (ahead == lane->rider_count)
        return lh_pg_query(lane->conn, statement, &lane->params, on_answer, lane);
    status = lh_pg_query_begin(lane->conn, statement, &lane->params, on_answer_ahead, lane);
    if (status != LH_OK)
        return status;
    statement = write(lane, rider_kind, riders_from(lane, ahead), lane->rider_count - ahead);
    return lh_pg_query(lane->conn, statement, &lane->params, on_answer, lane);
}

/* Hooks run in SQL's functions alone. */
static enum lh_status query(struct lane *lane)
{
    const struct batch_kind *kind = lane->kind;
    const struct lh_pg_statement *statement;

    if (lane->is_riding)
        return query_with_riders(lane);
    if (lane->is_hook)
        lh_hook_lane_set(lane, hook_timeout_us(kind, lane->items));
    lane->is_by_core = may_go_by_core(lane, kind, current_items(lane), current_part(lane)->count);
    statement = write(lane, kind, current_items(lane), current_part(lane)->count);
    return lh_pg_query(lane->conn, statement, &lane->params, on_answer, lane);
}

static void send_part(struct lane *lane)
{
    struct lh_error error;

    lane->part_sent_us = lh_clock_us();
    if (query(lane) == LH_OK)
        return;
    lh_error_set(&error, LH_DATABASE_UNAVAILABLE, "the connection was lost between two parts of a batch");
    finish(lane, LH_DATABASE_UNAVAILABLE, &error);
}

void lh_pg_lane_set_riders(struct lane *lane, const struct batch_kind *hand_over, const void *riders, size_t n)
{
    lane->hand_over = hand_over;
    lane->riders = riders;
    lane->rider_count = n;
}

enum lh_status lh_pg_lane_send(struct lane *lane, const struct batch_kind *kind, int64_t clock_us, const void *items,
                               size_t n, lh_store_cb *on_done, void *arg)
{
    enum lh_status status;

    assert(lane->kind == NULL && n >= 1 && n <= LH_BATCH_MAX);
    if (lane->store->state != STORE_RUNNING || !lh_pg_conn_is_up(lane->conn)) {
        set_idle(lane);
        return LH_DATABASE_UNAVAILABLE;
    }
    lane->is_arena_stale = true;
    lane->clock_us = clock_us;
    lane->sent_us = lane->part_sent_us = lh_clock_us();
    begin_parts(lane, kind, items, n);
    lane->is_riding = lane->rider_count > 0;
    lane->is_partly_done = false;
    lane->on_done = on_done;
    lane->arg = arg;
    status = query(lane);
    if (status != LH_OK)
        set_idle(lane);
    return status;
}
