/* What PostgreSQL and libpq say, as an lh_status and words. */
#ifndef LH_PG_ERROR_H
#define LH_PG_ERROR_H

#include <libpq-fe.h>
#include <stdbool.h>

#include "base/status.h"

/*
 * The status of a failed result, with SQLSTATE and message; LH002's field (DETAIL) and bound (HINT) too. Classes 08,
 * 57P0x, 25006 and a result without SQLSTATE (the connection broke) are LH_DATABASE_UNAVAILABLE.
 */
enum lh_status lh_pg_error_of_result(const PGresult *result, struct lh_error *error);

/* LH_DATABASE_UNAVAILABLE with libpq's words on one line. */
enum lh_status lh_pg_error_of_conn(const PGconn *conn, struct lh_error *error);

/* Is the session of no use after this: gone, shutting down, or on a server that takes no writes? */
bool lh_pg_is_fatal(const char *sqlstate);

#endif
