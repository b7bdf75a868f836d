/*
 * Down: health says NOT_SERVING, and calls that would wait are refused; the server tells its clients to go and serves
 * what does not wait until they have heard it; when those calls are answered the coordinator answers its waiters
 * SHUTTING_DOWN, finishes its batches and unregisters. When both are done, server, service, coordinator and store go,
 * in this order, for each may still call the next one.
 *
 * A database that does not answer could keep the coordinator from stopping. Then it is left as it is: the process is
 * about to end, and after 5 s without a sign of life the database takes it for dead by itself.
 */
#include "daemon/serving.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "config/settings.h"
#include "daemon/daemon_metrics.h"
#include "daemon/databases.h"
#include "daemon/sockets.h"
#include "lease/coordinator.h"
#include "loop/loop.h"
#include "rpc/server.h"
#include "service/service.h"
#include "store/store.h"
#include "trace/tracer.h"

#define HEALTH_LOOK_US (250 * LH_US_PER_MS)
#define SHORT_CALLS_LOOK_US (5 * LH_US_PER_MS)
#define SHORT_CALLS_LIMIT_US (2 * LH_US_PER_S) /* after the final GOAWAY */
#define DESCRIPTORS_KEPT 64                    /* for one database, the admin port and files */
#define LAST_PATIENCE_US (2 * LH_US_PER_S)     /* for the coordinator, after connections were cut */

_Static_assert(LH_DATABASES_MAX == LH_PLACES_MAX, "each section is a place");

struct lh_serving {
    struct lh_loop *loop;
    const struct lh_settings *settings;
    struct lh_databases *databases;
    struct lh_service *service;
    struct lh_tracer *tracer; /* NULL: no traces */
    struct lh_rpc_server *server;
    struct lh_timer health_timer;

    bool is_server_idle;
    bool are_coordinators_told; /* to stop */
    bool are_coordinators_stopped;
    bool is_told;
    struct lh_timer limit_timer;
    struct lh_timer short_calls_timer;
    int64_t short_calls_until_us;
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

/* With so many databases; `kept` are those that clients may not have, and `most` is the limit of all. */
static size_t descriptors_for_clients(const struct lh_settings *settings, size_t databases, size_t *kept, size_t *most)
{
    size_t wanted = (size_t)settings->max_connections;
    /* Each further database has its lanes, hook lanes, control, listener, and one to spare. */
    size_t more = databases > 1 ? databases - 1 : 0;
    struct rlimit limit;

    *kept = DESCRIPTORS_KEPT + more * (size_t)(settings->lanes + settings->hook_lanes + 3);
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= wanted + *kept)
        return wanted;
    *most = (size_t)limit.rlim_cur;
    return *most > *kept ? *most - *kept : 1;
}

static size_t limit_connections(const struct lh_settings *settings)
{
    size_t kept, most, limit = descriptors_for_clients(settings, settings->database_count, &kept, &most);

    if (limit < (size_t)settings->max_connections)
        lh_warn("max_connections is lowered to %zu: %zu files may be open, and %zu are kept for other uses; raise the "
                "limit (systemd: LimitNOFILE)",
                limit, most, kept);
    return limit;
}

/* What one caller may have of what there is for all. */
static size_t share(int64_t setting, int64_t of_all)
{
    if (setting > 0)
        return (size_t)setting;
    return of_all / 10 > 100 ? (size_t)of_all / 10 : 100;
}

static void set_access(struct lh_serving *serving)
{
    const struct lh_strings *admins = &serving->settings->admin_principals;

    lh_service_set_access(serving->service, serving->settings->authorization, (const char *const *)admins->items,
                          admins->count);
}

static struct lh_service_place place_of(const struct lh_database_section *section, struct lh_coordinator *coordinator)
{
    return (struct lh_service_place){.name = section->name,
                                     .coordinator = coordinator,
                                     .namespaces = (const char *const *)section->namespaces.items,
                                     .namespace_count = section->namespaces.count,
                                     .spread = (const char *const *)section->spread.items,
                                     .spread_count = section->spread.count,
                                     .is_default = section->is_default};
}

static struct lh_service *place_service(struct lh_serving *serving, const struct lh_service_options *options)
{
    const struct lh_databases *databases = serving->databases;
    struct lh_service_place places[LH_DATABASES_MAX];

    if (serving->settings->database_count == 0)
        return lh_service_create(databases->list[0].coordinator, options);
    for (size_t i = 0; i < databases->count; i++)
        places[i] = place_of(&serving->settings->databases[i], databases->list[i].coordinator);
    return lh_service_create_placed(places, databases->count, options);
}

