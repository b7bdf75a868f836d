/* The parts of the migration runner: its plan, which does no I/O, and its connection, which blocks. */
#ifndef LH_PG_MIGRATE_INTERNAL_H
#define LH_PG_MIGRATE_INTERNAL_H

#include <libpq-fe.h>

#include "base/memory.h"
#include "pg/migrate.h"

/* --- migrate_plan.c: applied and pending steps, and refusals --- */

#define LH_FUNCTIONS_NAME "functions"

/* The rows of leasehold.migration. Zero-initialised it is empty. */
struct lh_applied_list {
    bool is_table_there;
    struct lh_applied {
        int number;
        char *name;
        char *checksum;
        char *oldest_daemon;
        char *version;
        char *applied_at; /* a text for people */
        int revision;     /* revision of the functions; 0 for a migration */
    } * rows;
    size_t count;
};

/* The columns in the order of struct lh_applied, as text. */
void lh_applied_list_fill(struct lh_applied_list *applied, const PGresult *result);
void lh_applied_list_clear(struct lh_applied_list *applied);

/* One transaction to come. Everything is the set's. */
struct lh_step {
    int number;
    const char *name;
    const char *checksum;
    const char *oldest_daemon;
    const struct lh_migration *files;
    size_t file_count;
    int revision;
};

struct lh_plan {
    struct lh_step *steps;
    size_t step_count;
    /* Version whose newer functions are left alone, or NULL. */
    const char *newer_functions;
};

/* Replaces the content of `plan`. LH_INTERNAL: refused; `error` says how to correct it. */
enum lh_status lh_plan_make(struct lh_plan *plan, const struct lh_migration_set *set, const char *version,
                            const struct lh_applied_list *applied, struct lh_error *error);
void lh_plan_finish(struct lh_plan *plan);

/* The SQL before every migration: roles and schema, as the installer; the migration table and its lock, as the
   owner. */
extern const char lh_migration_roles_sql[];
extern const char lh_migration_table_sql[];
/* The script of the extension leasehold_core. */
extern const char lh_migration_core_sql[];

/* Writes the statement that records the step, ending in NUL. */
void lh_step_record_sql(const struct lh_step *step, const char *version, struct lh_buffer *sql);

void lh_plan_say_status(const struct lh_plan *plan, const struct lh_migration_set *set,
                        const struct lh_applied_list *applied, struct lh_migrate_output *output);
void lh_plan_say_script(const struct lh_plan *plan, const char *version, struct lh_migrate_output *output);

/* --- migrate_session.c: queries, the state of the schema, its owners and rights --- */

struct lh_migrate_session {
    PGconn *conn;
    struct lh_migrate_output *output;
    struct lh_error *error;
};

/* Connects. With `writes` only to a server that takes writes, whatever the conninfo says. */
enum lh_status lh_migrate_session_open(struct lh_migrate_session *session, const char *conninfo, bool writes);
void lh_migrate_session_close(struct lh_migrate_session *session);

/* Runs one query or several. `result`, unless NULL, gets the last result. */
enum lh_status lh_migrate_execute(struct lh_migrate_session *session, const char *sql, PGresult **result);

/* Reads the applied migrations as the current role; none if there is no schema yet. */
enum lh_status lh_migrate_read_applied(struct lh_migrate_session *session, struct lh_applied_list *applied);

/* Reads them in a transaction of its own, as leasehold_owner if possible. Refuses a schema that is not ours. */
enum lh_status lh_migrate_look(struct lh_migrate_session *session, struct lh_applied_list *applied);

void lh_migrate_say(struct lh_migrate_session *session, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Runs a set's `privileges_sql` and describes its findings. "" also if it cannot be run. */
void lh_migrate_look_at_privileges(struct lh_migrate_session *session, const char *query,
                                   char words[LH_PRIVILEGES_BYTES]);

/* Corrects owners and rights in a transaction, as the installer; the role is leasehold_owner afterwards. Adds the
   number of corrections to `count`. */
enum lh_status lh_migrate_repair_privileges(struct lh_migrate_session *session, const char *query, size_t *count);

#endif
