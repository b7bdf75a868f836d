/*
 * A channel's connection: addresses are tried one after the other, without blocking; calls made meanwhile wait and then
 * go out together. When an attempt has failed at the last address the waiting calls are answered UNAVAILABLE, NOT_SENT.
 * A connection that the server sends away (GOAWAY) keeps its calls and gets no new ones.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "rpc/client_internal.h"

#define STREAM_WINDOW_BYTES (1024 * 1024)
#define CONNECTION_WINDOW_BYTES (4 * 1024 * 1024)
#define MAX_ANSWERS_WAITING 40000
#define OUTPUT_MARK_BYTES (256 * 1024)

void lh_rpc_channel_options_init(struct lh_rpc_channel_options *options)
{
    *options = (struct lh_rpc_channel_options){
        .max_message_bytes = 16 * 1024 * 1024,
        .max_calls = 65536,
        .connect_timeout_us = 5 * LH_US_PER_S,
        .keepalive_us = 20 * LH_US_PER_S,
        .max_header_bytes = 64 * 1024,
        .user_agent = "leasehold/" LH_VERSION,
    };
}

void channel_set_state(struct lh_rpc_channel *channel, enum lh_rpc_channel_state state, const char *reason)
{
    if (channel->state == state)
        return;
    channel->state = state;
    lh_debug("channel %s: %s", channel->authority, reason);
    if (channel->options.on_state != NULL)
        channel->options.on_state(channel->options.arg, state, reason);
}

static bool is_connecting(const struct lh_rpc_channel *channel)
{
    return channel->connect_fd >= 0 || lh_link_is_linked(&channel->connect_next.link);
}

enum lh_rpc_channel_state lh_rpc_channel_state(const struct lh_rpc_channel *channel)
{
    return channel->state;
}

static void on_connection_closed(void *arg, const char *reason)
{
    struct client_connection *connection = arg;
    struct lh_rpc_channel *channel = connection->channel;

    lh_timer_finish(&connection->keepalive);
    while (!lh_list_is_empty(&connection->calls)) {
        struct lh_rpc_client_call *call = LH_LIST_FIRST(struct lh_rpc_client_call, &connection->calls, link);
        client_call_answer(call, LH_GRPC_UNAVAILABLE, call->is_sent ? LH_RPC_IN_FLIGHT : LH_RPC_NOT_SENT, reason);
    }
    rpc_connection_finish(&connection->io);
    lh_list_remove(&connection->in_channel);
    if (channel->current == connection)
        channel->current = NULL;
    free(connection);
    if (channel->current == NULL && !is_connecting(channel) && lh_list_is_empty(&channel->connections))
        channel_set_state(channel, LH_RPC_CHANNEL_IDLE, reason);
}

/* The session is done, by GOAWAY or because the server broke the rules: there is nothing to wait for. */
static void on_connection_ending(void *arg)
{
    struct client_connection *connection = arg;
    rpc_connection_break(&connection->io, "the connection has ended");
}

/* A peer that vanished without a word (power, cable) is found by silence. */
static void on_keepalive(void *arg)
{
    struct client_connection *connection = arg;
    int64_t keepalive_us = connection->channel->options.keepalive_us;
    int64_t now_us = lh_clock_us();

    if (lh_list_is_empty(&connection->calls)) {
        connection->pinged_at_us = 0;
        return;
    }
    if (connection->io.received_at_us > connection->pinged_at_us)
        connection->pinged_at_us = 0;
    if (connection->pinged_at_us > 0 && now_us - connection->pinged_at_us >= keepalive_us &&
        now_us - connection->io.written_at_us >= keepalive_us) {
        rpc_connection_break(&connection->io, "the server does not answer any more");
        return;
    }
    if (connection->pinged_at_us == 0 && now_us - connection->io.received_at_us >= keepalive_us) {
        connection->pinged_at_us = now_us;
        nghttp2_submit_ping(connection->io.session, NGHTTP2_FLAG_NONE, NULL);
        rpc_connection_touch(&connection->io);
    }
    if (connection->pinged_at_us == 0)
        lh_timer_arm_at_us(&connection->keepalive, connection->io.received_at_us + keepalive_us);
    else
        lh_timer_arm_at_us(&connection->keepalive, now_us + keepalive_us);
}

void client_connection_watch_silence(struct client_connection *connection)
{
    int64_t keepalive_us = connection->channel->options.keepalive_us;
    if (keepalive_us > 0 && !lh_timer_is_armed(&connection->keepalive))
        lh_timer_arm_at_us(&connection->keepalive, lh_clock_us() + keepalive_us);
}

