/*
 * A blocking session with PostgreSQL, over a connection of its own.
 *
 *     session = lh_session_open("postgresql:///leasehold", true, 5 * LH_US_PER_S, &error);
 *     result = lh_session_query(session, "select leasehold.bump_epoch()", NULL, 0, &error);
 *     if (result == NULL)
 *         complain(error.sqlstate, error.message);
 *     PQclear(result);
 */
#ifndef LH_EMBED_SESSION_H
#define LH_EMBED_SESSION_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct lh_session;

/*
 * `conninfo` is a URL or "name=value" pairs, with libpq's environment behind it. The timeout holds for each address, in
 * whole seconds, and only where conninfo names none. `must_write`: of several hosts only one that takes writes, unless
 * conninfo sets target_session_attrs. NULL: `error` says why (LH_DATABASE_UNAVAILABLE, or LH_INVALID_ARGUMENT for a
 * conninfo that cannot be read).
 */
struct lh_session *lh_session_open(const char *conninfo, bool must_write, int64_t timeout_us, struct lh_error *error);
void lh_session_close(struct lh_session *session);

/* Receives notices (RAISE NOTICE), one line each without newline; by default they are dropped. */
typedef void lh_session_notice_cb(void *arg, const char *line);
void lh_session_on_notice(struct lh_session *session, lh_session_notice_cb *on_notice, void *arg);

/* Sets the limit of each statement from now on; 0: none. */
enum lh_status lh_session_set_timeout(struct lh_session *session, int64_t timeout_us, struct lh_error *error);

/* As lh_query (embed/query.h). */
PGresult *lh_session_query(struct lh_session *session, const char *sql, const char *const *values, size_t value_count,
                           struct lh_error *error);

/* Its connection, which stays the session's. */
PGconn *lh_session_conn(struct lh_session *session);

#endif
