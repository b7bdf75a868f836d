/*
 * The places that a connection string leads to, one at a time: each host in its list, and each address of a host.
 *
 * libpq's asynchronous connect has no time-out for a host, begins at the first one each time, and looks names up by
 * itself, which blocks. So an attempt here gets one address of one host. When it fails, the caller moves on.
 *
 *     if (lh_pg_hosts_find(hosts, &place))                  else on_found(arg) comes when it is known
 *         pg = lh_pg_hosts_open(hosts, &error, &is_final);  PQconnectStartParams
 *     ...
 *     lh_pg_hosts_leave(hosts, &place);                     the next attempt goes elsewhere
 */
#ifndef LH_PG_HOSTS_H
#define LH_PG_HOSTS_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define LH_PG_HOST_TEXT_BYTES 128

struct lh_loop;
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

#endif
