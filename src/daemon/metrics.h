/* What /metrics tells of the layers that src/admin does not know: RPC server, store, and the bounds of all of them. */
#ifndef LH_DAEMON_METRICS_H
#define LH_DAEMON_METRICS_H

struct lh_console;
struct lh_coordinator;
struct lh_exposition;
struct lh_rpc_server;
struct lh_service;
struct lh_store;
struct lh_tracer;

/* `server` may be NULL: its connections were cut; `tracer` too: there are no traces. */
void lh_metrics_write(struct lh_exposition *out, const struct lh_rpc_server *server, const struct lh_service *service,
                      const struct lh_coordinator *coordinator, const struct lh_store *store,
                      const struct lh_tracer *tracer);

void lh_metrics_console(struct lh_exposition *out, const struct lh_console *console);

#endif
