#include "service/edge/usage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "service/edge/call.h"

struct lh_usage {
    struct lh_service *service;
    struct lh_table_entry by_principal; /* in service->usages */
    size_t connections;
    size_t taken[LH_USAGE_BOUNDS];
    char principal[]; /* "": of an anonymous connection, and in no table */
};

/* What a connection keeps; each usage may be NULL. */
struct client {
    struct lh_access_caller identity;
    struct lh_usage *anonymous; /* its own */
    struct lh_usage *known;     /* of the principal that it had last */
};

bool lh_usage_is_of(const struct lh_table_entry *entry, const void *principal)
{
    return strcmp(LH_CONTAINER(struct lh_usage, by_principal, entry)->principal, principal) == 0;
}

static void free_when_unused(struct lh_usage *caller)
{
    size_t used = caller->connections;

    for (size_t i = 0; i < LH_USAGE_BOUNDS; i++)
        used += caller->taken[i];
    if (used > 0)
        return;
    if (caller->principal[0] != '\0')
        lh_table_remove(&caller->service->usages, &caller->by_principal);
    free(caller);
}

static void leave(struct lh_usage *caller)
{
    if (caller == NULL)
        return;
    caller->connections--;
    free_when_unused(caller);
}

static struct lh_usage *create(struct lh_service *service, const char *principal)
{
    size_t size = strlen(principal) + 1;
    struct lh_usage *caller = lh_alloc_zero(1, sizeof(*caller) + size);

    caller->service = service;
    memcpy(caller->principal, principal, size);
    return caller;
}

static struct lh_usage *enter_anonymous(struct client *client, struct lh_service *service)
{
    if (client->anonymous == NULL) {
        client->anonymous = create(service, "");
        client->anonymous->connections++;
    }
    return client->anonymous;
}

static struct lh_usage *enter(struct client *client, struct lh_service *service, const char *principal)
{
    uint64_t hash = lh_hash(principal, strlen(principal), 0);
    struct lh_table_entry *entry = lh_table_find(&service->usages, hash, principal);
    struct lh_usage *caller;

    if (entry != NULL) {
        caller = LH_CONTAINER(struct lh_usage, by_principal, entry);
    } else {
        caller = create(service, principal);
        lh_table_insert(&service->usages, &caller->by_principal, hash);
    }
    caller->connections++;
    leave(client->known);
    client->known = caller;
    return caller;
}

/* Made with the first call of its connection. */
static struct client *client_of(struct lh_rpc_call *call)
{
    struct client *client = lh_rpc_call_client(call);

    if (client == NULL) {
        const struct lh_service *service = lh_rpc_call_arg(call);

        client = lh_alloc_zero(1, sizeof(*client));
        lh_access_enter(service->access, lh_rpc_call_principal(call), &client->identity);
        lh_rpc_call_set_client(call, client);
    }
    return client;
}

const struct lh_access_caller *lh_usage_identity(struct lh_rpc_call *call)
{
    return &client_of(call)->identity;
}

struct lh_usage *lh_usage_of(struct lh_rpc_call *call)
{
    const char *principal = lh_rpc_call_principal(call);
    struct lh_service *service = lh_rpc_call_arg(call);
    struct client *client = client_of(call);

    if (strcmp(principal, LH_RPC_ANONYMOUS) == 0)
        return enter_anonymous(client, service);
    if (client->known != NULL && strcmp(client->known->principal, principal) == 0)
        return client->known;
    return enter(client, service, principal);
}

void lh_service_on_client_gone(void *arg, void *of_connection)
{
    struct client *client = of_connection;

    leave(client->anonymous);
    leave(client->known);
    lh_access_leave(&client->identity);
    free(client);
}

bool lh_usage_may_take(struct lh_usage *caller, enum lh_usage_bound bound, size_t count)
{
    size_t *taken = &caller->taken[bound];

    if (*taken > 0 && *taken + count > caller->service->caller_limits[bound]) {
        caller->service->caller_refusals[bound]++;
        return false;
    }
    *taken += count;
    return true;
}

void lh_usage_give(struct lh_usage *caller, enum lh_usage_bound bound, size_t count)
{
    caller->taken[bound] -= count;
    free_when_unused(caller);
}

void lh_usage_refuse(struct lh_rpc_call *call, enum lh_usage_bound bound)
{
    static const char *const words[] = {
        [LH_USAGE_WAITERS] = "calls of this client wait (max_waiters_per_client)",
        [LH_USAGE_PENDING] = "items of this client are under way (max_pending_per_client)",
        [LH_USAGE_WATCHERS] = "watches of this client are open (max_watchers_per_client)",
        [LH_USAGE_CONTROL] = "lists and the like of this client are under way",
    };
    const struct lh_service *service = lh_rpc_call_arg(call);
    size_t most = service->caller_limits[bound];
    char sentence[128], limit[24];
    struct lh_failure failure = {.status = LH_OVERLOADED, .message = sentence, .limit = limit};

    snprintf(limit, sizeof(limit), "%zu", most);
    snprintf(sentence, sizeof(sentence), "too many %s: at most %zu may", words[bound], most);
    lh_failure_send(call, &failure);
}

bool lh_usage_take(struct lh_rpc_call *call, enum lh_usage_bound bound, size_t count, struct lh_usage **caller)
{
    *caller = lh_usage_of(call);
    if (lh_usage_may_take(*caller, bound, count))
        return true;
    lh_usage_refuse(call, bound);
    return false;
}
