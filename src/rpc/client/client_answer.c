/*
 * What comes back: response headers, messages, trailers, the end of the stream, and what an end without a status means
 * (https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md, and the table of HTTP/2 errors in
 * PROTOCOL-HTTP2.md).
 */
#include "rpc/client/client_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "rpc/headers.h"

static int read_number(const char *text, size_t size, int limit)
{
    int value = 0;
    if (size == 0 || size > 3)
        return -1;
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        value = value * 10 + (text[i] - '0');
    }
    return value <= limit ? value : -1;
}

void lh_rpc_client_call_on_header(struct lh_rpc_client_call *call, const char *name, size_t name_size,
                                  const char *value, size_t value_size)
{
    struct rpc_pool *pool = &call->channel->pool;

    call->header_bytes += name_size + value_size + 32;
    if (call->header_bytes > call->channel->options.max_header_bytes) {
        lh_rpc_client_call_answer(call, LH_GRPC_RESOURCE_EXHAUSTED, LH_RPC_IN_FLIGHT,
                                  "the headers of the answer are too large");
    } else if (lh_rpc_is_name(name, name_size, ":status")) {
        call->http_status = read_number(value, value_size, 999);
    } else if (lh_rpc_is_name(name, name_size, "grpc-status")) {
        call->grpc_status = read_number(value, value_size, LH_GRPC_UNAUTHENTICATED);
        if (call->grpc_status < 0)
            call->grpc_status = LH_GRPC_UNKNOWN;
    } else if (lh_rpc_is_name(name, name_size, "grpc-message")) {
        call->message.size = 0;
        lh_rpc_pool_take(pool, &call->message);
        lh_grpc_percent_decode(&call->message, value, value_size);
        lh_buffer_append(&call->message, "", 1);
    } else if (lh_rpc_is_name(name, name_size, "grpc-status-details-bin")) {
        call->details.size = 0;
        lh_rpc_pool_take(pool, &call->details);
        if (!lh_base64_decode(&call->details, value, value_size))
            call->details.size = 0;
    }
}

static void take_message(struct lh_rpc_client_call *call, const unsigned char *message, size_t size)
{
    if (!call->is_unary) {
        if (call->callbacks.on_message != NULL)
            call->callbacks.on_message(call->arg, message, size);
        return;
    }
    if (call->has_reply) {
        lh_rpc_client_call_answer(call, LH_GRPC_INTERNAL, LH_RPC_IN_FLIGHT, "a second reply to a unary call");
        return;
    }
    call->has_reply = true;
    if (!lh_rpc_inbox_move(&call->inbox, &call->reply))
        lh_rpc_pool_append(&call->channel->pool, &call->reply, message, size);
}

void lh_rpc_client_call_on_data(struct lh_rpc_client_call *call, const unsigned char *data, size_t size)
{
    while (!call->is_over) {
        const unsigned char *message;
        size_t message_size;
        enum rpc_inbox_result result =
            lh_rpc_inbox_next(&call->inbox, &call->channel->pool, call->channel->options.max_message_bytes, &data,
                              &size, &message, &message_size);
        if (result == RPC_INBOX_MORE)
            return;
        if (result == RPC_INBOX_MESSAGE)
            take_message(call, message, message_size);
        else if (result == RPC_INBOX_TOO_LARGE)
            lh_rpc_client_call_answer(call, LH_GRPC_RESOURCE_EXHAUSTED, LH_RPC_IN_FLIGHT, "the reply is too large");
        else
            lh_rpc_client_call_answer(call, LH_GRPC_INTERNAL, LH_RPC_IN_FLIGHT, "the reply is compressed");
    }
}

static enum lh_grpc_code http_to_code(int http_status)
{
    switch (http_status) {
    case 400:
        return LH_GRPC_INTERNAL;
    case 401:
        return LH_GRPC_UNAUTHENTICATED;
    case 403:
        return LH_GRPC_PERMISSION_DENIED;
    case 404:
        return LH_GRPC_UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504:
        return LH_GRPC_UNAVAILABLE;
    default:
        return LH_GRPC_UNKNOWN;
    }
}

static enum lh_grpc_code reset_to_code(uint32_t error)
{
    switch (error) {
    case NGHTTP2_REFUSED_STREAM:
        return LH_GRPC_UNAVAILABLE;
    case NGHTTP2_CANCEL:
        return LH_GRPC_CANCELLED;
    case NGHTTP2_ENHANCE_YOUR_CALM:
        return LH_GRPC_RESOURCE_EXHAUSTED;
    case NGHTTP2_INADEQUATE_SECURITY:
        return LH_GRPC_PERMISSION_DENIED;
    default:
        return LH_GRPC_INTERNAL;
    }
}

void lh_rpc_client_call_on_close(struct lh_rpc_client_call *call, uint32_t error)
{
    char message[96];

    call->stream_id = 0; /* closed: nothing is left to reset */
    if (call->grpc_status == LH_GRPC_OK && call->is_unary && !call->has_reply) {
        lh_rpc_client_call_answer(call, LH_GRPC_INTERNAL, LH_RPC_IN_FLIGHT, "the server said OK without a reply");
    } else if (call->grpc_status >= 0) {
        lh_rpc_client_call_accept(call);
    } else if (call->http_status > 0 && call->http_status != 200) {
        snprintf(message, sizeof(message), "the server answered HTTP %d", call->http_status);
        lh_rpc_client_call_answer(call, http_to_code(call->http_status), LH_RPC_ANSWERED, message);
    } else if (error == NGHTTP2_REFUSED_STREAM) {
        lh_rpc_client_call_answer(call, LH_GRPC_UNAVAILABLE, LH_RPC_NOT_SENT, "the server did not look at the call");
    } else {
        snprintf(message, sizeof(message), "the server ended the call without a status: %s",
                 nghttp2_http2_strerror(error));
        lh_rpc_client_call_answer(call, reset_to_code(error), LH_RPC_IN_FLIGHT, message);
    }
}
