#include "service/service.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "service/edge_internal.h"
#include "service/methods/acquire_call.h"
#include "service/methods/view.h"
#include "service/places_internal.h"
#include "service/service_internal.h"
#include "service/streams_internal.h"

#define HEALTH_WATCHERS_MAX 1000

#define UNARY(name, message, end, ...)                                                                                 \
    {                                                                                                                  \
        .path = name, .kind = LH_RPC_UNARY, .on_message = message, .on_end = end, __VA_ARGS__                          \
    }
#define LEASE(name, message, end, is_first)                                                                            \
    UNARY("/leasehold.v1.LeaseService/" name, message, end, .comes_first = is_first)
#define ADMIN(name, message) UNARY("/leasehold.v1.AdminService/" name, message, lh_store_call_on_end, .arg = NULL)
/* Its answer is rows, as they are. */
#define ROWS(name, message, response)                                                                                  \
    UNARY("/leasehold.v1.AdminService/" name, message, lh_store_call_on_end,                                           \
          .arg = (void *)(uintptr_t)&leasehold__v1__##response##_response__descriptor)
#define CONSOLE(name, message, look)                                                                                   \
    UNARY("/leasehold.v1.ConsoleService/" name, message, lh_store_call_on_end, .arg = (void *)(uintptr_t)look)

#define REFLECTION(version)                                                                                            \
    {                                                                                                                  \
        .path = "/grpc.reflection." version ".ServerReflection/ServerReflectionInfo", .kind = LH_RPC_BIDI,             \
        .on_message = lh_reflection_on_message, .on_writable = lh_reflection_on_writable,                              \
        .on_half_close = lh_reflection_on_half_close                                                                   \
    }

static const struct lh_rpc_method methods[] = {
    LEASE("Acquire", lh_acquire_on_message, lh_acquire_on_end, false),
    LEASE("AcquireAll", lh_acquire_all_on_message, lh_acquire_on_end, false),
    LEASE("Heartbeat", lh_heartbeat_on_message, lh_batch_on_end, true),
    LEASE("Release", lh_release_on_message, lh_batch_on_end, true),
    LEASE("Downgrade", lh_downgrade_on_message, lh_downgrade_on_end, true),
    LEASE("GetLease", lh_get_lease_on_message, lh_store_call_on_end, false),
    LEASE("ListLeases", lh_list_leases_on_message, lh_store_call_on_end, false),
    {.path = "/leasehold.v1.LeaseService/AcquireStream",
     .kind = LH_RPC_SERVER_STREAM,
     .on_message = lh_acquire_stream_on_message,
     .on_end = lh_acquire_on_end},
    {.path = "/leasehold.v1.LeaseService/Hold",
     .kind = LH_RPC_BIDI,
     .on_start = lh_hold_on_start,
     .on_message = lh_hold_on_message,
     .on_half_close = lh_hold_on_half_close,
     .on_writable = lh_hold_on_alarm,
     .on_alarm = lh_hold_on_alarm,
     .on_peer_alive = lh_hold_on_peer_alive,
     .on_end = lh_hold_on_end},
    {.path = "/leasehold.v1.LeaseService/KeepAlive",
     .kind = LH_RPC_BIDI,
     .on_start = lh_keep_alive_on_start,
     .on_message = lh_keep_alive_on_message,
     .on_half_close = lh_keep_alive_on_half_close,
     .on_writable = lh_keep_alive_on_writable,
     .on_end = lh_keep_alive_on_end},
    {.path = "/leasehold.v1.LeaseService/WatchLeases",
     .kind = LH_RPC_SERVER_STREAM,
     .on_message = lh_watch_leases_on_message,
     .on_writable = lh_watch_leases_on_writable,
     .on_alarm = lh_watch_leases_on_alarm,
     .on_end = lh_watch_leases_on_end},
    ADMIN("Reap", lh_reap_on_message),
    ADMIN("ForceRelease", lh_force_release_on_message),
    ADMIN("SetPolicy", lh_set_policy_on_message),
    ADMIN("GetPolicy", lh_get_policy_on_message),
    ADMIN("ListPolicies", lh_list_policies_on_message),
    ROWS("GrantAccess", lh_grant_access_on_message, grant_access),
    ROWS("RevokeAccess", lh_revoke_access_on_message, revoke_access),
    ROWS("ListAccess", lh_list_access_on_message, list_access),
    ROWS("CreateToken", lh_create_token_on_message, create_token),
    ROWS("RevokeToken", lh_revoke_token_on_message, revoke_token),
    ROWS("ListTokens", lh_list_tokens_on_message, list_tokens),
    ADMIN("GetStatus", lh_get_status_on_message),
    CONSOLE("GetSession", lh_get_session_on_message, NULL),
    CONSOLE("ListNamespaces", lh_look_on_message, &lh_look_namespaces),
    CONSOLE("Explain", lh_explain_on_message, &lh_look_explain),
    CONSOLE("ListQueue", lh_look_on_message, &lh_look_queue),
    CONSOLE("ListWaits", lh_look_on_message, &lh_look_waits),
    CONSOLE("ListHistory", lh_look_on_message, &lh_look_history),
    CONSOLE("ListFailures", lh_look_on_message, &lh_look_failures),
    CONSOLE("ListAudit", lh_look_on_message, &lh_look_audit),
    CONSOLE("ListDaemons", lh_look_on_message, &lh_look_daemons),
    CONSOLE("GetDatabase", lh_look_on_message, &lh_look_database),
    CONSOLE("GetSamples", lh_get_samples_on_message, NULL),
    UNARY("/grpc.health.v1.Health/Check", lh_health_check_on_message, NULL, .comes_first = true),
    {.path = "/grpc.health.v1.Health/Watch",
     .kind = LH_RPC_SERVER_STREAM,
     .on_message = lh_health_watch_on_message,
     .on_end = lh_health_watch_on_end},
    REFLECTION("v1"),
    REFLECTION("v1alpha"),
};

const struct lh_rpc_method *lh_service_methods(size_t *count)
{
    *count = sizeof(methods) / sizeof(methods[0]);
    return methods;
}

void lh_service_encode_error(void *arg, enum lh_status status, const char *message, struct lh_buffer *details)
{
    lh_failure_encode_transport(arg, status, message, details);
}

void lh_service_options_init(struct lh_service_options *options)
{
    *options = (struct lh_service_options){
        .version = LH_VERSION,
        .max_block_us = 20 * LH_US_PER_S,
        .max_health_watchers = HEALTH_WATCHERS_MAX,
        .watch_buffer = 1024 * 1024,
        .caller_limits = {20000, 20000, 100, 102},
    };
}

struct lh_service *lh_service_create(struct lh_coordinator *coordinator, const struct lh_service_options *options)
{
    struct lh_service_place only = {.name = "", .coordinator = coordinator, .is_default = true};

    return lh_service_create_placed(&only, 1, options);
}

struct lh_service *lh_service_create_placed(const struct lh_service_place *places, size_t count,
                                            const struct lh_service_options *options)
{
    struct lh_service *service = lh_alloc_zero(1, sizeof(*service));

    service->loop = options->loop;
    service->places = lh_places_create(places, count);
    service->placed_store = count > 1 ? lh_placed_store_create(service->places) : NULL;
    service->store = count > 1 ? service->placed_store : lh_places_home(service->places)->store;
    service->version = lh_strdup(options->version);
    service->max_block_us = options->max_block_us;
    service->max_health_watchers = options->max_health_watchers;
    service->watch_buffer = options->watch_buffer;
    service->hold_by_ping = options->hold_by_ping;
    memcpy(service->caller_limits, options->caller_limits, sizeof(service->caller_limits));
    lh_table_init(&service->usages, lh_usage_is_of);
    lh_list_init(&service->health_watchers);
    lh_list_init(&service->keep_alives);
    lh_list_init(&service->watches);
    service->reflection = lh_reflection_create();
    lh_rights_start(service, options->loop);
    lh_unknown_tokens_start(service, options->loop);
    lh_acquire_start(service);
    lh_hold_start(service);
    return service;
}

void lh_service_destroy(struct lh_service *service)
{
    if (service == NULL)
        return;
    lh_acquire_finish(service);
    lh_hold_finish(service);
    lh_unknown_tokens_finish(service);
    lh_rights_finish(service);
    lh_reflection_destroy(service->reflection);
    lh_table_finish(&service->usages);
    lh_arena_finish(&service->scratch);
    lh_placed_store_destroy(service->placed_store);
    lh_places_destroy(service->places);
    free(service->version);
    free(service);
}

void lh_service_caller_stats(const struct lh_service *service, struct lh_service_caller_stats *stats)
{
    memcpy(stats->limits, service->caller_limits, sizeof(stats->limits));
    memcpy(stats->refusals, service->caller_refusals, sizeof(stats->refusals));
    stats->watch_buffer = service->watch_buffer;
}

void lh_service_readiness(const struct lh_service *service, struct lh_readiness *readiness)
{
    lh_places_readiness(service->places, readiness);
}

void lh_service_set_max_block(struct lh_service *service, int64_t max_block_us)
{
    service->max_block_us = max_block_us;
}

void lh_service_set_tracer(struct lh_service *service, struct lh_tracer *tracer)
{
    service->tracer = tracer;
}