static void create_service(struct lh_serving *serving)
{
    const struct lh_settings *settings = serving->settings;
    struct lh_service_options options;
    struct lh_store_stats store;

    lh_store_stats(serving->databases->list[0].store, &store);
    lh_service_options_init(&options);
    options.loop = serving->loop;
    options.max_block_us = lh_settings_max_block_us(settings);
    options.watch_buffer = (size_t)settings->watch_buffer;
    options.hold_by_ping = settings->hold_by_ping;
    options.caller_limits[LH_USAGE_WAITERS] = share(settings->max_waiters_per_client, settings->max_waiters);
    options.caller_limits[LH_USAGE_PENDING] = share(settings->max_pending_per_client, settings->max_pending);
    options.caller_limits[LH_USAGE_WATCHERS] = share(settings->max_watchers_per_client, settings->max_watchers);
    options.caller_limits[LH_USAGE_CONTROL] = share(0, (int64_t)store.max_control);
    serving->service = place_service(serving, &options);
    set_access(serving);
}

/* A collector that cannot be found is no reason not to serve. */
static void create_tracer(struct lh_serving *serving)
{
    const struct lh_settings *settings = serving->settings;
    struct lh_tracer_options options = {
        .endpoint = settings->trace_endpoint, .ca_file = settings->trace_ca, .sample = settings->trace_sample};
    struct lh_error error;

    if (settings->trace_endpoint == NULL)
        return;
    serving->tracer = lh_tracer_create(serving->loop, &options, &error);
    if (serving->tracer == NULL)
        lh_err("no traces until the next start: trace_endpoint = %s: %s", settings->trace_endpoint, error.message);
    lh_service_set_tracer(serving->service, serving->tracer);
}

static void create_server(struct lh_serving *serving)
{
    const struct lh_settings *settings = serving->settings;
    struct lh_rpc_server_options options;
    const struct lh_rpc_method *methods;
    size_t count;

    methods = lh_service_methods(&count);
    lh_rpc_server_options_init(&options);
    options.max_connections = limit_connections(settings);
    options.connection_memory = (size_t)settings->connection_memory;
    options.memory = (size_t)settings->memory;
    options.handshake_timeout_us = settings->handshake_timeout_us;
    options.request_timeout_us = settings->request_timeout_us;
    options.stall_timeout_us = settings->stall_timeout_us;
    options.max_streams = (uint32_t)settings->max_streams;
    options.idle_timeout_us = settings->idle_timeout_us;
    options.keepalive_us = settings->keepalive_us;
    options.keepalive_timeout_us = settings->keepalive_timeout_us;
    options.max_age_us = settings->max_connection_age_us;
    options.drain_limit_us = settings->shutdown_timeout_us;
    options.encode_error = lh_service_encode_error;
    options.on_enter = lh_service_on_enter;
    options.on_left = lh_service_on_left;
    options.on_late_cancel = lh_service_on_late_cancel;
    options.on_client_gone = lh_service_on_client_gone;
    serving->server = lh_rpc_server_create(serving->loop, &options, methods, count, serving->service);
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

    if (!serving->is_told && serving->is_server_idle && serving->are_coordinators_stopped)
        tell(serving, true);
}

static void on_coordinators_stopped(void *arg)
{
    struct lh_serving *serving = arg;

    serving->are_coordinators_stopped = true;
    lh_defer(serving->loop, &serving->advance);
}

static void stop_coordinators(struct lh_serving *serving)
{
    if (serving->are_coordinators_told)
        return;
    serving->are_coordinators_told = true;
    lh_databases_stop(serving->databases, on_coordinators_stopped, serving);
}

/* Those that are open and do not wait for a lease. */
static size_t short_calls(const struct lh_serving *serving)
{
    struct lh_rpc_server_stats rpc;
    size_t waiters = 0;

    if (serving->server == NULL)
        return 0;
    for (size_t i = 0; i < serving->databases->count; i++) {
        struct lh_coordinator_stats core;
        if (!lh_database_is_in_use(&serving->databases->list[i]))
            continue;
        lh_coordinator_stats(serving->databases->list[i].coordinator, &core);
        waiters += core.waiters;
    }
    lh_rpc_server_stats(serving->server, &rpc);
    return rpc.calls > waiters ? rpc.calls - waiters : 0;
}

static void look_at_short_calls(void *arg)
{
    struct lh_serving *serving = arg;
    int64_t now_us = lh_clock_us();

    if (short_calls(serving) > 0 && now_us < serving->short_calls_until_us)
        lh_timer_arm_at_us(&serving->short_calls_timer, now_us + SHORT_CALLS_LOOK_US);
    else
        stop_coordinators(serving);
}

