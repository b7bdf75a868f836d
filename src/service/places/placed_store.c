/*
 * Leases are listed in the order of namespaces. The databases divide the names into stretches, each of one database; a
 * page is asked of the database of the stretch in which it begins, is cut where the stretch ends, and says that the next
 * page begins there. So each page needs one database; within a spread namespace it needs all that have it.
 *
 * Other lists ask all of them, one after the other, and answer with copies: see placed_lists.c.
 */
#include "service/places_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct placed_store {
    struct lh_store store;
    const struct lh_places *places;
};

static const struct lh_places *places_of(const struct lh_store *store)
{
    return LH_CONTAINER(const struct placed_store, store, store)->places;
}

/* What concerns all namespaces is of the home. NULL: nowhere. */
static struct lh_store *find(const struct lh_store *store, const char *ns)
{
    const struct lh_places *places = places_of(store);
    const struct lh_place *place = lh_places_find(places, ns);

    if (place == NULL && *ns == '\0')
        place = places->home;
    return place == NULL ? NULL : place->store;
}

/* NULL: see not_found. */
static struct lh_store *find_scope(const struct lh_store *store, const char *ns, const char *key)
{
    const struct lh_place *place = lh_places_holding(places_of(store), ns, key);

    return place == NULL ? NULL : place->store;
}

static enum lh_status not_found(const struct lh_store *store, const char *ns)
{
    return lh_places_is_spread(places_of(store), ns) ? LH_DATABASE_UNAVAILABLE : LH_INVALID_ARGUMENT;
}

static struct lh_store *home(const struct lh_store *store)
{
    return places_of(store)->home->store;
}

/* --- leases --- */

static enum lh_status get(struct lh_store *store, const char *ns, const char *key, lh_scope_cb *on_done, void *arg)
{
    struct lh_store *of = find_scope(store, ns, key);
    return of == NULL ? not_found(store, ns) : of->ops->get(of, ns, key, on_done, arg);
}

static enum lh_status holders(struct lh_store *store, const char *ns, const char *key, int32_t max, lh_list_cb *on_done,
                              void *arg)
{
    struct lh_store *of = find_scope(store, ns, key);
    return of == NULL ? not_found(store, ns) : of->ops->holders(of, ns, key, max, on_done, arg);
}

static enum lh_status force_release(struct lh_store *store, const char *ns, const char *key, const char *reason,
                                    int64_t token, bool all, const struct lh_requester *requester, lh_scope_cb *on_done,
                                    void *arg)
{
    struct lh_store *of = find_scope(store, ns, key);
    return of == NULL ? not_found(store, ns)
                      : of->ops->force_release(of, ns, key, reason, token, all, requester, on_done, arg);
}

struct stretch {
    lh_list_cb *on_done;
    void *arg;
    bool is_empty; /* no database has anything of what was asked for */
    bool has_end;
    bool has_next;
    char end[LH_ACCESS_NAME_BYTES];  /* the first name that this database does not have */
    char next[LH_ACCESS_NAME_BYTES]; /* the first behind it that another has */
};

static void on_stretch(void *arg, enum lh_status status, const struct lh_error *error,
                       const struct lh_list_answer *answer)
{
    struct stretch *stretch = arg;
    struct lh_list_answer cut;

    if (status == LH_OK && (stretch->is_empty || stretch->has_end)) {
        cut = *answer;
        cut.lease_count = 0;
        while (!stretch->is_empty && cut.lease_count < answer->lease_count &&
               strcmp(answer->leases[cut.lease_count].ns, stretch->end) < 0)
            cut.lease_count++;
        if (cut.lease_count < answer->lease_count || !answer->has_more || stretch->is_empty ||
            (answer->stop_ns != NULL && strcmp(answer->stop_ns, stretch->end) >= 0)) {
            cut.has_more = stretch->has_next;
            cut.stop_ns = stretch->has_next ? stretch->next : NULL;
            cut.stop_key = "";
        }
        answer = &cut;
    }
    stretch->on_done(stretch->arg, status, error, answer);
    free(stretch);
}

/* Does what was asked for end before this name? */
static bool is_behind(const char *name, const struct lh_list_request *request)
{
    size_t size = strlen(request->ns);

    if (!request->include_children)
        return strcmp(name, request->ns) > 0;
    return size > 0 && strncmp(name, request->ns, size) >= 0 &&
           (strncmp(name, request->ns, size) > 0 || name[size] > '.');
}

/* Moves `name` to the next one that lives in a database. False: none of what was asked for does. */
static bool skip_unplaced(const struct lh_places *places, const struct lh_list_request *request,
                          char name[LH_ACCESS_NAME_BYTES])
{
    char end[LH_ACCESS_NAME_BYTES];
    struct lh_place *place;

    while (lh_places_find(places, name) == NULL) {
        if (!lh_places_walk(places, name, &place, end) || is_behind(end, request))
            return false;
        memcpy(name, end, sizeof(end));
    }
    return true;
}

