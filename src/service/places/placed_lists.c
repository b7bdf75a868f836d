/*
 * A page of policies or of rules: all databases are asked for one, in turn. Their answers are merged in the order of
 * the list, as far as every database has answered: to the end of the page that ends first.
 *
 * A page of a view has the rows of one database, then those of the next, in the order of their names, which is the same in
 * every daemon. Its `after` is the name of the database, a colon, and the `after` of that database.
 */
#include "service/places_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A list on its way through the databases. */
struct gather {
    const struct lh_places *places;
    size_t at;
    enum lh_status (*ask)(struct gather *gather); /* the database `at` */
    struct lh_arena memory;
    int32_t page_size;
    void *arg;

    union {
        struct lh_list_page page;
        struct lh_view_request request;
    };
    lh_rows_cb *on_done;
    const char **cells;
    const char *const *columns;
    size_t column_count;
    size_t count;
    bool has_more;
    bool is_cut; /* nothing behind this place is complete */
    const char *cut[2];
};

static struct gather *create(const struct lh_places *places, int32_t page_size, void *arg)
{
    struct gather *gather = lh_alloc_zero(1, sizeof(*gather));

    gather->places = places;
    gather->page_size = page_size;
    gather->arg = arg;
    return gather;
}

static void destroy(struct gather *gather)
{
    lh_arena_finish(&gather->memory);
    free(gather);
}

/* Refused, `gather` is destroyed. */
static enum lh_status begin(struct gather *gather, enum lh_status (*ask)(struct gather *gather))
{
    enum lh_status status;

    gather->ask = ask;
    status = ask(gather);
    if (status != LH_OK)
        destroy(gather);
    return status;
}

/* True: the database `next` is asked. False: there is none, or `status` says why it is not asked. */
static bool goes_on(struct gather *gather, size_t next, enum lh_status *status, const struct lh_error **error)
{
    while (next < gather->places->count && !lh_places_is_live(&gather->places->list[next]))
        next++;
    if (next >= gather->places->count)
        return false;
    gather->at = next;
    *status = gather->ask(gather);
    *error = NULL;
    return *status == LH_OK;
}

/* Makes room for so many more rows like these. */
static void grow(struct gather *gather, const struct lh_rows *rows)
{
    size_t row_bytes = rows->column_count * sizeof(*gather->cells);
    const char **cells = lh_arena_alloc(&gather->memory, (gather->count + rows->row_count + 1) * row_bytes);

    if (gather->count > 0)
        memcpy(cells, gather->cells, gather->count * row_bytes);
    gather->cells = cells;
    if (gather->columns != NULL)
        return;
    gather->columns = lh_arena_strdup_all(&gather->memory, rows->columns, rows->column_count);
    gather->column_count = rows->column_count;
}

static void answer(struct gather *gather, const struct lh_rows *rows)
{
    gather->on_done(gather->arg, LH_OK, NULL, rows);
}

static struct lh_rows rows_of(const struct gather *gather)
{
    return (struct lh_rows){.columns = gather->columns,
                            .column_count = gather->column_count,
                            .cells = gather->cells,
                            .row_count = gather->count,
                            .has_more = gather->has_more};
}

/* Of the home is what concerns all namespaces. */
static bool is_of(const struct gather *gather, const char *ns)
{
    const struct lh_place *place = lh_places_find(gather->places, ns);

    if (place == NULL)
        place = gather->places->home;
    return place == &gather->places->list[gather->at];
}

/* --- lists of policies and of rules --- */

/* The columns that a list is ordered by. */
static const char *const order_of[LH_LIST_COUNT][2] = {
    [LH_LIST_POLICIES] = {"namespace", "namespace"},
    [LH_LIST_RULES] = {"principal", "namespace"},
};

static void place_of(const struct gather *gather, const struct lh_rows *rows, size_t row, const char *place[2])
{
    for (size_t i = 0; i < 2; i++)
        place[i] = lh_rows_cell(rows, row, order_of[gather->page.list][i]);
}

static int compare_places(const char *const one[2], const char *const other[2])
{
    int order = strcmp(one[0], other[0]);

    return order != 0 ? order : strcmp(one[1], other[1]);
}

static bool is_before_cut(const struct gather *gather, const char *const place[2])
{
    return !gather->is_cut || compare_places(place, gather->cut) <= 0;
}

/* A row is put behind those that come before it: each answer is in order, so that is few steps. */
static void insert(struct gather *gather, const struct lh_rows *from, size_t row)
{
    size_t columns = gather->column_count, at = gather->count;
    struct lh_rows rows = rows_of(gather);
    const char *place[2], *other[2];

    place_of(gather, from, row, place);
    for (; at > 0; at--) {
        place_of(gather, &rows, at - 1, other);
        if (compare_places(other, place) <= 0)
            break;
    }
    memmove(&gather->cells[(at + 1) * columns], &gather->cells[at * columns],
            (gather->count - at) * columns * sizeof(*gather->cells));
    for (size_t i = 0; i < columns; i++)
        gather->cells[at * columns + i] = lh_arena_strdup(&gather->memory, from->cells[row * columns + i]);
    gather->count++;
}

