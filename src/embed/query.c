#include "embed/embed_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

void lh_query_words(char *to, size_t size, const char *from)
{
    size_t used = 0;

    for (; *from != '\0' && used < size; from++) {
        char c = *from == '\n' || *from == '\t' ? ' ' : *from;
        if (c == ' ' && (used == 0 || to[used - 1] == ' '))
            continue;
        to[used++] = c;
    }
    used = lh_utf8_cut(to, used, size - 1);
    while (used > 0 && (to[used - 1] == ' ' || to[used - 1] == '.'))
        used--;
    to[used] = '\0';
}

enum lh_status lh_query_error_of_conn(const PGconn *conn, struct lh_error *error)
{
    char words[sizeof(error->message)];
    lh_query_words(words, sizeof(words), PQerrorMessage(conn));
    return lh_error_set(error, LH_DATABASE_UNAVAILABLE, "%s", words[0] != '\0' ? words : "the connection was closed");
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
        {"LH007", LH_ACCESS_DENIED},  {"42501", LH_ACCESS_DENIED},    {"55P03", LH_SCOPE_BUSY},
        {"57014", LH_CANCELED},       {"40001", LH_SCOPE_BUSY},       {"40P01", LH_SCOPE_BUSY},
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
    lh_query_words(to, size, value != NULL ? value : "");
}

enum lh_status lh_query_error(const PGconn *conn, const PGresult *result, struct lh_error *error)
{
    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    char words[512];

    if (sqlstate == NULL || PQstatus(conn) != CONNECTION_OK)
        return lh_query_error_of_conn(conn, error);
    copy_field(words, sizeof(words), result, PG_DIAG_MESSAGE_PRIMARY);
    lh_error_set(error, status_of_sqlstate(sqlstate), "%s", words);
    if (error == NULL)
        return status_of_sqlstate(sqlstate);
    snprintf(error->sqlstate, sizeof(error->sqlstate), "%s", sqlstate);
    if (strcmp(sqlstate, "LH002") == 0) {
        copy_field(error->field, sizeof(error->field), result, PG_DIAG_MESSAGE_DETAIL);
        copy_field(error->bound, sizeof(error->bound), result, PG_DIAG_MESSAGE_HINT);
    }
    return error->status;
}

PGresult *lh_query(PGconn *conn, const char *sql, const char *const *values, size_t value_count, struct lh_error *error)
{
    PGresult *result = PQexecParams(conn, sql, (int)value_count, NULL, values, NULL, NULL, 0);
    ExecStatusType status = PQresultStatus(result);

    if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
        return result;
    lh_query_error(conn, result, error);
    PQclear(result);
    return NULL;
}

enum lh_status lh_query_run(PGconn *conn, const char *sql, struct lh_error *error)
{
    PGresult *result = PQexec(conn, sql);
    ExecStatusType status = PQresultStatus(result);
    enum lh_status answer = LH_OK;

    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
        answer = lh_query_error(conn, result, error);
    PQclear(result);
    return answer;
}

const char *lh_query_text(const PGresult *result, int row, const char *column)
{
    int number = PQfnumber(result, column);
    return number < 0 || PQgetisnull(result, row, number) ? NULL : PQgetvalue(result, row, number);
}

int64_t lh_query_number(const PGresult *result, int row, const char *column, int64_t otherwise)
{
    const char *text = lh_query_text(result, row, column);
    return text != NULL ? strtoll(text, NULL, 10) : otherwise;
}

char *lh_query_array(const char *const *texts, size_t count)
{
    struct lh_buffer array = {0};

    lh_buffer_append(&array, "{", 1);
    for (size_t i = 0; i < count; i++) {
        lh_buffer_append(&array, i == 0 ? "\"" : ",\"", i == 0 ? 1 : 2);
        for (const char *c = texts[i]; *c != '\0'; c++) {
            if (*c == '"' || *c == '\\')
                lh_buffer_append(&array, "\\", 1);
            lh_buffer_append(&array, c, 1);
        }
        lh_buffer_append(&array, "\"", 1);
    }
    lh_buffer_append(&array, "}", 2);
    return (char *)array.data;
}

/* --- rows of leases --- */

/* Of a row of leasehold.lease called l. */
const char lh_embed_columns[] =
    " l.namespace, l.key, l.lease_key, l.token, l.owner, l.principal, l.labels, l.heartbeats,"
    " (extract(epoch from l.duration) * 1000000)::bigint as duration_us,"
    " (extract(epoch from l.grace) * 1000000)::bigint as grace_us,"
    " (extract(epoch from l.acquired_at) * 1000000)::bigint as acquired_at_us,"
    " (extract(epoch from l.heartbeat_at) * 1000000)::bigint as heartbeat_at_us,"
    " (extract(epoch from l.deadline) * 1000000)::bigint as deadline_at_us";
const char lh_embed_share_columns[] = ", l.mode, l.units, l.slots[1] as slot";

static void copy_text(char *to, size_t size, const PGresult *result, int row, const char *column)
{
    const char *text = lh_query_text(result, row, column);
    snprintf(to, size, "%s", text != NULL ? text : "");
}

void lh_lease_of_row(struct lh_embed_lease *lease, const PGresult *result, int row)
{
    const char *mode = lh_query_text(result, row, "mode");

    *lease = (struct lh_embed_lease){
        .mode = mode != NULL && strcmp(mode, "shared") == 0 ? LH_SHARED : LH_EXCLUSIVE,
        .units = (int32_t)lh_query_number(result, row, "units", 0),
        .slot = (int32_t)lh_query_number(result, row, "slot", 0),
        .principal = lh_query_text(result, row, "principal"),
        .labels = lh_query_text(result, row, "labels"),
        .token = lh_query_number(result, row, "token", 0),
        .heartbeats = lh_query_number(result, row, "heartbeats", 0),
        .duration_us = lh_query_number(result, row, "duration_us", 0),
        .grace_us = lh_query_number(result, row, "grace_us", 0),
        .acquired_at_us = lh_query_number(result, row, "acquired_at_us", 0),
        .heartbeat_at_us = lh_query_number(result, row, "heartbeat_at_us", 0),
        .deadline_at_us = lh_query_number(result, row, "deadline_at_us", 0),
    };
    copy_text(lease->namespace_text, sizeof(lease->namespace_text), result, row, "namespace");
    copy_text(lease->key, sizeof(lease->key), result, row, "key");
    copy_text(lease->lease_key, sizeof(lease->lease_key), result, row, "lease_key");
    copy_text(lease->owner, sizeof(lease->owner), result, row, "owner");
}
