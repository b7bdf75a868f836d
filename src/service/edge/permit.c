/*
 * A caller without a token is its connection's principal, which the connection keeps. A token is looked up for each
 * call, so a revoked token is refused with the next call.
 */
#include "service/edge_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "access/bearer.h"
#include "base/text.h"
#include "service/call_internal.h"

#define AUTHORIZATION "authorization"

/* --- the caller of a connection, and how much it uses --- */

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

/* --- who --- */

static void refuse_token(struct lh_rpc_call *call, const char *words)
{
    struct lh_service *service = lh_call_service(call);
    struct lh_failure failure = {.status = LH_UNAUTHENTICATED, .message = words};
    struct lh_denial denial = {.principal = lh_rpc_call_principal(call),
                               .peer = lh_rpc_call_peer(call),
                               .method = lh_rpc_call_method(call)->path,
                               .ns = "",
                               .what = words};

    service->access_stats.unauthenticated++;
    lh_denials_note(&service->denials, &denial);
    lh_failure_send(call, &failure);
}

/* NULL: none that is for us. */
static const char *credentials(const struct lh_rpc_call *call)
{
    const char *header = lh_rpc_call_metadata(call, AUTHORIZATION);

    return header == NULL || lh_bearer_is_foreign(header) ? NULL : header;
}

static bool knows_tokens(const struct lh_service *service)
{
    return lh_access_is_loaded(service->access) && (service->placed_store == NULL || service->places->home->has_rules);
}

static bool enter_by_token(struct lh_rpc_call *call, const char *header, struct lh_access_caller *caller)
{
    struct lh_access *access = lh_call_service(call)->access;
    uint8_t hash[LH_ACCESS_HASH_BYTES];

    if (!lh_rpc_call_is_private(call)) {
        refuse_token(call, "a token is taken over TLS, a unix socket or loopback alone");
    } else if (!knows_tokens(lh_call_service(call))) {
        lh_call_fail(call, LH_DATABASE_UNAVAILABLE, NULL, NULL, NULL);
    } else if (!lh_bearer_hash(header, hash)) {
        refuse_token(call, "authorization must be Bearer and a token of leasehold");
    } else if (!lh_access_enter_by_token(access, hash, caller)) {
        refuse_token(call, "the token is unknown, expired or revoked");
    } else {
        lh_rpc_call_set_principal(call, lh_access_name(caller));
        return true;
    }
    return false;
}

bool lh_permit_has_unknown_token(struct lh_rpc_call *call)
{
    const struct lh_service *service = lh_call_service(call);
    const char *header = credentials(call);
    uint8_t hash[LH_ACCESS_HASH_BYTES];

    return header != NULL && lh_rpc_call_is_private(call) && knows_tokens(service) && lh_bearer_hash(header, hash) &&
           !lh_access_knows_token(service->access, hash);
}

/* False: answered. True with no token: the connection's. */
static bool identify(struct lh_rpc_call *call, struct lh_access_caller *by_token,
                     const struct lh_access_caller **caller)
{
    const char *header = credentials(call);

    *by_token = (struct lh_access_caller){0};
    *caller = &client_of(call)->identity;
    if (!lh_access_is_ready(lh_call_service(call)->access)) {
        lh_call_fail(call, LH_DATABASE_UNAVAILABLE, NULL, NULL, NULL);
        return false;
    }
    if (header == NULL)
        return true;
    *caller = by_token;
    return enter_by_token(call, header, by_token);
}

bool lh_permit_enter(struct lh_rpc_call *call, struct lh_access_caller *caller)
{
    const struct lh_access_caller *known;

    if (!identify(call, caller, &known))
        return false;
    if (known != caller)
        *caller = lh_access_copy(known);
    return true;
}

bool lh_permit_token(struct lh_rpc_call *call)
{
    const char *header = credentials(call);
    struct lh_access_caller caller = {0};
    bool is_good = header == NULL || !knows_tokens(lh_call_service(call)) || enter_by_token(call, header, &caller);

    lh_access_leave(&caller);
    return is_good;
}

bool lh_permit_is_admin(struct lh_rpc_call *call)
{
    struct lh_access *access = lh_call_service(call)->access;
    struct lh_access_caller by_token;
    const struct lh_access_caller *caller;
    bool may;

    if (!lh_access_is_on(access))
        return true;
    if (!lh_access_is_ready(access) || !identify(call, &by_token, &caller))
        return false;
    may = lh_access_may(caller, LH_RIGHT_ADMIN, "");
    lh_access_leave(&by_token);
    return may;
}

/* --- may he --- */

