/*
 * A page of the leases of a spread namespace: its databases are asked for the same page, one after the other, and their
 * answers are merged in the order of scopes. Each database is known as far as its answer goes, so the page ends where the
 * shortest of the answers does.
 *
 * Leases that move meanwhile may be in no answer. Where some have come to another database all are asked again; while some
 * are on their way there is no list.
 */
#include <stdlib.h>
#include <string.h>

#include "service/places_internal.h"

struct gather {
    const struct lh_places *places;
    size_t at; /* the database that is asked */
    const char *ns;
    struct lh_list_request request;
    lh_list_cb *on_done;
    void *arg;
    struct lh_arena memory;
    uint64_t moves; /* when the first was asked */
    struct lh_held_lease *leases;
    size_t count;
    bool is_cut; /* nothing behind this scope is complete */
    const char *cut_ns;
    const char *cut_key;
};

static void destroy(struct gather *gather)
{
    lh_arena_finish(&gather->memory);
    free(gather);
}

static int compare(const char *ns, const char *key, const char *other_ns, const char *other_key)
{
    int order = strcmp(ns, other_ns);

    return order != 0 ? order : strcmp(key, other_key);
}

/* A database may still have what lives elsewhere now. */
static bool is_of(const struct gather *gather, const struct lh_held_lease *lease)
{
    return lh_places_of(gather->places, lease->ns, lease->key) == &gather->places->list[gather->at];
}

static void add(struct gather *gather, const struct lh_held_lease *lease, struct lh_held_lease *to)
{
    int32_t *slots;

    *to = *lease;
    to->ns = lh_arena_strdup(&gather->memory, lease->ns);
    to->key = lh_arena_strdup(&gather->memory, lease->key);
    to->owner = lh_arena_strdup(&gather->memory, lease->owner);
    to->principal = lh_arena_strdup(&gather->memory, lease->principal);
    to->labels = lh_arena_strdup(&gather->memory, lease->labels);
    if (lease->slot_count > 0) {
        slots = lh_arena_alloc(&gather->memory, (size_t)lease->slot_count * sizeof(*slots));
        memcpy(slots, lease->slots, (size_t)lease->slot_count * sizeof(*slots));
        to->slots = slots;
    }
}

static void merge(struct gather *gather, const struct lh_list_answer *answer)
{
    struct lh_held_lease *merged =
        lh_arena_alloc(&gather->memory, (gather->count + answer->lease_count + 1) * sizeof(*merged));
    size_t count = 0, old = 0;

    for (size_t i = 0; i < answer->lease_count; i++) {
        const struct lh_held_lease *lease = &answer->leases[i];
        if (!is_of(gather, lease))
            continue;
        while (old < gather->count &&
               compare(gather->leases[old].ns, gather->leases[old].key, lease->ns, lease->key) < 0)
            merged[count++] = gather->leases[old++];
        add(gather, lease, &merged[count++]);
    }
    while (old < gather->count)
        merged[count++] = gather->leases[old++];
    gather->leases = merged;
    gather->count = count;
}

static void cut(struct gather *gather, const struct lh_list_answer *answer)
{
    const char *ns = answer->stop_ns, *key = answer->stop_key;

    if (!answer->has_more)
        return;
    if (ns == NULL && answer->lease_count > 0) {
        ns = answer->leases[answer->lease_count - 1].ns;
        key = answer->leases[answer->lease_count - 1].key;
    }
    if (ns == NULL || (gather->is_cut && compare(ns, key, gather->cut_ns, gather->cut_key) >= 0))
        return;
    gather->is_cut = true;
    gather->cut_ns = lh_arena_strdup(&gather->memory, ns);
    gather->cut_key = lh_arena_strdup(&gather->memory, key);
}

