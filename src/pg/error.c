#include "pg/error.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

bool lh_pg_is_fatal(const char *sqlstate)
{
    return strncmp(sqlstate, "08", 2) == 0 || strncmp(sqlstate, "57P0", 4) == 0 || strcmp(sqlstate, "25006") == 0;
}

static enum lh_status status_of(const char *sqlstate)
{
    static const struct {
        const char *sqlstate;
        enum lh_status status;
    } map[] = {
        {"LH002", LH_INVALID_ARGUMENT},     {"LH003", LH_NAMESPACE_FROZEN}, {"LH004", LH_QUOTA_EXCEEDED},
        {"LH005", LH_HOOK_REJECTED},        {"LH006", LH_LEASE_ENDED},      {"42501", LH_ACCESS_DENIED},
        {"55P03", LH_SCOPE_BUSY},           {"40001", LH_SCOPE_BUSY},       {"40P01", LH_SCOPE_BUSY},
        {"57014", LH_OVERLOADED},           {"53100", LH_OVERLOADED},       {"53200", LH_OVERLOADED},
        {"53300", LH_DATABASE_UNAVAILABLE}, /* too many connections */
    };
    for (size_t i = 0; i < sizeof(map) / sizeof(map[0]); i++)
        if (strcmp(map[i].sqlstate, sqlstate) == 0)
            return map[i].status;
    return lh_pg_is_fatal(sqlstate) ? LH_DATABASE_UNAVAILABLE : LH_INTERNAL;
}

/* libpq's messages are lines, and end in one. What is too long is cut between two characters. */
static void to_one_line(char *text, size_t size, const char *message)
{
    size_t used = 0;
    for (; *message != '\0' && used < size; message++) {
        if (!isspace((unsigned char)*message))
            text[used++] = *message;
        else if (used > 0 && text[used - 1] != ' ')
            text[used++] = ' ';
    }
    used = lh_utf8_cut(text, used, size - 1);
    while (used > 0 && text[used - 1] == ' ')
        used--;
    text[used] = '\0';
}

enum lh_status lh_pg_error_of_result(const PGresult *result, struct lh_error *error)
{
    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    const char *detail = PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL);
    const char *hint = PQresultErrorField(result, PG_DIAG_MESSAGE_HINT);

    memset(error, 0, sizeof(*error));
    error->status = sqlstate == NULL ? LH_DATABASE_UNAVAILABLE : status_of(sqlstate);
    to_one_line(error->message, sizeof(error->message), message != NULL ? message : PQresultErrorMessage(result));
    if (sqlstate == NULL)
        return error->status;
    snprintf(error->sqlstate, sizeof(error->sqlstate), "%s", sqlstate);
    if (error->status == LH_INVALID_ARGUMENT) {
        snprintf(error->field, sizeof(error->field), "%s", detail != NULL ? detail : "");
        snprintf(error->bound, sizeof(error->bound), "%s", hint != NULL ? hint : "");
    }
    return error->status;
}

enum lh_status lh_pg_error_of_conn(const PGconn *conn, struct lh_error *error)
{
    memset(error, 0, sizeof(*error));
    error->status = LH_DATABASE_UNAVAILABLE;
    to_one_line(error->message, sizeof(error->message), PQerrorMessage(conn));
    return error->status;
}
