/*
 * Up: the admin port first, so that probes are answered; PostgreSQL, if it is ours; the schema; then everything that
 * serves. Down, at TERM or INT: what serves, in good order; PostgreSQL last. Each step waits for the one before
 * without blocking, so a signal is heard at any time, and a second one makes it quicker.
 *
 * A step that can never succeed (a port that is taken, a schema that is too new) ends the daemon with status 1 by the
 * same way down. A database that is away is waited for.
 */
#include "daemon/daemon.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin/admin.h"
#include "base/log.h"
#include "base/memory.h"
#include "config/settings.h"
#include "daemon/child.h"
#include "daemon/embedded.h"
#include "daemon/files.h"
#include "daemon/lockfile.h"
#include "daemon/migration.h"
#include "daemon/notify.h"
#include "daemon/serving.h"
#include "loop/loop.h"

enum phase {
    PHASE_DATABASE, /* the embedded PostgreSQL starts */
    PHASE_MIGRATION,
    PHASE_SERVING,
    PHASE_DRAINING,
    PHASE_CLOSING, /* the embedded PostgreSQL stops */
    PHASE_ENDED,
};

static const char *const phase_words[] = {"waiting for PostgreSQL to start",
                                          "waiting for the database, to bring the schema up to date",
                                          NULL,
                                          "draining",
                                          "draining",
                                          "draining"};

struct lh_daemon {
    struct lh_settings *settings;
    int argc;
    char **argv;
    struct lh_loop *loop;
    struct lh_children *children;
    struct lh_signal signals[3];
    int pid_fd;
    char admin_address[LH_ADDRESS_TEXT_BYTES];
    struct lh_admin *admin;
    struct lh_embedded *embedded;
    struct lh_migration_run *migration;
    struct lh_serving *serving;

    enum phase phase;
    bool is_stopping;
    bool is_loop_in_use; /* by what could not be stopped */
    int exit_status;
};

static void set_phase(struct lh_daemon *daemon, enum phase phase)
{
    daemon->phase = phase;
    lh_admin_set_phase(daemon->admin, phase_words[phase]);
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
    lh_admin_set_coordinator(daemon->admin, NULL);
    lh_admin_set_metrics(daemon->admin, NULL, NULL);
    lh_serving_destroy(daemon->serving);
    daemon->serving = NULL;
    close_database(daemon);
}

static void stop(struct lh_daemon *daemon, int exit_status)
{
    if (daemon->is_stopping)
        return;
    daemon->is_stopping = true;
    daemon->exit_status = exit_status;
    lh_notify("STOPPING=1");
    switch (daemon->phase) {
    case PHASE_SERVING:
        set_phase(daemon, PHASE_DRAINING);
        lh_serving_drain(daemon->serving, on_drained, daemon);
        break;
    case PHASE_MIGRATION:
        if (daemon->migration != NULL) {
            lh_migration_run_stop(daemon->migration);
            break; /* goes on in on_migrated */
        }
        close_database(daemon);
        break;
    default:
        close_database(daemon);
        break;
    }
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
    const char *admin = daemon->admin == NULL ? "none" : daemon->admin_address;
    char address[LH_ADDRESS_TEXT_BYTES];
    const char *lines[] = {address, admin};
    char *database;
    struct lh_error error = {0};

    lh_serving_address(daemon->serving, address);
    if (daemon->settings->port_file != NULL && lh_write_lines(daemon->settings->port_file, lines, 2, &error) != LH_OK) {
        lh_err("%s", error.message);
        stop(daemon, EXIT_FAILURE);
        return;
    }
    database = lh_database_redact(daemon->embedded != NULL ? daemon->settings->embedded : daemon->settings->database);
    lh_info("serving grpc=%s admin=%s database=%s", address, admin, database);
    free(database);
    lh_notify("READY=1");
}

static void serve(struct lh_daemon *daemon)
{
    const char *conninfo =
        daemon->embedded != NULL ? lh_embedded_conninfo(daemon->embedded) : daemon->settings->database;
    struct lh_error error = {0};

    daemon->serving = lh_serving_create(daemon->loop, daemon->settings, conninfo, &error);
    if (daemon->serving == NULL) {
        lh_err("%s", error.message);
        stop(daemon, EXIT_FAILURE);
        return;
    }
    lh_admin_set_coordinator(daemon->admin, lh_serving_coordinator(daemon->serving));
    lh_admin_set_metrics(daemon->admin, lh_serving_metrics, daemon->serving);
    set_phase(daemon, PHASE_SERVING);
    announce(daemon);
}

