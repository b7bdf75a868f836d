/*
 * The server as a whole: its listeners, its limits, its end. Draining tells every client to go (a GOAWAY that still
 * allows everything), gives them half a second to hear it, then fixes the last stream that will be answered; each
 * connection closes with its last call.
 */
#include "rpc/server.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "rpc/server_internal.h"

#define ACCEPTS_PER_TURN 64
#define LISTEN_BACKLOG 1024
#define ACCEPT_PAUSE_US (100 * LH_US_PER_MS)
#define REFUSING_MAX 64 /* connections that are told that there are too many; more are closed without a word */

void lh_rpc_server_options_init(struct lh_rpc_server_options *options)
{
    *options = (struct lh_rpc_server_options){
        .max_message_bytes = 4 * 1024 * 1024,
        .max_connections = 10000,
        .max_streams = 1000,
        .max_header_bytes = 16 * 1024,
        .max_buffered_bytes = 256 * 1024 * 1024,
        .output_mark_bytes = 256 * 1024,
        .stream_mark_bytes = 64 * 1024,
        .max_stream_bytes = 8 * 1024 * 1024,
        .preface_timeout_us = 10 * LH_US_PER_S,
        .idle_timeout_us = 600 * LH_US_PER_S,
        .keepalive_us = 30 * LH_US_PER_S,
        .keepalive_timeout_us = 10 * LH_US_PER_S,
        .stall_timeout_us = 60 * LH_US_PER_S,
        .reset_burst = 100000,
        .reset_rate = 50000,
        .drain_notice_us = 500 * LH_US_PER_MS,
        .drain_limit_us = 10 * LH_US_PER_S,
    };
}

static void on_idle(void *arg)
{
    struct lh_rpc_server *server = arg;
    if (server->on_idle != NULL)
        server->on_idle(server->idle_arg);
}

static void go_away(struct lh_rpc_server *server)
{
    server->drain = DRAIN_FINAL;
    LH_LIST_EACH(struct server_connection, connection, &server->connections, in_server)
        server_connection_goaway(connection);
    lh_timer_arm_at_us(&server->drain_timer, lh_clock_us() + server->options.drain_limit_us);
}

static void on_drain_timer(void *arg)
{
    struct lh_rpc_server *server = arg;

    if (server->drain == DRAIN_NOTICE) {
        go_away(server);
        return;
    }
    if (server->stats.connections > 0)
        lh_warn("cutting connections that did not end in time connections=%zu calls=%zu", server->stats.connections,
                server->stats.calls);
    LH_LIST_EACH(struct server_connection, connection, &server->connections, in_server)
        rpc_connection_break(&connection->io, "the server shuts down");
}

struct lh_rpc_server *lh_rpc_server_create(struct lh_loop *loop, const struct lh_rpc_server_options *options,
                                           const struct lh_rpc_method *methods, size_t method_count, void *arg)
{
    struct lh_rpc_server *server = lh_alloc_zero(1, sizeof(*server));

    server->loop = loop;
    server->options = *options;
    server->methods = methods;
    server->method_count = method_count;
    server->arg = arg;
    server->path_sizes = lh_alloc_zero(method_count + 1, sizeof(server->path_sizes[0]));
    server->method_stats = lh_alloc_zero(method_count + 1, sizeof(server->method_stats[0]));
    for (size_t i = 0; i < method_count; i++)
        server->path_sizes[i] = strlen(methods[i].path);
    server->callbacks = server_callbacks_create();
    server->session_options = server_session_options_create(options);
    if (server->callbacks == NULL || server->session_options == NULL) {
        lh_err("out of memory for HTTP/2; stopping");
        abort();
    }
    rpc_pool_init(&server->pool);
    rpc_recycle_init(&server->recycle);
    lh_list_init(&server->connections);
    lh_timer_init(&server->drain_timer, loop, on_drain_timer, server);
    lh_deferred_init(&server->idle, on_idle, server);
    return server;
}

static void accept_later(void *arg)
{
    struct listener *listener = arg;
    lh_watch_want(&listener->watch, LH_WATCH_READ);
}

static void on_connection(void *arg, unsigned ready)
{
    struct listener *listener = arg;
    struct lh_rpc_server *server = listener->server;

    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        struct rpc_address peer = {.size = sizeof(peer.storage)};
        int fd =
            accept4(listener->fd, (struct sockaddr *)(void *)&peer.storage, &peer.size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == ECONNABORTED || errno == EINTR))
            continue;
        if (fd < 0) {
            if (errno == EAGAIN || errno == EWOULDBLOCK)
                return;
            lh_warn("cannot accept connections for a moment: %s", strerror(errno));
            lh_watch_want(&listener->watch, 0);
            lh_timer_arm_at_us(&listener->pause, lh_clock_us() + ACCEPT_PAUSE_US);
            return;
        }
        if (server->stats.connections >= server->options.max_connections) {
            server->stats.connections_refused++;
            server->stats.refusals[LH_RPC_BOUND_CONNECTIONS]++;
            if (server->refusing < REFUSING_MAX)
                server_accept(server, fd, &peer, true);
            else
                close(fd);
            continue;
        }
        server_accept(server, fd, &peer, false);
    }
}

