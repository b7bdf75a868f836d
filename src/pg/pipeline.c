/*
 * The queries of a connection, in libpq's pipeline mode
 * (https://www.postgresql.org/docs/current/libpq-pipeline-mode.html). A query goes out as [Parse] Bind Execute Sync,
 * all at once. libpq then answers, in order: a result and a NULL for the Parse, a result and a NULL for the Execute,
 * and a PGRES_PIPELINE_SYNC for the Sync. The transaction has committed then, so that is when the callback fires. An
 * error in between skips to the Sync and is remembered. Two statements of one transaction go out without a Sync between
 * them: each has its results, of which those after an error say only that it was passed over.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "pg/conn_internal.h"
#include "pg/error.h"

static void forget_statement(struct lh_pg_conn *conn, const struct lh_pg_statement *statement)
{
    for (size_t i = 0; i < conn->prepared_count; i++)
        if (conn->prepared[i] == statement)
            conn->prepared[i] = conn->prepared[--conn->prepared_count];
}

static bool is_prepared(const struct lh_pg_conn *conn, const struct lh_pg_statement *statement)
{
    for (size_t i = 0; i < conn->prepared_count; i++)
        if (conn->prepared[i] == statement)
            return true;
    return false;
}

static int send_execute(struct lh_pg_conn *conn, const struct lh_pg_statement *statement,
                        const struct lh_pg_params *params)
{
    const char *values[LH_PG_PARAMS_MAX];
    int lengths[LH_PG_PARAMS_MAX];
    int formats[LH_PG_PARAMS_MAX];
    int count = params == NULL ? 0 : params->count;

    for (int i = 0; i < count; i++) {
        int length = params->values[i].length;
        /* Of an empty value too the address must not be NULL: that would be a NULL. */
        values[i] = length < 0 ? NULL : length == 0 ? "" : (const char *)params->bytes.data + params->values[i].offset;
        lengths[i] = length < 0 ? 0 : length;
        formats[i] = 1;
    }
    return PQsendQueryPrepared(conn->pg, statement->name, count, values, lengths, formats, 1);
}

/* More output than the socket took: wait until it takes more. Only then, or the loop would spin. */
static bool flush(struct lh_pg_conn *conn)
{
    int left = PQflush(conn->pg);
    if (left < 0)
        return false;
    lh_watch_want(&conn->watch, left == 0 ? LH_WATCH_READ : LH_WATCH_READ | LH_WATCH_WRITE);
    return true;
}

void lh_pg_pipeline_arm(struct lh_pg_conn *conn)
{
    if (conn->state != LH_PG_UP)
        return; /* SETTING: the connect timeout is running */
    if (conn->in_flight == 0 || conn->answer_limit_us == 0)
        lh_timer_cancel(&conn->timer);
    else
        lh_timer_arm_at_us(&conn->timer, lh_clock_us() + conn->answer_limit_us + conn->options.answer_slack_us);
}

static struct lh_pg_query *create(const struct lh_pg_statement *statement, lh_pg_query_cb *on_done, void *arg)
{
    struct lh_pg_query *query = lh_alloc_zero(1, sizeof(*query));

    *query = (struct lh_pg_query){.statement = statement, .on_done = on_done, .arg = arg};
    return query;
}

static void free_query(struct lh_pg_query *query)
{
    if (query == NULL)
        return;
    free_query(query->before);
    PQclear(query->result);
    lh_pg_params_finish(&query->params);
    free(query);
}

static bool send_statement(struct lh_pg_conn *conn, struct lh_pg_query *query, const struct lh_pg_params *params)
{
    const struct lh_pg_statement *statement = query->statement;

    query->was_prepared = is_prepared(conn, statement);
    query->stage = query->was_prepared ? LH_PG_RUNNING : LH_PG_PREPARING;
    if (!query->was_prepared) {
        if (!PQsendPrepare(conn->pg, statement->name, statement->sql, statement->param_count, statement->param_types))
            return false;
        if (conn->prepared_count < LH_PG_STATEMENTS_MAX)
            conn->prepared[conn->prepared_count++] = statement;
    }
    return send_execute(conn, statement, params);
}