static bool start_session(struct client_connection *connection)
{
    struct lh_rpc_channel *channel = connection->channel;
    nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW_BYTES},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)channel->options.max_header_bytes},
    };
    nghttp2_session *session;

    if (nghttp2_session_client_new3(&session, channel->callbacks, connection, channel->session_options,
                                    &channel->recycle.mem) != 0)
        return false;
    connection->io.session = session;
    return nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings, sizeof(settings) / sizeof(settings[0])) == 0 &&
           nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0, CONNECTION_WINDOW_BYTES) == 0;
}

static void use_connection(struct lh_rpc_channel *channel, int fd)
{
    struct client_connection *connection = lh_alloc_zero(1, sizeof(*connection));

    connection->channel = channel;
    lh_list_init(&connection->calls);
    lh_list_append(&channel->connections, &connection->in_channel);
    lh_timer_init(&connection->keepalive, channel->loop, on_keepalive, connection);
    rpc_connection_init(&connection->io, channel->loop, &channel->pool, fd, OUTPUT_MARK_BYTES, on_connection_closed,
                        connection);
    connection->io.on_ending = on_connection_ending;
    if (!start_session(connection)) {
        lh_err("out of memory for HTTP/2; stopping");
        abort();
    }
    channel->current = connection;
    channel_set_state(channel, LH_RPC_CHANNEL_READY, "connected");
    while (!lh_list_is_empty(&channel->waiting))
        client_call_submit(LH_LIST_FIRST(struct lh_rpc_client_call, &channel->waiting, link), connection);
    rpc_connection_touch(&connection->io);
}

static void stop_connecting(struct lh_rpc_channel *channel)
{
    lh_timer_cancel(&channel->connect_timer);
    lh_watch_finish(&channel->connect_watch);
    lh_deferred_cancel(&channel->connect_next);
    if (channel->connect_fd >= 0)
        close(channel->connect_fd);
    channel->connect_fd = -1;
}

static void fail_address(struct lh_rpc_channel *channel, const char *reason)
{
    char where[RPC_ADDRESS_TEXT_BYTES];

    rpc_address_format(&channel->addresses[channel->address_at], where);
    snprintf(channel->connect_failure, sizeof(channel->connect_failure), "cannot connect to %s: %s", where, reason);
    stop_connecting(channel);
    channel->address_at++;
    lh_defer(channel->loop, &channel->connect_next);
}

static void on_connect_timeout(void *arg)
{
    fail_address(arg, "no answer in time");
}

static void on_connect_ready(void *arg, unsigned ready)
{
    struct lh_rpc_channel *channel = arg;
    int failure = 0, fd = channel->connect_fd;
    socklen_t size = sizeof(failure);

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size) != 0)
        failure = errno;
    if (failure != 0) {
        fail_address(channel, strerror(failure));
        return;
    }
    channel->connect_fd = -1;
    stop_connecting(channel);
    use_connection(channel, fd);
}

static void fail_attempt(struct lh_rpc_channel *channel)
{
    /* The calls first: one that is made by the state's callback belongs to the next attempt. */
    while (!lh_list_is_empty(&channel->waiting))
        client_call_answer(LH_LIST_FIRST(struct lh_rpc_client_call, &channel->waiting, link), LH_GRPC_UNAVAILABLE,
                           LH_RPC_NOT_SENT, channel->connect_failure);
    channel_set_state(channel, LH_RPC_CHANNEL_IDLE, channel->connect_failure);
}

static void connect_next(void *arg)
{
    struct lh_rpc_channel *channel = arg;
    const struct rpc_address *address = &channel->addresses[channel->address_at];

    if (channel->address_at == channel->address_count) {
        fail_attempt(channel);
        return;
    }
    channel->connect_fd = socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (channel->connect_fd < 0 ||
        (connect(channel->connect_fd, (const struct sockaddr *)(const void *)&address->storage, address->size) != 0 &&
         errno != EINPROGRESS)) {
        fail_address(channel, strerror(errno));
        return;
    }
    lh_watch_init(&channel->connect_watch, channel->loop, channel->connect_fd, on_connect_ready, channel);
    lh_watch_want(&channel->connect_watch, LH_WATCH_WRITE);
    lh_timer_arm_at_us(&channel->connect_timer, lh_clock_us() + channel->options.connect_timeout_us);
}

struct client_connection *channel_usable(struct lh_rpc_channel *channel)
{
    struct client_connection *connection = channel->current;

