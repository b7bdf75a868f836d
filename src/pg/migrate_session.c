/* The connection of the migration runner, and owners and rights in the schemas: finding those that a restore has changed
   (migrations/runner/privileges.sql), and correcting them. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "pg/error.h"
#include "pg/migrate_internal.h"

#define OLDEST_SERVER 130000

/* Whatever the database or the role sets for its sessions. work_mem: a step that sorts must not need a file, which
   temp_file_limit may forbid. jit: compiling costs more than any statement here runs. */
static const char session_sql[] = "set default_transaction_isolation = 'read committed';"
                                  "set default_transaction_deferrable = off;"
                                  "set standard_conforming_strings = on;"
                                  "set check_function_bodies = on;"
                                  "set search_path = pg_catalog, pg_temp;"
                                  "set lock_timeout = '1s';"
                                  "set statement_timeout = 0;"
                                  "set idle_in_transaction_session_timeout = 0;"
                                  /* A database may allow no temporary files. */
                                  "set work_mem = '64MB';"
                                  /* Not every version has these two. */
                                  "select set_config(name, '0', false) from pg_settings"
                                  " where name in ('idle_session_timeout', 'transaction_timeout');"
                                  "set jit = off;"
                                  "set client_min_messages = warning";

/* Whose is the schema, may we read as its owner, and may what lies in it be trusted? Roles and schema may be missing. */
static const char look_sql[] = "select n.oid is not null,"
                               "       coalesce(n.nspowner = o.oid and pg_has_role(o.oid,"
                               "                  case when current_setting('server_version_num')::integer >= 160000 "
                               "then 'SET' else 'MEMBER' end),"
                               "                false),"
                               "       coalesce(n.nspowner = o.oid or s.rolsuper or n.nspowner = m.oid"
                               "                or (not m.rolsuper and pg_has_role(n.nspowner, 'USAGE')), true),"
                               "       s.rolname"
                               "  from pg_roles m"
                               "  left join pg_namespace n on n.nspname = 'leasehold'"
                               "  left join pg_roles s on s.oid = n.nspowner"
                               "  left join pg_roles o on o.rolname = 'leasehold_owner'"
                               " where m.rolname = current_user";

void lh_migrate_say(struct lh_migrate_session *session, const char *format, ...)
{
    char line[512];
    va_list arguments;

    if (session->output->on_line == NULL)
        return;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    session->output->on_line(session->output->arg, line);
}

static void on_notice(void *arg, const PGresult *result)
{
    struct lh_error words;

    lh_pg_error_of_result(result, &words);
    lh_migrate_say(arg, "the database says: %s", words.message);
}

/* What to do about it belongs to the sentence here. */
static void append_hint(struct lh_error *error, const PGresult *result)
{
    const char *hint = PQresultErrorField(result, PG_DIAG_MESSAGE_HINT);
    size_t used = strlen(error->message);

    if (hint != NULL)
        snprintf(error->message + used, sizeof(error->message) - used, "; %s", hint);
}

enum lh_status lh_migrate_execute(struct lh_migrate_session *session, const char *sql, PGresult **result)
{
    PGresult *answer = PQexec(session->conn, sql);
    enum lh_status status = LH_OK;

    if (answer == NULL) {
        status = lh_pg_error_of_conn(session->conn, session->error);
    } else if (PQresultStatus(answer) != PGRES_COMMAND_OK && PQresultStatus(answer) != PGRES_TUPLES_OK) {
        status = lh_pg_error_of_result(answer, session->error);
        append_hint(session->error, answer);
    }
    if (status == LH_OK && result != NULL)
        *result = answer;
    else
        PQclear(answer);
    return status;
}

/* PQconnectdbParams, but with the server's SQLSTATE in the error: what was begun is begun again, with time-outs. */
static PGconn *connect_verbosely(const char *const *names, const char *const *values)
{
    PGconn *conn = PQconnectStartParams(names, values, 1);

    if (conn == NULL || PQstatus(conn) == CONNECTION_BAD)
        return conn;
    PQsetErrorVerbosity(conn, PQERRORS_VERBOSE);
    PQreset(conn);
    if (PQstatus(conn) == CONNECTION_OK)
        PQsetErrorVerbosity(conn, PQERRORS_DEFAULT);
    return conn;
}

enum lh_status lh_migrate_session_open(struct lh_migrate_session *session, const char *conninfo, bool writes)
{
    /* What stands after dbname, the conninfo, wins over it. */
    const char *names[] = {"fallback_application_name",
                           "connect_timeout",
                           "dbname",
                           "client_encoding",
                           writes ? "target_session_attrs" : NULL,
                           NULL};
    const char *values[] = {"leasehold migrate", "10", conninfo, "UTF8", "read-write", NULL};