static void break_after_send(struct lh_pg_conn *conn)
{
    lh_pg_conn_check_socket(conn);
    lh_pg_error_of_conn(conn->pg, &conn->error);
    lh_defer(conn->loop, &conn->broken);
}

static bool send_query(struct lh_pg_conn *conn, struct lh_pg_query *query, const struct lh_pg_params *params)
{
    if (!send_statement(conn, query, params) || !PQpipelineSync(conn->pg) || !flush(conn)) {
        break_after_send(conn);
        return false;
    }
    query->before = conn->begun;
    conn->begun = NULL;
    lh_list_append(&conn->queries, &query->link);
    conn->patient_in_flight += query->is_patient;
    if (conn->in_flight++ == 0)
        lh_pg_pipeline_arm(conn);
    return true;
}

bool lh_pg_pipeline_send(struct lh_pg_conn *conn, const struct lh_pg_statement *statement,
                         const struct lh_pg_params *params, lh_pg_query_cb *on_done, void *arg)
{
    struct lh_pg_query *query = create(statement, on_done, arg);

    if (send_query(conn, query, params))
        return true;
    free_query(query);
    return false;
}

static enum lh_status may_send(const struct lh_pg_conn *conn, size_t others)
{
    if (conn->state != LH_PG_UP || lh_pg_conn_is_broken(conn))
        return LH_DATABASE_UNAVAILABLE;
    return others >= conn->options.max_in_flight ? LH_OVERLOADED : LH_OK;
}

enum lh_status lh_pg_query(struct lh_pg_conn *conn, const struct lh_pg_statement *statement,
                           const struct lh_pg_params *params, lh_pg_query_cb *on_done, void *arg)
{
    enum lh_status status = may_send(conn, conn->in_flight);

    if (status != LH_OK)
        return status;
    return lh_pg_pipeline_send(conn, statement, params, on_done, arg) ? LH_OK : LH_DATABASE_UNAVAILABLE;
}

enum lh_status lh_pg_query_begin(struct lh_pg_conn *conn, const struct lh_pg_statement *statement,
                                 const struct lh_pg_params *params, lh_pg_query_cb *on_done, void *arg)
{
    enum lh_status status = may_send(conn, conn->in_flight);

    assert(conn->begun == NULL);
    if (status != LH_OK)
        return status;
    conn->begun = create(statement, on_done, arg);
    if (send_statement(conn, conn->begun, params))
        return LH_OK;
    break_after_send(conn);
    return LH_DATABASE_UNAVAILABLE;
}

/* --- patient ones --- */

static void keep_params(struct lh_pg_query *query, const struct lh_pg_params *params)
{
    if (params == NULL)
        return;
    query->params = *params;
    query->params.bytes = (struct lh_buffer){0};
    lh_buffer_append(&query->params.bytes, params->bytes.data, params->bytes.size);
}

/* What cannot be sent stays: the connection is about to be lost, and then all are answered. */
static void send_waiting(struct lh_pg_conn *conn)
{
    while (conn->state == LH_PG_UP && !lh_pg_conn_is_broken(conn) && conn->waiting_count > 0 &&
           conn->patient_in_flight < LH_PG_PATIENT_MAX) {
        struct lh_pg_query *query = LH_LIST_FIRST(struct lh_pg_query, &conn->waiting, link);
        lh_list_remove(&query->link);
        if (!send_query(conn, query, &query->params)) {
            lh_list_prepend(&conn->waiting, &query->link);
            return;
        }
        conn->waiting_count--;
        lh_pg_params_finish(&query->params);
    }
}

