#include "service/service.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "leasehold/v1/console.pb-c.h"
#include "leasehold/v1/schedule.pb-c.h"
#include "service/call_internal.h"
#include "service/streams_internal.h"

#define HEALTH_WATCHERS_MAX 1000

#define LEASE "/leasehold.v1.LeaseService/"
#define UNARY .kind = LH_RPC_UNARY
/* Behind the message comes its handler, and then what else the struct lh_method has. */
#define REQUEST(message, ...)                                                                                          \
    .on_message = lh_asked_on_message, .arg = (void *)(uintptr_t) & (const struct lh_method)                           \
    {                                                                                                                  \
        .request = &leasehold__v1__##message##_request__descriptor, .on_request = __VA_ARGS__                          \
    }
#define ROWS(name, message, answer, ...)                                                                               \
    {                                                                                                                  \
        .path = "/leasehold.v1." name, UNARY, .on_end = lh_store_call_on_end,                                          \
        REQUEST(message, __VA_ARGS__, .response = &leasehold__v1__##answer##_response__descriptor)                     \
    }
#define ADMIN(name, message) ROWS("AdminService/" name, message, message, lh_##message##_on_request)
#define CONSOLE(name, message, answer, ...) ROWS("ConsoleService/" name, message, answer, __VA_ARGS__)
#define LIST(name, answer, of_view, needed)                                                                            \
    CONSOLE(name, list, answer, lh_look_on_request, .view = of_view, .right = needed, .of = LH_LOOK_OF_NAMESPACES)

#define SCHEDULE(name, message, ...)                                                                                   \
    ROWS("ScheduleService/" name, message, message, lh_##message##_on_request, __VA_ARGS__)

#define REFLECTION(version)                                                                                            \
    {                                                                                                                  \
        .path = "/grpc.reflection." version ".ServerReflection/ServerReflectionInfo", .kind = LH_RPC_BIDI,             \
        .on_message = lh_reflection_on_message, .on_writable = lh_reflection_on_writable,                              \
        .on_half_close = lh_reflection_on_half_close                                                                   \
    }

static const struct lh_rpc_method methods[] = {
    {.path = LEASE "Acquire",
     UNARY,
     REQUEST(acquire, lh_acquire_on_request, .is_traced = true),
     .on_end = lh_acquire_on_end},
    {.path = LEASE "AcquireAll",
     UNARY,
     REQUEST(acquire_all, lh_acquire_all_on_request, .is_traced = true),
     .on_end = lh_acquire_on_end},
    {.path = LEASE "Heartbeat",
     UNARY,
     .on_message = lh_heartbeat_on_message,
     .on_end = lh_batch_on_end,
     .comes_first = true},
    {.path = LEASE "Release",
     UNARY,
     .on_message = lh_release_on_message,
     .on_end = lh_batch_on_end,
     .comes_first = true},
    {.path = LEASE "Downgrade",
     UNARY,
     REQUEST(downgrade, lh_downgrade_on_request, .is_traced = true),
     .on_end = lh_downgrade_on_end,
     .comes_first = true},
    {.path = LEASE "AskHandOver",
     UNARY,
     REQUEST(ask_hand_over, lh_ask_hand_over_on_request),
     .on_end = lh_store_call_on_end},
    {.path = LEASE "RefuseHandOver",
     UNARY,
     REQUEST(refuse_hand_over, lh_refuse_hand_over_on_request),
     .on_end = lh_store_call_on_end,
     .comes_first = true},
    {.path = LEASE "GetLease", UNARY, REQUEST(get_lease, lh_get_lease_on_request), .on_end = lh_store_call_on_end},
    {.path = LEASE "ListLeases",
     UNARY,
     REQUEST(list_leases, lh_list_leases_on_request),
     .on_end = lh_store_call_on_end},
    {.path = LEASE "AcquireStream",
     .kind = LH_RPC_SERVER_STREAM,
     REQUEST(acquire, lh_acquire_stream_on_request, .is_traced = true),
     .on_end = lh_acquire_on_end},
    {.path = LEASE "Hold",
     .kind = LH_RPC_BIDI,
     .on_start = lh_hold_on_start,
     .on_message = lh_hold_on_message,
     .on_half_close = lh_hold_on_half_close,
     .on_writable = lh_hold_on_alarm,
     .on_alarm = lh_hold_on_alarm,
     .on_peer_alive = lh_hold_on_peer_alive,
     .on_end = lh_hold_on_end},
    {.path = LEASE "KeepAlive",
     .kind = LH_RPC_BIDI,
     .on_start = lh_keep_alive_on_start,
     .on_message = lh_keep_alive_on_message,
     .on_half_close = lh_keep_alive_on_half_close,
     .on_writable = lh_keep_alive_on_writable,
     .on_end = lh_keep_alive_on_end},
    {.path = LEASE "WatchLeases",
     .kind = LH_RPC_SERVER_STREAM,
     REQUEST(watch_leases, lh_watch_leases_on_request),
     .on_writable = lh_watch_leases_on_writable,
     .on_alarm = lh_watch_leases_on_alarm,
     .on_end = lh_watch_leases_on_end},
    ADMIN("Reap", reap),
    ADMIN("ForceRelease", force_release),
    ADMIN("SetPolicy", set_policy),
    ADMIN("GetPolicy", get_policy),
    ADMIN("ListPolicies", list_policies),
    ADMIN("GrantAccess", grant_access),
    ADMIN("RevokeAccess", revoke_access),
    ADMIN("ListAccess", list_access),
    ADMIN("CreateToken", create_token),
    ADMIN("RevokeToken", revoke_token),
    ADMIN("ListTokens", list_tokens),
    ADMIN("GetStatus", get_status),
    CONSOLE("GetSession", get_session, get_session, lh_get_session_on_request),
    LIST("ListNamespaces", list_namespaces, LH_VIEW_NAMESPACES, LH_RIGHT_READ),
    CONSOLE("Explain", explain, explain, lh_explain_on_request, .view = LH_VIEW_EXPLAIN, .of = LH_LOOK_OF_SCOPE,
            .right = LH_RIGHT_READ),
    LIST("ListQueue", list_queue, LH_VIEW_QUEUE, LH_RIGHT_READ),
    LIST("ListWaits", list_waits, LH_VIEW_WAITS, LH_RIGHT_READ),
    LIST("ListHistory", list_history, LH_VIEW_HISTORY, LH_RIGHT_READ),
    LIST("ListFailures", list_failures, LH_VIEW_FAILURES, LH_RIGHT_READ),
    LIST("ListScheduleDays", list_schedule_days, LH_VIEW_SCHEDULE_DAYS, LH_RIGHT_READ),
    LIST("ListAudit", list_audit, LH_VIEW_AUDIT, LH_RIGHT_ADMIN),
    CONSOLE("ListDaemons", list, list_daemons, lh_look_on_request, .view = LH_VIEW_DAEMONS, .of = LH_LOOK_OF_DATABASE,
            .right = LH_RIGHT_READ),
    CONSOLE("GetDatabase", get_database, get_database, lh_look_on_request, .view = LH_VIEW_DATABASE,
            .of = LH_LOOK_OF_DATABASE, .right = LH_RIGHT_READ),
    CONSOLE("GetSamples", get_samples, get_samples, lh_get_samples_on_request),
    SCHEDULE("SetSchedule", set_schedule, .right = LH_RIGHT_ADMIN),
    SCHEDULE("GetSchedule", get_schedule, .right = LH_RIGHT_READ),
    SCHEDULE("ListSchedules", list_schedules, .view = LH_VIEW_SCHEDULES, .right = LH_RIGHT_READ),
    SCHEDULE("PauseSchedule", pause_schedule, .right = LH_RIGHT_ADMIN),
    SCHEDULE("RemoveSchedule", remove_schedule, .right = LH_RIGHT_ADMIN),
    SCHEDULE("RunScheduleNow", run_schedule_now, .right = LH_RIGHT_ADMIN),
    SCHEDULE("ListTicks", list_ticks, .view = LH_VIEW_TICKS, .right = LH_RIGHT_READ),
    {.path = "/leasehold.v1.ScheduleService/ClaimTick",
     UNARY,
     REQUEST(claim_tick, lh_claim_tick_on_request, .right = LH_RIGHT_LEASE),
     .on_end = lh_claim_tick_on_end},
    {.path = "/grpc.health.v1.Health/Check", UNARY, .on_message = lh_health_check_on_message, .comes_first = true},
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

static void start_place(struct lh_service *service, struct lh_place *place)
{
    lh_rights_start_place(service, place);
    lh_hold_asked_start_place(service, place);
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
    if (count > 1 || service->places->spread_count > 0)
        service->placed_store = lh_placed_store_create(service->places);
    service->store = service->placed_store != NULL ? service->placed_store : service->places->home->store;
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
    lh_list_init(&service->routed_watches);
    service->reflection = lh_reflection_create();
    lh_rights_start(service, options->loop);
    lh_unknown_tokens_start(service, options->loop);
    lh_acquires_start(service);
    lh_hold_start(service);
    lh_list_init(&service->claims);
    for (struct lh_place *place = NULL; (place = lh_places_next(service->places, place)) != NULL;)
        start_place(service, place);
    return service;
}

void lh_service_add(struct lh_service *service, const struct lh_service_place *place)
{
    struct lh_place *added = lh_places_add(service->places, place);

    start_place(service, added);
    lh_coordinator_need_rules(added->coordinator, lh_access_is_on(service->access));
}

bool lh_service_may_remove(const struct lh_service *service, const char *name, char why[LH_SERVICE_WORDS_BYTES])
{
    return lh_places_may_remove(service->places, name, why);
}

void lh_service_remove(struct lh_service *service, const struct lh_coordinator *coordinator)
{
    lh_places_remove(service->places, coordinator);
    lh_rights_gather(service);
    lh_rights_look(service); /* waiters that it still has */
}

void lh_service_forget(struct lh_service *service, const struct lh_coordinator *coordinator)
{
    lh_places_forget(service->places, coordinator);
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

bool lh_service_slots(const struct lh_service *service, size_t index, struct lh_service_slots *slots)
{
    return lh_places_slots(service->places, index, slots);
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
