/*
 * grpc.health.v1: https://github.com/grpc/grpc/blob/master/doc/health-checking.md. All services here have one state:
 * the readiness of /readyz, until shutdown. A watcher that has heard nothing for a while gets the same state again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "grpc/health/v1/health.pb-c.h"
#include "lease/readiness.h"
#include "service/call_internal.h"
#include "service/edge_internal.h"
#include "service/streams_internal.h"
#include "service/words_internal.h"

typedef Grpc__Health__V1__HealthCheckResponse__ServingStatus serving_status;
/* database/NAME is the service of one of several databases. */
#define DATABASE "database/"
#define STATUS(name) GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__##name

struct watcher {
    struct lh_link link; /* in lh_service.health_watchers */
    struct lh_service *service;
    struct lh_rpc_call *call;
    struct lh_usage *caller;
    char *name; /* of the service */
    serving_status told;
    int64_t told_us;
};

/* NULL: that is no name of one of several databases. */
static const struct lh_place *find_database(const struct lh_service *service, const char *name)
{
    size_t size = strlen(DATABASE);

    if (strncmp(name, DATABASE, size) != 0 || name[size] == '\0')
        return NULL;
    return lh_places_named(service->places, name + size);
}

const char *const lh_service_names[] = {
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
    "leasehold.v1.AdminService",
    "leasehold.v1.ConsoleService",
    "leasehold.v1.LeaseService",
    "leasehold.v1.ScheduleService",
    NULL,
};

static bool is_known(const struct lh_service *service, const char *name)
{
    if (find_database(service, name) != NULL)
        return true;
    if (name[0] == '\0')
        return true;
    for (size_t i = 0; lh_service_names[i] != NULL; i++)
        if (strcmp(lh_service_names[i], name) == 0)
            return true;
    return false;
}

static serving_status status_now(const struct lh_service *service, const char *name)
{
    const struct lh_place *database = find_database(service, name);
    struct lh_readiness readiness;

    if (!is_known(service, name))
        return STATUS(SERVICE_UNKNOWN);
    if (service->is_draining)
        return STATUS(NOT_SERVING);
    if (database != NULL)
        lh_coordinator_readiness(database->coordinator, &readiness);
    else
        lh_places_readiness(service->places, &readiness);
    return readiness.is_ready ? STATUS(SERVING) : STATUS(NOT_SERVING);
}

/* The same as of the last tick. */
static serving_status status_of_tick(const struct lh_service *service, const char *name)
{
    const struct lh_place *database = find_database(service, name);
    bool was_serving = database != NULL ? database->was_ready && !service->is_draining : service->was_serving;

    if (!is_known(service, name))
        return STATUS(SERVICE_UNKNOWN);
    return was_serving ? STATUS(SERVING) : STATUS(NOT_SERVING);
}

void lh_health_check_on_message(struct lh_rpc_call *call, const void *data, size_t size)
{
    struct lh_service *service = lh_call_service(call);
    struct lh_arena *arena = &service->scratch;
    Grpc__Health__V1__HealthCheckRequest *request =
        lh_call_unpack(call, &grpc__health__v1__health_check_request__descriptor, data, size, arena);

    if (request != NULL && !is_known(service, request->service)) {
        /* Not one of our reasons: the protocol knows the code alone. */
        lh_rpc_call_finish(call, LH_GRPC_NOT_FOUND, "no such service here", NULL, 0);
    } else if (request != NULL) {
        Grpc__Health__V1__HealthCheckResponse response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
        response.status = status_now(service, request->service);
        lh_call_reply(call, &response.base, arena);
    }
    lh_arena_reset(arena);
}

static void tell(struct watcher *watcher, serving_status status)
{
    struct lh_arena *arena = &watcher->service->scratch;
    Grpc__Health__V1__HealthCheckResponse response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    const void *data;
    size_t size;

    watcher->told = status;
    watcher->told_us = lh_clock_us();
    response.status = status;
    size = lh_message_pack(&response.base, arena, &data);
    if (lh_rpc_call_send(watcher->call, data, size) == LH_OVERLOADED)
        lh_rpc_call_finish(watcher->call, LH_GRPC_RESOURCE_EXHAUSTED, "this watcher does not read", NULL, 0);
    lh_arena_reset(arena);
}

