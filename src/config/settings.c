#include "config/config_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define AT(member) offsetof(struct lh_settings, member)
#define SECONDS(n) (INT64_C(n) * LH_US_PER_S)
#define MIB(n) (INT64_C(n) << 20)
#define RELOADABLE LH_SETTING_RELOADABLE

/* clang-format off */
const struct lh_setting lh_settings_table[] = {
    {"config", LH_TYPE_STRING, AT(config), NULL, 0, 0, LH_SETTING_FLAG_ONLY, NULL, "LEASEHOLD_CONFIG", NULL,
     "Read settings from this file: a section [leasehold] with lines of the form name = value."},

    {"listen", LH_TYPE_ADDRESSES, AT(listen), "127.0.0.1:7420", 0, 0, 0, NULL, "LEASEHOLD_LISTEN", "Network",
     "Where gRPC is served: ADDRESS:PORT or unix:/PATH, several separated by commas. Port 0 takes a free one."},
    {"insecure", LH_TYPE_BOOL, AT(insecure), "no", 0, 0, 0, NULL, NULL, NULL,
     "Allow addresses that other machines can reach, without encryption and without authentication. With tls_cert it "
     "is not needed."},
    {"reuse_port", LH_TYPE_BOOL, AT(reuse_port), "no", 0, 0, 0, NULL, NULL, NULL,
     "Share the TCP addresses with other daemons of this machine (SO_REUSEPORT); the kernel spreads the connections."},
    {"socket_mode", LH_TYPE_MODE, AT(socket_mode), "0666", 0, 0777, 0, NULL, NULL, NULL,
     "The mode of unix sockets, in octal. A client needs the right to write: 0660 leaves the daemon's user and group. The directory's "
     "mode counts too."},
    {"tls_cert", LH_TYPE_STRING, AT(tls_cert), NULL, 0, 0, 0, NULL, NULL, NULL,
     "Speak TLS on the TCP addresses, that of the admin port too, with the certificate in this PEM file, its chain behind it. This file, tls_key, "
     "tls_client_ca and tls_crl are read again at HUP and when they change."},
    {"tls_key", LH_TYPE_STRING, AT(tls_key), NULL, 0, 0, 0, NULL, NULL, NULL,
     "The private key of tls_cert: a PEM file without a passphrase."},
    {"tls_client_ca", LH_TYPE_STRING, AT(tls_client_ca), NULL, 0, 0, 0, NULL, NULL, NULL,
     "The authorities that sign the certificates of clients: a PEM file. The admin port asks for one too, and does without."},
    {"tls_crl", LH_TYPE_STRING, AT(tls_crl), NULL, 0, 0, 0, NULL, NULL, NULL,
     "With tls_client_ca: a PEM file with a revocation list of each of these authorities. A client whose certificate it names is refused, and its open connections end "
     "when the file has been read."},
    {"tls_client_auth", LH_TYPE_CHOICE, AT(tls_client_auth), "require", 0, 1, 0, "require|request", NULL, NULL,
     "With tls_client_ca: require refuses a client without a certificate, request lets it in."},
    {"tls_min_version", LH_TYPE_CHOICE, AT(tls_min_version), "1.2", 0, 1, 0, "1.2|1.3", NULL, NULL,
     "The lowest version of TLS that a client may speak: 1.2 or 1.3."},
    {"authorization", LH_TYPE_BOOL, AT(authorization), "no", 0, 0, RELOADABLE, NULL, NULL, NULL,
     "Deny what no rule of leasehold.access_rule allows. The default is yes where listen has an address that other machines can reach, else no: every "
     "caller may do everything."},
    {"admin_principals", LH_TYPE_WORDS, AT(admin_principals), "", 0, 0, RELOADABLE, NULL, NULL, NULL,
     "With authorization: these principals have the right admin in every namespace, several separated by commas; one may end in *. So the first "
     "administrator comes in."},
    {"max_connection_age", LH_TYPE_DURATION, AT(max_connection_age_us), "1h", SECONDS(1), SECONDS(86400 * 30), LH_SETTING_OR_ZERO, NULL, NULL, NULL,
     "Send the client of a TLS connection away after that long: its open calls finish, and it connects anew with the certificates that are "
     "then in force; 0: never. A connection ends with its client's certificate in any case."},
    {"admin", LH_TYPE_ADDRESS, AT(admin), "127.0.0.1:7421", 0, 0, 0, NULL, "LEASEHOLD_ADMIN", NULL,
     "Where the console, /metrics, /healthz and /readyz are served over HTTP, with tls_cert over HTTPS; none: nowhere."},
    {"admin_hosts", LH_TYPE_WORDS, AT(admin_hosts), "", 0, 0, 0, NULL, NULL, NULL,
     "Without TLS: the host names by which browsers may use the console, beside IP addresses and localhost, several separated by commas."},
    {"idle_timeout", LH_TYPE_DURATION, AT(idle_timeout_us), "10m", SECONDS(1), SECONDS(86400), LH_SETTING_OR_ZERO, NULL, NULL, NULL,
     "Close a connection on which no call was open for that long; 0: never."},
    {"keepalive", LH_TYPE_DURATION, AT(keepalive_us), "30s", SECONDS(1), SECONDS(86400), LH_SETTING_OR_ZERO, NULL, NULL, NULL,
     "Ask a client that was silent for that long for a sign of life (an HTTP/2 PING, which its library answers); 0: never."},
    {"keepalive_timeout", LH_TYPE_DURATION, AT(keepalive_timeout_us), "10s", 100 * LH_US_PER_MS, SECONDS(3600), 0, NULL, NULL, NULL,
     "Close the connection of a client that has not answered within that time."},
    {"max_connections", LH_TYPE_INT, AT(max_connections), "10000", 1, 1000000, 0, NULL, NULL, NULL,
     "How many clients may be connected; the connections of more are closed. At most the limit of open files less 64."},
    {"max_streams", LH_TYPE_INT, AT(max_streams), "10000", 1, 1000000, 0, NULL, NULL, NULL,
     "How many calls one connection may have open; clients wait with more."},
    {"connection_memory", LH_TYPE_SIZE, AT(connection_memory), "16MiB", MIB(1), MIB(4096), 0, NULL, NULL, NULL,
     "What may be kept for one connection: headers, requests that are not complete, answers that are not read. Above half of it "
     "new calls are refused with OVERLOADED, beyond it the connection is reset."},
    {"memory", LH_TYPE_SIZE, AT(memory), "512MiB", MIB(4), MIB(1048576), 0, NULL, NULL, NULL,
     "The same for all connections. Above three quarters of it new calls are refused with OVERLOADED, except heartbeats and releases; "
     "beyond it the connection that keeps the most is reset."},
    {"watch_buffer", LH_TYPE_SIZE, AT(watch_buffer), "1MiB", INT64_C(16384), MIB(1024), 0, NULL, NULL, NULL,
     "What may wait for the client of one WatchLeases call; then the call ends with WATCH_LAGGED."},
    {"hold_by_ping", LH_TYPE_BOOL, AT(hold_by_ping), "no", 0, 0, 0, NULL, NULL, NULL,
     "Renew the lease of a Hold whose client answers HTTP/2 PINGs and says no alive. Only where no HTTP/2 proxy stands before the daemon: a proxy answers for "
     "clients that are stopped."},
    {"handshake_timeout", LH_TYPE_DURATION, AT(handshake_timeout_us), "5s", 100 * LH_US_PER_MS, SECONDS(3600), 0, NULL, NULL, NULL,
     "Close a connection that has not begun to speak HTTP/2 after that long, its TLS handshake included; one address may have 64 of those."},
    {"request_timeout", LH_TYPE_DURATION, AT(request_timeout_us), "10s", 100 * LH_US_PER_MS, SECONDS(3600), 0, NULL, NULL, NULL,
     "End a call whose request has begun and is not complete after that long with DEADLINE_EXCEEDED."},
    {"stall_timeout", LH_TYPE_DURATION, AT(stall_timeout_us), "30s", 100 * LH_US_PER_MS, SECONDS(3600), 0, NULL, NULL, NULL,
     "Reset a call whose client reads nothing of its answer for that long, and a connection whose client takes nothing at all."},
    {"port_file", LH_TYPE_STRING, AT(port_file), NULL, 0, 0, 0, NULL, NULL, NULL,
     "Once it serves, write the gRPC address to line 1 of this file and the admin address to line 2."},
    {"pid_file", LH_TYPE_STRING, AT(pid_file), NULL, 0, 0, 0, NULL, NULL, NULL,
     "Write the process id to this file; another daemon with the same file refuses to start."},
    {"user", LH_TYPE_STRING, AT(user), NULL, 0, 0, 0, NULL, NULL, NULL,
     "Started by root, become this user before anything is served. The default is the owner of the embedded data, else postgres, else "
     "nobody. What HUP reads again must be readable for that user. Started by another user, it must be that user's name."},

    {"database", LH_TYPE_STRING, AT(database), NULL, 0, 0, LH_SETTING_SECRET, NULL, "LEASEHOLD_DATABASE", "Database",
     "The PostgreSQL to use: postgresql://USER@HOST:PORT/NAME or host=... dbname=... Excludes embedded."},
    {"embedded", LH_TYPE_STRING, AT(embedded), NULL, 0, 0, 0, NULL, "LEASEHOLD_EMBEDDED", NULL,
     "Run a private PostgreSQL with its data in this directory. The default, where database is not set: "
     "the StateDirectory of a systemd unit, /var/lib/leasehold for root, else ~/.local/state/leasehold. Excludes database."},
    {"migrate", LH_TYPE_BOOL, AT(migrate), "yes", 0, 0, 0, NULL, NULL, NULL,
     "Bring the schema up to date at start. With no, leasehold migrate does it."},
    {"lanes", LH_TYPE_INT, AT(lanes), "3", 1, 16, 0, NULL, NULL, NULL,
     "How many database connections carry batches; two more serve control and notifications. From three on, renewals leave one of "
     "them to everything else, and everything else leaves one to renewals."},
    {"hook_lanes", LH_TYPE_INT, AT(hook_lanes), "2", 1, 16, 0, NULL, NULL, NULL,
     "How many more connections run hooks: items with a hook go there, and other items never wait for them."},

    {"max_block", LH_TYPE_DURATION, AT(max_block_us), "20s", 100 * LH_US_PER_MS, SECONDS(86400), RELOADABLE | LH_SETTING_OR_ZERO, NULL, NULL, "Leases",
     "Answer a call that still waits after that long with BLOCKING_TIMEOUT, its place in the queue kept; 0: never. At most 0.97 of idle_timeout."},
    {"busy_limit", LH_TYPE_DURATION, AT(busy_limit_us), "1s", LH_US_PER_MS, SECONDS(60), 0, NULL, NULL, NULL,
     "Try again that long where another transaction has the row of a lease locked."},
    {"max_guard", LH_TYPE_DURATION, AT(max_guard_us), "60s", SECONDS(1), SECONDS(86400), RELOADABLE | LH_SETTING_OR_ZERO, NULL, NULL, NULL,
     "End the database session of a transaction that has guarded a lease for that long; 0: never. leasehold_owner needs pg_signal_backend for it."},
    {"reap_interval", LH_TYPE_DURATION, AT(reap_interval_us), "1s", 100 * LH_US_PER_MS, SECONDS(3600), LH_SETTING_OR_ZERO, NULL, NULL, NULL,
     "Look for expired leases that often; 0: leave that to other daemons, cron, or leasehold reap."},
    {"max_waiters", LH_TYPE_INT, AT(max_waiters), "200000", 1, 10000000, 0, NULL, NULL, NULL,
     "How many calls may wait for a lease; more are refused with OVERLOADED."},
    {"max_pending", LH_TYPE_INT, AT(max_pending), "200000", 1, 10000000, 0, NULL, NULL, NULL,
     "How many items may be under way to the database; more are refused with OVERLOADED. A quarter is for heartbeats "
     "and releases alone."},
    {"max_hooked", LH_TYPE_INT, AT(max_hooked), "10000", 1, 1000000, 0, NULL, NULL, NULL,
     "How many leases may wait for a connection that runs their hooks; then more are refused with OVERLOADED."},
    {"max_watchers", LH_TYPE_INT, AT(max_watchers), "1000", 1, 100000, 0, NULL, NULL, NULL,
     "How many calls of WatchLeases may be open; more are refused with OVERLOADED."},
    {"max_waiters_per_client", LH_TYPE_INT, AT(max_waiters_per_client), "0", 1, 10000000, LH_SETTING_OR_ZERO, NULL, NULL, NULL,
     "How many of the calls that wait may be of one client, that is, of one principal on all of its connections, or of "
     "one anonymous connection; 0: a tenth of max_waiters, at least 100."},
    {"max_pending_per_client", LH_TYPE_INT, AT(max_pending_per_client), "0", 1, 10000000, LH_SETTING_OR_ZERO, NULL, NULL, NULL,
     "How many of the items under way may be of one client; 0: a tenth of max_pending, at least 100."},
    {"max_watchers_per_client", LH_TYPE_INT, AT(max_watchers_per_client), "0", 1, 100000, LH_SETTING_OR_ZERO, NULL, NULL, NULL,
     "How many of the calls of WatchLeases may be of one client; 0: a tenth of max_watchers, at least 100."},

    {"log_level", LH_TYPE_CHOICE, AT(log_level), "info", 0, 3, RELOADABLE, "debug|info|warn|error", NULL, "Process",
     "The lowest level that is logged: debug, info, warn or error."},
    {"log_format", LH_TYPE_CHOICE, AT(log_format), "text", 0, 2, 0, "text|json|journald", NULL, NULL,
     "text and json write a line each to stderr; journald sends to the systemd journal, with the level as priority and each handle of a "
     "line as a field: scope=... is LEASEHOLD_SCOPE."},
    {"metrics_namespaces", LH_TYPE_INT, AT(metrics_namespaces), "0", 1, 50, LH_SETTING_OR_ZERO, NULL, NULL, NULL,
     "How many namespaces, the worst ones, have their names in the gauges leasehold_namespace_*; 0: none, so that all are counted together. "
     "/metrics asks for no right, so who reaches the admin port reads these names."},
    {"shutdown_timeout", LH_TYPE_DURATION, AT(shutdown_timeout_us), "10s", SECONDS(1), SECONDS(3600), RELOADABLE, NULL, NULL, NULL,
     "At a shutdown, close what is still open after that long."},

    {"trace_endpoint", LH_TYPE_STRING, AT(trace_endpoint), NULL, 0, 0, 0, NULL, NULL, "Traces",
     "Send OpenTelemetry traces of calls to the collector at HOST:PORT or unix:/PATH, by OTLP over gRPC. A host name is looked up once, at the start."},
    {"trace_ca", LH_TYPE_STRING, AT(trace_ca), NULL, 0, 0, 0, NULL, NULL, NULL,
     "Speak TLS to the collector, whose certificate must be signed by an authority in this PEM file. Without it spans go unencrypted."},
    {"trace_sample", LH_TYPE_RATIO, AT(trace_sample), "0", 0, 1000000, 0, NULL, NULL, NULL,
     "The share of the calls without a traceparent that is traced. A call with a traceparent is traced where that is sampled."},
};
/* clang-format on */

