/*
 * Down: health says NOT_SERVING; the server sends GOAWAY and lets calls end; the coordinator answers its waiters
 * SHUTTING_DOWN, finishes its batches and unregisters. When both are done, server, service, coordinator and store go,
 * in this order, for each may still call the next one.
 *
 * A database that does not answer could keep the coordinator from stopping. Then it is left as it is: the process is
 * about to end, and after 5 s without a sign of life the database takes it for dead by itself.
 */
#include "daemon/serving.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "config/settings.h"
#include "daemon/metrics.h"
#include "daemon/port.h"
#include "lease/coordinator.h"
#include "loop/loop.h"
#include "rpc/server.h"
#include "service/service.h"
#include "store/store.h"

#define HEALTH_LOOK_US (250 * LH_US_PER_MS)
#define LAST_PATIENCE_US (2 * LH_US_PER_S) /* for the coordinator, after connections were cut */

struct lh_serving {
    struct lh_loop *loop;
    const struct lh_settings *settings;
    struct lh_port port;
    struct lh_store *store;
    struct lh_coordinator *coordinator;
    struct lh_service *service;
    struct lh_rpc_server *server;
    struct lh_timer health_timer;

    bool is_started;
    bool is_server_idle;
    bool is_coordinator_stopped;
    bool is_told;
    struct lh_timer limit_timer;
    struct lh_deferred advance; /* out of the callbacks of those who are to be destroyed */
    void (*on_drained)(void *arg, bool is_clean);
    void *arg;
};

static void look_at_health(void *arg)
{
    struct lh_serving *serving = arg;

    lh_service_tick(serving->service);
    lh_timer_arm_at_us(&serving->health_timer, lh_clock_us() + HEALTH_LOOK_US);
}

static void create_coordinator(struct lh_serving *serving, const char *conninfo)
{
    const struct lh_settings *settings = serving->settings;
    struct lh_store_options store_options;
    struct lh_coordinator_options options;

    lh_store_options_init(&store_options);
    store_options.conninfo = conninfo;
    store_options.lanes = (unsigned)settings->lanes;
    store_options.hook_lanes = (unsigned)settings->hook_lanes;
    store_options.version = LH_VERSION;
    store_options.stop_timeout_us = settings->shutdown_timeout_us;
    serving->store = lh_store_create(serving->loop, &store_options);

    lh_coordinator_options_init(&options);
    options.max_block_us = lh_settings_max_block_us(settings);
    options.busy_limit_us = settings->busy_limit_us;
    options.reap_interval_us = settings->reap_interval_us;
    options.max_waiters = (size_t)settings->max_waiters;
    options.max_pending = (size_t)settings->max_pending;
    options.max_watchers = (size_t)settings->max_watchers;
    options.max_hooked = (size_t)settings->max_hooked;
    serving->coordinator = lh_coordinator_create(serving->store, &serving->port.port, &options);
    serving->port.coordinator = serving->coordinator;
}

static void create_server(struct lh_serving *serving)
{
    const struct lh_settings *settings = serving->settings;
    struct lh_service_options service_options;
    struct lh_rpc_server_options options;
    const struct lh_rpc_method *methods;
    size_t count;

    lh_service_options_init(&service_options);
    service_options.max_block_us = lh_settings_max_block_us(settings);
    serving->service = lh_service_create(serving->coordinator, &service_options);
    methods = lh_service_methods(&count);
    lh_rpc_server_options_init(&options);
    options.max_connections = (size_t)settings->max_connections;
    options.max_streams = (uint32_t)settings->max_streams;
    options.idle_timeout_us = settings->idle_timeout_us;
    options.keepalive_us = settings->keepalive_us;
    options.keepalive_timeout_us = settings->keepalive_timeout_us;
    options.drain_limit_us = settings->shutdown_timeout_us;
    options.encode_error = lh_service_encode_error;
    options.on_late_cancel = lh_service_on_late_cancel;
    serving->server = lh_rpc_server_create(serving->loop, &options, methods, count, serving->service);
}

static enum lh_status listen_everywhere(struct lh_serving *serving, struct lh_error *error)
{
    const struct lh_strings *listen = &serving->settings->listen;

    for (size_t i = 0; i < listen->count; i++) {
        enum lh_status status =
            lh_rpc_server_listen(serving->server, listen->items[i], serving->settings->reuse_port, error);
        if (status != LH_OK)
            return status;
    }
    return LH_OK;
}

static void tell(struct lh_serving *serving, bool is_clean)
{
    serving->is_told = true;
    lh_timer_cancel(&serving->limit_timer);
    lh_timer_cancel(&serving->health_timer);
    serving->on_drained(serving->arg, is_clean);
}

