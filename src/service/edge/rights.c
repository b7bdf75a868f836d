/*
 * The coordinator delivers rules and tokens whenever they have changed. Then, and when a token expires, the service
 * looks at its open calls again, and answers each waiter and each Hold that has lost its right. Batches and watches
 * look by themselves.
 */
#include "service/edge_internal.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/table.h"
#include "service/call_internal.h"
#include "service/streams_internal.h"

#define USED_TOLD_US (10 * LH_US_PER_S)
#define USED_MAX 1000 /* in one statement */
#define LOOK_MAX 32   /* open calls, then the clock is looked at */
#define LOOK_TURN_US (2 * LH_US_PER_MS)

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
void lh_rights_look(struct lh_service *service)
{
    service->rights_round++;
    if (service->looks_in_turns)
        lh_backlog_add(&service->looks, &service->look);
    else
        while (look_at_some(service))
            continue;
}

static uint64_t mix(const void *bytes, size_t size, uint64_t seed)
{
    return lh_hash(bytes, size, seed) + seed;
}

/* The same for the same rules and tokens, in any order. */
static uint64_t fingerprint(const struct lh_access_answer *answer)
{
    uint64_t sum = answer->rule_count * 31 + answer->token_count;

    for (size_t i = 0; i < answer->rule_count; i++) {
        const struct lh_access_rule *rule = &answer->rules[i];
        uint64_t of_principal = mix(rule->principal, strlen(rule->principal), rule->rights);
        sum += mix(rule->ns, strlen(rule->ns), of_principal);
    }
    for (size_t i = 0; i < answer->token_count; i++) {
        const struct lh_access_token *token = &answer->tokens[i];
        sum += mix(token->hash, sizeof(token->hash), (uint64_t)token->expires_at_us);
    }
    return sum;
}

static void load(struct lh_service *service, const struct lh_access_answer *answer, bool is_all)
{
    uint64_t before = service->loaded_rules;

    service->loaded_rules = fingerprint(answer);
    lh_access_load(service->access, answer->rules, answer->rule_count, answer->tokens, answer->token_count);
    if (service->access_stats.loads++ > 0 && service->loaded_rules == before)
        return; /* read for an unknown token */
    lh_info("access rules loaded rules=%zu tokens=%zu", answer->rule_count, answer->token_count);
    if (is_all && lh_access_is_on(service->access) && answer->rule_count == 0 && service->admin_count == 0)
        lh_warn(
            "authorization is on, and there is no rule and no admin_principals, so everything is denied: set "
            "admin_principals to the principal of the first administrator (a denial in this log names the caller's), "
            "or run: leasehold access grant PRINCIPAL NAMESPACE RIGHT --database URL");
    lh_rights_look(service);
}

static void on_rules(void *arg, const struct lh_access_answer *answer)
{
    load(arg, answer, true);
}

void lh_rights_gather(struct lh_service *service)
{
    struct lh_access_answer all;
    struct lh_arena arena = {0};

    load(service, &all, lh_places_gather_rules(service->places, &all, &arena));
    lh_arena_finish(&arena);
}

static void on_rules_of_place(void *arg, const struct lh_access_answer *answer)
{
    struct lh_place *place = arg;

    lh_places_keep_rules(place->service->places, place, answer);
    lh_rights_gather(place->service);
}

static void on_spread(void *arg, const struct lh_spread_answer *answer)
{
    struct lh_place *place = arg;

    if (lh_places_keep_spread(place->service->places, place, answer))
        lh_rights_look(place->service); /* waiters of keys that have gone elsewhere */
    lh_route_join(place->service, place);
}

void lh_service_set_access(struct lh_service *service, bool is_on, const char *const *admins, size_t admin_count)
{
    lh_access_configure(service->access, is_on, admins, admin_count);
    service->admin_count = admin_count;
    for (struct lh_place *place = NULL; (place = lh_places_next(service->places, place)) != NULL;)
        lh_coordinator_need_rules(place->coordinator, is_on);
    lh_rights_look(service);
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

void lh_rights_start(struct lh_service *service, struct lh_loop *loop)
{
    service->access = lh_access_create();
    service->looks_in_turns = loop != NULL;
    if (loop != NULL) {
        lh_backlog_init(&service->looks, loop, LOOK_TURN_US);
        lh_backlog_item_init(&service->look, on_look, service);
    }
    lh_denials_init(&service->denials, service->store);
}

void lh_rights_start_place(struct lh_service *service, struct lh_place *place)
{
    bool is_only = service->placed_store == NULL;

    place->service = service;
    lh_coordinator_on_rules(place->coordinator, is_only ? on_rules : on_rules_of_place,
                            is_only ? (void *)service : place);
    if (place->spread_count > 0)
        lh_coordinator_on_spread(place->coordinator, on_spread, place);
    if (service->places->spread_count > 0)
        lh_places_lack_spread(service->places);
}

void lh_rights_tick(struct lh_service *service)
{
    struct lh_coordinator_stats stats;
    int64_t now_us = lh_clock_us();

    lh_coordinator_stats(service->places->home->coordinator, &stats);
    if (lh_access_set_now(service->access, now_us + stats.clock_offset_us))
        lh_rights_look(service);
    lh_denials_tick(&service->denials, now_us);
    tell_used(service, now_us);
}

void lh_rights_finish(struct lh_service *service)
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
