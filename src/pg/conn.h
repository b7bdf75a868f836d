/*
 * One connection to PostgreSQL that never blocks and never gives up: it connects, runs queries in pipeline mode, and
 * connects again when it is lost.
 *
 *     static const struct lh_pg_statement get = {"get", "select f($1)", 1, {LH_PG_TEXT}};
 *
 *     conn = lh_pg_conn_create(loop, &options, &events, arg);
 *     lh_pg_conn_start(conn);                                            ... on_up(arg)
 *     status = lh_pg_query(conn, &get, &params, on_answer, request);     ... on_answer(request, LH_OK, result, NULL)
 *
 * Each query is a transaction of its own (a Sync follows it) and is answered when that has committed. Queries are sent
 * at once, one behind the other, and answered in order. A query in flight when the connection is lost is answered
 * LH_DATABASE_UNAVAILABLE: it is unknown whether it was committed.
 *
 * Its session has the settings that we rely on, whatever the database or the role is set to, and is on the primary that
 * all connections with the same `servers` are on (pg/servers.h).
 */
#ifndef LH_PG_CONN_H
#define LH_PG_CONN_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "pg/values.h"

struct lh_loop;
struct lh_pg_conn;
struct lh_pg_servers;

/* A statement, prepared under its name at its first use on each connection. Leave it in place as long as the
   connection. */
struct lh_pg_statement {
    const char *name;
    const char *sql;
    int param_count;
    Oid param_types[LH_PG_PARAMS_MAX];
};

/* A statement with the types of its parameters. */
#define LH_PG_STATEMENT(its_name, its_sql, ...)                                                                        \
    {                                                                                                                  \
        .name = its_name, .sql = its_sql, .param_count = sizeof((Oid[]){__VA_ARGS__}) / sizeof(Oid), .param_types = {  \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }

struct lh_pg_conn_options {
    /* Servers shared with other connections; kept until all of them have closed. */
    struct lh_pg_servers *servers;
    /* If `servers` is NULL: a connection string for libpq; copied. */
    const char *conninfo;
    const char *name;             /* name in logs, as "lane 0"; copied */
    int64_t statement_timeout_us; /* limit of the server for a statement; default 30 s */
    int64_t lock_timeout_us;      /* limit of the server for a wait for a lock; 0: none. Default 5 s */
    /* Without an answer this long after statement_timeout the connection is lost. Default 5 s. */
    int64_t answer_slack_us;
    /* Limit of one attempt, which is one host's; default 3 s, or the conninfo's. */
    int64_t connect_timeout_us;
    /* If it gets no answer, the server counts as silent: all connections with the same `servers` end. connect_timeout of
       the conninfo is its statement_timeout. */
    bool is_pulse;
    size_t max_in_flight; /* queries beyond it are refused; default 1024 */
};

void lh_pg_conn_options_init(struct lh_pg_conn_options *options);

/* Events of a connection; each may be NULL. None comes from within a call to the connection. */
struct lh_pg_conn_events {
    void (*on_up)(void *arg);
    void (*on_down)(void *arg, const struct lh_error *error); /* after the queries in flight were answered */
    void (*on_notify)(void *arg, const char *channel, const char *payload);
};

struct lh_pg_conn *lh_pg_conn_create(struct lh_loop *loop, const struct lh_pg_conn_options *options,
                                     const struct lh_pg_conn_events *events, void *arg);
void lh_pg_conn_start(struct lh_pg_conn *conn);

/* Closes and frees the connection: queries in flight are answered LH_CANCELED, then on_closed (may be NULL) comes,
   later. */
void lh_pg_conn_close(struct lh_pg_conn *conn, void (*on_closed)(void *arg), void *arg);

/*
 * Answers a query exactly once, later: LH_OK with `result` (PGRES_TUPLES_OK or PGRES_COMMAND_OK, binary), or a status
 * with `error`. The query was not committed then; after LH_DATABASE_UNAVAILABLE it may have been. Both live until the
 * callback returns.
 */
typedef void lh_pg_query_cb(void *arg, enum lh_status status, const PGresult *result, const struct lh_error *error);

/*
 * Sends a query; `params` (NULL: none) is copied. Refused (on_done never fires): LH_DATABASE_UNAVAILABLE when the
 * connection is not up, LH_OVERLOADED at max_in_flight.
 */
enum lh_status lh_pg_query(struct lh_pg_conn *conn, const struct lh_pg_statement *statement,
                           const struct lh_pg_params *params, lh_pg_query_cb *on_done, void *arg);

/*
 * Sends a statement that is one transaction with the next lh_pg_query, which must follow at once. If that one is
 * answered LH_OK, on_done gets this statement's result just before; otherwise on_done is not called. Refused as a query
 * is.
 */
enum lh_status lh_pg_query_begin(struct lh_pg_conn *conn, const struct lh_pg_statement *statement,
                                 const struct lh_pg_params *params, lh_pg_query_cb *on_done, void *arg);

/*
 * Does as lh_pg_query, for long queries: the server gets at most LH_PG_PATIENT_MAX of them at once, and the next ones
 * wait here, so that other queries do not wait behind them. They are answered in their order.
 */
enum lh_status lh_pg_query_patiently(struct lh_pg_conn *conn, const struct lh_pg_statement *statement,
                                     const struct lh_pg_params *params, lh_pg_query_cb *on_done, void *arg);
#define LH_PG_PATIENT_MAX 2 /* one that runs, and one that is next */

/* Reads the server's identity again; the session ends if the server is not the primary any more. Refused as a query
   is. */
enum lh_status lh_pg_conn_check_server(struct lh_pg_conn *conn);

/*
 * Resets all settings of the session but statement_timeout to those at its beginning, in the same packet as the next
 * statement. Refused as a query is; a session that cannot be reset is given up.
 */
enum lh_status lh_pg_conn_reset_session(struct lh_pg_conn *conn, int64_t statement_timeout_us);

/* Sets how long to wait for answers from now on, instead of statement_timeout; answer_slack is added. 0: no limit. */
void lh_pg_conn_set_answer_limit(struct lh_pg_conn *conn, int64_t limit_us);

/* Gives this connection up and connects again; `reason` is for the log and for the queries in flight. */
void lh_pg_conn_drop(struct lh_pg_conn *conn, const char *reason);

/* Does as lh_pg_conn_drop, but tries another server first if the connection string names one. Does nothing while the
   connection is not up. */
void lh_pg_conn_look_elsewhere(struct lh_pg_conn *conn, const char *reason);

bool lh_pg_conn_is_up(const struct lh_pg_conn *conn);
size_t lh_pg_conn_in_flight(const struct lh_pg_conn *conn);  /* with the ones that wait */
uint64_t lh_pg_conn_connects(const struct lh_pg_conn *conn); /* times that it came up */
/* 0 while it is not up. */
int lh_pg_conn_backend_pid(const struct lh_pg_conn *conn);

/* Returns false, with the fault in `why` (without any password), if libpq would refuse the connection string. Does not
   connect. */
bool lh_pg_conninfo_check(const char *conninfo, char *why, size_t why_bytes);

#endif
