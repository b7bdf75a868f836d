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

/* LH_DATABASE_UNAVAILABLE with libpq's words on one line, and the server's SQLSTATE where they are verbose. */
enum lh_status lh_pg_error_of_conn(const PGconn *conn, struct lh_error *error);

/* Can the server not go on, for a full disk, memory or files that cannot be read or written (classes 53 and 58)? */
bool lh_pg_is_of_system(const char *sqlstate);

/* Will it not pass by waiting: a password, a right, a name that a person has to put right? */
bool lh_pg_is_permanent(const char *sqlstate);

/* Why a server cannot be used, in words that name no host and no role, or NULL: for clients. */
const char *lh_pg_cause(const char *sqlstate);

/* For what a daemon itself has against a server or a database. */
#define LH_PG_POOLED "42P05"
#define LH_PG_READ_ONLY "25006"
#define LH_PG_NO_SCHEMA "3F000"

#endif