static void advance(void *arg)
{
    struct lh_serving *serving = arg;

    if (!serving->is_told && serving->is_server_idle && serving->is_coordinator_stopped)
        tell(serving, true);
}

static void on_limit(void *arg)
{
    struct lh_serving *serving = arg;

    if (serving->server != NULL && !serving->is_server_idle) {
        lh_warn("shutdown: cutting the connections that are still open");
        lh_rpc_server_destroy(serving->server);
        serving->server = NULL;
        serving->is_server_idle = true;
        lh_timer_arm_at_us(&serving->limit_timer, lh_clock_us() + LAST_PATIENCE_US);
        lh_defer(serving->loop, &serving->advance);
    } else if (!serving->is_told) {
        lh_warn("shutdown: the database does not answer; leaving without unregistering");
        tell(serving, false);
    }
}

struct lh_serving *lh_serving_create(struct lh_loop *loop, const struct lh_settings *settings, const char *conninfo,
                                     struct lh_error *error)
{
    struct lh_serving *serving = lh_alloc_zero(1, sizeof(*serving));

    serving->loop = loop;
    serving->settings = settings;
    lh_port_init(&serving->port, loop);
    lh_timer_init(&serving->health_timer, loop, look_at_health, serving);
    lh_timer_init(&serving->limit_timer, loop, on_limit, serving);
    lh_deferred_init(&serving->advance, advance, serving);
    create_coordinator(serving, conninfo);
    create_server(serving);
    if (listen_everywhere(serving, error) != LH_OK) {
        lh_serving_destroy(serving);
        return NULL;
    }
    lh_coordinator_start(serving->coordinator);
    serving->is_started = true;
    lh_timer_arm_at_us(&serving->health_timer, lh_clock_us() + HEALTH_LOOK_US);
    return serving;
}

void lh_serving_metrics(void *arg, struct lh_exposition *out)
{
    const struct lh_serving *serving = arg;
    lh_metrics_write(out, serving->server, serving->coordinator, serving->store);
}

struct lh_coordinator *lh_serving_coordinator(struct lh_serving *serving)
{
    return serving->coordinator;
}

void lh_serving_address(const struct lh_serving *serving, char text[LH_ADDRESS_TEXT_BYTES])
{
    const struct lh_strings *listen = &serving->settings->listen;
    struct lh_address address;
    char why[160];
    size_t i = 0;

    while (i + 1 < listen->count && strncmp(listen->items[i], "unix:", 5) == 0)
        i++;
    if (strncmp(listen->items[i], "unix:", 5) == 0)
        i = 0;
    lh_address_parse(listen->items[i], &address, why, sizeof(why));
    lh_address_set_port(&address, lh_rpc_server_port(serving->server));
    lh_address_format(&address, text);
}

void lh_serving_reload(struct lh_serving *serving)
{
    int64_t max_block_us = lh_settings_max_block_us(serving->settings);

    lh_coordinator_set_max_block(serving->coordinator, max_block_us);
    lh_service_set_max_block(serving->service, max_block_us);
}

static void on_server_idle(void *arg)
{
    struct lh_serving *serving = arg;

    serving->is_server_idle = true;
    lh_defer(serving->loop, &serving->advance);
}

static void on_coordinator_stopped(void *arg)
{
    struct lh_serving *serving = arg;

    serving->is_coordinator_stopped = true;
    lh_defer(serving->loop, &serving->advance);
}

void lh_serving_drain(struct lh_serving *serving, void (*on_drained)(void *arg, bool is_clean), void *arg)
{
    serving->on_drained = on_drained;
    serving->arg = arg;
    lh_timer_arm_at_us(&serving->limit_timer, lh_clock_us() + serving->settings->shutdown_timeout_us);
    lh_service_drain(serving->service);
    lh_rpc_server_drain(serving->server, on_server_idle, serving);
    lh_coordinator_stop(serving->coordinator, on_coordinator_stopped, serving);
}

void lh_serving_hurry(struct lh_serving *serving)
{
    if (!serving->is_told)
        lh_timer_arm_at_us(&serving->limit_timer, lh_clock_us());
}

void lh_serving_destroy(struct lh_serving *serving)
{
    if (serving == NULL)
        return;
    lh_deferred_cancel(&serving->advance);
    lh_timer_finish(&serving->limit_timer);
    lh_timer_finish(&serving->health_timer);
    lh_rpc_server_destroy(serving->server);
    if (serving->is_started && !serving->is_coordinator_stopped)
        return; /* the database may still answer it: left to the end of the process */
    lh_service_destroy(serving->service);
    lh_coordinator_destroy(serving->coordinator);
    lh_store_destroy(serving->store);
    lh_port_finish(&serving->port);
    free(serving);
}
