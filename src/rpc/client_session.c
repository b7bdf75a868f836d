/* What nghttp2 tells a client's connection, passed on to the call of the stream. */
#include <stdio.h>

#include "rpc/client_internal.h"

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
        lh_rpc_channel_refuse_calls(connection, LH_GRPC_UNAVAILABLE, "it expects TLS");
        return 0;
    }
    snprintf(channel->connect_failure, sizeof(channel->connect_failure),
             "%s answers, but not in HTTP/2, which gRPC needs: it may be the admin port", channel->authority);
    while (!lh_list_is_empty(&connection->calls))
        lh_rpc_client_call_lose(LH_LIST_FIRST(struct lh_rpc_client_call, &connection->calls, link), LH_GRPC_UNAVAILABLE,
                                channel->connect_failure);
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