/* A socket file that nobody listens on is what a killed process left. */
static void remove_stale(const struct rpc_address *address)
{
    const struct sockaddr_un *to = (const struct sockaddr_un *)(const void *)&address->storage;
    int fd;

    if (address->storage.ss_family != AF_UNIX)
        return;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    if (connect(fd, (const struct sockaddr *)(const void *)to, address->size) != 0 && errno == ECONNREFUSED)
        unlink(to->sun_path);
    close(fd);
}

static int open_listener(struct rpc_address *address, bool reuse_port)
{
    int family = address->storage.ss_family;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int yes = 1, failure;

    if (fd < 0)
        return -1;
    if (family != AF_UNIX && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0)
        goto failed;
    if (family != AF_UNIX && reuse_port && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof(yes)) != 0)
        goto failed;
    if (family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof(yes)) != 0)
        goto failed;
    remove_stale(address);
    if (bind(fd, (struct sockaddr *)(void *)&address->storage, address->size) != 0 || listen(fd, LISTEN_BACKLOG) != 0)
        goto failed;
    address->size = sizeof(address->storage);
    getsockname(fd, (struct sockaddr *)(void *)&address->storage, &address->size);
    return fd;

failed:
    failure = errno;
    close(fd);
    errno = failure;
    return -1;
}

enum lh_status lh_rpc_server_listen(struct lh_rpc_server *server, const char *address, bool reuse_port,
                                    struct lh_error *error)
{
    struct listener *listener = &server->listeners[server->listener_count];
    enum lh_status status;

    if (server->listener_count == LISTENERS_MAX)
        return lh_error_set(error, LH_INVALID_ARGUMENT, "more than %d addresses to listen on", LISTENERS_MAX);
    status = rpc_address_parse(address, &listener->address, error);
    if (status != LH_OK)
        return status;
    listener->fd = open_listener(&listener->address, reuse_port);
    if (listener->fd < 0)
        return lh_error_set(error, LH_INTERNAL, "cannot listen on %s: %s", address, strerror(errno));
    listener->server = server;
    lh_watch_init(&listener->watch, server->loop, listener->fd, on_connection, listener);
    lh_watch_want(&listener->watch, LH_WATCH_READ);
    lh_timer_init(&listener->pause, server->loop, accept_later, listener);
    server->listener_count++;
    return LH_OK;
}

int lh_rpc_server_port(const struct lh_rpc_server *server)
{
    for (size_t i = 0; i < server->listener_count; i++) {
        const void *storage = &server->listeners[i].address.storage;
        int family = server->listeners[i].address.storage.ss_family;
        if (family == AF_INET)
            return ntohs(((const struct sockaddr_in *)storage)->sin_port);
        if (family == AF_INET6)
            return ntohs(((const struct sockaddr_in6 *)storage)->sin6_port);
    }
    return 0;
}

static void stop_listening(struct lh_rpc_server *server)
{
    for (size_t i = 0; i < server->listener_count; i++) {
        struct listener *listener = &server->listeners[i];
        const struct sockaddr_un *to = (const struct sockaddr_un *)(const void *)&listener->address.storage;
        lh_timer_finish(&listener->pause);
        lh_watch_finish(&listener->watch);
        close(listener->fd);
        if (listener->address.storage.ss_family == AF_UNIX)
            unlink(to->sun_path);
    }
    server->listener_count = 0;
}

void server_check_idle(struct lh_rpc_server *server)
{
    if ((server->drain != DRAIN_NOTICE && server->drain != DRAIN_FINAL) || server->stats.connections > 0)
        return;
    server->drain = DRAIN_IDLE;
    lh_timer_cancel(&server->drain_timer);
    lh_defer(server->loop, &server->idle);
}

void lh_rpc_server_drain(struct lh_rpc_server *server, void (*on_drained)(void *arg), void *arg)
{
    if (server->drain != DRAIN_NONE)
        return;
    server->drain = DRAIN_NOTICE;
    server->on_idle = on_drained;
    server->idle_arg = arg;
    stop_listening(server);
    LH_LIST_EACH(struct server_connection, connection, &server->connections, in_server)
        server_connection_notice(connection);
    lh_timer_arm_at_us(&server->drain_timer, lh_clock_us() + server->options.drain_notice_us);
    server_check_idle(server);
}

void lh_rpc_server_destroy(struct lh_rpc_server *server)
{
    if (server == NULL)
        return;
    server->drain = DRAIN_IDLE;
    stop_listening(server);
    LH_LIST_EACH(struct server_connection, connection, &server->connections, in_server)
        server_connection_free(connection, LH_RPC_END_SHUTDOWN, "the server is destroyed");
    lh_timer_finish(&server->drain_timer);
    lh_deferred_cancel(&server->idle);
    while (server->free_calls != NULL) {
        struct lh_rpc_call *call = server->free_calls;
        server->free_calls = call->data;
        free(call);
    }
    rpc_pool_finish(&server->pool);
    rpc_recycle_finish(&server->recycle);
    nghttp2_session_callbacks_del(server->callbacks);
    nghttp2_option_del(server->session_options);
    free(server->path_sizes);
    free(server->method_stats);
    free(server);
}

void lh_rpc_server_stats(const struct lh_rpc_server *server, struct lh_rpc_server_stats *stats)
{
    *stats = server->stats;
}

const struct lh_rpc_server_options *lh_rpc_server_options(const struct lh_rpc_server *server)
{
    return &server->options;
}

const struct lh_rpc_method_stats *lh_rpc_server_method_stats(const struct lh_rpc_server *server, size_t index)
{
    return &server->method_stats[index < server->method_count ? index : server->method_count];
}
