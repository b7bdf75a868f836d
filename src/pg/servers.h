/*
 * The servers that a connection string names, for all connections of a daemon together, so that none of them is ever on
 * another primary than the rest. Each session reads the identity of its server when it comes up. A standby, a server
 * that takes no writes, and a primary of an older timeline than one that was seen are refused. With a newer one all
 * other sessions end at once, and with a silent server all of its own; they come back where the primary is.
 *
 *     servers = lh_pg_servers_create(loop, "host=db1,db2 dbname=leasehold");
 *     options.servers = servers;                                              of each connection
 */
#ifndef LH_PG_SERVERS_H
#define LH_PG_SERVERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "pg/hosts.h"

struct lh_loop;
struct lh_pg_conn;
struct lh_pg_servers;

struct lh_pg_servers *lh_pg_servers_create(struct lh_loop *loop, const char *conninfo);

/* Frees the servers; call it after their connections have closed. NULL does nothing. */
void lh_pg_servers_destroy(struct lh_pg_servers *servers);

struct lh_pg_server_facts {
    bool is_up;                         /* there is a session */
    char server[LH_PG_HOST_TEXT_BYTES]; /* the primary, as the connection string has it; "": none was seen yet */
    uint64_t system_identifier;
    int64_t timeline;    /* 0: none was seen yet */
    int64_t answered_us; /* its last answer; on lh_clock_us() */
    uint64_t failovers;  /* times that another primary was found */
    bool is_permanent;   /* waiting does not end `trouble`: an administrator has to change something */
    /* ^ error that keeps the sessions from coming up; LH_OK: there is a session, or none was tried yet */
    struct lh_error trouble;
};
void lh_pg_servers_facts(const struct lh_pg_servers *servers, struct lh_pg_server_facts *facts);

/* --- the connections' part --- */

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