static void on_final_goaway(void *arg)
{
    struct lh_serving *serving = arg;

    serving->short_calls_until_us = lh_clock_us() + SHORT_CALLS_LIMIT_US;
    look_at_short_calls(serving);
}

static void on_limit(void *arg)
{
    struct lh_serving *serving = arg;

    if (serving->server != NULL && !serving->is_server_idle) {
        lh_warn("shutdown: cutting the connections that are still open");
        lh_rpc_server_destroy(serving->server);
        serving->server = NULL;
        serving->is_server_idle = true;
        stop_coordinators(serving);
        lh_timer_arm_at_us(&serving->limit_timer, lh_clock_us() + LAST_PATIENCE_US);
        lh_defer(serving->loop, &serving->advance);
    } else if (!serving->is_told) {
        lh_warn("shutdown: the database does not answer; leaving without unregistering");
        tell(serving, false);
    }
}

static void on_removed(void *arg, struct lh_coordinator *coordinator)
{
    const struct lh_serving *serving = arg;

    lh_service_forget(serving->service, coordinator);
}

struct lh_serving *lh_serving_create(struct lh_loop *loop, const struct lh_settings *settings, const char *conninfo,
                                     struct lh_tls_context *tls)
{
    struct lh_serving *serving = lh_alloc_zero(1, sizeof(*serving));

    serving->loop = loop;
    serving->settings = settings;
    lh_timer_init(&serving->health_timer, loop, look_at_health, serving);
    lh_timer_init(&serving->limit_timer, loop, on_limit, serving);
    lh_timer_init(&serving->short_calls_timer, loop, look_at_short_calls, serving);
    lh_deferred_init(&serving->advance, advance, serving);
    serving->databases = lh_databases_create(loop, settings, conninfo);
    serving->databases->on_removed = on_removed;
    serving->databases->on_removed_arg = serving;
    create_service(serving);
    create_tracer(serving);
    create_server(serving);
    if (tls != NULL)
        lh_serving_set_tls(serving, tls);
    lh_timer_arm_at_us(&serving->health_timer, lh_clock_us() + HEALTH_LOOK_US);
    return serving;
}

enum lh_status lh_serving_listen(struct lh_serving *serving, struct lh_sockets *sockets, struct lh_error *error)
{
    for (size_t i = 0; i < sockets->grpc_count; i++) {
        int fd = sockets->grpc[i];
        sockets->grpc[i] = -1;
        if (lh_rpc_server_adopt(serving->server, fd, error) != LH_OK)
            return error->status;
    }
    return LH_OK;
}

void lh_serving_set_tls(struct lh_serving *serving, struct lh_tls_context *tls)
{
    if (serving->server != NULL)
        lh_rpc_server_set_tls(serving->server, tls);
}

void lh_serving_metrics(void *arg, struct lh_exposition *out)
{
    const struct lh_serving *serving = arg;
    struct lh_metrics_database databases[LH_DATABASES_MAX];
    struct lh_metrics_source source = {
        .databases = databases, .server = serving->server, .service = serving->service, .tracer = serving->tracer};

    for (size_t i = 0; i < serving->databases->count; i++) {
        const struct lh_daemon_database *database = &serving->databases->list[i];
        if (!lh_database_is_in_use(database))
            continue;
        databases[source.database_count++] =
            (struct lh_metrics_database){database->name, database->coordinator, database->store};
    }
    lh_metrics_write(out, &source);
}

void lh_serving_judge(void *arg, struct lh_readiness *readiness)
{
    const struct lh_serving *serving = arg;
    lh_service_readiness(serving->service, readiness);
}

struct lh_rpc_server *lh_serving_server(struct lh_serving *serving)
{
    return serving->server;
}

struct lh_databases *lh_serving_databases(struct lh_serving *serving)
{
    return serving->databases;
}

/* --- reload --- */

static const struct lh_database_section *find_section(const struct lh_settings *settings, const char *name)
{
    for (size_t i = 0; i < settings->database_count; i++)
        if (strcmp(settings->databases[i].name, name) == 0)
            return &settings->databases[i];
    return NULL;
}

static void check_removed(const struct lh_serving *serving, const struct lh_settings *fresh,
                          struct lh_config_errors *errors)
{
    for (size_t i = 0; i < serving->databases->count; i++) {
        const struct lh_daemon_database *database = &serving->databases->list[i];
        char why[LH_SERVICE_WORDS_BYTES];
        if (lh_database_is_in_use(database) && find_section(fresh, database->name) == NULL &&
            !lh_service_may_remove(serving->service, database->name, why))
            lh_settings_refuse_section(fresh, database->name, errors, "%s", why);
    }
}

