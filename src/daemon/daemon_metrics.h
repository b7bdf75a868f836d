/* Metrics of the layers that src/admin does not know: RPC server, store, and the bounds of all of them. */
#ifndef LH_DAEMON_DAEMON_METRICS_H
#define LH_DAEMON_DAEMON_METRICS_H

#include <stddef.h>

struct lh_console;
struct lh_coordinator;
struct lh_exposition;
struct lh_rpc_server;
struct lh_service;
struct lh_store;
struct lh_tracer;

struct lh_metrics_database {
    const char *name;
    const struct lh_coordinator *coordinator;
    const struct lh_store *store;
};

struct lh_metrics_source {
    const struct lh_metrics_database *databases;
    size_t database_count;              /* with more than one, their samples have the label database */
    const struct lh_rpc_server *server; /* NULL: its connections were cut */
    const struct lh_service *service;
    const struct lh_tracer *tracer; /* NULL: there are no traces */
};

void lh_metrics_write(struct lh_exposition *out, const struct lh_metrics_source *source);

void lh_metrics_console(struct lh_exposition *out, const struct lh_console *console);

#endif