enum lh_status lh_pg_query_patiently(struct lh_pg_conn *conn, const struct lh_pg_statement *statement,
                                     const struct lh_pg_params *params, lh_pg_query_cb *on_done, void *arg)
{
    struct lh_pg_query *query;
    enum lh_status status = may_send(conn, conn->in_flight + conn->waiting_count);

    if (status != LH_OK)
        return status;
    query = create(statement, on_done, arg);
    query->is_patient = true;
    keep_params(query, params);
    lh_list_append(&conn->waiting, &query->link);
    conn->waiting_count++;
    send_waiting(conn);
    return LH_OK;
}

static bool is_error(const PGresult *result)
{
    return PQresultStatus(result) != PGRES_TUPLES_OK && PQresultStatus(result) != PGRES_COMMAND_OK;
}

/* Of the two statements the one that failed: what came behind it was passed over. */
static struct lh_pg_query *failed(struct lh_pg_query *query)
{
    struct lh_pg_query *before = query->before;
    return before != NULL && before->result != NULL && is_error(before->result) ? before : query;
}

static enum lh_status read_error(struct lh_pg_conn *conn, const struct lh_pg_query *query, struct lh_error *error)
{
    enum lh_status status = lh_pg_error_of_result(query->result, error);

    /* It is not prepared here any more: somebody deallocated it. The next use prepares it again. */
    if (strcmp(error->sqlstate, "26000") == 0)
        forget_statement(conn, query->statement);
    /* "cached plan must not change result type": a newer version changed what the statement stands on. */
    if (query->was_prepared && strcmp(error->sqlstate, "0A000") == 0)
        status = error->status = LH_DATABASE_UNAVAILABLE;
    if (status == LH_DATABASE_UNAVAILABLE && !lh_pg_conn_is_broken(conn)) {
        conn->error = *error;
        lh_defer(conn->loop, &conn->broken);
    }
    return status;
}

/* The oldest query's Sync was answered. The callbacks may do anything, closing the connection included. */
static void answer_first(struct lh_pg_conn *conn)
{
    struct lh_pg_query *query = LH_LIST_FIRST(struct lh_pg_query, &conn->queries, link);
    struct lh_pg_query *before = query->before;
    struct lh_error error;

    lh_list_remove(&query->link);
    conn->in_flight--;
    conn->patient_in_flight -= query->is_patient;
    send_waiting(conn);
    lh_pg_pipeline_arm(conn);
    lh_pg_servers_on_answer(conn->servers);
    if (is_error(failed(query)->result)) {
        enum lh_status status = read_error(conn, failed(query), &error);
        query->on_done(query->arg, status, NULL, &error);
    } else {
        if (conn->state == LH_PG_UP)
            conn->failures = 0;
        if (before != NULL)
            before->on_done(before->arg, LH_OK, before->result, NULL);
        query->on_done(query->arg, LH_OK, query->result, NULL);
    }
    free_query(query);
}

static bool is_duplicate_statement(const PGresult *result)
{
    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    return sqlstate != NULL && strcmp(sqlstate, "42P05") == 0;
}

/* The first error counts; what follows it is only PGRES_PIPELINE_ABORTED. */
static void keep_result(struct lh_pg_query *query, PGresult *result)
{
    if (query->result != NULL && is_error(query->result)) {
        PQclear(result);
        return;
    }
    PQclear(query->result);
    query->result = result;
}

/* False: libpq and we disagree about what comes next. */
static bool take_result(struct lh_pg_conn *conn, struct lh_pg_query *query, PGresult *result)
{
    if (query->before != NULL && query->before->stage < LH_PG_SYNCING)
        query = query->before;
    if (PQresultStatus(result) == PGRES_PIPELINE_SYNC) {
        PQclear(result);
        if (query->stage < LH_PG_SYNCING || query->result == NULL)
            return false;
        answer_first(conn);
        return true;
    }
    if (result != NULL) {
        if (query->stage == LH_PG_PREPARING && is_error(result) && !is_duplicate_statement(result))
            forget_statement(conn, query->statement);
        keep_result(query, result);
        return true;
    }
    if (query->stage == LH_PG_COMMIT_FAILED || (query->stage == LH_PG_SYNCING && !is_error(query->result)))
        return false;
    query->stage++;
    return true;
}

