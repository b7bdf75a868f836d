#include "pg/error.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

bool lh_pg_is_state(const char *sqlstate, const char *beginnings)
{
    for (size_t length; *beginnings != '\0'; beginnings += length + (beginnings[length] == ' ')) {
        length = strcspn(beginnings, " ");
        if (strncmp(sqlstate, beginnings, length) == 0)
            return true;
    }
    return false;
}

/* Why a server cannot be used. A SQLSTATE is matched by its beginning; the first line that fits counts. */
static const struct {
    const char *sqlstate;
    bool is_permanent;
    const char *words;
} causes[] = {
    {"28P01", true, "PostgreSQL refuses the daemon's password"},
    {"28", true, "PostgreSQL does not let the daemon's role in: see pg_hba.conf, and whether the role exists"},
    {"3D000", true, "the database that the daemon is configured for does not exist"},
    {"42501", true, "the daemon's role lacks a right in the database"},
    {LH_PG_POOLED, true,
     "what is between the daemon and PostgreSQL, such as a pooler in transaction mode, gives connections no session of "
     "their own"},
    {"26000", true,
     "what is between the daemon and PostgreSQL, such as a pooler in transaction mode, gives connections no session of "
     "their own"},
    {LH_PG_READ_ONLY, false, "the server takes no writes: it is a standby, or read-only"},
    {LH_PG_NO_SCHEMA, false, "the database has no schema leasehold, or an old one: run leasehold migrate"},
    {LH_PG_NO_LIFE, true,
     "PostgreSQL hides which life of the database this is: grant that, or see leasehold.set_life_source()"},
    {"53300", false, "PostgreSQL has no connection left"},
    {"57P", false, "PostgreSQL is starting up or shutting down"},
};

static size_t cause_of(const char *sqlstate)
{
    size_t i = 0;

    while (i < sizeof(causes) / sizeof(causes[0]) &&
           strncmp(sqlstate, causes[i].sqlstate, strlen(causes[i].sqlstate)) != 0)
        i++;
    return i;
}

bool lh_pg_is_permanent(const char *sqlstate)
{
    size_t i = cause_of(sqlstate);
    return i < sizeof(causes) / sizeof(causes[0]) && causes[i].is_permanent;
}

const char *lh_pg_cause(const char *sqlstate)
{
    size_t i = cause_of(sqlstate);
    return i < sizeof(causes) / sizeof(causes[0]) ? causes[i].words : NULL;
}

bool lh_pg_is_of_system(const char *sqlstate)
{
    return lh_pg_is_state(sqlstate, "53 58");
}

static enum lh_status status_of(const char *sqlstate)
{
    static const struct {
        const char *sqlstate;
        enum lh_status status;
    } map[] = {
        {"LH002", LH_INVALID_ARGUMENT}, {"LH003", LH_NAMESPACE_FROZEN},
        {"LH004", LH_QUOTA_EXCEEDED},   {"LH005", LH_HOOK_REJECTED},
        {"LH006", LH_LEASE_ENDED},      {"LH007", LH_ACCESS_DENIED},
        {"42501", LH_ACCESS_DENIED},    {"55P03", LH_SCOPE_BUSY},
        {"40001", LH_SCOPE_BUSY},       {"40P01", LH_SCOPE_BUSY},
        {"57014", LH_OVERLOADED},       {"53300", LH_DATABASE_UNAVAILABLE}, /* too many connections */
    };
    for (size_t i = 0; i < sizeof(map) / sizeof(map[0]); i++)
        if (strcmp(map[i].sqlstate, sqlstate) == 0)
            return map[i].status;
    if (lh_pg_is_of_system(sqlstate))
        return LH_OVERLOADED;
    return lh_pg_is_state(sqlstate, "08 57P0 25006") ? LH_DATABASE_UNAVAILABLE : LH_INTERNAL;
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

/* Of a system's own errors (a full disk, say) the detail is what tells. */
static void set_words(struct lh_error *error, const char *sqlstate, const char *message, const char *detail)
{
    char *words = lh_pg_is_of_system(sqlstate) && detail != NULL ? lh_format("%s: %s", message, detail) : NULL;

    to_one_line(error->message, sizeof(error->message), words != NULL ? words : message != NULL ? message : "");
    free(words);
}

enum lh_status lh_pg_error_of_result(const PGresult *result, struct lh_error *error)
{
    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    const char *detail = PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL);
    const char *hint = PQresultErrorField(result, PG_DIAG_MESSAGE_HINT);

    memset(error, 0, sizeof(*error));
    error->status = sqlstate == NULL ? LH_DATABASE_UNAVAILABLE : status_of(sqlstate);
    if (sqlstate == NULL) {
        to_one_line(error->message, sizeof(error->message), message != NULL ? message : PQresultErrorMessage(result));
        return error->status;
    }
    set_words(error, sqlstate, message, detail);
    snprintf(error->sqlstate, sizeof(error->sqlstate), "%s", sqlstate);
    if (error->status == LH_INVALID_ARGUMENT) {
        snprintf(error->field, sizeof(error->field), "%s", detail != NULL ? detail : "");
        snprintf(error->bound, sizeof(error->bound), "%s", hint != NULL ? hint : "");
    }
    return error->status;
}

/* Where a verbose message has ":  28P01: ", the SQLSTATE between colons; else NULL. */
static char *find_sqlstate(char *message)
{
    for (char *at = strstr(message, ":  "); at != NULL; at = strstr(at + 1, ":  "))
        if (strspn(at + 3, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5 && strncmp(at + 8, ": ", 2) == 0)
            return at;
    return NULL;
}

static void drop_locations(char *message)
{
    char *line;
    while ((line = strstr(message, "\nLOCATION:  ")) != NULL) {
        const char *rest = strchr(line + 1, '\n');
        if (rest == NULL)
            *line = '\0';
        else
            memmove(line, rest, strlen(rest) + 1);
    }
}

enum lh_status lh_pg_error_of_conn(const PGconn *conn, struct lh_error *error)
{
    char *message = lh_strdup(PQerrorMessage(conn));
    char *at;

    memset(error, 0, sizeof(*error));
    error->status = LH_DATABASE_UNAVAILABLE;
    drop_locations(message);
    while ((at = find_sqlstate(message)) != NULL) {
        if (error->sqlstate[0] == '\0')
            memcpy(error->sqlstate, at + 3, 5);
        memmove(at, at + 8, strlen(at + 8) + 1);
    }
    /* libpq's own words, where target_session_attrs asks for a server that takes writes. */
    if (error->sqlstate[0] == '\0' && strstr(message, "session is read-only") != NULL)
        memcpy(error->sqlstate, LH_PG_READ_ONLY, sizeof(error->sqlstate));
    to_one_line(error->message, sizeof(error->message), message);
    free(message);
    return error->status;
}
