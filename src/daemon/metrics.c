#include "daemon/metrics.h"

#include <stdbool.h>

#include "admin/exposition.h"
#include "base/status.h"
#include "lease/coordinator.h"
#include "rpc/server.h"
#include "service/service.h"
#include "store/store.h"

/* --- requests --- */

static const char *code_name(size_t code)
{
    static const char *const names[] = {
        "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
        "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
        "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
        "DATA_LOSS", "UNAUTHENTICATED"};
    return code < sizeof(names) / sizeof(names[0]) ? names[code] : "UNKNOWN";
}

/* Only what has happened: of the pairs of method and reason most never do. OK is there from the start. */
static void expose_outcomes(struct lh_exposition *out, const char *method, const struct lh_rpc_method_stats *stats)
{
    for (size_t i = 0; i < LH_RPC_OUTCOME_COUNT; i++) {
        bool has_reason = i < LH_STATUS_COUNT;
        size_t code = has_reason ? (size_t)lh_status_grpc((enum lh_status)i) : i - LH_STATUS_COUNT;
        const char *reason = has_reason && i != LH_OK ? lh_status_name((enum lh_status)i) : "";

        if (stats->outcomes[i] > 0 || i == LH_OK)
            lh_expose_count(out, stats->outcomes[i], "method", method, "code", code_name(code), "reason", reason, NULL);
    }
}

/* Without the slash at its beginning; one name for all that do not exist. */
static const char *method_name(const struct lh_rpc_method *methods, size_t count, size_t index)
{
    return index < count ? methods[index].path + 1 : "unknown";
}

static void expose_requests(struct lh_exposition *out, const struct lh_rpc_server *server)
{
    size_t count;
    const struct lh_rpc_method *methods = lh_service_methods(&count);

    lh_expose_family(out, "leasehold_rpc_requests_total", LH_EXPOSE_COUNTER,
                     "Calls that are over, by method, gRPC code and the reason in ErrorInfo.");
    for (size_t i = 0; i <= count; i++)
        expose_outcomes(out, method_name(methods, count, i), lh_rpc_server_method_stats(server, i));
    lh_expose_family(
        out, "leasehold_rpc_request_duration_seconds", LH_EXPOSE_HISTOGRAM,
        "From a call's headers to its end, any wait for a lease included; for streams, how long they lived.");
    for (size_t i = 0; i <= count; i++)
        lh_expose_histogram(out, &lh_rpc_server_method_stats(server, i)->duration_us, &lh_latency_bounds, true,
                            "method", method_name(methods, count, i), NULL);
}

static void expose_connections(struct lh_exposition *out, const struct lh_rpc_server_stats *stats)
{
    static const char *const ends[] = {"finished", "canceled", "disconnected", "deadline", "refused", "shutdown"};
    static const char *const aways[] = {"idle", "silent", "stalled", "no_preface"};

    lh_expose_gauge(out, "leasehold_rpc_connections_open", stats->connections, "Client connections that are open.");
    lh_expose_counter(out, "leasehold_rpc_connections_accepted_total", stats->connections_total,
                      "Client connections accepted, those above the bound included.");
    lh_expose_family(out, "leasehold_rpc_connections_closed_total", LH_EXPOSE_COUNTER,
                     "Client connections that this daemon closed by itself, by reason.");
    for (size_t i = 0; i < LH_RPC_AWAY_COUNT; i++)
        lh_expose_count(out, stats->sent_away[i], "reason", aways[i], NULL);
    lh_expose_gauge(out, "leasehold_rpc_calls_open", stats->calls,
                    "Calls that are open, waiters and streams included.");
    lh_expose_family(out, "leasehold_rpc_calls_ended_total", LH_EXPOSE_COUNTER,
                     "Calls that are over, by what ended them.");
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        lh_expose_count(out, stats->calls_ended[i], "end", ends[i], NULL);
}

/* --- database --- */

static void expose_store(struct lh_exposition *out, const struct lh_store_stats *stats)
{
    static const char *const roles[] = {"lane", "control", "listener", "hook_lane"};

    lh_expose_family(out, "leasehold_database_connections", LH_EXPOSE_GAUGE,
                     "Database connections that there should be, by role.");
    for (size_t i = 0; i < LH_STORE_ROLE_COUNT; i++)
        lh_expose_count(out, stats->connections[i], "role", roles[i], NULL);
    lh_expose_family(out, "leasehold_database_connections_up", LH_EXPOSE_GAUGE,
                     "Database connections that are up, by role.");
    for (size_t i = 0; i < LH_STORE_ROLE_COUNT; i++)
        lh_expose_count(out, stats->connections_up[i], "role", roles[i], NULL);
    lh_expose_family(out, "leasehold_database_reconnects_total", LH_EXPOSE_COUNTER,
                     "Database connections that were lost and made again, by role.");
    for (size_t i = 0; i < LH_STORE_ROLE_COUNT; i++)
        lh_expose_count(out, stats->reconnects[i], "role", roles[i], NULL);
    lh_expose_counter(out, "leasehold_listener_checks_total", stats->listener_checks,
                      "Times that the listener asked whether it still listens.");
    lh_expose_counter(out, "leasehold_listener_check_failures_total", stats->listener_checks_failed,
                      "Checks of the listener without a good answer; it connected again.");
    lh_expose_counter(out, "leasehold_notifications_total", stats->notifications,
                      "Notifications that the database sent to this daemon.");
}

