/*
 * The daemon's own PostgreSQL: makes the cluster, starts it, keeps it running, stops it last.
 *
 *     embedded = lh_embedded_create(loop, children, dir, &events, arg, &error)
 *     lh_embedded_start(embedded)             on_ready: connect to lh_embedded_conninfo()
 *     lh_embedded_stop(embedded, on_stopped)  lh_embedded_hurry(embedded) does not wait for anybody
 *
 * Stopped cleanly it takes PostgreSQL along (a fast shutdown: sessions end, everything is on disk). A daemon that is
 * killed leaves PostgreSQL running on purpose: SQL users go on undisturbed, and the next daemon on this directory
 * adopts it, so that a crash of the daemon is no outage of the database and costs no lease its grace. Hence no
 * PR_SET_PDEATHSIG. PostgreSQL itself gives up within a minute when its directory was removed.
 */
#ifndef LH_DAEMON_EMBEDDED_H
#define LH_DAEMON_EMBEDDED_H

#include "base/status.h"

struct lh_children;
struct lh_embedded;
struct lh_loop;

struct lh_embedded_events {
    void (*on_ready)(void *arg); /* the server takes connections; again after each restart */
    /* The server could not be started at all; the advice is in the log. */
    void (*on_failed)(void *arg);
};

/* NULL: refused, `error` says why. Takes the lock of `directory`. `user` is whose a new cluster becomes when root makes
   it; NULL or "root": postgres. */
struct lh_embedded *lh_embedded_create(struct lh_loop *loop, struct lh_children *children, const char *directory,
                                       const char *user, const struct lh_embedded_events *events, void *arg,
                                       struct lh_error *error);
const char *lh_embedded_core(const struct lh_embedded *embedded); /* a module of leasehold_core for it, or NULL */
const char *lh_embedded_user(const struct lh_embedded *embedded); /* the user that PostgreSQL runs as */
void lh_embedded_start(struct lh_embedded *embedded);
const char *lh_embedded_conninfo(const struct lh_embedded *embedded);         /* as the cluster's superuser */
const char *lh_embedded_serving_conninfo(const struct lh_embedded *embedded); /* as LH_CLUSTER_SERVING_ROLE */

/* on_stopped fires once, later; no other event after it. Accepts one that was never started. */
void lh_embedded_stop(struct lh_embedded *embedded, void (*on_stopped)(void *arg), void *arg);
/* While it stops: no more patience with sessions or checkpoints; the next start recovers. */
void lh_embedded_hurry(struct lh_embedded *embedded);
void lh_embedded_destroy(struct lh_embedded *embedded); /* never started, or stopped */

#endif
