/*
 * The server as a whole: its listeners, its limits, its end. Draining tells every client to go (a GOAWAY that still
 * allows everything), gives them half a second to hear it, then fixes the last stream that will be answered; each
 * connection closes with its last call.
 */
#include "rpc/server/server_internal.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

#define ACCEPTS_PER_TURN 64
#define LISTEN_BACKLOG 1024
#define ACCEPT_PAUSE_US (100 * LH_US_PER_MS)

void lh_rpc_server_options_init(struct lh_rpc_server_options *options)
{
    *options = (struct lh_rpc_server_options){
        .max_message_bytes = 4 * 1024 * 1024,
        .max_connections = 10000,
        .max_streams = 1000,
        .max_header_bytes = 16 * 1024,
        .connection_memory = 16 * 1024 * 1024,
        .memory = 512 * 1024 * 1024,
        .output_mark_bytes = 256 * 1024,
        .stream_mark_bytes = 64 * 1024,
        .max_stream_bytes = 8 * 1024 * 1024,
        .max_handshakes = 512,
        .handshake_timeout_us = 5 * LH_US_PER_S,
        .request_timeout_us = 10 * LH_US_PER_S,
        .idle_timeout_us = 600 * LH_US_PER_S,
        .keepalive_us = 30 * LH_US_PER_S,
        .keepalive_timeout_us = 10 * LH_US_PER_S,
        .late_answer_us = 100 * LH_US_PER_MS,
        .stall_timeout_us = 30 * LH_US_PER_S,
        .reset_burst = 10000,
        .reset_rate = 2000,
        .control_burst = 10000,
        .control_rate = 1000,
        .drain_notice_us = 500 * LH_US_PER_MS,
        .drain_limit_us = 10 * LH_US_PER_S,
    };
}

static void tell_drain(void *arg)
{
    struct lh_rpc_server *server = arg;
    void (*on_final)(void *) = server->on_final;

    server->on_final = NULL;
    if (on_final != NULL)
        on_final(server->drain_arg);
    if (server->drain == DRAIN_IDLE && server->on_idle != NULL)
        server->on_idle(server->drain_arg);
}

static void go_away(struct lh_rpc_server *server)
{
    server->drain = DRAIN_FINAL;
    LH_LIST_EACH(struct server_connection, connection, &server->connections, in_server)
        lh_rpc_server_connection_goaway(connection);
    lh_timer_arm_at_us(&server->drain_timer, lh_clock_us() + server->options.drain_limit_us);
    lh_defer(server->loop, &server->told);
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
        lh_rpc_connection_break(&connection->io, "the server shuts down");
}

static void check_idle(struct lh_rpc_server *server)
{
    if ((server->drain != DRAIN_NOTICE && server->drain != DRAIN_FINAL) || server->stats.connections > 0)
        return;
    server->drain = DRAIN_IDLE;
    lh_timer_cancel(&server->drain_timer);
    lh_defer(server->loop, &server->told);
}

static void resume_accepting(struct lh_rpc_server *server)
{
    if (!server->is_out_of_descriptors)
        return;
    for (size_t i = 0; i < server->listener_count; i++)
        lh_timer_arm_at_us(&server->listeners[i].pause, lh_clock_us());
}

static void on_connection_gone(void *arg)
{
    struct lh_rpc_server *server = arg;

    resume_accepting(server);
    check_idle(server);
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
    server->callbacks = lh_rpc_server_callbacks_create();
    server->session_options = lh_rpc_server_session_options_create();
    if (server->callbacks == NULL || server->session_options == NULL) {
        lh_err("out of memory for HTTP/2; stopping");
        abort();
    }
    lh_rpc_pool_init(&server->pool);
    lh_rpc_recycle_init(&server->recycle);
    lh_list_init(&server->connections);
    lh_timer_init(&server->drain_timer, loop, on_drain_timer, server);
    lh_deferred_init(&server->told, tell_drain, server);
    lh_deferred_init(&server->gone, on_connection_gone, server);
    lh_deferred_init(&server->shed, lh_rpc_server_shed, server);
    lh_rpc_server_sources_init(server);
    lh_rpc_server_handshakes_init(server);
    return server;
}

static void accept_later(void *arg)
{
    struct listener *listener = arg;
    lh_watch_want(&listener->watch, LH_WATCH_READ);
}

/* It is said once, and tried again when a connection has gone, or after a while: others take descriptors too. */
static void pause_accepting(struct listener *listener)
{
    struct lh_rpc_server *server = listener->server;

    if (!server->is_out_of_descriptors)
        lh_warn("cannot accept connections, waiting until one goes connections=%zu: %s", server->stats.connections,
                strerror(errno));
    server->is_out_of_descriptors = true;
    lh_watch_want(&listener->watch, 0);
    lh_timer_arm_at_us(&listener->pause, lh_clock_us() + ACCEPT_PAUSE_US);
}

void lh_rpc_server_set_max_connections(struct lh_rpc_server *server, size_t max_connections)
{
    server->options.max_connections = max_connections;
}

/* More than there may be are closed without a word: one that hears GOAWAY has been connected, and comes back at once.
 */