static void take_list(struct gather *gather, const struct lh_rows *rows)
{
    const char *last[2];

    grow(gather, rows);
    for (size_t row = 0; row < rows->row_count; row++)
        if (is_of(gather, lh_rows_cell(rows, row, "namespace")))
            insert(gather, rows, row);
    if (!rows->has_more || rows->row_count == 0)
        return;
    place_of(gather, rows, rows->row_count - 1, last);
    if (!is_before_cut(gather, last))
        return;
    for (size_t i = 0; i < 2; i++)
        gather->cut[i] = lh_arena_strdup(&gather->memory, last[i]);
    gather->is_cut = true;
}

static void finish_list(struct gather *gather)
{
    struct lh_rows rows = rows_of(gather);
    const char *place[2];

    for (rows.row_count = 0; rows.row_count < gather->count; rows.row_count++) {
        place_of(gather, &rows, rows.row_count, place);
        if (!is_before_cut(gather, place))
            break;
    }
    rows.has_more = gather->is_cut;
    if (rows.row_count > (size_t)gather->page_size) {
        rows.row_count = (size_t)gather->page_size;
        rows.has_more = true;
    } else if (gather->is_cut) {
        memcpy(rows.stop, gather->cut, sizeof(rows.stop));
    }
    answer(gather, &rows);
}

static void on_list(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_rows *rows)
{
    struct gather *gather = arg;

    if (status == LH_OK) {
        take_list(gather, rows);
        if (goes_on(gather, gather->at + 1, &status, &error))
            return;
    }
    if (status == LH_OK)
        finish_list(gather);
    else
        gather->on_done(gather->arg, status, error, NULL);
    destroy(gather);
}

static enum lh_status ask_list(struct gather *gather)
{
    struct lh_store *store = gather->places->list[gather->at].store;

    return store->ops->list_rows(store, &gather->page, on_list, gather);
}

enum lh_status lh_placed_list(const struct lh_places *places, const struct lh_list_page *page, lh_rows_cb *on_done,
                              void *arg)
{
    struct gather *gather = create(places, page->page_size, arg);

    while (!lh_places_is_live(&places->list[gather->at]))
        gather->at++;
    gather->on_done = on_done;
    gather->page = *page;
    for (size_t i = 0; i < 2; i++)
        gather->page.after[i] = lh_arena_strdup(&gather->memory, page->after[i]);
    return begin(gather, ask_list);
}

/* --- views --- */

/* A graph goes from `after` on. */
static const char *ns_of_key(const struct lh_view_request *request)
{
    return request->view == LH_VIEW_WAITS ? request->after : request->namespaces[0];
}

/* A row that its database does not have now may be on its way to another one. */
static bool lacks_rows(const struct gather *gather)
{
    const struct lh_view_request *request = &gather->request;
    char words[LH_SPREAD_WORDS_BYTES];

    if ((request->view != LH_VIEW_HISTORY && request->view != LH_VIEW_FAILURES) || request->key[0] != '\0')
        return false;
    for (size_t i = 0; i < request->namespace_count; i++)
        if (lh_places_lack_leases(gather->places, request->namespaces[i], words))
            return true;
    return false;
}

static bool is_asked(const struct gather *gather, size_t at)
{
    const struct lh_view_request *request = &gather->request;
    const struct lh_place *place = &gather->places->list[at];

    if (!lh_places_is_live(place))
        return false;
    if (request->view == LH_VIEW_DAEMONS)
        return true;
    if (request->view == LH_VIEW_DATABASE)
        return place == gather->places->home;
    if (request->key[0] != '\0' && request->view != LH_VIEW_AUDIT) /* whose entries stay when a key moves */
        return lh_places_holding(gather->places, ns_of_key(request), request->key) == place;
    for (size_t i = 0; i < request->namespace_count; i++)
        if (lh_places_has(gather->places, place, request->namespaces[i], request->include_children))
            return true;
    return false;
}

static const char *name_of(const struct gather *gather, size_t at)
{
    return gather->places->list[at].name;
}

/* The first behind the name, or the number of databases. */
static size_t next_asked(const struct gather *gather, const char *name)
{
    size_t count = gather->places->count, next = count;

    for (size_t at = 0; at < count; at++)
        if (is_asked(gather, at) && strcmp(name_of(gather, at), name) > 0 &&
            (next == count || strcmp(name_of(gather, at), name_of(gather, next)) < 0))
            next = at;
    return next;
}

