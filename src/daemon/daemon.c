/*
 * Up: the admin port first, so that probes are answered with the reason why nothing is served yet; PostgreSQL, if it is
 * ours; the schema; the coordinator; then, or after some seconds, the port for clients. Down, at TERM or INT: what serves,
 * in good order; PostgreSQL last. Each step waits for the one before without blocking, so a signal is heard at any time,
 * and a second one makes it quicker.
 *
 * A step that can never succeed (a port that is taken, a schema that is too new) ends the daemon with status 1 by the
 * same way down. A database that is away, or refuses the daemon until a person changes something, is waited for.
 */
#include "daemon/daemon.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin/admin.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "config/settings.h"
#include "console/console.h"
#include "daemon/certificates.h"
#include "daemon/child.h"
#include "daemon/cluster.h"
#include "daemon/daemon_metrics.h"
#include "daemon/databases.h"
#include "daemon/embedded.h"
#include "daemon/migration.h"
#include "daemon/process.h"
#include "daemon/serving.h"
#include "daemon/sockets.h"
#include "lease/readiness.h"
#include "loop/loop.h"

#define LISTEN_LATEST_US (5 * LH_US_PER_S)
#define LOOK_US (10 * LH_US_PER_MS)
#define LOOK_LATE_US LH_US_PER_S

enum phase {
    PHASE_DATABASE, /* the embedded PostgreSQL starts */
    PHASE_MIGRATION,
    PHASE_SERVING,
    PHASE_DRAINING,
    PHASE_CLOSING, /* the embedded PostgreSQL stops */
    PHASE_ENDED,
};

/* For /readyz, health and the calls that are refused. */
static const char *const waiting_words[] = {
    [PHASE_DATABASE] = "waiting for PostgreSQL to start",
    [PHASE_MIGRATION] = "waiting for the database, to bring the schema up to date",
    [PHASE_ENDED] = NULL, /* and all others */
};

struct lh_daemon {
    struct lh_settings *settings;
    int argc;
    char **argv;
    struct lh_loop *loop;
    struct lh_children *children;
    struct lh_signal signals[3];
    int pid_fd;
    struct lh_user user;
    struct lh_remover remover;
    struct lh_sockets sockets;
    struct lh_certificates *certificates; /* NULL: no TLS */
    struct lh_admin *admin;
    struct lh_console *console; /* NULL: no admin port */
    struct lh_embedded *embedded;
    struct migration {
        struct lh_daemon *daemon;
        size_t index;                 /* of its database */
        bool is_of_reload;            /* the daemon goes on without the database */
        struct lh_migration_run *run; /* NULL: it has ended */
    } migrations[LH_DATABASES_MAX];
    size_t migrating; /* under way */
    bool is_announced;
    struct lh_serving *serving;
    struct lh_timer look_timer; /* until it has announced itself */
    int64_t listen_latest_us;

    enum phase phase;
    bool is_listening;
    bool is_stopping;
    bool is_loop_in_use; /* by what could not be stopped */
    int exit_status;
};

static void set_phase(struct lh_daemon *daemon, enum phase phase)
{
    daemon->phase = phase;
    if (waiting_words[phase] != NULL)
        lh_databases_set_phase(lh_serving_databases(daemon->serving), waiting_words[phase]);
    if (phase > PHASE_SERVING) {
        lh_admin_set_phase(daemon->admin, "draining");
        lh_console_set_server(daemon->console, NULL);
    }
}

/* --- down --- */

static void end(void *arg)
{
    struct lh_daemon *daemon = arg;

    set_phase(daemon, PHASE_ENDED);
    lh_loop_stop(daemon->loop);
}

static void close_database(struct lh_daemon *daemon)
{
    set_phase(daemon, PHASE_CLOSING);
    if (daemon->embedded != NULL)
        lh_embedded_stop(daemon->embedded, end, daemon);
    else
        end(daemon);
}