/* Proxies end streams that are quiet. A watcher that does not read gets only what changes. */
static bool is_quiet(const struct watcher *watcher, int64_t now_us)
{
    return now_us - watcher->told_us >= LH_QUIET_US && !lh_rpc_call_is_over_mark(watcher->call);
}

/* A watch would go on for ever, and the shutdown wait for it. */
static void send_away(struct watcher *watcher)
{
    struct lh_failure failure = {.status = LH_SHUTTING_DOWN};
    lh_failure_send(watcher->call, &failure);
}

void lh_health_watch_on_message(struct lh_rpc_call *call, const void *data, size_t size)
{
    struct lh_service *service = lh_call_service(call);
    struct lh_failure overloaded = {.status = LH_OVERLOADED, .message = "too many health watchers"};
    Grpc__Health__V1__HealthCheckRequest *request =
        lh_call_unpack(call, &grpc__health__v1__health_check_request__descriptor, data, size, &service->scratch);
    struct lh_usage *caller;
    char limit[24];

    if (request != NULL && service->health_watcher_count >= service->max_health_watchers) {
        snprintf(limit, sizeof(limit), "%zu", service->max_health_watchers);
        overloaded.limit = limit;
        lh_failure_send(call, &overloaded);
    } else if (request != NULL && lh_usage_take(call, LH_USAGE_WATCHERS, 1, &caller)) {
        struct watcher *watcher = lh_alloc_zero(1, sizeof(*watcher));
        watcher->service = service;
        watcher->caller = caller;
        watcher->call = call;
        watcher->name = lh_strdup(request->service);
        lh_list_append(&service->health_watchers, &watcher->link);
        service->health_watcher_count++;
        lh_rpc_call_set_data(call, watcher);
        tell(watcher, status_now(service, watcher->name));
        if (service->is_draining)
            send_away(watcher);
    }
    lh_arena_reset(&service->scratch);
}

void lh_health_watch_on_end(struct lh_rpc_call *call, enum lh_rpc_end reason)
{
    struct watcher *watcher = lh_rpc_call_data(call);

    if (watcher == NULL)
        return;
    lh_list_remove(&watcher->link);
    watcher->service->health_watcher_count--;
    lh_usage_give(watcher->caller, LH_USAGE_WATCHERS, 1);
    free(watcher->name);
    free(watcher);
}

/* Of several, each gets a line in the log when it comes and when it goes. */
static void note_databases(struct lh_service *service)
{
    for (struct lh_place *place = NULL;
         service->places->count > 1 && (place = lh_places_next(service->places, place)) != NULL;) {
        struct lh_readiness readiness;
        lh_coordinator_readiness(place->coordinator, &readiness);
        if (readiness.is_ready == place->was_ready)
            continue;
        place->was_ready = readiness.is_ready;
        lh_info("database %s is %s now: %s", place->name, readiness.is_ready ? "ready" : "not ready", readiness.words);
    }
}

void lh_service_tick(struct lh_service *service)
{
    struct lh_readiness readiness;
    struct lh_coordinator_stats stats;
    int64_t now_us = lh_clock_us();
    bool is_serving_now;

    lh_acquire_tick(service);
    lh_rights_tick(service);
    lh_places_stats(service->places, &stats);
    lh_samples_tick(&service->samples, &stats, now_us);
    note_databases(service);
    lh_places_readiness(service->places, &readiness);
    is_serving_now = readiness.is_ready && !service->is_draining;
    if (is_serving_now != service->was_serving) {
        service->was_serving = is_serving_now;
        lh_info("health is %s now: %s", is_serving_now ? "SERVING" : "NOT_SERVING",
                service->is_draining ? "draining" : readiness.words);
    }
    LH_LIST_EACH(struct watcher, watcher, &service->health_watchers, link)
        if (watcher->told != status_of_tick(service, watcher->name))
            tell(watcher, status_of_tick(service, watcher->name));
        else if (is_quiet(watcher, now_us))
            tell(watcher, watcher->told);
}

void lh_service_drain(struct lh_service *service)
{
    service->is_draining = true;
    lh_service_tick(service);
    LH_LIST_EACH(struct watcher, watcher, &service->health_watchers, link)
        send_away(watcher);
    lh_keep_alive_drain(service);
    lh_hold_drain(service);
    lh_watch_leases_drain(service);
    lh_claims_drain(service);
}
