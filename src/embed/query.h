/*
 * Statements on the caller's connection: text in, text out, and errors as words.
 *
 *     result = lh_query(conn, "select leasehold.bump_epoch()", NULL, 0, &error);
 *     if (result == NULL)
 *         complain(error.sqlstate, error.message);
 *     PQclear(result);
 */
#ifndef LH_EMBED_QUERY_H
#define LH_EMBED_QUERY_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/*
 * One statement with text parameters ($1 ...; NULL is null), answered as text. The caller clears the result. NULL:
 * `error` has the SQLSTATE, the sentence and, for LH002, field and bound. Its status is LH_DATABASE_UNAVAILABLE where
 * the connection broke or the server is stopping: then the outcome is unknown.
 */
PGresult *lh_query(PGconn *conn, const char *sql, const char *const *values, size_t value_count,
                   struct lh_error *error);

/* One statement or several, without their answers. */
enum lh_status lh_query_run(PGconn *conn, const char *sql, struct lh_error *error);

/* A column that is null or not there is NULL, or `otherwise`. */
const char *lh_query_text(const PGresult *result, int row, const char *column);
int64_t lh_query_number(const PGresult *result, int row, const char *column, int64_t otherwise);

/* The words of a failed result, or of a connection. Return error->status. */
enum lh_status lh_query_error(const PGconn *conn, const PGresult *result, struct lh_error *error);
enum lh_status lh_query_error_of_conn(const PGconn *conn, struct lh_error *error);

/* libpq ends its sentences with newlines, and puts several into one: one line of them, cut to `size`. */
void lh_query_words(char *to, size_t size, const char *from);

/* A text array literal: {"a.b","c"}. A new string. */
char *lh_query_array(const char *const *texts, size_t count);

#endif