const size_t lh_settings_count = sizeof(lh_settings_table) / sizeof(lh_settings_table[0]);
_Static_assert(sizeof(lh_settings_table) / sizeof(lh_settings_table[0]) <= LH_SETTINGS_MAX, "enlarge LH_SETTINGS_MAX");

const struct lh_setting *lh_setting_find(const char *name, size_t size)
{
    for (size_t i = 0; i < lh_settings_count; i++) {
        const char *known = lh_settings_table[i].name;
        size_t n = 0;
        while (n < size && known[n] != '\0' && (name[n] == known[n] || (name[n] == '-' && known[n] == '_')))
            n++;
        if (n == size && known[n] == '\0')
            return &lh_settings_table[i];
    }
    return NULL;
}

void lh_settings_init(struct lh_settings *settings)
{
    char why[160];

    memset(settings, 0, sizeof(*settings));
    for (size_t i = 0; i < lh_settings_count; i++) {
        const struct lh_setting *setting = &lh_settings_table[i];
        if (setting->standard == NULL)
            continue;
        if (!lh_setting_set(settings, setting, setting->standard, false, why, sizeof(why)))
            abort(); /* a default out of its own bounds */
    }
}

void lh_settings_finish(struct lh_settings *settings)
{
    for (size_t i = 0; i < lh_settings_count; i++)
        lh_setting_clear(settings, &lh_settings_table[i]);
    lh_databases_clear(settings);
}

int64_t lh_settings_max_block_us(const struct lh_settings *settings)
{
    int64_t limit_us = settings->idle_timeout_us / 100 * 97;

    if (limit_us > 0 && settings->max_block_us > limit_us)
        return limit_us;
    return settings->max_block_us;
}
