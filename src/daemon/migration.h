/*
 * The schema's migration at the start: in a child process, because it blocks, repeated until the database is there. It
 * gives up only when it may not change the schema.
 */
#ifndef LH_DAEMON_MIGRATION_H
#define LH_DAEMON_MIGRATION_H

#include <stdbool.h>

struct lh_children;
struct lh_loop;
struct lh_migration_run;

struct lh_migration_options {
    const char *name; /* name among several databases; else "" */
    const char *conninfo;
    bool is_check;            /* change nothing: wait until the schema is there and up to date */
    const char *serving_role; /* made where it is missing, when the schema is there; or NULL */
    bool makes_core;          /* the extension leasehold_core too, where it can be had... */
    const char *core_module;  /* ...from this file, where the server has no such extension; or NULL */
};

struct lh_migration_events {
    /* An attempt has failed, and comes again: why, in full, and for clients (see lh_pg_cause; or NULL). */
    void (*on_trouble)(void *arg, const char *words, const char *cause);
    void (*on_done)(void *arg, bool is_done); /* once; true: the schema is as this program needs it */
};

/*
 * The events come later. What is wrong is logged when it changes, and each minute. The options' strings are the
 * caller's; leave them in place until on_done.
 */
struct lh_migration_run *lh_migration_run_create(struct lh_loop *loop, struct lh_children *children,
                                                 const struct lh_migration_options *options,
                                                 const struct lh_migration_events *events, void *arg);
/* Makes on_done(false) come soon. The database rolls back what was not finished. */
void lh_migration_run_stop(struct lh_migration_run *run);
void lh_migration_run_destroy(struct lh_migration_run *run); /* after on_done, also from within it */

#endif
