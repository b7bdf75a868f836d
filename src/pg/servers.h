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

/* After its connections have closed. NULL does nothing. */
void lh_pg_servers_destroy(struct lh_pg_servers *servers);

struct lh_pg_server_facts {
    bool is_up;                         /* there is a session */
    char server[LH_PG_HOST_TEXT_BYTES]; /* the primary, as the connection string has it; "": none was seen yet */
    uint64_t system_identifier;
    int64_t timeline;        /* 0: none was seen yet */
    int64_t answered_us;     /* when it last answered anything; on lh_clock_us() */
    uint64_t failovers;      /* times that another primary was found */
    bool is_permanent;       /* `trouble` does not pass by waiting: a person has to change something */
    struct lh_error trouble; /* why there is no session; LH_OK: there is one, or none was tried yet */
};
void lh_pg_servers_facts(const struct lh_pg_servers *servers, struct lh_pg_server_facts *facts);

/* --- for the connections --- */

/* What a session reads of its server. */
struct lh_pg_identity {
    bool is_standby;
    bool is_read_only;
    uint64_t system_identifier;
    int64_t timeline;
    int backend_pid;   /* of the transaction that read this... */
    int settings_pid;  /* ...of the one before it... */
    int announced_pid; /* ...and as the handshake told */
};

void lh_pg_servers_join(struct lh_pg_servers *servers, struct lh_pg_conn *conn);
void lh_pg_servers_part(struct lh_pg_conn *conn);

struct lh_pg_hosts *lh_pg_servers_hosts(struct lh_pg_servers *servers);

/* An attempt of `conn` has failed, or its session was lost: conn->error says why. */
void lh_pg_servers_on_failed(struct lh_pg_servers *servers, struct lh_pg_conn *conn, bool is_permanent);

/* May `conn` be used? Else `error` says why not. The others may end with this. */
bool lh_pg_servers_admit(struct lh_pg_servers *servers, struct lh_pg_conn *conn, const struct lh_pg_identity *identity,
                         struct lh_error *error, bool *is_permanent);

/* The backend of `conn` serves others too, so no session of ours can be relied on: all end. `sign`: what was seen. */
void lh_pg_servers_on_shared(struct lh_pg_servers *servers, const struct lh_pg_conn *conn, const char *sign,
                             struct lh_error *error);

/* Its server does not answer any more: all sessions with it end, and the next attempts go elsewhere. */
void lh_pg_servers_on_silent(struct lh_pg_servers *servers, const struct lh_pg_conn *conn);

void lh_pg_servers_on_answer(struct lh_pg_servers *servers);

#endif
