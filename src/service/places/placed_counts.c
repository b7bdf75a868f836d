/*
 * A page of the namespaces with their counts: all databases are asked for the same page, one after the other. A spread
 * namespace has a row in each: the counts are added up. The page ends where the shortest of the answers does. Counts of a
 * spread namespace whose keys move meanwhile are partial, and it has a row even if no database counts any of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "service/places_internal.h"

#define COUNTS 4

static const char *const columns[] = {"namespace", "held", "waiting", "expired", "failing", "partial", "after"};
#define COLUMNS (sizeof(columns) / sizeof(columns[0]))

struct row {
    const char *ns;
    long long counts[COUNTS];
    bool is_partial;
};

struct gather {
    uint64_t moves; /* of all spread namespaces, when the first database was asked */
    const struct lh_places *places;
    size_t at; /* the database that is asked */
    struct lh_view_request request;
    lh_rows_cb *on_done;
    void *arg;
    struct lh_arena memory;
    struct row *rows; /* in order of names */
    size_t count;
    const char *cut; /* NULL, or the name behind which nothing is complete */
};

static void destroy(struct gather *gather)
{
    lh_arena_finish(&gather->memory);
    free(gather);
}

static uint64_t count_moves(const struct lh_places *places)
{
    uint64_t moves = 0;

    for (size_t i = 0; i < places->spread_count; i++)
        moves += lh_spread_moves(places->spread[i].slots);
    return moves;
}

/* Leases of it may be on their way between databases, or were when one was asked. */
static bool is_moving(const struct gather *gather, const char *ns)
{
    const struct lh_spread_namespace *spread = lh_places_spread(gather->places, ns);

    return spread != NULL && (lh_spread_lacks_leases(spread->slots) || count_moves(gather->places) != gather->moves);
}

static void add(struct row *to, const struct lh_rows *rows, size_t row)
{
    const char *is_partial = lh_rows_cell(rows, row, "partial");

    for (size_t i = 0; i < COUNTS; i++) {
        const char *count = lh_rows_cell(rows, row, columns[i + 1]);
        to->counts[i] += count != NULL ? strtoll(count, NULL, 10) : 0;
    }
    to->is_partial |= is_partial != NULL && is_partial[0] == 't';
}

static void merge(struct gather *gather, const struct lh_rows *rows)
{
    const struct lh_place *place = &gather->places->list[gather->at];
    struct row *merged = lh_arena_alloc(&gather->memory, (gather->count + rows->row_count + 1) * sizeof(*merged));
    size_t count = 0, old = 0;

    for (size_t i = 0; i < rows->row_count; i++) {
        const char *ns = lh_rows_cell(rows, i, "namespace");
        if (ns == NULL || !lh_places_has(gather->places, place, ns, false)) /* it may still have what lives elsewhere */
            continue;
        while (old < gather->count && strcmp(gather->rows[old].ns, ns) < 0)
            merged[count++] = gather->rows[old++];
        if (old < gather->count && strcmp(gather->rows[old].ns, ns) == 0)
            merged[count] = gather->rows[old++];
        else
            merged[count] = (struct row){.ns = lh_arena_strdup(&gather->memory, ns)};
        add(&merged[count++], rows, i);
    }
    while (old < gather->count)
        merged[count++] = gather->rows[old++];
    gather->rows = merged;
    gather->count = count;
}

/* The store has looked far enough: it says so in a last row without a name. */
static void cut(struct gather *gather, const struct lh_rows *rows)
{
    size_t last = rows->row_count - 1;
    const char *after;

    if (rows->row_count == 0 || (!rows->has_more && lh_rows_cell(rows, last, "namespace") != NULL))
        return;
    after = lh_rows_cell(rows, last, "after");
    if (after != NULL && (gather->cut == NULL || strcmp(after, gather->cut) < 0))
        gather->cut = lh_arena_strdup(&gather->memory, after);
}

/* A row without counts, if there is none of this name. */
static void put_empty(struct gather *gather, const char *ns)
{
    struct row *rows = lh_arena_alloc(&gather->memory, (gather->count + 1) * sizeof(*rows));
    size_t at = 0;

    while (at < gather->count && strcmp(gather->rows[at].ns, ns) < 0)
        at++;
    if (at < gather->count && strcmp(gather->rows[at].ns, ns) == 0)
        return;
    for (size_t i = 0; i < gather->count; i++)
        rows[i < at ? i : i + 1] = gather->rows[i];
    rows[at] = (struct row){.ns = ns};
    gather->rows = rows;
    gather->count++;
}

