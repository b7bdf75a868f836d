/*
 * A connection of a channel, from the moment it is connected. One that the server sends away (GOAWAY) keeps its calls
 * and gets no new ones. What nghttp2 tells it of a stream is passed on to the stream's call.
 */
#include "rpc/client/client_internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"

#define STREAM_WINDOW_BYTES (1024 * 1024)
#define CONNECTION_WINDOW_BYTES (4 * 1024 * 1024)
#define OUTPUT_MARK_BYTES (256 * 1024)

/* The server has taken none of them. */
static void refuse_calls(struct client_connection *connection, enum lh_grpc_code code, const char *reason)
{
    struct lh_rpc_channel *channel = connection->channel;

    snprintf(channel->connect_failure, sizeof(channel->connect_failure), "cannot connect to %s: %s", channel->authority,
             reason);
    while (!lh_list_is_empty(&connection->calls))
        lh_rpc_client_call_answer(LH_LIST_FIRST(struct lh_rpc_client_call, &connection->calls, link), code,
                                  LH_RPC_NOT_SENT, channel->connect_failure);
}

void lh_rpc_client_connection_on_closed(void *arg, const char *reason)
{
    struct client_connection *connection = arg;
    struct lh_rpc_channel *channel = connection->channel;
    char why[sizeof(channel->connect_failure)];

    lh_timer_finish(&connection->keepalive);
    if (connection->io.tls != NULL && lh_tls_session_fault(connection->io.tls) == LH_TLS_FAULT_CERTIFICATE)
        /* In TLS 1.3 the server looks at our certificate after our half of the handshake. */
        refuse_calls(connection, LH_GRPC_UNAUTHENTICATED, reason);
    lh_rpc_client_calls_lose(&connection->calls, LH_GRPC_UNAVAILABLE, reason);
    snprintf(why, sizeof(why), "%s", reason); /* it may be the TLS session's */
    lh_rpc_connection_finish(&connection->io);
    lh_list_remove(&connection->in_channel);
    if (channel->current == connection)
        channel->current = NULL;
    free(connection);
    if (channel->current == NULL && !lh_rpc_channel_is_connecting(channel) && lh_list_is_empty(&channel->connections))
        lh_rpc_channel_set_state(channel, LH_RPC_CHANNEL_IDLE, why);
}

/* The session is done, by GOAWAY or because the server broke the rules: there is nothing to wait for. */
static void on_connection_ending(void *arg)
{
    struct client_connection *connection = arg;
    lh_rpc_connection_break(&connection->io, "the connection has ended");
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
        lh_rpc_connection_break(&connection->io, "the server does not answer any more");
        return;
    }
    if (connection->pinged_at_us == 0 && now_us - connection->io.received_at_us >= keepalive_us) {
        connection->pinged_at_us = now_us;
        lh_rpc_connection_ping(&connection->io, NULL);
    }
    if (connection->pinged_at_us == 0)
        lh_timer_arm_at_us(&connection->keepalive, connection->io.received_at_us + keepalive_us);
    else
        lh_timer_arm_at_us(&connection->keepalive, now_us + keepalive_us);
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
    return lh_rpc_connection_start(&connection->io, settings, sizeof(settings) / sizeof(settings[0]),
                                   CONNECTION_WINDOW_BYTES);
}

