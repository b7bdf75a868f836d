#include "daemon/databases.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "config/settings.h"
#include "lease/readiness.h"
#include "pg/migrate.h"
#include "store/store.h"

/* --- a coordinator's port --- */

static int64_t now_us(void *arg)
{
    return lh_clock_us();
}

static void set_timer(void *arg, int64_t at_us)
{
    struct lh_port *port = arg;

    lh_timer_arm_at_us(&port->timer, at_us);
}

static uint32_t random_number(void *arg)
{
    return arc4random();
}

static bool is_behind(void *arg)
{
    struct lh_port *port = arg;

    return lh_loop_is_behind(port->timer.loop);
}

static void poll_until(void *arg, int64_t at_us)
{
    struct lh_port *port = arg;

    lh_loop_poll_until(port->timer.loop, at_us);
}

static void on_due(void *arg)
{
    struct lh_port *port = arg;

    lh_coordinator_on_timer(port->coordinator);
}

static void init_port(struct lh_port *port, struct lh_loop *loop)
{
    lh_timer_init(&port->timer, loop, on_due, port);
    port->coordinator = NULL;
    port->port = (struct lh_coordinator_port){.now_us = now_us,
                                              .set_timer = set_timer,
                                              .random = random_number,
                                              .is_behind = is_behind,
                                              .poll_until = poll_until,
                                              .arg = port};
}

/* --- the databases --- */

static void open_database(struct lh_databases *databases, struct lh_daemon_database *database, const char *name,
                          const char *conninfo, const struct lh_settings *settings)
{
    struct lh_loop *loop = databases->loop;
    struct lh_store_options store_options;
    struct lh_coordinator_options options;

    database->all = databases;
    database->name = lh_strdup(name);
    database->conninfo = lh_strdup(conninfo);
    init_port(&database->port, loop);
    lh_store_options_init(&store_options);
    store_options.conninfo = database->conninfo;
    store_options.name = database->name;
    store_options.lanes = (unsigned)settings->lanes;
    store_options.hook_lanes = (unsigned)settings->hook_lanes;
    store_options.named_namespaces = (int32_t)settings->metrics_namespaces;
    store_options.version = LH_VERSION;
    store_options.privileges_sql = lh_migrations.privileges_sql;
    store_options.functions_checksum = lh_migrations.functions_checksum;
    store_options.stop_timeout_us = settings->shutdown_timeout_us;
    database->store = lh_store_create(loop, &store_options);

    lh_coordinator_options_init(&options);
    options.max_block_us = lh_settings_max_block_us(settings);
    options.busy_limit_us = settings->busy_limit_us;
    options.max_guard_us = settings->max_guard_us;
    options.reap_interval_us = settings->reap_interval_us;
    options.max_waiters = (size_t)settings->max_waiters;
    options.max_pending = (size_t)settings->max_pending;
    options.max_watchers = (size_t)settings->max_watchers;
    options.max_hooked = (size_t)settings->max_hooked;
    database->coordinator = lh_coordinator_create(database->store, &database->port.port, &options);
    database->port.coordinator = database->coordinator;
}

static void close_database(struct lh_daemon_database *database)
{
    lh_coordinator_destroy(database->coordinator);
    lh_store_destroy(database->store);
    lh_timer_finish(&database->port.timer);
    free(database->name);
    free(database->conninfo);
    *database = (struct lh_daemon_database){0};
}

static bool is_running(const struct lh_daemon_database *database)
{
    return database->is_started && !database->is_stopped;
}

static void on_sweep(void *arg)
{
    struct lh_databases *databases = arg;

    for (size_t i = 0; i < databases->count; i++) {
        struct lh_daemon_database *database = &databases->list[i];
        if (!database->is_removed || database->is_migrating || is_running(database))
            continue;
        lh_info("database %s has been removed", database->name);
        databases->on_removed(databases->on_removed_arg, database->coordinator);
        close_database(database);
    }
}

void lh_databases_sweep(struct lh_databases *databases)
{
    lh_defer(databases->loop, &databases->sweep);
}

struct lh_databases *lh_databases_create(struct lh_loop *loop, const struct lh_settings *settings, const char *conninfo)
{
    size_t room = settings->database_count > 0 ? LH_DATABASES_MAX : 1;
    struct lh_databases *databases = lh_alloc_zero(1, sizeof(*databases) + room * sizeof(databases->list[0]));

