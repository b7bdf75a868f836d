/* Errors of PostgreSQL and libpq as an lh_status and words. */
#ifndef LH_PG_ERROR_H
#define LH_PG_ERROR_H

#include <libpq-fe.h>
#include <stdbool.h>

#include "base/status.h"

/*
 * Returns the status of a failed result and fills `error` with SQLSTATE and message; for LH002 with field (DETAIL) and
 * bound (HINT) too. Classes 08, 57P0x, 25006 and a result without SQLSTATE (the connection broke) are
 * LH_DATABASE_UNAVAILABLE.
 */
enum lh_status lh_pg_error_of_result(const PGresult *result, struct lh_error *error);

/* Returns LH_DATABASE_UNAVAILABLE and fills `error` with libpq's words on one line, and with the server's SQLSTATE
   if the words have one. */
enum lh_status lh_pg_error_of_conn(const PGconn *conn, struct lh_error *error);

/* Returns true if the SQLSTATE begins with one of these words, with a space between them: codes or classes. */
bool lh_pg_is_state(const char *sqlstate, const char *beginnings);

/* Returns true for an error of the server's system: a full disk, memory, files that it cannot read or write (classes
   53 and 58). */
bool lh_pg_is_of_system(const char *sqlstate);

/* Returns true for an error that an administrator has to correct: a password, a right, a name. */
bool lh_pg_is_permanent(const char *sqlstate);

/* Returns the cause why a server cannot be used, for clients: it names no host and no role. NULL: unknown. */
const char *lh_pg_cause(const char *sqlstate);

/* SQLSTATEs for objections of the daemon to a server or a database. */
#define LH_PG_POOLED "42P05"
#define LH_PG_READ_ONLY "25006"
#define LH_PG_NO_SCHEMA "3F000"
/* From leasehold_internal.server_identity(): the life of the database cannot be read. */
#define LH_PG_NO_LIFE "LH008"

#endif