static const char *say(const struct lh_access_caller *caller, enum lh_right right, const char *ns,
                       char words[LH_PERMIT_WORDS_BYTES])
{
    const char *name = lh_access_name(caller);
    int kept = (int)lh_utf8_cut(name, strlen(name), LH_NAMESPACE_MAX_BYTES);

    if (*ns == '\0')
        snprintf(words, LH_PERMIT_WORDS_BYTES, "%.*s does not have the right %s for all namespaces", kept, name,
                 lh_right_name(right));
    else
        snprintf(words, LH_PERMIT_WORDS_BYTES, "%.*s does not have the right %s in namespace %s", kept, name,
                 lh_right_name(right), ns);
    return words;
}

static void note(struct lh_rpc_call *call, const struct lh_access_caller *caller, enum lh_right right, const char *ns)
{
    struct lh_service *service = lh_call_service(call);
    char what[32];
    struct lh_denial denial = {.principal = lh_access_name(caller),
                               .peer = lh_rpc_call_peer(call),
                               .method = lh_rpc_call_method(call)->path,
                               .ns = ns,
                               .what = what};

    snprintf(what, sizeof(what), "no right %s", lh_right_name(right));
    service->access_stats.denials[right == LH_RIGHT_READ ? 0 : right == LH_RIGHT_LEASE ? 1 : 2]++;
    lh_denials_note(&service->denials, &denial);
}

bool lh_permit_knows_rules(struct lh_rpc_call *call, const char *ns, bool include_children)
{
    const struct lh_places *places = lh_call_service(call)->places;
    bool is_spread = lh_places_is_spread(places, ns), has_some = false; /* all of its databases have its rules */

    if (lh_call_service(call)->placed_store == NULL)
        return true;
    for (const struct lh_place *place = NULL; is_spread && (place = lh_places_next(places, place)) != NULL;)
        has_some |= place->has_rules && lh_places_has(places, place, ns, false);
    for (const struct lh_place *place = NULL; (place = lh_places_next(places, place)) != NULL;) {
        bool counts = place == places->home || (!has_some && lh_places_has(places, place, ns, include_children));
        if (counts && !place->has_rules)
            return false;
    }
    return true;
}

void lh_permit_refuse(struct lh_rpc_call *call, const struct lh_access_caller *caller, enum lh_right right,
                      const char *ns)
{
    char words[LH_PERMIT_WORDS_BYTES];
    struct lh_failure failure = {.status = LH_ACCESS_DENIED,
                                 .message = say(caller, right, ns, words),
                                 .ns = ns,
                                 .principal = lh_access_name(caller),
                                 .right = lh_right_name(right)};

    if (!lh_permit_knows_rules(call, ns, false)) {
        lh_call_fail(call, LH_DATABASE_UNAVAILABLE, NULL, ns, NULL);
        return;
    }
    note(call, caller, right, ns);
    lh_failure_send(call, &failure);
}

void lh_permit_refuse_item(struct lh_rpc_call *call, const struct lh_access_caller *caller, enum lh_right right,
                           const char *ns, char words[LH_PERMIT_WORDS_BYTES])
{
    note(call, caller, right, ns);
    say(caller, right, ns, words);
}

bool lh_permit(struct lh_rpc_call *call, enum lh_right right, const char *ns)
{
    struct lh_access_caller by_token;
    const struct lh_access_caller *caller;
    bool may;

    if (!identify(call, &by_token, &caller))
        return false;
    may = lh_access_may(caller, right, ns);
    if (!may)
        lh_permit_refuse(call, caller, right, ns);
    lh_access_leave(&by_token);
    return may;
}

const char *lh_permit_forbidden(const struct lh_access_caller *who, const struct lh_acquire *request)
{
    for (size_t i = 0; i < lh_acquire_scope_count(request); i++) {
        struct lh_wanted_scope scope = lh_acquire_nth_scope(request, i);
        if (!lh_access_may(who, LH_RIGHT_LEASE, scope.ns))
            return scope.ns;
    }
    return NULL;
}

bool lh_permit_any(struct lh_rpc_call *call, const struct lh_access_caller *caller, enum lh_right right, const char *ns,
                   bool include_children)
{
    char next[LH_ACCESS_NAME_BYTES];

    if (lh_access_may(caller, right, ns))
        return true;
    if (include_children && !lh_permit_knows_rules(call, ns, true)) {
        lh_call_fail(call, LH_DATABASE_UNAVAILABLE, NULL, ns, NULL);
        return false;
    }
    if (include_children && lh_access_next(caller, right, ns, NULL, next))
        return true;
    lh_permit_refuse(call, caller, right, ns);
    return false;
}