    if (connection == NULL)
        return NULL;
    if (connection->io.broken == NULL && nghttp2_session_check_request_allowed(connection->io.session))
        return connection;
    /* Breaking, or out of stream numbers: it ends with its last call. */
    channel->current = NULL;
    nghttp2_submit_goaway(connection->io.session, NGHTTP2_FLAG_NONE, 0, NGHTTP2_NO_ERROR, NULL, 0);
    rpc_connection_touch(&connection->io);
    return NULL;
}

void channel_want_connection(struct lh_rpc_channel *channel)
{
    if (channel->current != NULL || channel->is_closing || is_connecting(channel))
        return;
    channel->address_at = 0;
    channel_set_state(channel, LH_RPC_CHANNEL_CONNECTING, "connecting");
    lh_defer(channel->loop, &channel->connect_next);
}

void lh_rpc_channel_connect(struct lh_rpc_channel *channel)
{
    channel_want_connection(channel);
}

static void deliver_answers(void *arg)
{
    struct lh_rpc_channel *channel = arg;
    while (!lh_list_is_empty(&channel->answered))
        client_call_deliver(LH_LIST_FIRST(struct lh_rpc_client_call, &channel->answered, link));
}

struct lh_rpc_channel *lh_rpc_channel_create(struct lh_loop *loop, const char *target,
                                             const struct lh_rpc_channel_options *options, struct lh_error *error)
{
    struct lh_rpc_channel *channel = lh_alloc_zero(1, sizeof(*channel));

    channel->address_count = rpc_address_resolve(target, channel->addresses, ADDRESSES_MAX, error);
    if (channel->address_count == 0) {
        free(channel);
        return NULL;
    }
    if (options != NULL)
        channel->options = *options;
    else
        lh_rpc_channel_options_init(&channel->options);
    channel->loop = loop;
    channel->connect_fd = -1;
    channel->user_agent = lh_strdup(channel->options.user_agent);
    channel->authority = lh_strdup(channel->addresses[0].storage.ss_family == AF_UNIX ? "localhost" : target);
    channel->callbacks = client_callbacks_create();
    if (channel->callbacks == NULL || nghttp2_option_new(&channel->session_options) != 0) {
        lh_err("out of memory for HTTP/2; stopping");
        abort();
    }
    nghttp2_option_set_no_closed_streams(channel->session_options, 1);
    nghttp2_option_set_max_outbound_ack(channel->session_options, MAX_ANSWERS_WAITING);
    rpc_pool_init(&channel->pool);
    rpc_recycle_init(&channel->recycle);
    lh_list_init(&channel->connections);
    lh_list_init(&channel->waiting);
    lh_list_init(&channel->answered);
    lh_timer_init(&channel->connect_timer, loop, on_connect_timeout, channel);
    lh_deferred_init(&channel->connect_next, connect_next, channel);
    lh_deferred_init(&channel->answer, deliver_answers, channel);
    return channel;
}

void lh_rpc_channel_destroy(struct lh_rpc_channel *channel)
{
    if (channel == NULL)
        return;
    channel->options.on_state = NULL;
    channel->is_closing = true;
    stop_connecting(channel);
    snprintf(channel->connect_failure, sizeof(channel->connect_failure), "the channel was closed");
    while (!lh_list_is_empty(&channel->waiting))
        client_call_answer(LH_LIST_FIRST(struct lh_rpc_client_call, &channel->waiting, link), LH_GRPC_CANCELLED,
                           LH_RPC_NOT_SENT, channel->connect_failure);
    LH_LIST_EACH(struct client_connection, connection, &channel->connections, in_channel) {
        while (!lh_list_is_empty(&connection->calls)) {
            struct lh_rpc_client_call *call = LH_LIST_FIRST(struct lh_rpc_client_call, &connection->calls, link);
            client_call_answer(call, LH_GRPC_CANCELLED, call->is_sent ? LH_RPC_IN_FLIGHT : LH_RPC_NOT_SENT,
                               channel->connect_failure);
        }
        on_connection_closed(connection, channel->connect_failure);
    }
    deliver_answers(channel);
    lh_deferred_cancel(&channel->answer);
    lh_timer_finish(&channel->connect_timer);
    nghttp2_session_callbacks_del(channel->callbacks);
    nghttp2_option_del(channel->session_options);
    rpc_pool_finish(&channel->pool);
    rpc_recycle_finish(&channel->recycle);
    free(channel->user_agent);
    free(channel->authority);
    free(channel);
}