static void admit(struct lh_rpc_server *server, int fd, const struct lh_address *peer)
{
    enum lh_rpc_bound bound = LH_RPC_BOUND_COUNT;

    if (server->stats.connections >= server->options.max_connections)
        bound = LH_RPC_BOUND_CONNECTIONS;
    else if (!lh_rpc_server_source_admits(server, peer))
        bound = LH_RPC_BOUND_HANDSHAKES;
    if (bound == LH_RPC_BOUND_COUNT) {
        lh_rpc_server_accept(server, fd, peer);
        return;
    }
    server->stats.refusals[bound]++;
    close(fd);
}

static void on_connection(void *arg, unsigned ready)
{
    struct listener *listener = arg;
    struct lh_rpc_server *server = listener->server;

    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        struct lh_address peer = {.size = sizeof(peer.storage)};
        int fd =
            accept4(listener->fd, (struct sockaddr *)(void *)&peer.storage, &peer.size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == ECONNABORTED || errno == EINTR))
            continue;
        if (fd < 0 && errno != EAGAIN)
            pause_accepting(listener);
        if (fd < 0)
            return;
        server->is_out_of_descriptors = false;
        admit(server, fd, &peer);
    }
}

enum lh_status lh_rpc_server_adopt(struct lh_rpc_server *server, int fd, struct lh_error *error)
{
    struct listener *listener = &server->listeners[server->listener_count];
    char text[LH_ADDRESS_TEXT_BYTES];

    if (server->listener_count == LISTENERS_MAX) {
        close(fd);
        return lh_error_set(error, LH_INVALID_ARGUMENT, "more than %d addresses to listen on", LISTENERS_MAX);
    }
    listener->address.size = sizeof(listener->address.storage);
    getsockname(fd, (struct sockaddr *)(void *)&listener->address.storage, &listener->address.size);
    if (listen(fd, LISTEN_BACKLOG) != 0) {
        lh_address_format(&listener->address, text);
        lh_error_set(error, LH_INTERNAL, "cannot listen on %s: %s", text, strerror(errno));
        close(fd);
        return LH_INTERNAL;
    }
    listener->fd = fd;
    listener->server = server;
    lh_watch_init(&listener->watch, server->loop, fd, on_connection, listener);
    lh_watch_want(&listener->watch, LH_WATCH_READ);
    lh_timer_init(&listener->pause, server->loop, accept_later, listener);
    server->listener_count++;
    return LH_OK;
}

int lh_rpc_server_open(struct lh_rpc_server *server, const struct lh_rpc_visitor *visitor)
{
    const struct lh_address nowhere = {.storage.ss_family = AF_UNIX, .size = sizeof(sa_family_t)};
    struct server_connection *connection;
    int ends[2];

    if (server->drain != DRAIN_NONE || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
        return -1;
    connection = lh_rpc_server_accept(server, ends[0], &nowhere);
    if (connection != NULL) {
        lh_rpc_server_connection_identify_visitor(connection, visitor);
        return ends[1];
    }
    close(ends[1]);
    return -1;
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

/* Whoever is connected already, and was not accepted yet, is served like the others. */
static void accept_waiting(struct lh_rpc_server *server)
{
    for (size_t i = 0; i < server->listener_count; i++)
        for (int turns = LISTEN_BACKLOG / ACCEPTS_PER_TURN; turns > 0; turns--)
            on_connection(&server->listeners[i], LH_WATCH_READ);
}

void lh_rpc_server_drain(struct lh_rpc_server *server, void (*on_final)(void *arg), void (*on_idle)(void *arg),
                         void *arg)
{
    if (server->drain != DRAIN_NONE)
        return;
    server->on_final = on_final;
    server->on_idle = on_idle;
    server->drain_arg = arg;
    accept_waiting(server);
    server->drain = DRAIN_NOTICE;
    stop_listening(server);
    LH_LIST_EACH(struct server_connection, connection, &server->connections, in_server)
        lh_rpc_server_connection_notice(connection);
    lh_timer_arm_at_us(&server->drain_timer, lh_clock_us() + server->options.drain_notice_us);
    check_idle(server);
}

void lh_rpc_server_destroy(struct lh_rpc_server *server)
{
    if (server == NULL)
        return;
    server->drain = DRAIN_IDLE;
    stop_listening(server);
    LH_LIST_EACH(struct server_connection, connection, &server->connections, in_server)
        lh_rpc_server_connection_free(connection, LH_RPC_END_SHUTDOWN, "the server is destroyed");
    lh_timer_finish(&server->drain_timer);
    lh_deferred_cancel(&server->told);
    lh_deferred_cancel(&server->gone);
    lh_deferred_cancel(&server->shed);
    lh_table_finish(&server->sources);
    lh_rpc_server_handshakes_finish(server);
    while (server->free_calls != NULL) {
        struct lh_rpc_call *call = server->free_calls;
        server->free_calls = call->data;
        free(call);
    }
    lh_rpc_pool_finish(&server->pool);
    lh_rpc_recycle_finish(&server->recycle);
    nghttp2_session_callbacks_del(server->callbacks);
    nghttp2_option_del(server->session_options);
    free(server->path_sizes);
    free(server->method_stats);
    free(server);
}

void lh_rpc_server_stats(const struct lh_rpc_server *server, struct lh_rpc_server_stats *stats)
{
    *stats = server->stats;
    stats->memory = server->account.bytes;
}

const struct lh_rpc_server_options *lh_rpc_server_options(const struct lh_rpc_server *server)
{
    return &server->options;
}

const struct lh_rpc_method_stats *lh_rpc_server_method_stats(const struct lh_rpc_server *server, size_t index)
{
    return &server->method_stats[index < server->method_count ? index : server->method_count];
}
