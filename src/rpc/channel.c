/*
 * A channel and its connections; channel_connect.c makes them. Calls that are made meanwhile wait and then go out
 * together. A connection that the server sends away (GOAWAY) keeps its calls and gets no new ones.
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

void channel_refuse_calls(struct client_connection *connection, enum lh_grpc_code code, const char *reason)
{
    struct lh_rpc_channel *channel = connection->channel;

    snprintf(channel->connect_failure, sizeof(channel->connect_failure), "cannot connect to %s: %s", channel->authority,
             reason);
    while (!lh_list_is_empty(&connection->calls))
        client_call_answer(LH_LIST_FIRST(struct lh_rpc_client_call, &connection->calls, link), code, LH_RPC_NOT_SENT,
                           channel->connect_failure);
}

static void on_connection_closed(void *arg, const char *reason)
{
    struct client_connection *connection = arg;
    struct lh_rpc_channel *channel = connection->channel;
    char why[sizeof(channel->connect_failure)];

    lh_timer_finish(&connection->keepalive);
    if (connection->io.tls != NULL && lh_tls_session_fault(connection->io.tls) == LH_TLS_FAULT_CERTIFICATE)
        /* In TLS 1.3 the server looks at our certificate after our half of the handshake. */
        channel_refuse_calls(connection, LH_GRPC_UNAUTHENTICATED, reason);
    while (!lh_list_is_empty(&connection->calls))
        client_call_lose(LH_LIST_FIRST(struct lh_rpc_client_call, &connection->calls, link), LH_GRPC_UNAVAILABLE,
                         reason);
    snprintf(why, sizeof(why), "%s", reason); /* it may be the TLS session's */
    rpc_connection_finish(&connection->io);
    lh_list_remove(&connection->in_channel);
    if (channel->current == connection)
        channel->current = NULL;
    free(connection);
    if (channel->current == NULL && !is_connecting(channel) && lh_list_is_empty(&channel->connections))
        channel_set_state(channel, LH_RPC_CHANNEL_IDLE, why);
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

void channel_use_connection(struct lh_rpc_channel *channel, int fd, struct lh_tls_session *tls)
{
    struct client_connection *connection = lh_alloc_zero(1, sizeof(*connection));

    connection->channel = channel;
    lh_list_init(&connection->calls);
    lh_list_append(&channel->connections, &connection->in_channel);
    lh_timer_init(&connection->keepalive, channel->loop, on_keepalive, connection);
    rpc_connection_init(&connection->io, channel->loop, &channel->pool, fd, OUTPUT_MARK_BYTES, on_connection_closed,
                        connection);
    connection->io.on_ending = on_connection_ending;
    connection->io.tls = tls;
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
    channel->connect_code = LH_GRPC_UNAVAILABLE;
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

/* Whoever reads the wire could use the token. */
static bool may_send_token(const struct lh_rpc_channel *channel, const char *target, struct lh_error *error)
{
    for (size_t i = 0; i < channel->address_count; i++)
        if (channel->bearer.file != NULL && channel->tls == NULL && !rpc_address_is_local(&channel->addresses[i])) {
            lh_error_set(error, LH_INVALID_ARGUMENT,
                         "%s: without TLS a token is sent to loopback addresses and unix sockets only; use TLS, or no "
                         "token file",
                         target);
            if (error != NULL)
                snprintf(error->field, sizeof(error->field), "token_file");
            return false;
        }
    return true;
}

static void finish_identity(struct lh_rpc_channel *channel)
{
    channel_finish_tls(channel);
    rpc_bearer_finish(&channel->bearer);
}

static void start_channel(struct lh_rpc_channel *channel, struct lh_loop *loop)
{
    channel->loop = loop;
    channel->connect_fd = -1;
    channel->user_agent = lh_strdup(channel->options.user_agent);
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
    lh_timer_init(&channel->connect_timer, loop, channel_on_connect_timeout, channel);
    lh_deferred_init(&channel->connect_next, channel_connect_next, channel);
    lh_deferred_init(&channel->answer, deliver_answers, channel);
}

struct lh_rpc_channel *lh_rpc_channel_create_on(struct lh_loop *loop, int fd)
{
    struct lh_rpc_channel *channel = lh_alloc_zero(1, sizeof(*channel));

    lh_rpc_channel_options_init(&channel->options);
    channel->authority = lh_strdup("localhost");
    snprintf(channel->connect_failure, sizeof(channel->connect_failure), "the connection has ended");
    start_channel(channel, loop);
    channel_use_connection(channel, fd, NULL);
    return channel;
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
    channel_set_tls(channel, target);
    rpc_bearer_init(&channel->bearer, channel->options.token_file);
    channel->options.token_file = NULL; /* the caller's */
    if (!may_send_token(channel, target, error)) {
        finish_identity(channel);
        free(channel);
        return NULL;
    }
    channel->authority = lh_strdup(channel->addresses[0].storage.ss_family == AF_UNIX ? "localhost" : target);
    start_channel(channel, loop);
    return channel;
}

void lh_rpc_channel_destroy(struct lh_rpc_channel *channel)
{
    if (channel == NULL)
        return;
    channel->options.on_state = NULL;
    channel->is_closing = true;
    channel_stop_connecting(channel);
    snprintf(channel->connect_failure, sizeof(channel->connect_failure), "the channel was closed");
    while (!lh_list_is_empty(&channel->waiting))
        client_call_answer(LH_LIST_FIRST(struct lh_rpc_client_call, &channel->waiting, link), LH_GRPC_CANCELLED,
                           LH_RPC_NOT_SENT, channel->connect_failure);
    LH_LIST_EACH(struct client_connection, connection, &channel->connections, in_channel) {
        while (!lh_list_is_empty(&connection->calls))
            client_call_lose(LH_LIST_FIRST(struct lh_rpc_client_call, &connection->calls, link), LH_GRPC_CANCELLED,
                             channel->connect_failure);
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
    finish_identity(channel);
    free(channel);
}