    session->conn = connect_verbosely(names, values);
    if (session->conn == NULL)
        return lh_error_set(session->error, LH_DATABASE_UNAVAILABLE, "libpq could not allocate a connection");
    if (PQstatus(session->conn) != CONNECTION_OK)
        return lh_pg_error_of_conn(session->conn, session->error);
    if (PQserverVersion(session->conn) < OLDEST_SERVER)
        return lh_error_set(session->error, LH_INTERNAL, "PostgreSQL 13 or later is needed; this server is version %d",
                            PQserverVersion(session->conn) / 10000);
    PQsetNoticeReceiver(session->conn, on_notice, session);
    return lh_migrate_execute(session, session_sql, NULL);
}

void lh_migrate_session_close(struct lh_migrate_session *session)
{
    PQfinish(session->conn);
    session->conn = NULL;
}

enum lh_status lh_migrate_read_applied(struct lh_migrate_session *session, struct lh_applied_list *applied)
{
    PGresult *result;
    enum lh_status status =
        lh_migrate_execute(session, "select to_regclass('leasehold.migration') is not null", &result);

    lh_applied_list_clear(applied);
    if (status != LH_OK)
        return status;
    applied->is_table_there = PQgetvalue(result, 0, 0)[0] == 't';
    PQclear(result);
    if (!applied->is_table_there)
        return LH_OK;
    status = lh_migrate_execute(session,
                                "select number, name, checksum, oldest_daemon, version,"
                                " to_char(applied_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC',"
                                " coalesce((to_jsonb(m) ->> 'revision')::integer, 0)"
                                " from leasehold.migration m order by number",
                                &result);
    if (status != LH_OK)
        return status;
    lh_applied_list_fill(applied, result);
    PQclear(result);
    return LH_OK;
}

enum lh_status lh_migrate_look(struct lh_migrate_session *session, struct lh_applied_list *applied)
{
    PGresult *result;
    bool is_there, may_be_owner;
    enum lh_status status = lh_migrate_execute(session, "begin", NULL);

    if (status == LH_OK)
        status = lh_migrate_execute(session, look_sql, &result);
    if (status != LH_OK)
        return status;
    is_there = PQgetvalue(result, 0, 0)[0] == 't';
    may_be_owner = PQgetvalue(result, 0, 1)[0] == 't';
    if (PQgetvalue(result, 0, 2)[0] != 't')
        status =
            lh_error_set(session->error, LH_ACCESS_DENIED,
                         "the schema leasehold belongs to %s, and not to leasehold_owner: it is not touched; if it "
                         "is an older Leasehold, migrate once as %s, or let a superuser who trusts it run: alter "
                         "schema leasehold owner to leasehold_owner; otherwise drop it",
                         PQgetvalue(result, 0, 3), PQgetvalue(result, 0, 3));
    PQclear(result);
    if (status == LH_OK && may_be_owner)
        status = lh_migrate_execute(session, "set local role leasehold_owner", NULL);
    if (status == LH_OK && is_there)
        status = lh_migrate_read_applied(session, applied);
    PQclear(PQexec(session->conn, "rollback"));
    return status;
}

/* --- owners and rights --- */

void lh_privileges_describe(const PGresult *result, char words[LH_PRIVILEGES_BYTES])
{
    int count = PQntuples(result);

    words[0] = '\0';
    if (count > 0)
        snprintf(words, LH_PRIVILEGES_BYTES,
                 "%d %s in the schema %s not as Leasehold made %s (%.200s%s): run leasehold migrate --repair", count,
                 count > 1 ? "owners and rights" : "owner or right", count > 1 ? "are" : "is",
                 count > 1 ? "them" : "it", PQgetvalue(result, 0, PQfnumber(result, "words")),
                 count > 1 ? ", ..." : "");
}

void lh_migrate_look_at_privileges(struct lh_migrate_session *session, const char *query,
                                   char words[LH_PRIVILEGES_BYTES])
{
    struct lh_error kept = *session->error;
    PGresult *result = NULL;

    words[0] = '\0';
    if (query != NULL && lh_migrate_execute(session, query, &result) == LH_OK)
        lh_privileges_describe(result, words);
    PQclear(result);
    *session->error = kept;
}

/* The rows that are for the installer, or those for leasehold_owner. */
static enum lh_status repair_rows(struct lh_migrate_session *session, const char *query, const char *is_owner,
                                  size_t *count)
{
    PGresult *result = NULL;
    enum lh_status status = lh_migrate_execute(session, query, &result);

    for (int row = 0; status == LH_OK && row < PQntuples(result); row++) {
        if (PQgetvalue(result, row, PQfnumber(result, "is_owner"))[0] != is_owner[0])
            continue;
        status = lh_migrate_execute(session, PQgetvalue(result, row, PQfnumber(result, "repair")), NULL);
        *count += status == LH_OK;
    }
    PQclear(result);
    return status;
}

enum lh_status lh_migrate_repair_privileges(struct lh_migrate_session *session, const char *query, size_t *count)
{
    enum lh_status status = repair_rows(session, query, "t", count);

    if (status == LH_OK)
        status = lh_migrate_execute(session, "set local role leasehold_owner", NULL);
    /* Asked again: rights follow their objects to a new owner. */
    if (status == LH_OK)
        status = repair_rows(session, query, "f", count);
    return status;
}