static enum lh_status list(struct lh_store *store, const struct lh_list_request *request, lh_list_cb *on_done,
                           void *arg)
{
    const struct lh_places *places = places_of(store);
    const char *asked = request->after_ns != NULL ? request->after_ns : request->ns;
    struct stretch *stretch = lh_alloc_zero(1, sizeof(*stretch));
    struct lh_list_request part = *request;
    struct lh_place *place = places->home; /* asked also where nothing is, so that the answer comes later */
    char begin[LH_ACCESS_NAME_BYTES];
    enum lh_status status;

    stretch->on_done = on_done;
    stretch->arg = arg;
    snprintf(begin, sizeof(begin), "%s", asked);
    stretch->is_empty = !skip_unplaced(places, request, begin);
    if (!stretch->is_empty) {
        stretch->has_end = lh_places_walk(places, begin, &place, stretch->end) && !is_behind(stretch->end, request);
        memcpy(stretch->next, stretch->end, sizeof(stretch->next));
        stretch->has_next = stretch->has_end && skip_unplaced(places, request, stretch->next);
    }
    if (strcmp(begin, asked) != 0) {
        part.after_ns = begin;
        part.after_key = "";
        part.after_token = 0;
    }
    if (!stretch->is_empty && lh_places_is_spread(places, begin))
        status = lh_placed_leases(places, begin, &part, on_stretch, stretch);
    else
        status = place->store->ops->list(place->store, &part, on_stretch, stretch);
    if (status != LH_OK)
        free(stretch);
    return status;
}

/* --- policies, rules and tokens --- */

static enum lh_status administer(struct lh_store *store, const struct lh_admin_request *request, lh_rows_cb *on_done,
                                 void *arg)
{
    bool is_of_scope = request->verb == LH_ADMIN_ASK_HAND_OVER || request->verb == LH_ADMIN_REFUSE_HAND_OVER;
    struct lh_store *of = home(store);

    if (request->ns != NULL && lh_places_is_spread(places_of(store), request->ns) && !is_of_scope)
        return lh_placed_administer(places_of(store), request, on_done, arg);
    if (is_of_scope) /* the first setting is the key */
        of = find_scope(store, request->ns, request->change->values[0]);
    else if (request->ns != NULL)
        of = find(store, request->ns);
    if (of == NULL)
        return not_found(store, request->ns);
    return of->ops->administer(of, request, on_done, arg);
}

static enum lh_status list_rows(struct lh_store *store, const struct lh_list_page *page, lh_rows_cb *on_done, void *arg)
{
    if (page->list == LH_LIST_TOKENS)
        return home(store)->ops->list_rows(home(store), page, on_done, arg);
    return lh_placed_list(places_of(store), page, on_done, arg);
}

static enum lh_status token_used(struct lh_store *store, const char *const *ids, size_t count)
{
    return home(store)->ops->token_used(home(store), ids, count);
}

static enum lh_status audit(struct lh_store *store, const struct lh_audit *row, lh_store_cb *on_done, void *arg)
{
    struct lh_store *of = find(store, row->ns);

    if (of == NULL)
        of = home(store);
    return of->ops->audit(of, row, on_done, arg);
}

static enum lh_status view(struct lh_store *store, const struct lh_view_request *request, lh_rows_cb *on_done,
                           void *arg)
{
    if (request->view == LH_VIEW_NAMESPACES)
        return lh_placed_counts(places_of(store), request, on_done, arg);
    return lh_placed_view(places_of(store), request, on_done, arg);
}

/* --- what needs no round trip --- */

static int64_t timeline(struct lh_store *store)
{
    return home(store)->ops->timeline(home(store));
}

static int32_t schema_version(struct lh_store *store)
{
    return home(store)->ops->schema_version(home(store));
}

static bool is_connected(struct lh_store *store)
{
    return home(store)->ops->is_connected(home(store));
}

static void server(struct lh_store *store, struct lh_server_facts *facts)
{
    home(store)->ops->server(home(store), facts);
}

static const struct lh_store_ops ops = {
    .get = get,
    .holders = holders,
    .list = list,
    .force_release = force_release,
    .administer = administer,
    .list_rows = list_rows,
    .token_used = token_used,
    .audit = audit,
    .view = view,
    .timeline = timeline,
    .schema_version = schema_version,
    .is_connected = is_connected,
    .server = server,
};

struct lh_store *lh_placed_store_create(const struct lh_places *places)
{
    struct placed_store *placed = lh_alloc_zero(1, sizeof(*placed));

    placed->store.ops = &ops;
    placed->store.coordinator = places->home->store->coordinator;
    placed->places = places;
    return &placed->store;
}

void lh_placed_store_destroy(struct lh_store *store)
{
    if (store != NULL)
        free(LH_CONTAINER(struct placed_store, store, store));
}
