/*
 * Requests to hand a lease over. The database has them; each coordinator keeps them all in memory, so that no renewal
 * asks the database for them. It reads them again each second, and at once when it is told that they have changed: a
 * notification that got lost costs a second, a restart of the daemon or the database nothing. A request is found by its
 * scope and token, so that one of a lease that has ended is found by nobody.
 *
 * For requests with `asks` the coordinator asks the holders, each second too: the holder that a waiter waits behind may
 * be another one by then. The database remembers who was asked by whom.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "lease/queue_internal.h"

#define ASKERS_MAX 1000 /* in one statement; they take turns */

struct asked_entry {
    struct lh_table_entry entry;
    struct lh_table_entry by_lease;
    struct lh_hand_over request;
    char strings[];
};

/* --- the book --- */

struct name {
    const char *ns;
    const char *key;
    int64_t token;
};

static uint64_t hash_of(const struct name *name)
{
    uint64_t hash = lh_hash(&name->token, sizeof(name->token), 0);

    hash = lh_hash(name->ns, strlen(name->ns), hash);
    return lh_hash(name->key, strlen(name->key), hash);
}

static bool is_named(const struct lh_table_entry *entry, const void *key)
{
    const struct lh_hand_over *request = &LH_CONTAINER(struct asked_entry, entry, entry)->request;
    const struct name *name = key;

    return request->token == name->token && strcmp(request->key, name->key) == 0 && strcmp(request->ns, name->ns) == 0;
}

/* The lease key is random enough: there is no need to hash the scope too. */
static uint64_t hash_of_lease(const struct lh_uuid *lease_key)
{
    return lh_hash(lease_key->bytes, sizeof(lease_key->bytes), 0);
}

static bool is_of_lease(const struct lh_table_entry *entry, const void *key)
{
    const struct lh_hand_over *request = &LH_CONTAINER(struct asked_entry, by_lease, entry)->request;
    const struct lh_hand_over *wanted = key;

    return lh_uuid_equal(&request->lease_key, &wanted->lease_key) && strcmp(request->key, wanted->key) == 0 &&
           strcmp(request->ns, wanted->ns) == 0;
}

static const char *keep(char **at, const char *text)
{
    const char *kept = *at;

    if (text == NULL)
        return NULL;
    *at = stpcpy(*at, text) + 1;
    return kept;
}

static size_t size_of(const char *text)
{
    return text == NULL ? 0 : strlen(text) + 1;
}

static void add(struct lh_asked_book *book, const struct lh_hand_over *request)
{
    struct name name = {request->ns, request->key, request->token};
    struct asked_entry *entry =
        lh_alloc(sizeof(*entry) + size_of(request->ns) + size_of(request->key) + size_of(request->asked_by) +
                 size_of(request->principal) + size_of(request->reason) + size_of(request->refusal));
    char *at = entry->strings;

    entry->request = *request;
    entry->request.ns = keep(&at, request->ns);
    entry->request.key = keep(&at, request->key);
    entry->request.asked_by = keep(&at, request->asked_by);
    entry->request.principal = keep(&at, request->principal);
    entry->request.reason = keep(&at, request->reason);
    entry->request.refusal = keep(&at, request->refusal);
    lh_table_insert(&book->requests, &entry->entry, hash_of(&name));
    lh_table_insert(&book->by_lease, &entry->by_lease, hash_of_lease(&request->lease_key));
}

static void clear(struct lh_asked_book *book)
{
    struct lh_table_entry *next = NULL, *entry;
    size_t slot = 0;

    while ((entry = lh_table_walk(&book->requests, &slot, &next)) != NULL) {
        lh_table_remove(&book->requests, entry);
        lh_table_remove(&book->by_lease, &LH_CONTAINER(struct asked_entry, entry, entry)->by_lease);
        free(LH_CONTAINER(struct asked_entry, entry, entry));
    }
}

static void tell(struct lh_coordinator *c)
{
    struct lh_table_entry *next = NULL, *entry;
    size_t slot = 0;

    while (c->asked.on_asked != NULL && (entry = lh_table_walk(&c->asked.requests, &slot, &next)) != NULL) {
        struct lh_hand_over *request = &LH_CONTAINER(struct asked_entry, entry, entry)->request;
        c->asked.on_asked(c->asked.arg, lh_coordinator_asked(c, request->ns, request->key, request->token));
    }
}

static const struct lh_hand_over *told(struct lh_coordinator *c, struct lh_hand_over *request)
{
    int64_t left_us;

    c->now_us = c->port.now_us(c->port.arg);
    left_us = lh_database_us(c) == 0 ? 0 : request->answer_by_us - lh_database_us(c);
    request->answer_in_us = left_us > 0 ? left_us : 0;
    return request;
}