/* Made up by libpq because the connection broke; what the server says has an SQLSTATE. */
static bool is_end_of_connection(PGconn *pg, const PGresult *result)
{
    return PQstatus(pg) == CONNECTION_BAD &&
           (result == NULL || (is_error(result) && PQresultStatus(result) != PGRES_PIPELINE_SYNC &&
                               PQresultErrorField(result, PG_DIAG_SQLSTATE) == NULL));
}

static void read_results(struct lh_pg_conn *conn)
{
    PGconn *pg = conn->pg;
    while (conn->pg == pg && conn->state != LH_PG_CLOSING && !lh_list_is_empty(&conn->queries) && !PQisBusy(pg)) {
        struct lh_pg_query *query = LH_LIST_FIRST(struct lh_pg_query, &conn->queries, link);
        PGresult *result = PQgetResult(pg);
        lh_pg_conn_check_socket(conn);
        if (query->stage >= LH_PG_SYNCING && is_end_of_connection(pg, result)) {
            PQclear(result);
            return;
        }
        if (!take_result(conn, query, result)) {
            lh_pg_conn_break(conn, "libpq answered out of order");
            return;
        }
    }
}

static void read_notifications(struct lh_pg_conn *conn)
{
    PGconn *pg = conn->pg;
    PGnotify *notify;
    while (conn->pg == pg && conn->state == LH_PG_UP && (notify = PQnotifies(pg)) != NULL) {
        if (conn->events.on_notify != NULL)
            conn->events.on_notify(conn->arg, notify->relname, notify->extra);
        PQfreemem(notify);
    }
}

/* Why: the server's last words if there are any (it was told to shut down, say), else libpq's. */
static void lose(struct lh_pg_conn *conn)
{
    struct lh_pg_query *query = LH_LIST_FIRST(struct lh_pg_query, &conn->queries, link);

    lh_pg_conn_check_socket(conn);
    if (query != NULL && failed(query)->result != NULL && is_error(failed(query)->result))
        lh_pg_error_of_result(failed(query)->result, &conn->error);
    else if (conn->last_words.status != LH_OK)
        conn->error = conn->last_words;
    else
        lh_pg_error_of_conn(conn->pg, &conn->error);
    lh_defer(conn->loop, &conn->broken);
}

void lh_pg_pipeline_on_ready(struct lh_pg_conn *conn, unsigned ready)
{
    PGconn *pg = conn->pg;
    bool is_alive = true;

    if ((ready & LH_WATCH_READ) != 0)
        is_alive = PQconsumeInput(pg) == 1;
    if (is_alive && (conn->watch.wanted & LH_WATCH_WRITE) != 0)
        is_alive = flush(conn);
    lh_pg_conn_check_socket(conn);
    /* What arrived before the end is an answer still. */
    read_results(conn);
    if (conn->pg == pg && conn->state != LH_PG_CLOSING)
        read_notifications(conn);
    if (conn->pg != pg || conn->state == LH_PG_CLOSING || lh_pg_conn_is_broken(conn))
        return;
    if (!is_alive || PQstatus(pg) == CONNECTION_BAD)
        lose(conn);
}

void lh_pg_pipeline_answer_all(struct lh_pg_conn *conn, const struct lh_error *error)
{
    free_query(conn->begun);
    conn->begun = NULL;
    lh_list_splice(&conn->queries, &conn->waiting);
    conn->in_flight += conn->waiting_count;
    conn->patient_in_flight += conn->waiting_count;
    conn->waiting_count = 0;
    while (!lh_list_is_empty(&conn->queries)) {
        struct lh_pg_query *query = LH_LIST_FIRST(struct lh_pg_query, &conn->queries, link);
        lh_list_remove(&query->link);
        conn->in_flight--;
        conn->patient_in_flight -= query->is_patient;
        query->on_done(query->arg, error->status, NULL, error);
        free_query(query);
    }
}
