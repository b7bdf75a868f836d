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

/* The place of the next attempt. False: its name is still being resolved. */
bool lh_pg_hosts_find(struct lh_pg_hosts *hosts, struct lh_pg_place *place);

/* Begin to connect there. NULL: that cannot be begun, `error` says why; it is permanent where the string is wrong. */
PGconn *lh_pg_hosts_open(struct lh_pg_hosts *hosts, struct lh_error *error, bool *is_permanent);

/* The next attempt goes elsewhere, unless it does already. */
void lh_pg_hosts_leave(struct lh_pg_hosts *hosts, const struct lh_pg_place *place);
void lh_pg_hosts_settle(struct lh_pg_hosts *hosts, const struct lh_pg_place *place); /* it begins there */

size_t lh_pg_hosts_count(const struct lh_pg_hosts *hosts);
int64_t lh_pg_hosts_connect_timeout_us(const struct lh_pg_hosts *hosts); /* of the connection string; 0: it sets none */
/* "db1:5432", or the directory of a socket. */
void lh_pg_hosts_name(const struct lh_pg_hosts *hosts, size_t host, char text[LH_PG_HOST_TEXT_BYTES]);

#endif