void lh_rpc_channel_use_connection(struct lh_rpc_channel *channel, int fd, struct lh_tls_session *tls)
{
    struct client_connection *connection = lh_alloc_zero(1, sizeof(*connection));

    connection->channel = channel;
    lh_list_init(&connection->calls);
    lh_list_append(&channel->connections, &connection->in_channel);
    lh_timer_init(&connection->keepalive, channel->loop, on_keepalive, connection);
    lh_rpc_connection_init(&connection->io, channel->loop, &channel->pool, fd, OUTPUT_MARK_BYTES,
                           lh_rpc_client_connection_on_closed, connection);
    connection->io.on_ending = on_connection_ending;
    connection->io.tls = tls;
    if (!start_session(connection)) {
        lh_err("out of memory for HTTP/2; stopping");
        abort();
    }
    channel->current = connection;
    lh_rpc_channel_set_state(channel, LH_RPC_CHANNEL_READY, "connected");
    while (!lh_list_is_empty(&channel->waiting))
        lh_rpc_client_call_submit(LH_LIST_FIRST(struct lh_rpc_client_call, &channel->waiting, link), connection);
    lh_rpc_connection_touch(&connection->io);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_size,
                     const uint8_t *value, size_t value_size, uint8_t flags, void *arg)
{
    struct lh_rpc_client_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (call != NULL)
        lh_rpc_client_call_on_header(call, (const char *)name, name_size, (const char *)value, value_size);
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream_id, const uint8_t *data, size_t size,
                   void *arg)
{
    struct lh_rpc_client_call *call = nghttp2_session_get_stream_user_data(session, stream_id);
    if (call != NULL)
        lh_rpc_client_call_on_data(call, data, size);
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct client_connection *connection = arg;
    struct lh_rpc_channel *channel = connection->channel;

    if (frame->hd.type == NGHTTP2_GOAWAY && channel->current == connection) {
        channel->current = NULL;
        lh_rpc_channel_set_state(channel, LH_RPC_CHANNEL_DRAINING, "the server sent GOAWAY");
    }
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_RESPONSE &&
        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0) {
        struct lh_rpc_client_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
        if (call != NULL && call->on_open != NULL)
            call->on_open(call->arg);
    }
    return 0;
}

static int on_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    if (frame->hd.type == NGHTTP2_HEADERS) {
        struct lh_rpc_client_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
        if (call != NULL)
            call->is_sent = true;
    }
    return 0;
}

/* A request that GOAWAY overtook has no stream, so it is looked for among the calls. */
static int on_frame_not_sent(nghttp2_session *session, const nghttp2_frame *frame, int failure, void *arg)
{
    struct client_connection *connection = arg;

    if (frame->hd.type != NGHTTP2_HEADERS)
        return 0;
    LH_LIST_EACH(struct lh_rpc_client_call, call, &connection->calls, link) {
        if (call->stream_id == frame->hd.stream_id) {
            call->stream_id = 0;
            lh_rpc_client_call_answer(call, LH_GRPC_UNAVAILABLE, LH_RPC_NOT_SENT, nghttp2_strerror(failure));
            break;
        }
    }
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream_id, uint32_t error, void *arg)
{
    struct lh_rpc_client_call *call = nghttp2_session_get_stream_user_data(session, stream_id);
    if (call != NULL)
        lh_rpc_client_call_on_close(call, error);
    return 0;
}

/* The first bytes are not HTTP/2's. A call may have been served: a proxy may have cut the first bytes off. */
static int on_error(nghttp2_session *session, int code, const char *message, size_t size, void *arg)
{
    struct client_connection *connection = arg;
    struct lh_rpc_channel *channel = connection->channel;

    if (code != NGHTTP2_ERR_SETTINGS_EXPECTED)
        return 0;
    if (connection->io.peer_speaks_tls) {
        refuse_calls(connection, LH_GRPC_UNAVAILABLE, "it expects TLS");
        return 0;
    }
    snprintf(channel->connect_failure, sizeof(channel->connect_failure),
             "%s answers, but not in HTTP/2, which gRPC needs: it may be the admin port", channel->authority);
    lh_rpc_client_calls_lose(&connection->calls, LH_GRPC_UNAVAILABLE, channel->connect_failure);
    return 0;
}

nghttp2_session_callbacks *lh_rpc_client_callbacks_create(void)
{
    nghttp2_session_callbacks *callbacks;

    if (nghttp2_session_callbacks_new(&callbacks) != 0)
        return NULL;
    nghttp2_session_callbacks_set_error_callback2(callbacks, on_error);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_sent);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks, on_frame_not_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    return callbacks;
}
