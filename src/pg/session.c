/*
 * The beginning of a session: two transactions in one packet, and one more. The first sets everything that the daemon
 * relies on, because a database, a role or a server may have other defaults. The second asks whether the server is a
 * primary, and in which backend it runs: behind a pooler in transaction mode that may be another one. The third asks the
 * schema which life of the database this is.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "pg/conn_internal.h"
#include "pg/error.h"
#include "pg/values.h"

/*
 * idle_in_transaction: there never is one; if ever, the server shall end it. Isolation: the batches are written for
 * read committed. jit: compiling costs more than any statement here runs. What follows it decides how values are
 * written and read, in messages and in functions. Not among these: synchronous_commit, which is the administrator's to
 * choose, and default_transaction_read_only, which is respected (see lh_pg_servers_admit).
 */
static const struct lh_pg_statement settings_statement = {
    "lh_settings",
    "select pg_catalog.pg_backend_pid(), pg_catalog.count(pg_catalog.set_config(s.name, s.value, false))"
    "  from (values"
    " ('statement_timeout', $1::text), ('lock_timeout', $2::text), ('idle_in_transaction_session_timeout', '10s'),"
    " ('idle_session_timeout', '0'), ('transaction_timeout', '0'),"
    " ('default_transaction_isolation', 'read committed'), ('default_transaction_deferrable', 'off'),"
    " ('plan_cache_mode', 'auto'), ('jit', 'off'), ('client_min_messages', 'warning'), ('timezone', 'UTC'),"
    " ('datestyle', 'ISO, MDY'), ('intervalstyle', 'postgres'), ('extra_float_digits', '1'), ('bytea_output', 'hex'),"
    " ('array_nulls', 'on'), ('standard_conforming_strings', 'on'), ('transform_null_equals', 'off'),"
    " ('row_security', 'on')) as s (name, value)"
    " where pg_catalog.current_setting(s.name, true) <> s.value", /* null where this version has no such setting */
    2,
    {LH_PG_TEXT, LH_PG_TEXT},
};

/* Open to every role. */
static const struct lh_pg_statement identity_statement = {
    "lh_identity",
    "select pg_catalog.pg_backend_pid(), pg_catalog.pg_is_in_recovery(),"
    " pg_catalog.current_setting('default_transaction_read_only')::boolean",
    0,
    {0},
};

/* The schema knows where to read it (migrations/functions/life_source.sql). */
static const struct lh_pg_statement life_statement = {
    "lh_life",
    "select system_identifier, timeline from leasehold_internal.server_identity()",
    0,
    {0},
};

static const struct lh_pg_statement reset_statement = {"lh_reset", "reset all", 0, {0}};

/* A session that is ended while it is idle hears why in a notice. */
static void on_notice(void *arg, const PGresult *result)
{
    struct lh_pg_conn *conn = arg;
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    struct lh_error words;

    lh_pg_error_of_result(result, &words);
    if (severity != NULL && strcmp(severity, "FATAL") == 0)
        conn->last_words = words;
    else
        lh_info("database connection %s: the server says: %s", conn->name, words.message);
}

/* A new session has no statement yet, and keeps what it prepares: where that is not so, it is not ours alone. */
static void give_up(struct lh_pg_conn *conn, const struct lh_error *error)
{
    bool has_others = strcmp(error->sqlstate, "42P05") == 0, is_forgetful = strcmp(error->sqlstate, "26000") == 0;

    conn->error = *error;
    if (has_others || is_forgetful) {
        conn->is_permanent = true;
        lh_pg_servers_on_shared(conn->servers, conn,
                                has_others ? "a new connection's session has statements of another connection"
                                           : "a connection's session does not know the statement that it prepared",
                                &conn->error);
    }
    lh_defer(conn->loop, &conn->broken);
}

static void on_set(void *arg, enum lh_status status, const PGresult *result, const struct lh_error *error)
{
    struct lh_pg_conn *conn = arg;

    if (conn->state != LH_PG_SETTING || lh_pg_conn_is_broken(conn))
        return;
    if (status == LH_OK)
        conn->identity.settings_pid = lh_pg_int4(result, 0, 0);
    else
        give_up(conn, error);
}

