/*
 * The databases of a daemon, each with a store and a coordinator of its own: the one of `database` or `embedded`, or those
 * of the sections [database NAME].
 *
 *     databases = lh_databases_create(loop, settings, conninfo);
 *     lh_databases_start(databases, i);                             its schema is ready
 *     lh_databases_add(databases, settings, section);               at a reload
 *     lh_databases_remove(databases, i);                            the same
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
struct lh_database_section;
struct lh_loop;
struct lh_settings;
struct lh_store;

struct lh_daemon_database {
    char *name; /* "": the only one. NULL: there is none here any more */
    char *conninfo;
    struct lh_port port;
    struct lh_store *store;
    struct lh_coordinator *coordinator;
    bool is_migrating; /* set by the owner; the database is not freed meanwhile */
    bool is_started;
    bool is_stopped;
    bool is_removed; /* lh_databases_remove was called; the database is freed when it has stopped */
    struct lh_databases *all;
};

struct lh_databases {
    struct lh_loop *loop;
    size_t count;   /* entries of `list`; some may be empty */
    size_t running; /* to be stopped still */
    void (*on_stopped)(void *arg);
    void *arg;
    void (*on_removed)(
        void *arg, struct lh_coordinator *coordinator); /* set by the owner; called before the coordinator is freed */
    void *on_removed_arg;
    struct lh_deferred sweep;
    struct lh_daemon_database list[];
};

/* Settings are borrowed; `conninfo` is that of the only database, else NULL. */
struct lh_databases *lh_databases_create(struct lh_loop *loop, const struct lh_settings *settings,
                                         const char *conninfo);
void lh_databases_start(struct lh_databases *databases, size_t index);
/* At a reload, where some room is left. Keeps the places of the others in the list. */
struct lh_daemon_database *lh_databases_add(struct lh_databases *databases, const struct lh_settings *settings,
                                            const struct lh_database_section *section);
/* Stops the database; it is freed later. */
void lh_databases_remove(struct lh_databases *databases, struct lh_daemon_database *database);
void lh_databases_sweep(struct lh_databases *databases); /* call it when is_migrating became false */
struct lh_daemon_database *lh_databases_find(struct lh_databases *databases, const char *name); /* NULL: none */
bool lh_databases_has_room(const struct lh_databases *databases, size_t more);
/* Returns true if the entry of the list is neither empty nor removed. */
bool lh_database_is_in_use(const struct lh_daemon_database *database);
/* Tells the coordinators why there is no service yet: lh_coordinator_set_phase. */
void lh_databases_set_phase(struct lh_databases *databases, const char *words);
/* Counts the databases in use, and those of them that serve. */
void lh_databases_count(const struct lh_databases *databases, size_t *all, size_t *ready);
/* Their addresses without passwords, for the log; free() it. */
char *lh_databases_describe(const struct lh_settings *settings);
/* on_stopped comes when all that were started have stopped; at once where none was. */
void lh_databases_stop(struct lh_databases *databases, void (*on_stopped)(void *arg), void *arg);
bool lh_databases_are_stopped(const struct lh_databases *databases); /* stopped, or never started */
void lh_databases_destroy(struct lh_databases *databases);

#endif
