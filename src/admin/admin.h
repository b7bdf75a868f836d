/*
 * The daemon's HTTP port, for probes and people: HTTP/1.1 on the daemon's own loop, beside gRPC.
 *
 *     GET /metrics   what is counted and measured, as Prometheus reads it
 *     GET /healthz   200 as long as this process turns its loop
 *     GET /readyz    200 when the database answered and knew this coordinator within the last 5 s, else 503 and why; a second
 *                    line warns of what is wrong in the database though it works
 *
 * Other paths are the console's (src/console). The port works before there is a database, and while one is lost.
 */
#ifndef LH_ADMIN_ADMIN_H
#define LH_ADMIN_ADMIN_H

#include "admin/http.h"
#include "base/status.h"

struct lh_admin;
struct lh_exposition;
struct lh_loop;
struct lh_readiness;
struct lh_tls_context;

/* `fd` is a bound, non-blocking socket; it listens from now on and is the admin port's. NULL: `error`. */
struct lh_admin *lh_admin_create(struct lh_loop *loop, int fd, struct lh_error *error);
void lh_admin_destroy(struct lh_admin *admin);
/* From now on TCP connections that are accepted speak TLS, in this context, of which it keeps a reference. */
void lh_admin_set_tls(struct lh_admin *admin, struct lh_tls_context *context);

/* Sets the text of /readyz while the daemon is not ready for another reason than the database's: "starting",
   "draining". A literal, or NULL: the source decides. */
void lh_admin_set_phase(struct lh_admin *admin, const char *phase);
/* Sets the source of both pages: `judge` judges readiness at each GET /readyz, `write` adds its counts at each GET
   /metrics. NULL: there is none (any more). */
void lh_admin_set_source(struct lh_admin *admin, void (*judge)(void *arg, struct lh_readiness *readiness),
                         void (*write)(void *arg, struct lh_exposition *out), void *arg);

/* Answers the paths that are not served here; NULL: they get 404. It stays as long as the admin port. */
void lh_admin_set_other(struct lh_admin *admin, lh_http_cb *on_other, void *arg);

#endif