static void on_drained(void *arg, bool is_clean)
{
    struct lh_daemon *daemon = arg;

    if (!is_clean) {
        daemon->exit_status = EXIT_FAILURE;
        daemon->is_loop_in_use = true;
    }
    lh_admin_set_source(daemon->admin, NULL, NULL, NULL);
    lh_serving_destroy(daemon->serving);
    daemon->serving = NULL;
    close_database(daemon);
}

static void drain(struct lh_daemon *daemon)
{
    set_phase(daemon, PHASE_DRAINING);
    lh_serving_drain(daemon->serving, on_drained, daemon);
}

static void stop(struct lh_daemon *daemon, int exit_status)
{
    if (daemon->is_stopping)
        return;
    daemon->is_stopping = true;
    daemon->exit_status = exit_status;
    lh_timer_cancel(&daemon->look_timer);
    lh_notify("STOPPING=1");
    for (size_t i = 0; daemon->migrating > 0 && i < lh_serving_databases(daemon->serving)->count; i++)
        if (daemon->migrations[i].run != NULL)
            lh_migration_run_stop(daemon->migrations[i].run); /* goes on in on_migrated */
    if (daemon->migrating == 0)
        drain(daemon);
}

static void on_stop_signal(void *arg, int number)
{
    struct lh_daemon *daemon = arg;

    if (!daemon->is_stopping) {
        lh_info("shutting down on %s", number == SIGINT ? "SIGINT" : "SIGTERM");
        stop(daemon, EXIT_SUCCESS);
        return;
    }
    lh_info("a second signal: shutting down at once");
    if (daemon->serving != NULL)
        lh_serving_hurry(daemon->serving);
    if (daemon->embedded != NULL)
        lh_embedded_hurry(daemon->embedded);
}

/* --- up --- */

static void announce(struct lh_daemon *daemon)
{
    const char *lines[] = {daemon->sockets.grpc_address, daemon->sockets.admin_address};
    char *database;
    struct lh_error error = {0};

    daemon->is_announced = true;
    if (daemon->settings->port_file != NULL && lh_write_lines(daemon->settings->port_file, lines, 2, &error) != LH_OK) {
        lh_err("%s", error.message);
        stop(daemon, EXIT_FAILURE);
        return;
    }
    database = lh_databases_describe(daemon->settings);
    lh_info("serving grpc=%s admin=%s database=%s", lines[0], lines[1], database);
    free(database);
    lh_notify("READY=1");
}

static void listen_now(struct lh_daemon *daemon)
{
    struct lh_error error;

    if (daemon->is_listening)
        return;
    daemon->is_listening = true;
    if (lh_serving_listen(daemon->serving, &daemon->sockets, &error) == LH_OK) {
        lh_info("listening grpc=%s admin=%s", daemon->sockets.grpc_address, daemon->sockets.admin_address);
        return;
    }
    lh_err("%s", error.message);
    stop(daemon, EXIT_FAILURE);
}

/* Ports open when all databases are ready, and some seconds after the start at the latest: clients hear then why there is
   no service. Not sooner, for beside other daemons (reuse_port, a balancer) a port that is open takes connections from
   those that can serve. People are told when leases are served: in all databases, after these seconds in one of them. */
static void on_look(void *arg)
{
    struct lh_daemon *daemon = arg;
    size_t all, ready;
    int64_t now_us = lh_clock_us();
    bool is_late = now_us >= daemon->listen_latest_us;

    lh_databases_count(lh_serving_databases(daemon->serving), &all, &ready);
    if (ready == all || is_late)
        listen_now(daemon);
    if (daemon->is_stopping)
        return;
    if (ready == all || (is_late && ready > 0))
        announce(daemon);
    else
        lh_timer_arm_at_us(&daemon->look_timer, now_us + (is_late ? LOOK_LATE_US : LOOK_US));
}

/* A client that gets "ready" calls at once, so the port must be open. */
static void judge(void *arg, struct lh_readiness *readiness)
{
    struct lh_daemon *daemon = arg;

    lh_serving_judge(daemon->serving, readiness);
    if (!readiness->is_ready || daemon->is_listening)
        return;
    readiness->is_ready = false;
    snprintf(readiness->words, sizeof(readiness->words), "the port for clients is not open yet");
}