const struct lh_hand_over *lh_coordinator_asked(struct lh_coordinator *c, const char *ns, const char *key,
                                                int64_t token)
{
    struct name name = {ns, key, token};
    struct lh_table_entry *found;

    if (c->asked.requests.count == 0)
        return NULL;
    found = lh_table_find(&c->asked.requests, hash_of(&name), &name);
    return found == NULL ? NULL : told(c, &LH_CONTAINER(struct asked_entry, entry, found)->request);
}

const struct lh_hand_over *lh_coordinator_asked_under(struct lh_coordinator *c, const char *ns, const char *key,
                                                      const struct lh_uuid *lease_key)
{
    struct lh_hand_over wanted = {.ns = ns, .key = key, .lease_key = *lease_key};
    struct lh_table_entry *found;

    if (c->asked.by_lease.count == 0)
        return NULL;
    found = lh_table_find(&c->asked.by_lease, hash_of_lease(lease_key), &wanted);
    return found == NULL ? NULL : told(c, &LH_CONTAINER(struct asked_entry, by_lease, found)->request);
}

void lh_coordinator_on_asked(struct lh_coordinator *c, lh_asked_cb *on_asked, void *arg)
{
    c->asked.on_asked = on_asked;
    c->asked.arg = arg;
}

/* --- reading it --- */

static void read_again(struct lh_coordinator *c);

static void on_read(void *arg, enum lh_status status, const struct lh_error *error,
                    const struct lh_asked_answer *answer)
{
    struct lh_coordinator *c = arg;

    lh_turn_begin(c);
    c->asked.is_out = false;
    if (status == LH_OK && answer->has_changed) {
        clear(&c->asked);
        for (size_t i = 0; i < answer->count; i++)
            add(&c->asked, &answer->requests[i]);
        c->asked.fingerprint = answer->fingerprint;
        tell(c);
    } else if (status != LH_OK) {
        lh_debug("requests to hand over were not read: %s", error != NULL ? error->message : lh_status_text(status));
    }
    if (c->asked.wants_more && status == LH_OK)
        read_again(c);
    lh_turn_end_event(c);
}

static void read_again(struct lh_coordinator *c)
{
    if (c->store->ops->read_asked == NULL)
        return;
    c->asked.wants_more = c->asked.is_out;
    if (!c->asked.is_out)
        c->asked.is_out = c->store->ops->read_asked(c->store, c->asked.fingerprint, on_read, c) == LH_OK;
}

void lh_asked_on_news(void *arg)
{
    struct lh_coordinator *c = arg;

    lh_turn_begin(c);
    read_again(c);
    lh_turn_end_event(c);
}

/* --- asking --- */

static void on_asked_holders(void *arg, enum lh_status status, const struct lh_error *error)
{
    struct lh_coordinator *c = arg;

    lh_turn_begin(c);
    c->asked.is_asking = false;
    if (status != LH_OK)
        lh_debug("holders were not asked to hand over: %s", error != NULL ? error->message : lh_status_text(status));
    lh_turn_end_event(c);
}

static void ask(struct lh_coordinator *c)
{
    struct lh_acquire_item *items;
    size_t count = 0;

    if (c->asked.is_asking || lh_list_is_empty(&c->asked.askers) || c->store->ops->ask_holders == NULL)
        return;
    items = lh_alloc(ASKERS_MAX * sizeof(*items));
    for (; count < ASKERS_MAX; count++) {
        struct lh_acquire *request = LH_LIST_FIRST(struct lh_acquire, &c->asked.askers, own.asking);
        if (count > 0 && lh_uuid_equal(&request->lease_key, &items[0].lease_key) &&
            strcmp(request->key, items[0].key) == 0 && strcmp(request->ns, items[0].ns) == 0)
            break; /* once around */
        items[count] =
            (struct lh_acquire_item){.ns = request->ns, .key = request->key, .lease_key = request->lease_key};
        lh_list_remove(&request->own.asking);
        lh_list_append(&c->asked.askers, &request->own.asking);
    }
    c->asked.is_asking = c->store->ops->ask_holders(c->store, items, count, on_asked_holders, c) == LH_OK;
    free(items);
}

void lh_asked_on_tick(struct lh_coordinator *c)
{
    ask(c);
    read_again(c);
}

/* --- its life --- */

void lh_asked_create(struct lh_coordinator *c)
{
    lh_table_init(&c->asked.requests, is_named);
    lh_table_init(&c->asked.by_lease, is_of_lease);
    lh_list_init(&c->asked.askers);
}

void lh_asked_destroy(struct lh_coordinator *c)
{
    clear(&c->asked);
    lh_table_finish(&c->asked.requests);
    lh_table_finish(&c->asked.by_lease);
}
