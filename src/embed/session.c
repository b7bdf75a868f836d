#include "embed/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "embed/query.h"

struct lh_session {
    PGconn *conn;
    lh_session_notice_cb *on_notice;
    void *notice_arg;
};

static void on_notice(void *arg, const PGresult *result)
{
    struct lh_session *session = arg;
    const char *primary = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    char line[512];

    if (session->on_notice == NULL || primary == NULL)
        return;
    lh_query_words(line, sizeof(line), primary);
    session->on_notice(session->notice_arg, line);
}

/* libpq's complaints quote what they complain about, which may be the second half of a password, but for those that name
 * an option. */
static bool is_secret(const char *conninfo, const char *complaint)
{
    return (strchr(conninfo, '@') != NULL || strstr(conninfo, "password") != NULL) &&
           strncmp(complaint, "invalid connection option", 25) != 0 &&
           strncmp(complaint, "invalid URI query parameter", 27) != 0;
}

struct lh_session *lh_session_open(const char *conninfo, bool must_write, int64_t timeout_us, struct lh_error *error)
{
    /* What stands before dbname is a default for it, what stands after it overrules it. */
    static const char *const names[] = {"connect_timeout", "target_session_attrs",      "dbname",
                                        "client_encoding", "fallback_application_name", NULL};
    char timeout_s[24];
    const char *const values[] = {timeout_s, must_write ? "read-write" : NULL, conninfo, "UTF8", "leasehold", NULL};
    struct lh_session *session;
    PQconninfoOption *parsed;
    char *complaint = NULL;

    parsed = PQconninfoParse(conninfo, &complaint);
    if (parsed == NULL) {
        char words[sizeof(error->message)];
        lh_query_words(words, sizeof(words), complaint != NULL ? complaint : "");
        if (words[0] == '\0' || is_secret(conninfo, words))
            snprintf(words, sizeof(words), "it is neither a URL nor name=value pairs");
        lh_error_set(error, LH_INVALID_ARGUMENT, "not the address of a database: %s", words);
        PQfreemem(complaint);
        return NULL;
    }
    PQconninfoFree(parsed);

    snprintf(timeout_s, sizeof(timeout_s), "%lld", (long long)((timeout_us + LH_US_PER_S - 1) / LH_US_PER_S));
    session = lh_alloc_zero(1, sizeof(*session));
    session->conn = PQconnectdbParams(names, values, 1);
    if (PQstatus(session->conn) != CONNECTION_OK) {
        lh_query_error_of_conn(session->conn, error);
        lh_session_close(session);
        return NULL;
    }
    PQsetNoticeReceiver(session->conn, on_notice, session);
    return session;
}

void lh_session_close(struct lh_session *session)
{
    if (session == NULL)
        return;
    PQfinish(session->conn);
    free(session);
}

void lh_session_on_notice(struct lh_session *session, lh_session_notice_cb *callback, void *arg)
{
    session->on_notice = callback;
    session->notice_arg = arg;
}

enum lh_status lh_session_set_timeout(struct lh_session *session, int64_t timeout_us, struct lh_error *error)
{
    char timeout_ms[24];
    const char *const values[] = {timeout_ms};
    PGresult *result;

    snprintf(timeout_ms, sizeof(timeout_ms), "%lld", (long long)((timeout_us + LH_US_PER_MS - 1) / LH_US_PER_MS));
    result = lh_session_query(session, "select set_config('statement_timeout', $1, false)", values, 1, error);
    if (result == NULL)
        return error->status;
    PQclear(result);
    return LH_OK;
}

PGresult *lh_session_query(struct lh_session *session, const char *sql, const char *const *values, size_t value_count,
                           struct lh_error *error)
{
    return lh_query(session->conn, sql, values, value_count, error);
}

PGconn *lh_session_conn(struct lh_session *session)
{
    return session->conn;
}