static void write_metrics(void *arg, struct lh_exposition *out)
{
    struct lh_daemon *daemon = arg;

    lh_serving_metrics(daemon->serving, out);
    lh_metrics_console(out, daemon->console);
}

static void prepare_serving(struct lh_daemon *daemon)
{
    struct lh_tls_context *tls = daemon->certificates != NULL ? lh_certificates_for_rpc(daemon->certificates) : NULL;
    const char *conninfo =
        daemon->embedded != NULL ? lh_embedded_serving_conninfo(daemon->embedded) : daemon->settings->database;

    daemon->serving = lh_serving_create(daemon->loop, daemon->settings, conninfo, tls);
    lh_admin_set_phase(daemon->admin, NULL);
    lh_admin_set_source(daemon->admin, judge, write_metrics, daemon);
    lh_console_set_server(daemon->console, lh_serving_server(daemon->serving));
    daemon->listen_latest_us = lh_clock_us() + LISTEN_LATEST_US;
    lh_timer_arm_at_us(&daemon->look_timer, daemon->listen_latest_us);
}

static void serve(struct lh_daemon *daemon, size_t index)
{
    lh_databases_start(lh_serving_databases(daemon->serving), index);
    daemon->phase = PHASE_SERVING;
    if (!daemon->is_announced)
        lh_timer_arm_no_later_us(&daemon->look_timer, lh_clock_us());
}

static void on_migration_trouble(void *arg, const char *words, const char *cause)
{
    const struct migration *migration = arg;
    struct lh_databases *databases = lh_serving_databases(migration->daemon->serving);

    lh_coordinator_set_phase(databases->list[migration->index].coordinator, waiting_words[PHASE_MIGRATION], words,
                             cause);
}

static void on_migrated(void *arg, bool is_done)
{
    struct migration *migration = arg;
    struct lh_daemon *daemon = migration->daemon;
    struct lh_databases *databases = lh_serving_databases(daemon->serving);
    struct lh_daemon_database *database = &databases->list[migration->index];

    lh_migration_run_destroy(migration->run);
    migration->run = NULL;
    database->is_migrating = false;
    daemon->migrating--;
    if (database->is_removed)
        lh_databases_sweep(databases);
    if (daemon->is_stopping && daemon->migrating == 0)
        drain(daemon);
    else if (!daemon->is_stopping && is_done && !database->is_removed)
        serve(daemon, migration->index);
    else if (!daemon->is_stopping && !is_done && !migration->is_of_reload)
        stop(daemon, EXIT_FAILURE);
}

/* Of those that were not migrated yet. */
static void migrate(struct lh_daemon *daemon, bool is_reload)
{
    static const struct lh_migration_events events = {on_migration_trouble, on_migrated};
    struct lh_databases *databases = lh_serving_databases(daemon->serving);
    bool is_embedded = daemon->embedded != NULL;
    struct lh_migration_options options = {
        .is_check = !daemon->settings->migrate,
        .serving_role = is_embedded ? LH_CLUSTER_SERVING_ROLE : NULL,
        .makes_core = is_embedded,
        .core_module = is_embedded ? lh_embedded_core(daemon->embedded) : NULL,
    };

    for (size_t i = 0; i < databases->count; i++) {
        struct lh_daemon_database *database = &databases->list[i];
        if (!lh_database_is_in_use(database) || database->is_started || database->is_migrating)
            continue;
        lh_coordinator_set_phase(database->coordinator, waiting_words[PHASE_MIGRATION], NULL, NULL);
        daemon->migrating++;
        database->is_migrating = true;
        daemon->migrations[i] = (struct migration){.daemon = daemon, .index = i, .is_of_reload = is_reload};
        options.name = database->name;
        options.conninfo = is_embedded ? lh_embedded_conninfo(daemon->embedded) : database->conninfo;
        daemon->migrations[i].run =
            lh_migration_run_create(daemon->loop, daemon->children, &options, &events, &daemon->migrations[i]);
    }
}

