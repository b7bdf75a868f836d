#include "embed/session.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"

struct lh_session {
    PGconn *conn;
    lh_session_notice_cb *on_notice;
    void *notice_arg;
};

/* libpq ends its sentences with newlines, and puts several into one. */
static void copy_words(char *to, size_t size, const char *from)
{
    size_t used = 0;

    for (; *from != '\0' && used + 1 < size; from++) {
        char c = *from == '\n' || *from == '\t' ? ' ' : *from;
        if (c == ' ' && (used == 0 || to[used - 1] == ' '))
            continue;
        to[used++] = c;
    }
    while (used > 0 && (to[used - 1] == ' ' || to[used - 1] == '.'))
        used--;
    to[used] = '\0';
}

static void error_of_conn(const PGconn *conn, struct lh_error *error)
{
    char words[sizeof(error->message)];
    copy_words(words, sizeof(words), PQerrorMessage(conn));
    lh_error_set(error, LH_DATABASE_UNAVAILABLE, "%s", words[0] != '\0' ? words : "the connection was closed");
}

/* Connection lost, server stopping or starting, or a standby: it may be different in a moment. */
static bool is_unavailable(const char *sqlstate)
{
    return strncmp(sqlstate, "08", 2) == 0 || strncmp(sqlstate, "57P0", 4) == 0 || strcmp(sqlstate, "25006") == 0 ||
           strcmp(sqlstate, "53300") == 0;
}

static enum lh_status status_of_sqlstate(const char *sqlstate)
{
    static const struct {
        const char *sqlstate;
        enum lh_status status;
    } known[] = {
        {"LH001", LH_NOT_HELD},       {"LH002", LH_INVALID_ARGUMENT}, {"LH003", LH_NAMESPACE_FROZEN},
        {"LH004", LH_QUOTA_EXCEEDED}, {"LH005", LH_HOOK_REJECTED},    {"LH006", LH_LEASE_ENDED},
        {"42501", LH_ACCESS_DENIED},  {"55P03", LH_SCOPE_BUSY},       {"57014", LH_CANCELED},
    };
    if (is_unavailable(sqlstate))
        return LH_DATABASE_UNAVAILABLE;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(known[i].sqlstate, sqlstate) == 0)
            return known[i].status;
    return LH_INTERNAL;
}

static void copy_field(char *to, size_t size, const PGresult *result, int field)
{
    const char *value = PQresultErrorField(result, field);
    copy_words(to, size, value != NULL ? value : "");
}

static void error_of_result(const PGconn *conn, const PGresult *result, struct lh_error *error)
{
    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    char words[sizeof(error->message)];

    if (sqlstate == NULL || PQstatus(conn) != CONNECTION_OK) {
        error_of_conn(conn, error);
        return;
    }
    copy_field(words, sizeof(words), result, PG_DIAG_MESSAGE_PRIMARY);
    lh_error_set(error, status_of_sqlstate(sqlstate), "%s", words);
    snprintf(error->sqlstate, sizeof(error->sqlstate), "%s", sqlstate);
    if (strcmp(sqlstate, "LH002") == 0) {
        copy_field(error->field, sizeof(error->field), result, PG_DIAG_MESSAGE_DETAIL);
        copy_field(error->bound, sizeof(error->bound), result, PG_DIAG_MESSAGE_HINT);
    }
}

static void on_notice(void *arg, const PGresult *result)
{
    struct lh_session *session = arg;
    const char *primary = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    char line[512];

    if (session->on_notice == NULL || primary == NULL)
        return;
    copy_words(line, sizeof(line), primary);
    session->on_notice(session->notice_arg, line);
}

/* libpq's complaints quote what they complain about. */
static bool may_have_password(const char *conninfo)
{
    return strchr(conninfo, '@') != NULL || strstr(conninfo, "password") != NULL;
}

struct lh_session *lh_session_open(const char *conninfo, int64_t timeout_us, struct lh_error *error)
{
    /* What stands before dbname is a default for it, what stands after it overrules it. */
    static const char *const names[] = {"connect_timeout", "dbname", "client_encoding", "fallback_application_name",
                                        NULL};
    char timeout_s[24];
    const char *const values[] = {timeout_s, conninfo, "UTF8", "leasehold", NULL};
    struct lh_session *session;
    PQconninfoOption *parsed;
    char *complaint = NULL;

    parsed = PQconninfoParse(conninfo, &complaint);
    if (parsed == NULL) {
        char words[sizeof(error->message)];
        copy_words(words, sizeof(words), complaint != NULL ? complaint : "");
        if (words[0] == '\0' || may_have_password(conninfo))
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
        error_of_conn(session->conn, error);
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
    PGresult *result = PQexecParams(session->conn, sql, (int)value_count, NULL, values, NULL, NULL, 0);
    ExecStatusType status = PQresultStatus(result);

    if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
        return result;
    error_of_result(session->conn, result, error);
    PQclear(result);
    return NULL;
}
