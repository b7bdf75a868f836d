/* The migration runner's connection: blocking queries, and reading the state of the schema. */
#ifndef LH_PG_MIGRATE_SESSION_H
#define LH_PG_MIGRATE_SESSION_H

#include <libpq-fe.h>
#include <stdbool.h>

#include "base/status.h"
#include "pg/migrate.h"
#include "pg/migrate_plan.h"

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

#endif