static void start_migration(struct lh_daemon *daemon)
{
    set_phase(daemon, PHASE_MIGRATION);
    migrate(daemon, false);
}

static void on_database_ready(void *arg)
{
    struct lh_daemon *daemon = arg;

    if (daemon->phase == PHASE_DATABASE && !daemon->is_stopping)
        start_migration(daemon); /* later times are restarts: the store connects again by itself */
}

static void on_database_failed(void *arg)
{
    stop(arg, EXIT_FAILURE);
}

static const struct lh_embedded_events embedded_events = {on_database_ready, on_database_failed};

/* --- reload --- */

/* Databases that have come get their schema; those that have gone need none. */
static void reload_migrations(struct lh_daemon *daemon)
{
    const struct lh_databases *databases = lh_serving_databases(daemon->serving);

    for (size_t i = 0; i < databases->count; i++)
        if (databases->list[i].is_removed && databases->list[i].is_migrating)
            lh_migration_run_stop(daemon->migrations[i].run); /* goes on in on_migrated */
    migrate(daemon, true);
}

static void on_reload_signal(void *arg, int number)
{
    struct lh_daemon *daemon = arg;

    if (daemon->is_stopping ||
        !lh_arguments_reload(daemon->settings, daemon->argc, daemon->argv, lh_serving_check_reload, daemon->serving))
        return;
    lh_log_set_level((enum lh_log_level)daemon->settings->log_level);
    lh_serving_reload(daemon->serving);
    if (daemon->settings->database_count > 0)
        reload_migrations(daemon);
    if (daemon->certificates != NULL)
        lh_certificates_reload(daemon->certificates);
}

static void on_new_certificates(void *arg)
{
    struct lh_daemon *daemon = arg;

    if (daemon->serving != NULL)
        lh_serving_set_tls(daemon->serving, lh_certificates_for_rpc(daemon->certificates));
    lh_admin_set_tls(daemon->admin, lh_certificates_for_admin(daemon->certificates));
}

/* --- life --- */

/* As the user who will read the files again. */
static enum lh_status open_certificates(struct lh_daemon *daemon, struct lh_error *error)
{
    if (daemon->settings->tls_cert == NULL)
        return LH_OK;
    daemon->certificates = lh_certificates_create(daemon->loop, daemon->settings, on_new_certificates, daemon, error);
    return daemon->certificates != NULL ? LH_OK : error->status;
}

static enum lh_status open_admin(struct lh_daemon *daemon, struct lh_error *error)
{
    int fd = daemon->sockets.admin;

    if (fd < 0)
        return LH_OK;
    daemon->sockets.admin = -1;
    daemon->admin = lh_admin_create(daemon->loop, fd, error);
    if (daemon->admin == NULL)
        return error->status;
    daemon->console = lh_console_create(daemon->loop);
    lh_console_set_hosts(daemon->console, (const char *const *)daemon->settings->admin_hosts.items,
                         daemon->settings->admin_hosts.count);
    lh_admin_set_other(daemon->admin, lh_console_on_request, daemon->console);
    if (daemon->certificates != NULL)
        lh_admin_set_tls(daemon->admin, lh_certificates_for_admin(daemon->certificates));
    return LH_OK;
}

/* What root made must not outlive the daemon because its user may not remove it. */
static enum lh_status leave_root(struct lh_daemon *daemon, struct lh_error *error)
{
    const struct lh_settings *settings = daemon->settings;
    const struct lh_root_files files = {.port_file = settings->port_file,
                                        .pid_file = settings->pid_file,
                                        .paths = (const char *const *)daemon->sockets.paths,
                                        .path_count = daemon->sockets.path_count};

    return lh_user_leave_root(&daemon->user, &files, &daemon->remover, error);
}

static enum lh_status prepare(struct lh_daemon *daemon, struct lh_error *error)
{
    const struct lh_settings *settings = daemon->settings;
    const char *standard = NULL;