static bool is_after(const struct gather *gather, size_t column)
{
    return strcmp(gather->columns[column], "after") == 0;
}

/* Where the page goes on: its rows say so, and after the last of a database the next one does. */
static const char *place_after(struct gather *gather, size_t at, const char *after)
{
    return lh_arena_format(&gather->memory, "%s:%s", name_of(gather, at), after);
}

static void take_view(struct gather *gather, const struct lh_rows *rows)
{
    size_t columns = rows->column_count;
    const char **to;

    grow(gather, rows);
    to = gather->cells + gather->count * columns;
    for (size_t i = 0; i < rows->row_count * columns; i++)
        to[i] = rows->cells[i] != NULL && is_after(gather, i % columns)
                    ? place_after(gather, gather->at, rows->cells[i])
                    : lh_arena_strdup(&gather->memory, rows->cells[i]);
    gather->count += rows->row_count;
}

static bool is_stopped(const struct lh_rows *rows)
{
    return rows->row_count > 0 && rows->cells[(rows->row_count - 1) * rows->column_count] == NULL;
}

static void finish_view(struct gather *gather)
{
    struct lh_rows rows = rows_of(gather);

    answer(gather, &rows);
}

/* The rows of this database have come to their end, and the page is full: it goes on with the next one. */
static void go_on_with(struct gather *gather, size_t next)
{
    gather->has_more = true;
    for (size_t i = 0; i < gather->column_count; i++)
        if (is_after(gather, i))
            gather->cells[(gather->count - 1) * gather->column_count + i] = place_after(gather, next, "");
}

static void on_view(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_rows *rows)
{
    struct gather *gather = arg;

    if (status == LH_OK) {
        size_t next = next_asked(gather, name_of(gather, gather->at));
        take_view(gather, rows);
        gather->has_more = rows->has_more;
        if (next < gather->places->count && !rows->has_more && !is_stopped(rows)) {
            if (gather->count >= (size_t)gather->page_size) {
                go_on_with(gather, next);
            } else {
                gather->request.after = "";
                if (goes_on(gather, next, &status, &error))
                    return;
            }
        }
    }
    if (status == LH_OK && lacks_rows(gather))
        status = LH_DATABASE_UNAVAILABLE;
    if (status == LH_OK)
        finish_view(gather);
    else
        gather->on_done(gather->arg, status, error, NULL);
    destroy(gather);
}

static enum lh_status ask_view(struct gather *gather)
{
    struct lh_store *store = gather->places->list[gather->at].store;
    struct lh_view_request request = gather->request;

    request.page_size = gather->page_size - (int32_t)gather->count;
    /* This daemon has another name in each. */
    request.key = request.view == LH_VIEW_DAEMONS ? LH_UUID_TEXT(&store->coordinator) : request.key;
    return store->ops->view == NULL ? LH_UNIMPLEMENTED : store->ops->view(store, &request, on_view, gather);
}

struct lh_place *lh_placed_view_first(const struct lh_places *places, const char *after, const char **rest)
{
    size_t size = strcspn(after, ":");
    struct lh_place *place = NULL;

    while ((place = lh_places_next(places, place)) != NULL)
        if (strncmp(place->name, after, size) == 0 && place->name[size] == '\0')
            break;
    *rest = after[size] == ':' ? after + size + 1 : "";
    return place;
}

enum lh_status lh_placed_view(const struct lh_places *places, const struct lh_view_request *request,
                              lh_rows_cb *on_done, void *arg)
{
    struct gather *gather = create(places, request->page_size, arg);
    bool is_graph = request->view == LH_VIEW_WAITS && request->key[0] != '\0';
    const struct lh_place *first = NULL;
    bool is_between;

    gather->on_done = on_done;
    gather->request = *request;
    gather->request.key = lh_arena_strdup(&gather->memory, request->key);
    gather->request.after = lh_arena_strdup(&gather->memory, request->after);
    gather->request.state = lh_arena_strdup(&gather->memory, request->state);
    gather->request.namespaces = lh_arena_strdup_all(&gather->memory, request->namespaces, request->namespace_count);
    if (!is_graph && request->after[0] != '\0')
        first = lh_placed_view_first(places, gather->request.after, &gather->request.after);
    gather->at = first == NULL ? next_asked(gather, "") : (size_t)(first - places->list);
    if (gather->at < places->count && is_asked(gather, gather->at) && !lacks_rows(gather))
        return begin(gather, ask_view);
    is_between =
        lacks_rows(gather) || (request->key[0] != '\0' && lh_places_is_spread(places, ns_of_key(&gather->request)));
    destroy(gather);
    return is_between ? LH_DATABASE_UNAVAILABLE : LH_INVALID_ARGUMENT;
}
