/*
 * The database as the other end of a command: a daemon's answers, made from rows into the same messages, so that one
 * printer serves both. Messages live in an arena.
 */
#ifndef LH_CLI_DATABASE_H
#define LH_CLI_DATABASE_H

#include <libpq-fe.h>

#include "base/memory.h"
#include "base/rows.h"
#include "cli/cli.h"
#include "client/reply.h"
#include "embed/query.h"
#include "embed/session.h"
#include "leasehold/v1/leasehold.pb-c.h"

enum lh_database_use {
    LH_DATABASE_READ,  /* a standby will do */
    LH_DATABASE_WRITE, /* the one of several hosts that takes writes */
};

/* Opens a session; its statements end after --timeout. Not DONE: an error was printed. */
enum lh_exit lh_database_open(struct lh_session **session, const struct lh_cli *cli, enum lh_database_use use);

/* Runs a query. NULL: an error was printed, and `status` is the exit status. The caller clears the result. */
PGresult *lh_database_query(struct lh_session *session, const struct lh_cli *cli, const char *sql,
                            const char *const *values, size_t value_count, enum lh_exit *status);
/* Runs a query in a session of its own. */
PGresult *lh_database_ask(const struct lh_cli *cli, enum lh_database_use use, const char *sql,
                          const char *const *values, size_t value_count, enum lh_exit *status);

/* Runs a query in a session of its own. Not DONE: an error was printed, and `rows` stays as it is. */
enum lh_exit lh_database_rows(const struct lh_cli *cli, enum lh_database_use use, const char *sql,
                              const char *const *values, size_t value_count, struct lh_arena *arena,
                              struct lh_rows *rows);

/*
 * Asks AdminService for a list, or for a change that a repetition would make twice: the server, or with --database `sql`,
 * whose rows become the answer. Returns it; it lives until `reply` and the arena are finished. NULL: an error was printed,
 * and `status` is the exit status.
 */
struct lh_admin_call {
    enum lh_database_use use; /* READ: a list */
    const char *method;
    ProtobufCMessage *request;
    const char *sql;
    const char *const *values;
    size_t value_count;
};
const void *lh_admin_ask(const struct lh_cli *cli, const struct lh_admin_call *call, struct lh_arena *arena,
                         struct lh_reply *reply, enum lh_exit *status);

/* The columns of lh_lease_from_row, for a row of leasehold.lease called l. */
extern const char lh_lease_columns[];

/* Reads a lease. Columns are found by name; one that is missing or null leaves its field at its default. */
Leasehold__V1__Lease *lh_lease_from_row(struct lh_arena *arena, const struct lh_rows *rows, size_t row);

/* Adds the labels of a JSON object; `text` may be NULL. */
void lh_lease_add_labels(struct lh_arena *arena, Leasehold__V1__Lease *lease, const char *text);

/*
 * The checks of `leasehold check-database` that one statement does. A statement returns a row for each finding: level
 * ('ok', 'note', 'warning' or 'failed'), found (the fact) and advice (or ''). No row: no finding.
 */
struct lh_database_check {
    const char *name;
    const char *sql;
    /* Advice if the role has no right to the statement; NULL: the finding is "not known" then, a note. */
    const char *hidden;
};

/* All checks; ends in a row without name. They run on PostgreSQL 12 and later, on a standby, and without the schema. */
extern const struct lh_database_check lh_database_checks[];
/* The first needs the schema, and a right to it. */
extern const struct lh_database_check lh_database_life, lh_database_life_bare;

#endif
