/*
 * What serves: store, coordinator, gRPC services and their server, wired together; up in one step, down in good order.
 *
 *     serving = lh_serving_create(loop, &settings, conninfo, &error)      listens from now on
 *     lh_serving_drain(serving, on_drained, arg)                          GOAWAY, waiters answered, unregistered
 *     lh_serving_destroy(serving)
 */
#ifndef LH_DAEMON_SERVING_H
#define LH_DAEMON_SERVING_H

#include <stdbool.h>

#include "base/status.h"
#include "config/address.h"

struct lh_coordinator;
struct lh_exposition;
struct lh_loop;
struct lh_serving;
struct lh_settings;

/* `settings` and `conninfo` are borrowed for as long as it lives. NULL: `error`. */
struct lh_serving *lh_serving_create(struct lh_loop *loop, const struct lh_settings *settings, const char *conninfo,
                                     struct lh_error *error);
/* lh_admin_set_metrics: what RPC server, store and bounds count. `serving` is a struct lh_serving. */
void lh_serving_metrics(void *serving, struct lh_exposition *out);
struct lh_coordinator *lh_serving_coordinator(struct lh_serving *serving);

/* The first TCP address with its real port, else the first address. */
void lh_serving_address(const struct lh_serving *serving, char text[LH_ADDRESS_TEXT_BYTES]);

/* What a reload changes: max_block. */
void lh_serving_reload(struct lh_serving *serving);

/* on_drained fires once, later, with true when everything ended well, at the latest a little after shutdown_timeout. */
void lh_serving_drain(struct lh_serving *serving, void (*on_drained)(void *arg, bool is_clean), void *arg);
void lh_serving_hurry(struct lh_serving *serving);   /* while it drains: cut what is open */
void lh_serving_destroy(struct lh_serving *serving); /* after on_drained, also from within it */

#endif
