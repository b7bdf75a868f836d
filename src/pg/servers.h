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

#define LH_PG_HOST_TEXT_BYTES 128

struct lh_loop;
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

#endif
