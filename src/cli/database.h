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
#include "leasehold/v1/leasehold.pb-c.h"

enum lh_database_use {
    LH_DATABASE_READ,  /* a standby will do */
    LH_DATABASE_WRITE, /* the one of several hosts that takes writes */
};

/* Opens a session, for PQfinish; its statements end after --timeout. Not DONE: an error was printed. */
enum lh_exit lh_database_open(PGconn **session, const struct lh_cli *cli, enum lh_database_use use);

/* Returns what a notice says, in one line. */
#define LH_NOTICE_BYTES 512
const char *lh_database_notice(const PGresult *notice, char line[LH_NOTICE_BYTES]);

/* Runs a query. NULL: an error was printed, and `status` is the exit status. The caller clears the result. */
PGresult *lh_database_query(PGconn *session, const struct lh_cli *cli, const char *sql, const char *const *values,
                            size_t value_count, enum lh_exit *status);
/*
 * A request is answered by the server, or with --database by a statement, whose rows become the same answer.
 *
 *     response = lh_ask(cli, &request.base, &(struct lh_ask){.sql = "select ...", .values = values, .value_count = 2});
 *     if (response != NULL)
 *         print(response);
 *     return cli->status;
 */
enum lh_ask_kind {
    LH_ASK_READ,  /* changes nothing: a standby will do */
    LH_ASK_AGAIN, /* a change that a repetition does not make twice */
    LH_ASK_ONCE,
};
struct lh_ask {
    enum lh_ask_kind kind;
    const char *method; /* NULL: the method that takes such a request */
    size_t max;         /* read pages of a list until it has so many or more; 0: all */
    const char *sql;
    const char *const *values;
    size_t value_count;
    const char *then; /* a second statement, of the first values, whose rows count instead; NULL: none */
    size_t then_count;
};

/* Makes the call, of a list all pages as one. Returns the answer, which lives until the next call. NULL: an error was printed.
   Either way cli->status is the exit status. */
const void *lh_ask(struct lh_cli *cli, ProtobufCMessage *request, const struct lh_ask *ask);

/* Prints the answer as JSON, or by `print`. Returns the exit status. */
enum lh_exit lh_ask_and_print(struct lh_cli *cli, ProtobufCMessage *request, const struct lh_ask *ask,
                              void (*print)(struct lh_cli *cli, const void *answer));

/* Run the statements of `ask` in a session of their own. NULL and false: an error was printed. Either way cli->status is the
   exit status. */
PGresult *lh_ask_database(struct lh_cli *cli, const struct lh_ask *ask);
bool lh_ask_rows(struct lh_cli *cli, const struct lh_ask *ask, struct lh_rows *rows);

/* The columns of lh_leases_from_rows, for a row of leasehold.lease called l. */
extern const char lh_lease_columns[];

/* Reads a lease of each row. Columns are found by name; one that is missing or null leaves its field at its default. */
Leasehold__V1__Lease **lh_leases_from_rows(struct lh_arena *arena, const struct lh_rows *rows);

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