static void on_migrated(void *arg, bool is_done)
{
    struct lh_daemon *daemon = arg;

    lh_migration_run_destroy(daemon->migration);
    daemon->migration = NULL;
    if (daemon->is_stopping)
        close_database(daemon);
    else if (is_done)
        serve(daemon);
    else
        stop(daemon, EXIT_FAILURE);
}

static void migrate(struct lh_daemon *daemon)
{
    const char *conninfo =
        daemon->embedded != NULL ? lh_embedded_conninfo(daemon->embedded) : daemon->settings->database;

    set_phase(daemon, PHASE_MIGRATION);
    if (daemon->settings->migrate)
        daemon->migration = lh_migration_run_create(daemon->loop, daemon->children, conninfo, on_migrated, daemon);
    else
        serve(daemon);
}

static void on_database_ready(void *arg)
{
    struct lh_daemon *daemon = arg;

    if (daemon->phase == PHASE_DATABASE && !daemon->is_stopping)
        migrate(daemon); /* later times are restarts: the store connects again by itself */
}

static void on_database_failed(void *arg)
{
    stop(arg, EXIT_FAILURE);
}

static const struct lh_embedded_events embedded_events = {on_database_ready, on_database_failed};

/* --- reload --- */

static void tell_change(void *arg, const char *sentence)
{
    lh_info("reload: %s", sentence);
}

static void on_reload_signal(void *arg, int number)
{
    struct lh_daemon *daemon = arg;
    struct lh_config_errors errors = {0};
    struct lh_settings fresh;
    char *rest;

    lh_settings_init(&fresh);
    if (lh_settings_load(&fresh, daemon->argc, daemon->argv, &errors)) {
        lh_info("reload: reading the settings again");
        lh_settings_adopt(daemon->settings, &fresh, tell_change, NULL);
        lh_log_set_level((enum lh_log_level)daemon->settings->log_level);
        if (daemon->serving != NULL)
            lh_serving_reload(daemon->serving);
    } else {
        rest = errors.text;
        for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
            if (*line != '\0')
                lh_err("reload: %s", line);
        }
        lh_err("reload: nothing was changed");
    }
    lh_config_errors_finish(&errors);
    lh_settings_finish(&fresh);
}

/* --- life --- */

static enum lh_status open_admin(struct lh_daemon *daemon, struct lh_error *error)
{
    int fd;

    if (daemon->settings->admin == NULL)
        return LH_OK;
    if (lh_listen(daemon->settings->admin, &fd, daemon->admin_address, error) != LH_OK)
        return error->status;
    daemon->admin = lh_admin_create(daemon->loop, fd);
    return daemon->admin != NULL ? LH_OK
                                 : lh_error_set(error, LH_INTERNAL, "admin: %s is not served", daemon->admin_address);
}

static enum lh_status prepare(struct lh_daemon *daemon, struct lh_error *error)
{
    const struct lh_settings *settings = daemon->settings;

    if (settings->pid_file != NULL && lh_lockfile_take(settings->pid_file, &daemon->pid_fd, error) != LH_OK)
        return error->status;
    if (open_admin(daemon, error) != LH_OK)
        return error->status;
    if (settings->embedded != NULL) {
        daemon->embedded =
            lh_embedded_create(daemon->loop, daemon->children, settings->embedded, &embedded_events, daemon, error);
        if (daemon->embedded == NULL)
            return error->status;
    }
    return LH_OK;
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
    lh_signal_init(&daemon->signals[0], daemon->loop, SIGTERM, on_stop_signal, daemon);
    lh_signal_init(&daemon->signals[1], daemon->loop, SIGINT, on_stop_signal, daemon);
    lh_signal_init(&daemon->signals[2], daemon->loop, SIGHUP, on_reload_signal, daemon);
    daemon->children = lh_children_create(daemon->loop);
    lh_log_set_level((enum lh_log_level)settings->log_level);
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
    set_phase(daemon, PHASE_DATABASE);
    if (daemon->embedded != NULL)
        lh_embedded_start(daemon->embedded);
    else
        migrate(daemon);
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
    if (strncmp(daemon->admin_address, "unix:", 5) == 0)
        unlink(daemon->admin_address + 5);
    lh_embedded_destroy(daemon->embedded);
    for (size_t i = 0; i < sizeof(daemon->signals) / sizeof(daemon->signals[0]); i++)
        lh_signal_finish(&daemon->signals[i]);
    lh_children_destroy(daemon->children);
    if (!daemon->is_loop_in_use)
        lh_loop_destroy(daemon->loop);
    if (daemon->pid_fd >= 0) {
        unlink(daemon->settings->pid_file);
        close(daemon->pid_fd);
    }
    free(daemon);
}
