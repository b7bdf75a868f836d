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

struct lh_migration {
    int number;                /* 0 for a function */
    const char *name;          /* "0001_schema" */
    const char *checksum;      /* SHA-256 of the file, in hexadecimal */
    const char *oldest_daemon; /* the oldest version that may run on it, or "" */
    const char *sql;
};

/* What migrations/embed.py makes of the SQL files; both lists in the order of their application. */
struct lh_migration_set {
    const struct lh_migration *migrations;
    size_t migration_count;
    const struct lh_migration *functions;
    size_t function_count;
    const char *functions_checksum;
    int functions_revision;     /* grows with each change of a function (migrations/functions/revision.txt) */
    const char *privileges_sql; /* finds owners and rights that are not as these files make them; NULL: not looked at */
};

/* The set that is compiled in (library `migrations`). */
extern const struct lh_migration_set lh_migrations;

enum lh_migrate_mode {
    LH_MIGRATE_RUN,    /* do it; each line says what was done or is waited for */
    LH_MIGRATE_STATUS, /* a line for each migration: applied when and by which version, or pending */
    LH_MIGRATE_CHECK,  /* may this program serve on the schema as it is? Writes nothing */
    LH_MIGRATE_REPAIR, /* do it, and put owners and rights right where they are not as these files make them */
    LH_MIGRATE_PRINT,  /* the SQL that is pending, as a script for psql; all of it when conninfo is NULL */
};

struct lh_migrate_output {
    void (*on_line)(void *arg, const char *line); /* without newline; may be NULL */
    bool (*is_stopped)(void *arg);                /* asked while it waits: true gives up (LH_CANCELED); may be NULL */
    void *arg;
    size_t pending_count; /* out, modes STATUS and PRINT: how many steps are pending, the functions being one */
};

/*
 * LH_DATABASE_UNAVAILABLE: no connection, or it broke; CHECK: also a schema that is missing or behind, because another
 * program may bring it up to date. LH_ACCESS_DENIED: the role may not. LH_INTERNAL: refused, or the SQL failed. `error`
 * says what to do.
 */
enum lh_status lh_migrate(const char *conninfo, enum lh_migrate_mode mode, const struct lh_migration_set *set,
                          const char *version, struct lh_migrate_output *output, struct lh_error *error);

/*
 * Makes the login role that a daemon serves with, where it is missing: a member of leasehold_coordinator and nothing
 * more. For a cluster that the daemon made itself; `conninfo` logs in as its superuser, the schema is there.
 */
enum lh_status lh_migrate_serving_role(const char *conninfo, const char *role, struct lh_error *error);

/*
 * Makes the extension leasehold_core, or brings it up to date. Where the server has no such extension, its functions are
 * made from `module`, the path of a shared object that the server can read; NULL: there is none. For a cluster that the
 * daemon made itself, as above. Not LH_OK: `error` says why not.
 */
enum lh_status lh_migrate_core(const char *conninfo, const char *module, struct lh_error *error);

/* Numbers compared one by one, "0.10" after "0.9"; what follows the numbers is ignored. <0, 0, >0. */
int lh_version_compare(const char *a, const char *b);

#endif
