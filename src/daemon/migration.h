/*
 * The schema's migration at start: in a child process, for it blocks, and again and again until the database is there.
 * It never gives up on a database that is away, only on one that it may or must not change.
 */
#ifndef LH_DAEMON_MIGRATION_H
#define LH_DAEMON_MIGRATION_H

#include <stdbool.h>

struct lh_children;
struct lh_loop;
struct lh_migration_run;

/* on_done fires once, later: true when the schema is as this program needs it. What was wrong is logged. */
struct lh_migration_run *lh_migration_run_create(struct lh_loop *loop, struct lh_children *children,
                                                 const char *conninfo, void (*on_done)(void *arg, bool is_done),
                                                 void *arg);
/* Makes on_done(false) come soon. The database rolls back what was not finished. */
void lh_migration_run_stop(struct lh_migration_run *run);
void lh_migration_run_destroy(struct lh_migration_run *run); /* after on_done, also from within it */

#endif
