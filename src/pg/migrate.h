/*
 * The migration runner: brings the schema `leasehold` to the state this program was built with. It blocks: it runs
 * before the daemon serves, or in the command line.
 *
 *     status = lh_migrate(conninfo, LH_MIGRATE_RUN, &lh_migrations, LH_VERSION, &output, &error);
 *
 * It logs in as the installer, makes roles and schema where they are missing, and does everything else as the role
 * leasehold_owner (migrations/runner). All that is pending is applied in one transaction, each step with its row in
 * leasehold.migration, under a lock of that table: a migration that fails leaves nothing behind. After a second without
 * a lock that it needs, the runner rolls back and tries again, so that no session queues behind a migration that itself
 * waits. The functions are one more row, number 0: they are applied again, all together, when their checksum
 * differs and this program's revision of them is not lower than that of the program that applied them last.
 *
 * A database that was restored without owners or rights is found (a line, in the modes RUN, STATUS and CHECK), and put right by REPAIR.
 *
 * A migration that was changed after it was applied, and a database that asks for a newer program, are refused before
 * anything is written. With nothing to do nothing is locked and nothing is written: a role that can only read is
 * enough.
 */
#ifndef LH_PG_MIGRATE_H
#define LH_PG_MIGRATE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct pg_result; /* libpq's PGresult */

struct lh_migration {
    int number;           /* 0 for a function */
    const char *name;     /* "0001_schema" */
    const char *checksum; /* SHA-256 of the file, in hexadecimal */
    /* The oldest version of a daemon that may run on it, or "". */
    const char *oldest_daemon;
    const char *sql;
};

/* The SQL files, as migrations/embed.py compiles them in; both lists in the order of their application. */
struct lh_migration_set {
    const struct lh_migration *migrations;
    size_t migration_count;
    const struct lh_migration *functions;
    size_t function_count;
    const char *functions_checksum;
    int functions_revision; /* grows with each change of a function (migrations/functions/revision.txt) */
    /* A query for owners and rights that differ from these files; NULL: no check. */
    const char *privileges_sql;
};

/* The set that is compiled in (library `migrations`). */
extern const struct lh_migration_set lh_migrations;

enum lh_migrate_mode {
    LH_MIGRATE_RUN, /* migrate; each line is a step done, or a wait */
    /* A line for each migration: when it was applied and by which version, or pending. */
    LH_MIGRATE_STATUS,
    /* Check whether this program may serve on the schema; writes nothing. */
    LH_MIGRATE_CHECK,
    /* Migrate, and correct owners and rights that differ from these files. */
    LH_MIGRATE_REPAIR,
    /* The pending SQL as a script for psql; all SQL when conninfo is NULL. */
    LH_MIGRATE_PRINT,
};

struct lh_migrate_output {
    void (*on_line)(void *arg, const char *line); /* without newline; may be NULL */
    /* Called while it waits: true gives up (LH_CANCELED); may be NULL. */
    bool (*is_stopped)(void *arg);
    void *arg;
    /* Out, STATUS and PRINT: number of pending steps; the functions are one. */
    size_t pending_count;
};

/*
 * Migrates or checks the schema, see the mode. Blocks. LH_DATABASE_UNAVAILABLE: no connection, or it broke; CHECK: also
 * a schema that is missing or behind, because another program may bring it up to date. LH_ACCESS_DENIED: the role lacks
 * a right. LH_INTERNAL: refused, or the SQL failed. `error` says how to correct it.
 */
enum lh_status lh_migrate(const char *conninfo, enum lh_migrate_mode mode, const struct lh_migration_set *set,
                          const char *version, struct lh_migrate_output *output, struct lh_error *error);

/*
 * Makes the login role that a daemon serves with, unless it exists: a member of leasehold_coordinator only. Used for a
 * cluster that the daemon made itself; `conninfo` logs in as its superuser, and the schema exists.
 */
enum lh_status lh_migrate_serving_role(const char *conninfo, const char *role, struct lh_error *error);

/*
 * Makes the extension leasehold_core, or brings it up to date. If the server has no such extension, its functions are
 * made from `module`, the path of a shared object that the server can read (NULL: none). Used for a cluster that the
 * daemon made itself, as above. Not LH_OK: the reason is in `error`.
 */
enum lh_status lh_migrate_core(const char *conninfo, const char *module, struct lh_error *error);

#define LH_PRIVILEGES_BYTES 384

/* Writes the findings of a set's `privileges_sql` in one sentence; "": no fault. */
void lh_privileges_describe(const struct pg_result *result, char words[LH_PRIVILEGES_BYTES]);

/* Compares versions number by number ("0.10" is after "0.9") and ignores any text behind the numbers. Returns <0, 0
   or >0. */
int lh_version_compare(const char *a, const char *b);

#endif
