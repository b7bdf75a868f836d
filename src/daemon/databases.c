#include "daemon/databases.h"

#include <stdlib.h>

#include "base/memory.h"
#include "config/settings.h"
#include "pg/migrate.h"
#include "store/store.h"

static void open_database(struct lh_databases *databases, struct lh_daemon_database *database, struct lh_loop *loop,
                          const struct lh_settings *settings)
{
    struct lh_store_options store_options;
    struct lh_coordinator_options options;

    database->all = databases;
    lh_port_init(&database->port, loop);
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

struct lh_databases *lh_databases_create(struct lh_loop *loop, const struct lh_settings *settings, const char *conninfo)
{
    size_t count = settings->database_count > 0 ? settings->database_count : 1;
    struct lh_databases *databases = lh_alloc_zero(1, sizeof(*databases) + count * sizeof(databases->list[0]));

    databases->count = count;
    for (size_t i = 0; i < count; i++) {
        struct lh_daemon_database *database = &databases->list[i];
        bool is_section = settings->database_count > 0;
        database->name = is_section ? settings->databases[i].name : "";
        database->conninfo = is_section ? settings->databases[i].database : conninfo;
        open_database(databases, database, loop, settings);
    }
    return databases;
}

void lh_databases_start(struct lh_databases *databases, size_t index)
{
    databases->list[index].is_started = true;
    lh_coordinator_start(databases->list[index].coordinator);
}

static void on_coordinator_stopped(void *arg)
{
    struct lh_daemon_database *database = arg;
    struct lh_databases *databases = database->all;

    database->is_stopped = true;
    if (--databases->running == 0)
        databases->on_stopped(databases->arg);
}

void lh_databases_stop(struct lh_databases *databases, void (*on_stopped)(void *arg), void *arg)
{
    databases->on_stopped = on_stopped;
    databases->arg = arg;
    for (size_t i = 0; i < databases->count; i++)
        databases->running += databases->list[i].is_started;
    if (databases->running == 0)
        on_stopped(arg);
    for (size_t i = 0; i < databases->count; i++)
        if (databases->list[i].is_started)
            lh_coordinator_stop(databases->list[i].coordinator, on_coordinator_stopped, &databases->list[i]);
}

bool lh_databases_are_stopped(const struct lh_databases *databases)
{
    for (size_t i = 0; i < databases->count; i++)
        if (databases->list[i].is_started && !databases->list[i].is_stopped)
            return false;
    return true;
}

void lh_databases_destroy(struct lh_databases *databases)
{
    for (size_t i = 0; i < databases->count; i++) {
        lh_coordinator_destroy(databases->list[i].coordinator);
        lh_store_destroy(databases->list[i].store);
        lh_port_finish(&databases->list[i].port);
    }
    free(databases);
}