    if (settings->pid_file != NULL && lh_lockfile_take(settings->pid_file, &daemon->pid_fd, error) != LH_OK)
        return error->status;
    if (settings->embedded != NULL) {
        daemon->embedded = lh_embedded_create(daemon->loop, daemon->children, settings->embedded, settings->user,
                                              &embedded_events, daemon, error);
        if (daemon->embedded == NULL)
            return error->status;
        standard = lh_embedded_user(daemon->embedded);
    }
    if (lh_user_choose(settings->user, standard, &daemon->user, error) != LH_OK ||
        lh_sockets_bind(&daemon->sockets, settings, &daemon->user, error) != LH_OK ||
        leave_root(daemon, error) != LH_OK || open_certificates(daemon, error) != LH_OK)
        return error->status;
    return open_admin(daemon, error);
}

struct lh_daemon *lh_daemon_create(struct lh_settings *settings, int argc, char **argv)
{
    struct lh_daemon *daemon = lh_alloc_zero(1, sizeof(*daemon));
    struct lh_error error = {0};

    daemon->settings = settings;
    daemon->argc = argc;
    daemon->argv = argv;
    daemon->pid_fd = -1;
    daemon->loop = lh_loop_create();
    if (daemon->loop == NULL) {
        free(daemon);
        return NULL;
    }
    lh_timer_init(&daemon->look_timer, daemon->loop, on_look, daemon);
    lh_signal_init(&daemon->signals[0], daemon->loop, SIGTERM, on_stop_signal, daemon);
    lh_signal_init(&daemon->signals[1], daemon->loop, SIGINT, on_stop_signal, daemon);
    lh_signal_init(&daemon->signals[2], daemon->loop, SIGHUP, on_reload_signal, daemon);
    daemon->children = lh_children_create(daemon->loop);
    lh_log_set_level((enum lh_log_level)settings->log_level);
    if (!lh_log_set_form((enum lh_log_form)settings->log_format, LH_JOURNAL_SOCKET)) {
        lh_err("log_format = journald: %s: %s", LH_JOURNAL_SOCKET, strerror(errno));
        lh_daemon_destroy(daemon);
        return NULL;
    }
    lh_info("leaseholdd " LH_VERSION " starts, process %ld", (long)getpid());
    lh_raise_file_limit((size_t)settings->max_connections);
    if (prepare(daemon, &error) != LH_OK) {
        lh_err("%s", error.message);
        lh_daemon_destroy(daemon);
        return NULL;
    }
    return daemon;
}

int lh_daemon_run(struct lh_daemon *daemon)
{
    prepare_serving(daemon);
    set_phase(daemon, PHASE_DATABASE);
    if (daemon->embedded != NULL)
        lh_embedded_start(daemon->embedded);
    else
        start_migration(daemon);
    if (daemon->phase != PHASE_ENDED)
        lh_loop_run(daemon->loop);
    lh_info("leaseholdd has stopped");
    return daemon->exit_status;
}

void lh_daemon_destroy(struct lh_daemon *daemon)
{
    if (daemon == NULL)
        return;
    lh_admin_destroy(daemon->admin);
    lh_console_destroy(daemon->console);
    lh_certificates_destroy(daemon->certificates);
    lh_sockets_finish(&daemon->sockets);
    lh_embedded_destroy(daemon->embedded);
    for (size_t i = 0; i < sizeof(daemon->signals) / sizeof(daemon->signals[0]); i++)
        lh_signal_finish(&daemon->signals[i]);
    lh_timer_finish(&daemon->look_timer);
    lh_children_destroy(daemon->children);
    if (!daemon->is_loop_in_use)
        lh_loop_destroy(daemon->loop);
    if (daemon->pid_fd >= 0) {
        unlink(daemon->settings->pid_file);
        close(daemon->pid_fd);
    }
    lh_remover_finish(&daemon->remover);
    lh_user_finish(&daemon->user);
    free(daemon);
}
