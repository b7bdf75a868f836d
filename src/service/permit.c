/*
 * A caller without a token is its connection's principal, which the connection keeps. A token is looked up for each
 * call, so one that was revoked is refused with the next. Rules and tokens come from the coordinator whenever they have
 * changed; then, and when a token expires, what is open is looked at again: a waiter or a Hold whose right has ended is
 * answered. The others (batches, watches) look by themselves.
 */
#include "service/permit.h"

#include <stdio.h>
#include <string.h>

#include "access/bearer.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "service/call.h"

#define AUTHORIZATION "authorization"
#define USED_TOLD_US (10 * LH_US_PER_S)
#define USED_MAX 1000 /* in one statement */
#define LOOK_MAX 32   /* open calls, then the clock is looked at */
#define LOOK_TURN_US (2 * LH_US_PER_MS)

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

static bool knows_tokens(const struct lh_service *service)
{
    return lh_access_is_loaded(service->access) &&
           (lh_places_count(service->places) == 1 || lh_places_home(service->places)->has_rules);
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

/* False: answered. True with no token: the connection's. */
static bool identify(struct lh_rpc_call *call, struct lh_access_caller *by_token,
                     const struct lh_access_caller **caller)
{
    const char *header = lh_rpc_call_metadata(call, AUTHORIZATION);

    *by_token = (struct lh_access_caller){0};
    *caller = lh_usage_identity(call);
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
    const char *header = lh_rpc_call_metadata(call, AUTHORIZATION);
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

    for (size_t i = 0; lh_places_count(places) > 1 && i < lh_places_count(places); i++) {
        const struct lh_place *place = lh_places_at(places, i);
        bool counts = place == lh_places_home(places) || lh_places_has(places, place, ns, include_children);
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

/* --- changes --- */

static bool look_at_some(struct lh_service *service)
{
    return lh_acquire_check_rights(service, LOOK_MAX) || lh_hold_check_rights(service, LOOK_MAX);
}

static void on_look(void *arg)
{
    struct lh_service *service = arg;

    if (look_at_some(service))
        lh_backlog_add(&service->looks, &service->look);
}

/* There may be a hundred thousand waiters, and a refusal costs some microseconds: so in turns. */
static void look_at_what_is_open(struct lh_service *service)
{
    service->rights_round++;
    if (service->looks_in_turns)
        lh_backlog_add(&service->looks, &service->look);
    else
        while (look_at_some(service))
            continue;
}

static void load(struct lh_service *service, const struct lh_access_answer *answer, bool is_all)
{
    lh_access_load(service->access, answer->rules, answer->rule_count, answer->tokens, answer->token_count);
    service->access_stats.loads++;
    lh_info("access rules loaded rules=%zu tokens=%zu", answer->rule_count, answer->token_count);
    if (is_all && lh_access_is_on(service->access) && answer->rule_count == 0 && service->admin_count == 0)
        lh_warn(
            "authorization is on, and there is no rule and no admin_principals, so everything is denied: set "
            "admin_principals to the principal of the first administrator (a denial in this log names the caller's), "
            "or run: leasehold access grant PRINCIPAL NAMESPACE RIGHT --database URL");
    look_at_what_is_open(service);
}

static void on_rules(void *arg, const struct lh_access_answer *answer)
{
    load(arg, answer, true);
}

static void on_rules_of_place(void *arg, const struct lh_access_answer *answer)
{
    struct lh_place *place = arg;
    struct lh_access_answer all;
    struct lh_arena arena = {0};

    lh_places_keep_rules(place->service->places, place, answer);
    load(place->service, &all, lh_places_gather_rules(place->service->places, &all, &arena));
    lh_arena_finish(&arena);
}

void lh_service_set_access(struct lh_service *service, bool is_on, const char *const *admins, size_t admin_count)
{
    lh_access_configure(service->access, is_on, admins, admin_count);
    service->admin_count = admin_count;
    for (size_t i = 0; i < lh_places_count(service->places); i++)
        lh_coordinator_need_rules(lh_places_at(service->places, i)->coordinator, is_on);
    look_at_what_is_open(service);
}

static void tell_used(struct lh_service *service, int64_t now_us)
{
    struct lh_store *store = service->store;
    const char *ids[USED_MAX];
    size_t count;

    if (now_us - service->used_told_us < USED_TOLD_US || store->ops->token_used == NULL ||
        !store->ops->is_connected(store))
        return;
    service->used_told_us = now_us;
    count = lh_access_take_used(service->access, ids, USED_MAX);
    if (count > 0)
        store->ops->token_used(store, ids, count);
}

void lh_permit_start(struct lh_service *service, struct lh_loop *loop)
{
    service->access = lh_access_create();
    service->looks_in_turns = loop != NULL;
    if (loop != NULL) {
        lh_backlog_init(&service->looks, loop, LOOK_TURN_US);
        lh_backlog_item_init(&service->look, on_look, service);
    }
    lh_denials_init(&service->denials, service->store);
    for (size_t i = 0; i < lh_places_count(service->places); i++) {
        struct lh_place *place = lh_places_at(service->places, i);
        bool is_only = lh_places_count(service->places) == 1;
        place->service = service;
        lh_coordinator_on_rules(place->coordinator, is_only ? on_rules : on_rules_of_place,
                                is_only ? (void *)service : place);
    }
}

void lh_permit_tick(struct lh_service *service)
{
    struct lh_coordinator_stats stats;
    int64_t now_us = lh_clock_us();

    lh_coordinator_stats(lh_places_home(service->places)->coordinator, &stats);
    if (lh_access_set_now(service->access, now_us + stats.clock_offset_us))
        look_at_what_is_open(service);
    lh_denials_tick(&service->denials, now_us);
    tell_used(service, now_us);
}

void lh_permit_finish(struct lh_service *service)
{
    if (service->looks_in_turns)
        lh_backlog_finish(&service->looks);
    lh_denials_finish(&service->denials);
    lh_access_destroy(service->access);
}

void lh_service_access_stats(const struct lh_service *service, struct lh_service_access_stats *stats)
{
    *stats = service->access_stats;
    stats->is_on = lh_access_is_on(service->access);
    stats->rules = lh_access_rule_count(service->access);
    stats->tokens = lh_access_token_count(service->access);
}
