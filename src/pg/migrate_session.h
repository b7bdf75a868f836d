/* The migration runner's connection: blocking queries, and what the database says of itself. */
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

/* `writes`: only a server that takes writes will do, whatever the conninfo says. */
enum lh_status lh_migrate_session_open(struct lh_migrate_session *session, const char *conninfo, bool writes);
void lh_migrate_session_close(struct lh_migrate_session *session);

/* One query or several; the last result is `*result` when that is not NULL. */
enum lh_status lh_migrate_execute(struct lh_migrate_session *session, const char *sql, PGresult **result);

/* What was applied, as the role that is set; an empty list when there is no schema yet. */
enum lh_status lh_migrate_read_applied(struct lh_migrate_session *session, struct lh_applied_list *applied);

/* The same in a transaction of its own, as leasehold_owner where that is possible. Refuses a stranger's schema. */
enum lh_status lh_migrate_look(struct lh_migrate_session *session, struct lh_applied_list *applied);

void lh_migrate_say(struct lh_migrate_session *session, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