static void finish(struct gather *gather)
{
    struct lh_list_answer answer = {.leases = gather->leases, .lease_count = gather->count};
    const struct lh_held_lease *last;

    while (gather->is_cut && answer.lease_count > 0 &&
           compare(gather->leases[answer.lease_count - 1].ns, gather->leases[answer.lease_count - 1].key,
                   gather->cut_ns, gather->cut_key) > 0)
        answer.lease_count--;
    answer.has_more = gather->is_cut;
    last = answer.lease_count > 0 ? &answer.leases[answer.lease_count - 1] : NULL;
    if (answer.lease_count > (size_t)gather->request.page_size) {
        answer.lease_count = (size_t)gather->request.page_size;
        answer.has_more = true;
    } else if (gather->is_cut && (last == NULL || compare(last->ns, last->key, gather->cut_ns, gather->cut_key) != 0)) {
        answer.stop_ns = gather->cut_ns; /* else the last scope may have more leases */
        answer.stop_key = gather->cut_key;
    }
    gather->on_done(gather->arg, LH_OK, NULL, &answer);
}

static enum lh_status ask_next(struct gather *gather);

static uint64_t count_moves(const struct gather *gather)
{
    const struct lh_spread_namespace *spread = lh_places_spread(gather->places, gather->ns);

    return spread != NULL ? lh_spread_moves(spread->slots) : 0;
}

static bool lacks_leases(const struct gather *gather)
{
    const struct lh_spread_namespace *spread = lh_places_spread(gather->places, gather->ns);

    return spread != NULL && lh_spread_lacks_leases(spread->slots);
}

static enum lh_status ask_first(struct gather *gather)
{
    gather->at = gather->count = 0;
    gather->is_cut = false;
    gather->moves = count_moves(gather);
    return lacks_leases(gather) ? LH_DATABASE_UNAVAILABLE : ask_next(gather);
}

static void on_list(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_list_answer *answer)
{
    struct gather *gather = arg;

    if (status == LH_OK) {
        merge(gather, answer);
        cut(gather, answer);
        gather->at++;
        status = ask_next(gather);
        error = NULL;
        if (status == LH_OK && gather->at < gather->places->count)
            return;
    }
    if (status == LH_OK && lacks_leases(gather))
        status = LH_DATABASE_UNAVAILABLE;
    if (status == LH_OK && count_moves(gather) != gather->moves) {
        status = ask_first(gather);
        if (status == LH_OK)
            return;
    }
    if (status == LH_OK)
        finish(gather);
    else
        gather->on_done(gather->arg, status, error, NULL);
    destroy(gather);
}

/* From `at` on. Behind the last it asks none. */
static enum lh_status ask_next(struct gather *gather)
{
    const struct lh_places *places = gather->places;
    struct lh_store *store;

    while (gather->at < places->count && !lh_places_has(places, &places->list[gather->at], gather->ns, false))
        gather->at++;
    if (gather->at == places->count)
        return LH_OK;
    store = places->list[gather->at].store;
    return store->ops->list(store, &gather->request, on_list, gather);
}

enum lh_status lh_placed_leases(const struct lh_places *places, const char *ns, const struct lh_list_request *request,
                                lh_list_cb *on_done, void *arg)
{
    struct gather *gather = lh_alloc_zero(1, sizeof(*gather));
    enum lh_status status;

    gather->places = places;
    gather->ns = lh_arena_strdup(&gather->memory, ns);
    gather->request = *request;
    gather->request.ns = lh_arena_strdup(&gather->memory, request->ns);
    gather->request.after_ns = lh_arena_strdup(&gather->memory, request->after_ns);
    gather->request.after_key = lh_arena_strdup(&gather->memory, request->after_key);
    gather->request.owner = lh_arena_strdup(&gather->memory, request->owner);
    gather->request.search = lh_arena_strdup(&gather->memory, request->search);
    gather->request.state = lh_arena_strdup(&gather->memory, request->state);
    gather->on_done = on_done;
    gather->arg = arg;
    status = ask_first(gather);
    if (status != LH_OK)
        destroy(gather);
    return status;
}