static void check_added(const struct lh_serving *serving, const struct lh_settings *fresh,
                        struct lh_config_errors *errors)
{
    const struct lh_database_section *last = NULL;
    struct lh_rpc_server_stats rpc;
    size_t added = 0, kept, most, limit;

    for (size_t i = 0; i < fresh->database_count; i++) {
        const struct lh_database_section *section = &fresh->databases[i];
        const struct lh_daemon_database *database = lh_databases_find(serving->databases, section->name);
        if (database != NULL && database->is_removed)
            lh_settings_refuse_section(fresh, section->name, errors,
                                       "what ran on the section of this name is ending still: reload again");
        if (database == NULL) {
            added++;
            last = section;
        }
    }
    if (last == NULL)
        return;
    if (!lh_databases_has_room(serving->databases, added))
        lh_settings_refuse_section(fresh, last->name, errors,
                                   "sections that were removed are ending still: reload again");
    lh_rpc_server_stats(serving->server, &rpc);
    limit = descriptors_for_clients(serving->settings, fresh->database_count, &kept, &most);
    if (rpc.connections > limit)
        lh_settings_refuse_section(
            fresh, last->name, errors,
            "%zu files may be open, which leaves %zu to the clients, and %zu are connected: raise "
            "the limit (systemd: LimitNOFILE), and restart the daemon",
            most, limit, (size_t)rpc.connections);
}

bool lh_serving_check_reload(void *arg, const struct lh_settings *fresh, struct lh_config_errors *errors)
{
    const struct lh_serving *serving = arg;

    if (fresh->database_count > 0) {
        check_removed(serving, fresh, errors);
        check_added(serving, fresh, errors);
    }
    return errors->size == 0;
}

static void reload_databases(struct lh_serving *serving)
{
    const struct lh_settings *settings = serving->settings;
    struct lh_databases *databases = serving->databases;
    bool is_changed = false;

    for (size_t i = 0; i < databases->count; i++) {
        struct lh_daemon_database *database = &databases->list[i];
        if (!lh_database_is_in_use(database) || find_section(settings, database->name) != NULL)
            continue;
        lh_info("reload: database %s is removed", database->name);
        lh_service_remove(serving->service, database->coordinator);
        lh_databases_remove(databases, database);
        is_changed = true;
    }
    for (size_t i = 0; i < settings->database_count; i++) {
        const struct lh_database_section *section = &settings->databases[i];
        struct lh_service_place place;
        if (lh_databases_find(databases, section->name) != NULL)
            continue;
        lh_info("reload: database %s is added", section->name);
        place = place_of(section, lh_databases_add(databases, settings, section)->coordinator);
        lh_service_add(serving->service, &place);
        is_changed = true;
    }
    if (is_changed)
        lh_rpc_server_set_max_connections(serving->server, limit_connections(settings));
}

void lh_serving_reload(struct lh_serving *serving)
{
    int64_t max_block_us = lh_settings_max_block_us(serving->settings);

    if (serving->settings->database_count > 0)
        reload_databases(serving);
    for (size_t i = 0; i < serving->databases->count; i++) {
        struct lh_coordinator *coordinator = serving->databases->list[i].coordinator;
        if (!lh_database_is_in_use(&serving->databases->list[i]))
            continue;
        lh_coordinator_set_max_block(coordinator, max_block_us);
        lh_coordinator_set_max_guard(coordinator, serving->settings->max_guard_us);
    }
    lh_service_set_max_block(serving->service, max_block_us);
    set_access(serving);
}

/* --- down --- */

static void on_server_idle(void *arg)
{
    struct lh_serving *serving = arg;

    serving->is_server_idle = true;
    lh_defer(serving->loop, &serving->advance);
}

void lh_serving_drain(struct lh_serving *serving, void (*on_drained)(void *arg, bool is_clean), void *arg)
{
    serving->on_drained = on_drained;
    serving->arg = arg;
    lh_timer_arm_at_us(&serving->limit_timer, lh_clock_us() + serving->settings->shutdown_timeout_us);
    lh_service_drain(serving->service);
    lh_rpc_server_drain(serving->server, on_final_goaway, on_server_idle, serving);
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
    lh_timer_finish(&serving->short_calls_timer);
    lh_timer_finish(&serving->health_timer);
    lh_rpc_server_destroy(serving->server);
    lh_tracer_destroy(serving->tracer); /* with the server the last call has ended */
    if (!lh_databases_are_stopped(serving->databases))
        return; /* a database may still answer its coordinator: left to the end of the process */
    lh_service_destroy(serving->service);
    lh_databases_destroy(serving->databases);
    free(serving);
}