/* --- bounds --- */

struct bound {
    const char *name;
    uint64_t limit;
    uint64_t usage;
    bool has_usage; /* false: it is of each connection, call or message */
    uint64_t refusals;
};

#define BOUNDS_MAX 12

static size_t collect_bounds(struct bound bounds[BOUNDS_MAX], const struct lh_rpc_server *server,
                             const struct lh_coordinator *coordinator, const struct lh_store_stats *store)
{
    const struct lh_rpc_server_options *options;
    struct lh_rpc_server_stats rpc;
    struct lh_coordinator_stats core;
    size_t n = 0;

    lh_coordinator_stats(coordinator, &core);
    bounds[n++] = (struct bound){"waiters", core.max_waiters, core.waiters, true, core.refused_waiters};
    bounds[n++] =
        (struct bound){"pending_items", core.max_pending, core.pending, true, core.refused - core.refused_waiters};
    bounds[n++] = (struct bound){"watchers", core.max_watchers, core.watchers, true, core.refused_watchers};
    bounds[n++] = (struct bound){"hooked_leases", core.max_hooked, core.hooked, true, core.refused_hooked};
    bounds[n++] = (struct bound){"hooked_reaps", core.max_reaps, core.reaps, true, core.refused_reaps};
    bounds[n++] =
        (struct bound){"control_calls", store->max_control, store->control_in_flight, true, store->control_refused};
    if (server == NULL)
        return n;
    options = lh_rpc_server_options(server);
    lh_rpc_server_stats(server, &rpc);
    bounds[n++] = (struct bound){"connections", options->max_connections, rpc.connections, true,
                                 rpc.refusals[LH_RPC_BOUND_CONNECTIONS]};
    bounds[n++] =
        (struct bound){"streams_of_a_connection", options->max_streams, 0, false, rpc.refusals[LH_RPC_BOUND_STREAMS]};
    bounds[n++] = (struct bound){"request_buffer_bytes", options->max_buffered_bytes, rpc.buffered_bytes, true,
                                 rpc.refusals[LH_RPC_BOUND_BUFFERED]};
    bounds[n++] = (struct bound){"output_bytes_of_a_call", options->max_stream_bytes, 0, false,
                                 rpc.refusals[LH_RPC_BOUND_OUTPUT]};
    bounds[n++] =
        (struct bound){"message_bytes", options->max_message_bytes, 0, false, rpc.refusals[LH_RPC_BOUND_MESSAGE]};
    bounds[n++] =
        (struct bound){"header_bytes", options->max_header_bytes, 0, false, rpc.refusals[LH_RPC_BOUND_HEADERS]};
    return n;
}

static void expose_bounds(struct lh_exposition *out, const struct bound *bounds, size_t n)
{
    lh_expose_family(out, "leasehold_bound_limit", LH_EXPOSE_GAUGE,
                     "The bounds that this daemon keeps, as configured.");
    for (size_t i = 0; i < n; i++)
        lh_expose_count(out, bounds[i].limit, "bound", bounds[i].name, NULL);
    lh_expose_family(out, "leasehold_bound_usage", LH_EXPOSE_GAUGE,
                     "How much of each bound of the whole daemon is used.");
    for (size_t i = 0; i < n; i++) {
        if (bounds[i].has_usage)
            lh_expose_count(out, bounds[i].usage, "bound", bounds[i].name, NULL);
    }
    lh_expose_family(out, "leasehold_bound_refusals_total", LH_EXPOSE_COUNTER, "What was refused at a bound.");
    for (size_t i = 0; i < n; i++)
        lh_expose_count(out, bounds[i].refusals, "bound", bounds[i].name, NULL);
}

void lh_metrics_write(struct lh_exposition *out, const struct lh_rpc_server *server,
                      const struct lh_coordinator *coordinator, const struct lh_store *store)
{
    struct bound bounds[BOUNDS_MAX];
    struct lh_store_stats store_stats;
    struct lh_rpc_server_stats rpc_stats;

    lh_store_stats(store, &store_stats);
    expose_store(out, &store_stats);
    expose_bounds(out, bounds, collect_bounds(bounds, server, coordinator, &store_stats));
    if (server == NULL)
        return;
    lh_rpc_server_stats(server, &rpc_stats);
    expose_connections(out, &rpc_stats);
    expose_requests(out, server);
}
