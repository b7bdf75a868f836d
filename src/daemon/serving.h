/*
 * The serving parts: store, coordinator, gRPC services and their server, wired together; up in three steps, down in
 * good order.
 *
 *     serving = lh_serving_create(loop, &settings, conninfo, tls)
 *     lh_databases_start(lh_serving_databases(serving), i)                a database has its schema
 *     lh_serving_listen(serving, &sockets, &error)                        takes calls, refuses those it cannot serve
 *     lh_serving_drain(serving, on_drained, arg)                          GOAWAY, waiters answered, unregistered
 *     lh_serving_destroy(serving)
 */
#ifndef LH_DAEMON_SERVING_H
#define LH_DAEMON_SERVING_H

#include <stdbool.h>

#include "base/status.h"

struct lh_config_errors;
struct lh_databases;
struct lh_exposition;
struct lh_loop;
struct lh_readiness;
struct lh_rpc_server;
struct lh_serving;
struct lh_settings;
struct lh_sockets;
struct lh_tls_context;

/* `settings` and `conninfo`, that of the only database, are borrowed for as long as it lives. `tls` NULL: no TLS. */
struct lh_serving *lh_serving_create(struct lh_loop *loop, const struct lh_settings *settings, const char *conninfo,
                                     struct lh_tls_context *tls);
/* Once; the server has the sockets then. */
enum lh_status lh_serving_listen(struct lh_serving *serving, struct lh_sockets *sockets, struct lh_error *error);
/* New connections are made with these certificates. */
void lh_serving_set_tls(struct lh_serving *serving, struct lh_tls_context *tls);
/* lh_admin_set_source. `serving` is a struct lh_serving. */
void lh_serving_judge(void *serving, struct lh_readiness *readiness);
void lh_serving_metrics(void *serving, struct lh_exposition *out);
struct lh_rpc_server *lh_serving_server(struct lh_serving *serving);
struct lh_databases *lh_serving_databases(struct lh_serving *serving);

/* Says which sections of `fresh` a reload may not add or remove now; returns false then. lh_reload_check. */
bool lh_serving_check_reload(void *serving, const struct lh_settings *fresh, struct lh_config_errors *errors);
/* Applies the settings that a reload changes: max_block, max_guard, authorization, sections. Databases that have come are
   to be started as at first. */
void lh_serving_reload(struct lh_serving *serving);

/* on_drained fires once, later, with true when everything ended well, at the latest a little after shutdown_timeout. */
void lh_serving_drain(struct lh_serving *serving, void (*on_drained)(void *arg, bool is_clean), void *arg);
void lh_serving_hurry(struct lh_serving *serving);   /* while it drains: cut what is open */
void lh_serving_destroy(struct lh_serving *serving); /* after on_drained, also from within it */

#endif
