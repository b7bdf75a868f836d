#include "daemon/daemon_metrics.h"

#include <stdbool.h>
#include <stdlib.h>

#include "admin/exposition.h"
#include "admin/metrics.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "console/console.h"
#include "lease/coordinator.h"
#include "lease/readiness.h"
#include "rpc/grpc.h"
#include "rpc/server.h"
#include "service/service.h"
#include "store/store.h"
#include "trace/tracer.h"

/* --- requests --- */

/* Only what has happened: of the pairs of method and reason most never do. OK is there from the start. */
static void expose_outcomes(struct lh_exposition *out, const char *method, const struct lh_rpc_method_stats *stats)
{
    for (size_t i = 0; i < LH_RPC_OUTCOME_COUNT; i++) {
        bool has_reason = i < LH_STATUS_COUNT;
        size_t code = has_reason ? (size_t)lh_status_grpc((enum lh_status)i) : i - LH_STATUS_COUNT;
        const char *reason = has_reason && i != LH_OK ? lh_status_name((enum lh_status)i) : "";

        if (stats->outcomes[i] > 0 || i == LH_OK)
            lh_expose_count(out, stats->outcomes[i], "method", method, "code", lh_grpc_code_name((int)code), "reason",
                            reason, NULL);
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
    static const char *const aways[] = {"idle",     "silent", "stalled", "no_preface",  "slow",
                                        "flooding", "memory", "aged",    "certificate", "tls"};

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
    lh_expose_gauge(
        out, "leasehold_database_timeline", (uint64_t)stats->timeline,
        "The timeline or epoch of the primary that this daemon uses; 0 before it found one. Daemons must agree.");
    lh_expose_counter(out, "leasehold_database_failovers_total", stats->failovers,
                      "Times that this daemon found another primary.");
    lh_expose_gauge(out, "leasehold_database_keeping_failed", stats->keeping_fails,
                    "1: the partitions of history or audit cannot be made or forgotten; /readyz says why.");
    lh_expose_gauge(
        out, "leasehold_database_privileges_wrong", stats->privileges_differ,
        "1: owners or rights in the schema are not as Leasehold made them; run leasehold migrate --repair.");
    lh_expose_gauge(
        out, "leasehold_core_used", stats->has_core,
        "1: the extension leasehold_core does the usual acquires, renewals and releases; 0: SQL functions do.");
}

/* --- namespaces --- */

/* The label is bounded by the setting metrics_namespaces; "" is all others together. */
static void expose_namespaces(struct lh_exposition *out, const struct lh_store *store)
{
    size_t count;
    const struct lh_store_standing *list = lh_store_standings(store, &count);

#define EACH(expose, name, member, help)                                                                               \
    lh_expose_family(out, name, LH_EXPOSE_GAUGE, help);                                                                \
    for (size_t i = 0; i < count; i++)                                                                                 \
    expose(out, list[i].member, "namespace", list[i].ns, NULL)
    EACH(lh_expose_count, "leasehold_namespace_leases_overdue", overdue,
         "Leases past their deadline that are not expired yet.");
    EACH(lh_expose_count, "leasehold_namespace_leases_silent", silent,
         "Leases whose holders are suspected dead: no renewal for longer than dead_after of the policy.");
    EACH(lh_expose_count, "leasehold_namespace_leases_held_too_long", held_too_long,
         "Leases held for longer than max_hold of the policy.");
    EACH(lh_expose_count, "leasehold_namespace_leases_expired", expired,
         "Leases past their expiry that nobody has reaped or taken over.");
    EACH(lh_expose_seconds, "leasehold_namespace_oldest_hold_seconds", oldest_hold_us,
         "How long the lease that is held longest has been held; 0: none is.");
    EACH(lh_expose_seconds, "leasehold_namespace_longest_wait_seconds", longest_wait_us,
         "How long the one that waits longest has waited; 0: none does.");
#undef EACH
}

/* The label is bounded in the same way. */
static void expose_schedules(struct lh_exposition *out, const struct lh_store *store)
{
    size_t count;
    const struct lh_store_ticks *list = lh_store_ticks(store, &count);

#define EACH(name, member, help)                                                                                       \
    lh_expose_family(out, name, LH_EXPOSE_GAUGE, help);                                                                \
    for (size_t i = 0; i < count; i++)                                                                                 \
    lh_expose_count(out, list[i].member, "schedule", list[i].schedule, NULL)
    EACH("leasehold_schedule_ticks_missed", missed, "Ticks of the last hour that no worker claimed in time.");
    EACH("leasehold_schedule_ticks_dead", dead, "Ticks whose last attempt failed in the last hour.");
    EACH("leasehold_schedule_ticks_running", running, "Ticks that run.");
    EACH("leasehold_schedule_ticks_waiting", waiting, "Ticks that are due, or wait for their next attempt.");
#undef EACH
}

static void expose_hand_overs(struct lh_exposition *out, const struct lh_store *store)
{
    const struct lh_store_hand_overs of = lh_store_hand_overs(store);

    lh_expose_family(out, "leasehold_hand_over_requests", LH_EXPOSE_GAUGE,
                     "Requests to hand over a lease that is held; unanswered: hand_over_grace has passed.");
    lh_expose_count(out, of.open, "state", "open", NULL);
    lh_expose_count(out, of.refused, "state", "refused", NULL);
    lh_expose_count(out, of.unanswered, "state", "unanswered", NULL);
}

/* --- spread namespaces --- */

static void expose_slots(struct lh_exposition *out, const struct lh_service *service)
{
    struct lh_service_slots slots;

    lh_expose_family(out, "leasehold_spread_slots", LH_EXPOSE_GAUGE,
                     "Slots of a spread namespace that a database has; with an empty database: that none or two have.");
    for (size_t i = 0; lh_service_slots(service, i, &slots); i++)
        lh_expose_count(out, slots.count, "namespace", slots.ns, "database", slots.database, NULL);
}

/* --- access --- */

static void expose_access(struct lh_exposition *out, const struct lh_service *service)
{
    static const char *const rights[] = {"read", "lease", "admin"};
    struct lh_service_access_stats stats;

    lh_service_access_stats(service, &stats);
    lh_expose_gauge(out, "leasehold_access_authorization", stats.is_on, "1: what no rule allows is denied.");
    lh_expose_gauge(out, "leasehold_access_rules", stats.rules, "Access rules in force.");
    lh_expose_gauge(out, "leasehold_access_tokens", stats.tokens, "Bearer tokens that are valid.");
    lh_expose_counter(
        out, "leasehold_access_loads_total", stats.loads,
        "Times that rules and tokens were read: when they had changed, and for calls with an unknown token.");
    lh_expose_family(out, "leasehold_access_denials_total", LH_EXPOSE_COUNTER,
                     "Calls, and items of batches, that were denied for a right that the caller does not have.");
    for (size_t i = 0; i < sizeof(rights) / sizeof(rights[0]); i++)
        lh_expose_count(out, stats.denials[i], "right", rights[i], NULL);
    lh_expose_counter(out, "leasehold_access_unauthenticated_total", stats.unauthenticated,
                      "Calls that were refused for a token that is not valid.");
}

/* --- traces --- */

static void expose_traces(struct lh_exposition *out, const struct lh_tracer *tracer)
{
    struct lh_tracer_stats stats;

    lh_tracer_stats(tracer, &stats);
    lh_expose_counter(out, "leasehold_trace_spans_sent_total", stats.sent,
                      "Spans that the collector of traces has taken.");
    lh_expose_counter(out, "leasehold_trace_spans_dropped_total", stats.dropped,
                      "Spans that were dropped because the collector was away or too slow, or refused them.");
}

/* --- log --- */

static void expose_log(struct lh_exposition *out)
{
    lh_expose_counter(out, "leasehold_log_lines_dropped_total", lh_log_dropped(),
                      "Lines of the log that were dropped because nobody read stderr or its disk was full.");
}

/* --- bounds --- */

struct bound {
    const char *name;
    uint64_t limit;
    uint64_t usage;
    bool has_usage; /* false: it is of each connection, call or message */
    uint64_t refusals;
};

#define BOUNDS_MAX 32

static uint64_t whole_seconds(int64_t duration_us)
{
    return (uint64_t)((duration_us + LH_US_PER_S - 1) / LH_US_PER_S);
}

static size_t collect_caller_bounds(struct bound *bounds, const struct lh_service *service)
{
    static const char *const names[] = {"waiters_of_a_client", "pending_items_of_a_client", "watchers_of_a_client",
                                        "control_calls_of_a_client"};
    struct lh_service_caller_stats stats;

    lh_service_caller_stats(service, &stats);
    for (size_t i = 0; i < LH_USAGE_BOUNDS; i++)
        bounds[i] = (struct bound){names[i], stats.limits[i], 0, false, stats.refusals[i]};
    return LH_USAGE_BOUNDS;
}

#define DATABASE_BOUNDS 6

static size_t collect_database_bounds(struct bound *bounds, const struct lh_coordinator *coordinator,
                                      const struct lh_store_stats *store)
{
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
    return n;
}

static size_t collect_bounds(struct bound bounds[BOUNDS_MAX], const struct lh_rpc_server *server,
                             const struct lh_service *service)
{
    const struct lh_rpc_server_options *options;
    struct lh_rpc_server_stats rpc;
    size_t n = 0;

    n += collect_caller_bounds(bounds + n, service);
    if (server == NULL)
        return n;
    options = lh_rpc_server_options(server);
    lh_rpc_server_stats(server, &rpc);
    bounds[n++] = (struct bound){"connections", options->max_connections, rpc.connections, true,
                                 rpc.refusals[LH_RPC_BOUND_CONNECTIONS]};
    bounds[n++] =
        (struct bound){"streams_of_a_connection", options->max_streams, 0, false, rpc.refusals[LH_RPC_BOUND_STREAMS]};
    bounds[n++] = (struct bound){"memory_bytes", options->memory, rpc.memory, true, rpc.refusals[LH_RPC_BOUND_MEMORY]};
    bounds[n++] = (struct bound){"memory_bytes_of_a_connection", options->connection_memory, 0, false,
                                 rpc.refusals[LH_RPC_BOUND_CONNECTION_MEMORY]};
    bounds[n++] = (struct bound){"handshakes_of_an_address", options->max_handshakes, 0, false,
                                 rpc.refusals[LH_RPC_BOUND_HANDSHAKES]};
    bounds[n++] = (struct bound){"handshake_seconds", whole_seconds(options->handshake_timeout_us), 0, false,
                                 rpc.sent_away[LH_RPC_AWAY_NO_PREFACE]};
    bounds[n++] = (struct bound){"request_seconds", whole_seconds(options->request_timeout_us), 0, false,
                                 rpc.refusals[LH_RPC_BOUND_REQUEST_TIME] + rpc.sent_away[LH_RPC_AWAY_SLOW]};
    bounds[n++] = (struct bound){"stall_seconds", whole_seconds(options->stall_timeout_us), 0, false,
                                 rpc.refusals[LH_RPC_BOUND_STALL_TIME] + rpc.sent_away[LH_RPC_AWAY_STALLED]};
    bounds[n++] =
        (struct bound){"new_streams_of_a_turn", LH_RPC_STREAMS_PER_TURN, 0, false, rpc.refusals[LH_RPC_BOUND_TURN]};
    bounds[n++] = (struct bound){"resets", options->reset_burst, 0, false, rpc.refusals[LH_RPC_BOUND_RESETS]};
    bounds[n++] =
        (struct bound){"control_frames", options->control_burst, 0, false, rpc.refusals[LH_RPC_BOUND_CONTROL_FRAMES]};
    bounds[n++] =
        (struct bound){"continuations", LH_RPC_CONTINUATIONS_MAX, 0, false, rpc.refusals[LH_RPC_BOUND_CONTINUATIONS]};
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

/* Of one database: its coordinator's, then its store's, then its bounds. */
enum database_part { OF_COORDINATOR, OF_STORE, OF_BOUNDS };

static void expose_database(struct lh_exposition *out, const struct lh_metrics_database *database,
                            enum database_part part)
{
    struct bound bounds[DATABASE_BOUNDS];
    struct lh_store_stats store;
    struct lh_readiness readiness;

    lh_store_stats(database->store, &store);
    if (part == OF_COORDINATOR) {
        lh_metrics_coordinator(out, database->coordinator);
    } else if (part == OF_STORE) {
        expose_store(out, &store);
        expose_namespaces(out, database->store);
        expose_schedules(out, database->store);
        expose_hand_overs(out, database->store);
    } else {
        collect_database_bounds(bounds, database->coordinator, &store);
        expose_bounds(out, bounds, DATABASE_BOUNDS);
    }
    if (part != OF_STORE || out->database == NULL)
        return;
    lh_coordinator_readiness(database->coordinator, &readiness);
    lh_expose_gauge(out, "leasehold_database_ready", readiness.is_ready,
                    "1 when this daemon can work with this one of its databases.");
}

/* The families of each database, with those of the whole daemon as one more part where they are the same. */
static void expose_databases(struct lh_exposition *out, const struct lh_metrics_source *source, enum database_part part)
{
    struct lh_exposition *parts = lh_alloc_zero(source->database_count + 1, sizeof(*parts));
    size_t count = source->database_count;

    for (size_t i = 0; i < count; i++) {
        parts[i].database = source->databases[i].name;
        expose_database(&parts[i], &source->databases[i], part);
    }
    if (part == OF_BOUNDS) {
        struct bound bounds[BOUNDS_MAX];
        expose_bounds(&parts[count++], bounds, collect_bounds(bounds, source->server, source->service));
    }
    lh_expose_merged(out, parts, count);
    free(parts);
}

static void expose_all_bounds(struct lh_exposition *out, const struct lh_metrics_source *source)
{
    struct bound bounds[DATABASE_BOUNDS + BOUNDS_MAX];
    struct lh_store_stats store;
    size_t n;

    if (source->database_count > 1) {
        expose_databases(out, source, OF_BOUNDS);
        return;
    }
    lh_store_stats(source->databases->store, &store);
    n = collect_database_bounds(bounds, source->databases->coordinator, &store);
    expose_bounds(out, bounds, n + collect_bounds(bounds + n, source->server, source->service));
}

void lh_metrics_write(struct lh_exposition *out, const struct lh_metrics_source *source)
{
    struct lh_rpc_server_stats rpc_stats;

    for (enum database_part part = OF_COORDINATOR; part <= OF_STORE; part++) {
        if (source->database_count > 1)
            expose_databases(out, source, part);
        else
            expose_database(out, source->databases, part);
    }
    expose_slots(out, source->service);
    expose_access(out, source->service);
    expose_traces(out, source->tracer);
    expose_log(out);
    expose_all_bounds(out, source);
    if (source->server == NULL)
        return;
    lh_rpc_server_stats(source->server, &rpc_stats);
    expose_connections(out, &rpc_stats);
    expose_requests(out, source->server);
}

void lh_metrics_console(struct lh_exposition *out, const struct lh_console *console)
{
    struct lh_console_stats stats;

    lh_console_stats(console, &stats);
    lh_expose_counter(out, "leasehold_console_requests_total", stats.requests, "Requests for the console.");
    lh_expose_gauge(out, "leasehold_console_sessions", stats.sessions, "Browsers that are signed in.");
    lh_expose_gauge(out, "leasehold_console_streams_open", stats.streams, "Streams of events that are open.");
    lh_expose_counter(out, "leasehold_console_streams_cut_total", stats.slow_streams,
                      "Streams of events that were cut because their clients did not read them.");
    lh_expose_family(out, "leasehold_console_refusals_total", LH_EXPOSE_COUNTER,
                     "Requests for the console that were refused, by why: another site or an unknown host, or too many "
                     "attempts to sign in.");
    lh_expose_count(out, stats.refused_origins, "reason", "origin", NULL);
    lh_expose_count(out, stats.refused_sign_ins, "reason", "sign_in", NULL);
}
