/*
 * The policy and the rules of a spread namespace are in all of its databases. A change is made in one after the other. It
 * begins only when all are connected; where a later one fails, the caller hears so, and makes the change again.
 */
#include <stdlib.h>

#include "service/places_internal.h"

struct change {
    const struct lh_places *places;
    size_t at; /* the database that is asked */
    struct lh_admin_request request;
    struct lh_requester by;
    struct lh_policy_change settings;
    lh_rows_cb *on_done;
    void *arg;
    struct lh_arena memory;
};

static void destroy(struct change *change)
{
    lh_arena_finish(&change->memory);
    free(change);
}

static bool has(const struct lh_places *places, size_t at, const char *ns)
{
    return lh_places_has(places, &places->list[at], ns, false);
}

/* From `at` on; NULL: none. */
static struct lh_store *next_store(const struct lh_places *places, size_t *at, const char *ns)
{
    while (*at < places->count && !has(places, *at, ns))
        (*at)++;
    return *at < places->count ? places->list[*at].store : NULL;
}

static void on_changed(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_rows *rows)
{
    struct change *change = arg;
    struct lh_store *store = NULL;

    change->at++;
    if (status == LH_OK)
        store = next_store(change->places, &change->at, change->request.ns);
    if (store != NULL) {
        status = store->ops->administer(store, &change->request, on_changed, change);
        if (status == LH_OK)
            return;
        error = NULL;
    }
    change->on_done(change->arg, status, error, status == LH_OK ? rows : NULL);
    destroy(change);
}

static enum lh_status make(const struct lh_places *places, struct lh_store *first, size_t at,
                           const struct lh_admin_request *request, lh_rows_cb *on_done, void *arg)
{
    struct change *change = lh_alloc_zero(1, sizeof(*change));
    enum lh_status status;

    change->places = places;
    change->at = at;
    change->request = *request;
    change->request.ns = lh_arena_strdup(&change->memory, request->ns);
    change->request.name = lh_arena_strdup(&change->memory, request->name);
    if (request->by != NULL) {
        change->by = (struct lh_requester){.principal = lh_arena_strdup(&change->memory, request->by->principal),
                                           .peer = lh_arena_strdup(&change->memory, request->by->peer)};
        change->request.by = &change->by;
    }
    if (request->change != NULL) {
        change->settings = (struct lh_policy_change){
            .ns = change->request.ns,
            .count = request->change->count,
            .names = lh_arena_strdup_all(&change->memory, request->change->names, request->change->count),
            .values = lh_arena_strdup_all(&change->memory, request->change->values, request->change->count)};
        change->request.change = &change->settings;
    }
    change->on_done = on_done;
    change->arg = arg;
    status = first->ops->administer(first, &change->request, on_changed, change);
    if (status != LH_OK)
        destroy(change);
    return status;
}

enum lh_status lh_placed_administer(const struct lh_places *places, const struct lh_admin_request *request,
                                    lh_rows_cb *on_done, void *arg)
{
    bool is_look = request->verb == LH_ADMIN_GET_POLICY;
    struct lh_store *first = NULL, *store;
    size_t first_at = 0;

    for (size_t at = 0; (store = next_store(places, &at, request->ns)) != NULL; at++) {
        bool is_connected = store->ops->is_connected(store);
        if (!is_connected && !is_look)
            return LH_DATABASE_UNAVAILABLE;
        if (first == NULL || (is_look && is_connected && !first->ops->is_connected(first))) {
            first = store;
            first_at = at;
        }
    }
    if (first == NULL)
        return LH_INVALID_ARGUMENT;
    return is_look ? first->ops->administer(first, request, on_done, arg)
                   : make(places, first, first_at, request, on_done, arg);
}
