/* State shared by conn.c (the life of a connection), session.c (its beginning), pipeline.c (its queries) and
   servers.c. */
#ifndef LH_PG_CONN_INTERNAL_H
#define LH_PG_CONN_INTERNAL_H

#include "base/list.h"
#include "loop/loop.h"
#include "pg/conn.h"
#include "pg/params.h"
#include "pg/servers.h"

#define LH_PG_STATEMENTS_MAX 64

enum lh_pg_state {
    LH_PG_NEW,        /* -> CONNECTING, CLOSING */
    LH_PG_CONNECTING, /* a name is looked up (`pg` is NULL), libpq shakes hands: -> SETTING, PAUSING, CLOSING */
    LH_PG_SETTING,    /* makes its settings and reads the server's identity: -> UP, PAUSING, CLOSING */
    LH_PG_UP,         /* takes queries: -> PAUSING, CLOSING */
    LH_PG_PAUSING,    /* before the next attempt: -> CONNECTING, CLOSING */
    LH_PG_CLOSING,    /* freed at the end of the turn */
};

/*
 * libpq answers a pipelined query in these steps. The first two end with a NULL result; so does an error from the
 * commit itself, and then the Sync is answered all the same.
 */
enum lh_pg_stage { LH_PG_PREPARING, LH_PG_RUNNING, LH_PG_SYNCING, LH_PG_COMMIT_FAILED };

struct lh_pg_query {
    struct lh_link link;
    struct lh_pg_query *before; /* an earlier query of the same transaction, or NULL */
    const struct lh_pg_statement *statement;
    enum lh_pg_stage stage;
    bool was_prepared;          /* prepared before this query, so its plan may be stale */
    bool is_patient;            /* see lh_pg_query_patiently */
    PGresult *result;           /* the first error, or the answer */
    struct lh_pg_params params; /* set while it waits to be sent */
    lh_pg_query_cb *on_done;
    void *arg;
};

/* The next steps in conn.c, called by the files below it. */
struct lh_pg_conn_steps {
    void (*on_found)(struct lh_pg_conn *conn);   /* the lookup is done, or none is needed */
    void (*on_settled)(struct lh_pg_conn *conn); /* the session is on the primary and has its settings */
};

struct lh_pg_conn {
    struct lh_loop *loop;
    const struct lh_pg_conn_steps *steps;
    struct lh_pg_conn_options options;
    char *name;
    struct lh_link session; /* link in `servers` */
    struct lh_pg_servers *servers;
    /* The same as `servers` if they are not shared, else NULL. */
    struct lh_pg_servers *own_servers;
    struct lh_pg_conn_events events;
    void *arg;

    enum lh_pg_state state;
    PGconn *pg;
    struct lh_pg_place place;       /* place of the session, or of the attempt */
    struct lh_pg_identity identity; /* identity of its server while UP */
    bool is_permanent;              /* the error of this attempt is permanent */
    struct lh_watch watch;
    /* CONNECTING, SETTING: the connect timeout; UP: limit of the next answer; PAUSING: the pause. */
    struct lh_timer timer;
    struct lh_deferred broken; /* loses the connection at the end of the turn; the reason is in `error` */
    struct lh_deferred closed;
    unsigned failures; /* failed attempts in a row */
    uint64_t connects;
    int64_t answer_limit_us; /* 0: no limit */
    int64_t up_since_us;
    int64_t down_since_us;

    struct lh_link queries; /* struct lh_pg_query, oldest first */
    /* Set by lh_pg_query_begin: the next query is of its transaction; else NULL. */
    struct lh_pg_query *begun;
    size_t in_flight;
    size_t patient_in_flight; /* patient ones among in_flight */
    struct lh_link waiting;   /* patient queries that are not sent yet, oldest first */
    size_t waiting_count;
    const struct lh_pg_statement *prepared[LH_PG_STATEMENTS_MAX];
    size_t prepared_count;
    struct lh_error error; /* error of the query that is being answered */
    /* Error of a server that ended an idle session; else its status is LH_OK. */
    struct lh_error last_words;

    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

/* Returns true once the connection is about to be lost: it takes no query, and further answers of its server are
   ignored. */
static inline bool lh_pg_conn_is_broken(const struct lh_pg_conn *conn)
{
    return lh_link_is_linked(&conn->broken.link);
}

static inline void lh_pg_conn_break(struct lh_pg_conn *conn, const char *reason)
{
    if (conn->pg == NULL || conn->state == LH_PG_CLOSING)
        return;
    lh_error_set(&conn->error, LH_DATABASE_UNAVAILABLE, "%s", reason);
    lh_defer(conn->loop, &conn->broken);
}

/*
 * Stops watching a closed socket. Call it after libpq has read, written or parsed: libpq closes the socket of a broken
 * connection at once, but we lose the connection at the end of the turn. An accept in between may get the socket's
 * number, and the event loop would miss it while the old one is still watched.
 */
static inline void lh_pg_conn_check_socket(struct lh_pg_conn *conn)
{
    if (PQsocket(conn->pg) < 0)
        lh_watch_finish(&conn->watch);
}

/* session.c */
void lh_pg_session_begin(struct lh_pg_conn *conn);

/* pipeline.c */
void lh_pg_pipeline_arm(struct lh_pg_conn *conn); /* sets the timer for the next answer */
bool lh_pg_pipeline_send(struct lh_pg_conn *conn, const struct lh_pg_statement *statement,
                         const struct lh_pg_params *params, lh_pg_query_cb *on_done, void *arg);
void lh_pg_pipeline_on_ready(struct lh_pg_conn *conn, unsigned ready);
void lh_pg_pipeline_answer_all(struct lh_pg_conn *conn, const struct lh_error *error);

#endif