    databases->loop = loop;
    lh_deferred_init(&databases->sweep, on_sweep, databases);
    if (settings->database_count == 0)
        open_database(databases, &databases->list[databases->count++], "", conninfo, settings);
    for (size_t i = 0; i < settings->database_count; i++)
        lh_databases_add(databases, settings, &settings->databases[i]);
    return databases;
}

struct lh_daemon_database *lh_databases_add(struct lh_databases *databases, const struct lh_settings *settings,
                                            const struct lh_database_section *section)
{
    size_t at = 0;

    while (at < databases->count && databases->list[at].name != NULL)
        at++;
    if (at == databases->count)
        databases->count++;
    open_database(databases, &databases->list[at], section->name, section->database, settings);
    return &databases->list[at];
}

struct lh_daemon_database *lh_databases_find(struct lh_databases *databases, const char *name)
{
    for (size_t i = 0; i < databases->count; i++)
        if (databases->list[i].name != NULL && strcmp(databases->list[i].name, name) == 0)
            return &databases->list[i];
    return NULL;
}

bool lh_databases_has_room(const struct lh_databases *databases, size_t more)
{
    size_t used = 0;

    for (size_t i = 0; i < databases->count; i++)
        used += databases->list[i].name != NULL;
    return used + more <= LH_DATABASES_MAX;
}

bool lh_database_is_in_use(const struct lh_daemon_database *database)
{
    return database->name != NULL && !database->is_removed;
}

void lh_databases_start(struct lh_databases *databases, size_t index)
{
    databases->list[index].is_started = true;
    lh_coordinator_start(databases->list[index].coordinator);
}

void lh_databases_set_phase(struct lh_databases *databases, const char *words)
{
    for (size_t i = 0; i < databases->count; i++)
        if (lh_database_is_in_use(&databases->list[i]))
            lh_coordinator_set_phase(databases->list[i].coordinator, words, NULL, NULL);
}

void lh_databases_count(const struct lh_databases *databases, size_t *all, size_t *ready)
{
    struct lh_readiness readiness;

    *all = *ready = 0;
    for (size_t i = 0; i < databases->count; i++) {
        if (!lh_database_is_in_use(&databases->list[i]))
            continue;
        lh_coordinator_readiness(databases->list[i].coordinator, &readiness);
        ++*all;
        *ready += readiness.is_ready;
    }
}

char *lh_databases_describe(const struct lh_settings *settings)
{
    char *all, *next, *one;

    if (settings->database_count == 0)
        return lh_database_redact(settings->embedded != NULL ? settings->embedded : settings->database);
    all = lh_strdup("");
    for (size_t i = 0; i < settings->database_count; i++) {
        one = lh_database_redact(settings->databases[i].database);
        next = lh_format("%s%s%s (%s)", all, i > 0 ? ", " : "", settings->databases[i].name, one);
        free(all);
        free(one);
        all = next;
    }
    return all;
}

static void on_coordinator_stopped(void *arg)
{
    struct lh_daemon_database *database = arg;
    struct lh_databases *databases = database->all;

    database->is_stopped = true;
    if (database->is_removed)
        lh_databases_sweep(databases);
    if (databases->on_stopped != NULL && --databases->running == 0)
        databases->on_stopped(databases->arg);
}

void lh_databases_remove(struct lh_databases *databases, struct lh_daemon_database *database)
{
    database->is_removed = true;
    if (database->is_started)
        lh_coordinator_stop(database->coordinator, on_coordinator_stopped, database);
    else
        lh_databases_sweep(databases);
}

void lh_databases_stop(struct lh_databases *databases, void (*on_stopped)(void *arg), void *arg)
{
    databases->on_stopped = on_stopped;
    databases->arg = arg;
    for (size_t i = 0; i < databases->count; i++)
        databases->running += is_running(&databases->list[i]);
    if (databases->running == 0)
        on_stopped(arg);
    for (size_t i = 0; i < databases->count; i++)
        if (is_running(&databases->list[i]) && !databases->list[i].is_removed)
            lh_coordinator_stop(databases->list[i].coordinator, on_coordinator_stopped, &databases->list[i]);
}

bool lh_databases_are_stopped(const struct lh_databases *databases)
{
    for (size_t i = 0; i < databases->count; i++)
        if (is_running(&databases->list[i]))
            return false;
    return true;
}

void lh_databases_destroy(struct lh_databases *databases)
{
    lh_deferred_cancel(&databases->sweep);
    for (size_t i = 0; i < databases->count; i++)
        if (databases->list[i].name != NULL)
            close_database(&databases->list[i]);
    free(databases);
}
