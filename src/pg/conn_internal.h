/* State and functions that the files of a connection share: conn.c (its life), session.c (its beginning), pipeline.c
   (its queries), servers.c (which server it is on), hosts.c and lookup.c (where that is). */
#ifndef LH_PG_CONN_INTERNAL_H
#define LH_PG_CONN_INTERNAL_H

#include "base/list.h"
#include "loop/loop.h"
#include "pg/conn.h"
#include "pg/servers.h"
#include "pg/values.h"

/* --- lookup.c --- */

#define LH_PG_ADDRESS_BYTES 64
#define LH_PG_ADDRESSES_MAX 16

struct lh_pg_lookup;

/* Gets the numeric addresses in getaddrinfo's order; or none, and the error in `words`. Ends the lookup; its memory
   lives until the callback returns. */
typedef void lh_pg_lookup_cb(void *arg, const char (*addresses)[LH_PG_ADDRESS_BYTES], size_t count, const char *words);

/* Starts a lookup; on_done comes exactly once, later. Returns NULL if the system has no thread or descriptor left. */
struct lh_pg_lookup *lh_pg_lookup_start(struct lh_loop *loop, const char *name, lh_pg_lookup_cb *on_done, void *arg);

/* Ends the lookup without on_done; the thread ends by itself. NULL does nothing. */
void lh_pg_lookup_abandon(struct lh_pg_lookup *lookup);

/* --- hosts.c --- */

struct lh_pg_hosts;

struct lh_pg_place {
    size_t host;
    size_t address;
};

struct lh_pg_hosts *lh_pg_hosts_create(struct lh_loop *loop, const char *conninfo, void (*on_found)(void *arg),
                                       void *arg);
void lh_pg_hosts_destroy(struct lh_pg_hosts *hosts);

/* Finds the place of the next attempt. Returns false while its name is being resolved; on_found comes then. */
bool lh_pg_hosts_find(struct lh_pg_hosts *hosts, struct lh_pg_place *place);

/* Begins to connect to that place. Returns NULL, with `error`, if that fails at once; the error is permanent if the
   string is wrong. */
PGconn *lh_pg_hosts_open(struct lh_pg_hosts *hosts, struct lh_error *error, bool *is_permanent);

/* Moves the next attempt to another place, unless it goes elsewhere already. */
void lh_pg_hosts_leave(struct lh_pg_hosts *hosts, const struct lh_pg_place *place);
void lh_pg_hosts_settle(struct lh_pg_hosts *hosts, const struct lh_pg_place *place); /* the next attempt begins there */

size_t lh_pg_hosts_count(const struct lh_pg_hosts *hosts);
/* As in the connection string; 0: not set. */
int64_t lh_pg_hosts_connect_timeout_us(const struct lh_pg_hosts *hosts);
/* Writes "db1:5432", or the directory of a socket. */
void lh_pg_hosts_name(const struct lh_pg_hosts *hosts, size_t host, char text[LH_PG_HOST_TEXT_BYTES]);

/* --- the connection --- */

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

/* The identity of its server as a session reads it. */
struct lh_pg_identity {
    bool is_standby;
    bool is_read_only;
    uint64_t system_identifier;
    int64_t timeline;
    int backend_pid;   /* in the transaction that read this */
    int settings_pid;  /* in the transaction before it */
    int announced_pid; /* as the handshake told */
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
    struct lh_pg_identity asked;    /* the identity that is being read */
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

/* --- session.c --- */
void lh_pg_session_begin(struct lh_pg_conn *conn);

/* --- pipeline.c --- */
void lh_pg_pipeline_arm(struct lh_pg_conn *conn); /* sets the timer for the next answer */
bool lh_pg_pipeline_send(struct lh_pg_conn *conn, const struct lh_pg_statement *statement,
                         const struct lh_pg_params *params, lh_pg_query_cb *on_done, void *arg);
void lh_pg_pipeline_on_ready(struct lh_pg_conn *conn, unsigned ready);
void lh_pg_pipeline_answer_all(struct lh_pg_conn *conn, const struct lh_error *error);

/* --- servers.c --- */

void lh_pg_servers_join(struct lh_pg_servers *servers, struct lh_pg_conn *conn);
void lh_pg_servers_part(struct lh_pg_conn *conn);

struct lh_pg_hosts *lh_pg_servers_hosts(struct lh_pg_servers *servers);

/* Notes that an attempt of `conn` has failed, or that its session was lost; the reason is in conn->error. */
void lh_pg_servers_on_failed(struct lh_pg_servers *servers, struct lh_pg_conn *conn, bool is_permanent);

/* Returns true if `conn` may be used; else the reason is in `error`. May end the other sessions. */
bool lh_pg_servers_admit(struct lh_pg_servers *servers, struct lh_pg_conn *conn, const struct lh_pg_identity *identity,
                         struct lh_error *error, bool *is_permanent);

/* Ends all sessions: the backend of `conn` serves other clients too, so no session of ours can be relied on. `sign`:
   the observation that shows it. */
void lh_pg_servers_on_shared(struct lh_pg_servers *servers, const struct lh_pg_conn *conn, const char *sign,
                             struct lh_error *error);

/* Ends all sessions of a server that does not answer any more; the next attempts go elsewhere. */
void lh_pg_servers_on_silent(struct lh_pg_servers *servers, const struct lh_pg_conn *conn);

void lh_pg_servers_on_answer(struct lh_pg_servers *servers);

#endif