/* Returns false where the server knows it, and does not tell. */
static bool read_life(struct lh_pg_identity *identity, enum lh_status status, const PGresult *result,
                      const struct lh_error *error)
{
    if (status == LH_OK) {
        identity->system_identifier = (uint64_t)lh_pg_int8(result, 0, 0);
        identity->timeline = lh_pg_int8(result, 0, 1);
        return true;
    }
    /* No schema, no function, no right to it: whatever the session is for will fail with better words. */
    return lh_pg_is_state(error->sqlstate, "3F000 42883 42501");
}

/* An answer is missing: the next attempt asks again, and so does the next check of a session that is up. */
static void leave_unknown(struct lh_pg_conn *conn, const struct lh_error *error)
{
    if (conn->state == LH_PG_SETTING)
        give_up(conn, error);
}

static void on_life(void *arg, enum lh_status status, const PGresult *result, const struct lh_error *error)
{
    struct lh_pg_conn *conn = arg;
    struct lh_error objection;

    if (lh_pg_conn_is_broken(conn))
        return;
    if (!read_life(&conn->asked, status, result, error))
        leave_unknown(conn, error);
    else if (!lh_pg_servers_admit(conn->servers, conn, &conn->asked, &objection, &conn->is_permanent))
        conn->state == LH_PG_SETTING ? give_up(conn, &objection) : lh_pg_conn_break(conn, objection.message);
    else if (conn->state == LH_PG_SETTING)
        conn->steps->on_settled(conn);
}

static void on_identified(void *arg, enum lh_status status, const PGresult *result, const struct lh_error *error)
{
    struct lh_pg_conn *conn = arg;

    if (lh_pg_conn_is_broken(conn))
        return;
    if (status != LH_OK) {
        leave_unknown(conn, error);
        return;
    }
    conn->asked = (struct lh_pg_identity){
        .backend_pid = lh_pg_int4(result, 0, 0),
        .is_standby = lh_pg_bool(result, 0, 1),
        .is_read_only = lh_pg_bool(result, 0, 2),
        .settings_pid = conn->identity.settings_pid,
        .announced_pid = conn->identity.announced_pid,
    };
    lh_pg_pipeline_send(conn, &life_statement, NULL, on_life, conn);
}

static bool send_settings(struct lh_pg_conn *conn, int64_t statement_timeout_us, lh_pg_query_cb *on_done)
{
    char *statement_timeout = lh_format("%lld", (long long)((statement_timeout_us + LH_US_PER_MS - 1) / LH_US_PER_MS));
    char *lock_timeout = lh_format("%lld", (long long)(conn->options.lock_timeout_us / LH_US_PER_MS));
    struct lh_pg_params params = {0};
    bool is_sent;

    lh_pg_add_text(&params, statement_timeout);
    lh_pg_add_text(&params, lock_timeout);
    is_sent = lh_pg_pipeline_send(conn, &settings_statement, &params, on_done, conn);
    lh_pg_params_finish(&params);
    free(statement_timeout);
    free(lock_timeout);
    return is_sent;
}

void lh_pg_session_begin(struct lh_pg_conn *conn)
{
    PQsetNoticeReceiver(conn->pg, on_notice, conn);
    conn->identity = (struct lh_pg_identity){.announced_pid = PQbackendPID(conn->pg)};
    if (PQsetnonblocking(conn->pg, 1) != 0 || !PQenterPipelineMode(conn->pg)) {
        lh_pg_error_of_conn(conn->pg, &conn->error);
        lh_defer(conn->loop, &conn->broken);
    } else if (send_settings(conn, conn->options.statement_timeout_us, on_set)) {
        lh_pg_pipeline_send(conn, &identity_statement, NULL, on_identified, conn);
    }
}

enum lh_status lh_pg_conn_check_server(struct lh_pg_conn *conn)
{
    return lh_pg_query(conn, &identity_statement, NULL, on_identified, conn);
}

static void on_reset(void *arg, enum lh_status status, const PGresult *result, const struct lh_error *error)
{
    if (status != LH_OK && status != LH_CANCELED && status != LH_DATABASE_UNAVAILABLE)
        lh_pg_conn_break(arg, error->message);
}

enum lh_status lh_pg_conn_reset_session(struct lh_pg_conn *conn, int64_t statement_timeout_us)
{
    if (conn->state != LH_PG_UP || lh_pg_conn_is_broken(conn))
        return LH_DATABASE_UNAVAILABLE;
    if (!lh_pg_pipeline_send(conn, &reset_statement, NULL, on_reset, conn) ||
        !send_settings(conn, statement_timeout_us, on_reset))
        return LH_DATABASE_UNAVAILABLE;
    return LH_OK;
}
