/*
 * The databases of a daemon, each with a store and a coordinator of its own: the one of `database` or `embedded`, or those
 * of the sections [database NAME].
 *
 *     databases = lh_databases_create(loop, settings, conninfo);
 *     lh_databases_start(databases, i);                             its schema is ready
 *     lh_databases_stop(databases, on_stopped, arg);                once, all of them
 *     lh_databases_destroy(databases);
 */
#ifndef LH_DAEMON_DATABASES_H
#define LH_DAEMON_DATABASES_H

#include <stdbool.h>
#include <stddef.h>

#include "lease/coordinator.h"
#include "loop/loop.h"

/* The coordinator's view of the world outside: the loop's clock and timer, the kernel's randomness. */
struct lh_port {
    struct lh_timer timer;
    struct lh_coordinator *coordinator; /* set once there is one */
    struct lh_coordinator_port port;    /* passed to lh_coordinator_create */
};

struct lh_coordinator;
struct lh_loop;
struct lh_settings;
struct lh_store;

struct lh_daemon_database {
    const char *name; /* "": the only one */
    const char *conninfo;
    struct lh_port port;
    struct lh_store *store;
    struct lh_coordinator *coordinator;
    bool is_started;
    bool is_stopped;
    struct lh_databases *all;
};

struct lh_databases {
    size_t count;
    size_t running; /* to be stopped still */
    void (*on_stopped)(void *arg);
    void *arg;
    struct lh_daemon_database list[];
};

/* Settings and `conninfo` are borrowed; that of the only database, else NULL. */
struct lh_databases *lh_databases_create(struct lh_loop *loop, const struct lh_settings *settings,
                                         const char *conninfo);
void lh_databases_start(struct lh_databases *databases, size_t index);
/* Tells the coordinators why there is no service yet: lh_coordinator_set_phase. */
void lh_databases_set_phase(struct lh_databases *databases, const char *words);
size_t lh_databases_ready(const struct lh_databases *databases); /* the number of those that serve */
/* Their addresses without passwords, for the log; free() it. */
char *lh_databases_describe(const struct lh_settings *settings);
/* on_stopped comes when all that were started have stopped; at once where none was. */
void lh_databases_stop(struct lh_databases *databases, void (*on_stopped)(void *arg), void *arg);
bool lh_databases_are_stopped(const struct lh_databases *databases); /* stopped, or never started */
void lh_databases_destroy(struct lh_databases *databases);

#endif
