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
#include "pg/params.h"

struct lh_loop;
struct lh_pg_conn;
struct lh_pg_servers;

/* Prepared at its first use on each connection, under its name. Stays in place as long as the connection does. */
struct lh_pg_statement {
    const char *name;
    const char *sql;
    int param_count;
    Oid param_types[LH_PG_PARAMS_MAX];
};

/* With the types of its parameters. */
#define LH_PG_STATEMENT(its_name, its_sql, ...)                                                                        \
    {                                                                                                                  \
        .name = its_name, .sql = its_sql, .param_count = sizeof((Oid[]){__VA_ARGS__}) / sizeof(Oid), .param_types = {  \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }

struct lh_pg_conn_options {
    struct lh_pg_servers *servers; /* shared with others; stays until all of them have closed */
    const char *conninfo;          /* or NULL, and these: as libpq takes them; copied */
    const char *name;              /* for logs: "lane 0"; copied */
    int64_t statement_timeout_us;  /* the server ends a longer statement; default 30 s */
    int64_t lock_timeout_us;       /* and one that waits for a lock longer than this; 0: none. Default 5 s */
    int64_t answer_slack_us;    /* no answer that long after statement_timeout: the connection is dead. Default 5 s */
    int64_t connect_timeout_us; /* of one attempt, which is one host's; default 3 s, or the conninfo's */
    bool is_pulse;        /* when this connection gets no answer, the server is silent: all with the same servers end */
    size_t max_in_flight; /* more queries are refused; default 1024 */
};

void lh_pg_conn_options_init(struct lh_pg_conn_options *options);

/* Never called from within a call to the connection. Any may be NULL. */
struct lh_pg_conn_events {
    void (*on_up)(void *arg);
    void (*on_down)(void *arg, const struct lh_error *error); /* after the queries in flight were answered */
    void (*on_notify)(void *arg, const char *channel, const char *payload);
};

struct lh_pg_conn *lh_pg_conn_create(struct lh_loop *loop, const struct lh_pg_conn_options *options,
                                     const struct lh_pg_conn_events *events, void *arg);
void lh_pg_conn_start(struct lh_pg_conn *conn);

/* Queries in flight are answered LH_CANCELED, then on_closed (may be NULL) comes, later; the connection is freed. */
void lh_pg_conn_close(struct lh_pg_conn *conn, void (*on_closed)(void *arg), void *arg);

/*
 * Exactly once, later: LH_OK with `result` (PGRES_TUPLES_OK or PGRES_COMMAND_OK, binary), or a status with `error`;
 * nothing was committed, but with LH_DATABASE_UNAVAILABLE that is unknown. Both live until the callback returns.
 */
typedef void lh_pg_query_cb(void *arg, enum lh_status status, const PGresult *result, const struct lh_error *error);

/*
 * `params` (NULL: none) is copied. Refused, and on_done never fires: LH_DATABASE_UNAVAILABLE when it is not up,
 * LH_OVERLOADED at max_in_flight.
 */
enum lh_status lh_pg_query(struct lh_pg_conn *conn, const struct lh_pg_statement *statement,
                           const struct lh_pg_params *params, lh_pg_query_cb *on_done, void *arg);

/*
 * Sends a statement that is one transaction with the next lh_pg_query, which must follow at once. When that is answered
 * LH_OK, on_done gets this one's result just before; else it is not called. Refused as a query is.
 */
enum lh_status lh_pg_query_begin(struct lh_pg_conn *conn, const struct lh_pg_statement *statement,
                                 const struct lh_pg_params *params, lh_pg_query_cb *on_done, void *arg);

/*
 * As lh_pg_query, for a query that others do not wait behind: at most LH_PG_PATIENT_MAX of these are with the server at once,
 * the next one waits here. They are answered in their order.
 */
enum lh_status lh_pg_query_patiently(struct lh_pg_conn *conn, const struct lh_pg_statement *statement,
                                     const struct lh_pg_params *params, lh_pg_query_cb *on_done, void *arg);
#define LH_PG_PATIENT_MAX 2 /* one that runs, and one that is next */

/* Reads the server's identity again; if it is not the primary any more, the session ends. Refused as a query is. */
enum lh_status lh_pg_conn_check_server(struct lh_pg_conn *conn);

/*
 * As at its beginning, but for statement_timeout: whatever a statement has set in the session is reset by what is sent
 * next, in the same packet. Refused as a query is; a session that cannot be reset is given up.
 */
enum lh_status lh_pg_conn_reset_session(struct lh_pg_conn *conn, int64_t statement_timeout_us);

/* Wait that long for an answer from now on, and answer_slack beyond it, whatever statement_timeout says; 0: for ever.
 */
void lh_pg_conn_set_answer_limit(struct lh_pg_conn *conn, int64_t limit_us);

/* Give this connection up and make a new one; `reason` is for the log and for the queries in flight. */
void lh_pg_conn_drop(struct lh_pg_conn *conn, const char *reason);

/* The same, at another server first, if the connection string names one. Does nothing while it is not up. */
void lh_pg_conn_look_elsewhere(struct lh_pg_conn *conn, const char *reason);

bool lh_pg_conn_is_up(const struct lh_pg_conn *conn);
size_t lh_pg_conn_in_flight(const struct lh_pg_conn *conn);  /* and what waits */
uint64_t lh_pg_conn_connects(const struct lh_pg_conn *conn); /* how often it came up */
int lh_pg_conn_backend_pid(const struct lh_pg_conn *conn);   /* 0 when it is not up */

#endif
