#include <stdlib.h>

#include "base/memory.h"
#include "lease/queue_internal.h"

/* The ready scopes of a kind that are one client's. It lives as long as it has some. */
struct lh_ready_client {
    struct lh_table_entry entry;
    struct lh_link turn; /* in lh_ready.turns */
    struct lh_link scopes;
    enum lh_kind kind;
    uint64_t id;
};

struct name {
    enum lh_kind kind;
    uint64_t id;
};

static bool is_named(const struct lh_table_entry *entry, const void *key)
{
    const struct lh_ready_client *client = LH_CONTAINER(const struct lh_ready_client, entry, entry);
    const struct name *name = key;
    return client->id == name->id && client->kind == name->kind;
}

static struct lh_ready_client *get(struct lh_coordinator *c, enum lh_kind kind, uint64_t id)
{
    struct lh_ready *ready = &c->queue.ready;
    struct name name = {kind, id};
    uint64_t hash = lh_hash(&id, sizeof(id), kind);
    struct lh_table_entry *entry = lh_table_find(&ready->clients, hash, &name);
    struct lh_ready_client *client;

    if (entry != NULL)
        return LH_CONTAINER(struct lh_ready_client, entry, entry);
    client = lh_alloc_zero(1, sizeof(*client));
    client->kind = kind;
    client->id = id;
    lh_list_init(&client->scopes);
    lh_list_append(&ready->turns[kind], &client->turn);
    ready->count[kind]++;
    lh_table_insert(&ready->clients, &client->entry, hash);
    return client;
}

void lh_ready_create(struct lh_coordinator *c)
{
    lh_table_init(&c->queue.ready.clients, is_named);
    for (int kind = 0; kind < LH_SCOPE_KINDS; kind++)
        lh_list_init(&c->queue.ready.turns[kind]);
}

static void free_client(struct lh_coordinator *c, struct lh_ready_client *client)
{
    c->queue.ready.count[client->kind]--;
    lh_list_remove(&client->turn);
    lh_table_remove(&c->queue.ready.clients, &client->entry);
    free(client);
}

void lh_ready_destroy(struct lh_coordinator *c)
{
    size_t slot = 0;
    struct lh_table_entry *next = NULL;
    struct lh_table_entry *entry;
    while ((entry = lh_table_walk(&c->queue.ready.clients, &slot, &next)) != NULL)
        free_client(c, LH_CONTAINER(struct lh_ready_client, entry, entry));
    lh_table_finish(&c->queue.ready.clients);
}

void lh_ready_part(struct lh_coordinator *c, struct lh_scope *scope)
{
    struct lh_link *head = scope->ready.next;
    bool is_only_one = head != NULL && head == scope->ready.prev;

    c->queue.ready.scopes[scope->ready_kind] -= lh_link_is_linked(&scope->ready);
    lh_list_remove(&scope->ready);
    if (is_only_one)
        free_client(c, LH_CONTAINER(struct lh_ready_client, scopes, head));
}

void lh_ready_join(struct lh_coordinator *c, struct lh_scope *scope, enum lh_kind kind, int64_t since_us)
{
    const struct lh_operation *operation = c->operations[kind];
    uint64_t id = operation->client_of == NULL ? 0 : operation->client_of(scope);

    if (lh_link_is_linked(&scope->ready) && scope->ready_kind == kind)
        return; /* it keeps its place */
    lh_ready_part(c, scope);
    scope->ready_kind = (uint8_t)kind;
    scope->ready_us = since_us;
    lh_list_append(&get(c, kind, id)->scopes, &scope->ready);
    c->queue.ready.scopes[kind]++;
    c->queue.ready.is_urgent |= kind != LH_KIND_HEARTBEAT && lh_scope_is_waited_for(scope);
}

size_t lh_ready_scopes(const struct lh_coordinator *c, enum lh_kind kind)
{
    return c->queue.ready.scopes[kind];
}

static struct lh_ready_client *next_client(const struct lh_coordinator *c, enum lh_kind kind)
{
    return LH_LIST_FIRST(struct lh_ready_client, &c->queue.ready.turns[kind], turn);
}

int64_t lh_ready_since_us(const struct lh_coordinator *c, enum lh_kind kind)
{
    const struct lh_ready_client *client = next_client(c, kind);
    return client == NULL ? LH_NEVER : LH_LIST_FIRST(struct lh_scope, &client->scopes, ready)->ready_us;
}

struct lh_scope *lh_ready_next(struct lh_coordinator *c, enum lh_kind kind, size_t room, size_t *share)
{
    struct lh_ready_client *client = next_client(c, kind);

    if (client == NULL)
        return NULL;
    *share = room / c->queue.ready.count[kind];
    if (*share == 0)
        *share = 1;
    lh_list_remove(&client->turn);
    lh_list_append(&c->queue.ready.turns[kind], &client->turn);
    return LH_LIST_FIRST(struct lh_scope, &client->scopes, ready);
}

bool lh_ready_has_long_queue(const struct lh_scope *scope)
{
    size_t n = 0;

    LH_LIST_EACH(struct lh_waiter, waiter, &scope->queue, link) {
        (void)waiter;
        if (++n == LH_JOIN_BEHIND)
            return true;
    }
    return false;
}

/* Nobody waits for a place at the end of a queue. Where a hand-over could not take all of them along, those that are left do not wait for another. */
uint32_t lh_ready_rides_in_us(const struct lh_coordinator *c, const struct lh_scope *scope)
{
    const struct lh_waiter *next = LH_LIST_FIRST(struct lh_waiter, &scope->line, link);
    uint32_t left_us = scope->joins_us - (uint32_t)c->now_us;
    bool may_ride = left_us <= LH_JOIN_US && lh_list_is_empty(&scope->again) && lh_ready_has_long_queue(scope) &&
                    next != NULL && next->together == NULL && lh_waiter_wants(next);

    return may_ride ? left_us : 0;
}
