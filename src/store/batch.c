#include "store/batch.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "pg/error.h"
#include "store/hook_lane.h"
#include "store/internal.h"

#define ATTEMPTS_MAX 4

static void send_part(struct lane *lane);

void lane_refresh_arena(struct lane *lane)
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
    return lane->kind->skip(lane->items, current_part(lane)->first);
}

/* The lane is free before the caller hears of it, for it may send the next batch at once. */
static void finish(struct lane *lane, enum lh_status status, const struct lh_error *error)
{
    lh_store_cb *on_done = lane->on_done;

    lane->kind = NULL;
    lane->part_count = 0;
    on_done(lane->arg, status, error);
    if (lane->store->state == STORE_FINISHING)
        lh_defer(lane->store->loop, &lane->store->advance);
}

static void next_part(struct lane *lane)
{
    lane->is_partly_done = true;
    lane->attempts = 0;
    lane->part_count--;
    if (lane->part_count == 0)
        finish(lane, LH_OK, NULL);
    else
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

/* Would the same items fail again, because of what is in one of them? */
static bool is_data_error(const struct lh_error *error)
{
    return strncmp(error->sqlstate, "22", 2) == 0 || strncmp(error->sqlstate, "23", 2) == 0 ||
           strncmp(error->sqlstate, "54", 2) == 0 || strncmp(error->sqlstate, "LH", 2) == 0;
}

static bool is_state(const struct lh_error *error, const char *sqlstate)
{
    return strcmp(error->sqlstate, sqlstate) == 0;
}

static void give_up_part_as_busy(struct lane *lane)
{
    lane->kind->set_busy(current_items(lane), current_part(lane)->count);
    next_part(lane);
}

static void drop_riders(struct lane *lane)
{
    acquire_kind.set_busy(lane->riders, lane->rider_count);
    lane->kind = &release_kind;
}

static void on_part_failed(struct lane *lane, enum lh_status status, const struct lh_error *error)
{
    bool is_single = current_part(lane)->count == 1;
    char words[HOOK_LANE_WORDS_BYTES];

    lane_refresh_arena(lane);
    if (status == LH_DATABASE_UNAVAILABLE || status == LH_CANCELED) {
        finish(lane, status, error);
    } else if (lane->kind == &hand_over_kind) {
        lh_debug("a hand-over failed, the releases are sent alone: %s (%s)", error->message, error->sqlstate);
        drop_riders(lane);
        send_part(lane);
    } else if (lane->is_hook && is_state(error, "57014")) {
        hook_lane_timeout_words(lane->kind->hook_timeout_us(lane->items), words);
        lane->kind->set_rejected(lane, lane->items, words);
        next_part(lane);
    } else if (is_data_error(error)) {
        if (!is_single) {
            halve_part(lane);
            return;
        }
        lh_info("%s refused for its data: %s (%s)", lane->kind->name, error->message, error->sqlstate);
        lane->kind->set_invalid(lane, current_items(lane), error);
        next_part(lane);
    } else if (is_state(error, "53200") && !is_single) {
        halve_part(lane);
    } else if ((is_state(error, "40001") || is_state(error, "40P01")) && ++lane->attempts < ATTEMPTS_MAX) {
        send_part(lane);
    } else if (is_state(error, "40001") || is_state(error, "40P01") || is_state(error, "55P03") ||
               is_state(error, "57014") || is_state(error, "53200")) {
        give_up_part_as_busy(lane);
    } else {
        lh_err("%s batch of %zu failed: %s (%s)", lane->kind->name, current_part(lane)->count, error->message,
               error->sqlstate);
        /* "Nothing was committed" would be wrong after a first part was; busy items are asked again. */
        if (lane->is_partly_done)
            give_up_part_as_busy(lane);
        else
            finish(lane, status, error);
    }
}

static void on_answer(void *arg, enum lh_status status, const PGresult *result, const struct lh_error *error)
{
    struct lane *lane = arg;

    if (status != LH_OK) {
        on_part_failed(lane, status, error);
        return;
    }
    /* An item without a row of its own is a fault of ours; that it is asked again does no harm. */
    lane_refresh_arena(lane);
    lane->kind->set_busy(current_items(lane), current_part(lane)->count);
    lane->kind->read(lane, current_items(lane), current_part(lane)->count, result);
    next_part(lane);
}

static void send_part(struct lane *lane)
{
    struct lh_error error;
    enum lh_status status;

    if (lane->is_hook)
        hook_lane_set(lane, lane->kind->hook_timeout_us(lane->items));
    lh_pg_params_reset(&lane->params);
    lane->kind->write(lane, current_items(lane), current_part(lane)->count);
    status = lh_pg_query(lane->conn, lane->kind->statement, &lane->params, on_answer, lane);
    if (status == LH_OK)
        return;
    lh_error_set(&error, LH_DATABASE_UNAVAILABLE, "the connection was lost between two parts of a batch");
    finish(lane, LH_DATABASE_UNAVAILABLE, &error);
}

void lane_set_riders(struct lane *lane, const void *riders, size_t n)
{
    lane->riders = riders;
    lane->rider_count = n;
}

enum lh_status lane_send(struct lane *lane, const struct batch_kind *kind, int64_t clock_us, const void *items,
                         size_t n, lh_store_cb *on_done, void *arg)
{
    enum lh_status status;

    assert(lane->kind == NULL && n >= 1 && n <= LH_BATCH_MAX);
    if (lane->store->state != STORE_RUNNING || !lh_pg_conn_is_up(lane->conn))
        return LH_DATABASE_UNAVAILABLE;
    lane->is_arena_stale = true;
    lane->kind = kind;
    lane->items = items;
    lane->clock_us = clock_us;
    lane->sent_us = lh_clock_us();
    lane->parts[0] = (struct part){0, n};
    lane->part_count = 1;
    lane->attempts = 0;
    lane->is_partly_done = false;
    lane->on_done = on_done;
    lane->arg = arg;
    if (lane->is_hook)
        hook_lane_set(lane, kind->hook_timeout_us(items));
    lh_pg_params_reset(&lane->params);
    kind->write(lane, items, n);
    status = lh_pg_query(lane->conn, kind->statement, &lane->params, on_answer, lane);
    if (status != LH_OK)
        lane->kind = NULL;
    return status;
}