/* Rows of what was asked for and is, has or is below a spread namespace: all of its leases may be on their way. */
static void put_moving(struct gather *gather)
{
    const struct lh_view_request *request = &gather->request;

    for (size_t i = 0; i < gather->places->spread_count; i++) {
        const char *spread = gather->places->spread[i].ns;
        if (!is_moving(gather, spread))
            continue;
        for (size_t j = 0; j < request->namespace_count; j++) {
            const char *ns = request->namespaces[j];
            if (request->include_children && lh_places_is_below(spread, ns))
                ns = spread;
            else if (!lh_places_is_below(ns, spread))
                continue;
            if (strcmp(ns, request->after) > 0)
                put_empty(gather, ns);
        }
    }
}

static void finish(struct gather *gather)
{
    const char **cells = lh_arena_alloc(&gather->memory, (gather->count + 1) * COLUMNS * sizeof(*cells));
    struct lh_rows rows = {.columns = columns, .column_count = COLUMNS, .cells = cells};
    size_t most = (size_t)gather->request.page_size;

    put_moving(gather);
    for (size_t i = 0; i < gather->count; i++) {
        const struct row *row = &gather->rows[i];
        const char **to = cells + i * COLUMNS;
        if (gather->cut != NULL && strcmp(row->ns, gather->cut) > 0)
            break;
        rows.has_more = rows.row_count == most;
        if (rows.has_more)
            break;
        to[0] = to[COLUMNS - 1] = row->ns;
        for (size_t j = 0; j < COUNTS; j++)
            to[j + 1] = lh_arena_format(&gather->memory, "%lld", row->counts[j]);
        to[COLUMNS - 2] = row->is_partial || is_moving(gather, row->ns) ? "true" : "false";
        rows.row_count++;
    }
    if (gather->cut != NULL && !rows.has_more) {
        memset(cells + rows.row_count * COLUMNS, 0, COLUMNS * sizeof(*cells));
        cells[rows.row_count++ * COLUMNS + COLUMNS - 1] = gather->cut;
    }
    gather->on_done(gather->arg, LH_OK, NULL, &rows);
}

static bool is_asked(const struct gather *gather)
{
    for (size_t i = 0; i < gather->request.namespace_count; i++)
        if (lh_places_has(gather->places, &gather->places->list[gather->at], gather->request.namespaces[i],
                          gather->request.include_children))
            return true;
    return false;
}

static void on_view(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_rows *rows);

/* From `at` on. Behind the last it asks none. */
static enum lh_status ask_next(struct gather *gather)
{
    struct lh_store *store;

    while (gather->at < gather->places->count && !is_asked(gather))
        gather->at++;
    if (gather->at == gather->places->count)
        return LH_OK;
    store = gather->places->list[gather->at].store;
    return store->ops->view == NULL ? LH_UNIMPLEMENTED : store->ops->view(store, &gather->request, on_view, gather);
}

static void on_view(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_rows *rows)
{
    struct gather *gather = arg;

    if (status == LH_OK) {
        merge(gather, rows);
        cut(gather, rows);
        gather->at++;
        status = ask_next(gather);
        error = NULL;
        if (status == LH_OK && gather->at < gather->places->count)
            return;
    }
    if (status == LH_OK)
        finish(gather);
    else
        gather->on_done(gather->arg, status, error, NULL);
    destroy(gather);
}

enum lh_status lh_placed_counts(const struct lh_places *places, const struct lh_view_request *request,
                                lh_rows_cb *on_done, void *arg)
{
    struct gather *gather = lh_alloc_zero(1, sizeof(*gather));
    enum lh_status status;

    gather->places = places;
    gather->moves = count_moves(places);
    gather->request = *request;
    gather->request.key = lh_arena_strdup(&gather->memory, request->key);
    gather->request.after = lh_arena_strdup(&gather->memory, request->after);
    gather->request.namespaces = lh_arena_strdup_all(&gather->memory, request->namespaces, request->namespace_count);
    gather->on_done = on_done;
    gather->arg = arg;
    status = ask_next(gather);
    if (status == LH_OK && gather->at == places->count)
        status = LH_INVALID_ARGUMENT;
    if (status != LH_OK)
        destroy(gather);
    return status;
}
