/*
 * A call of the client, from its request to its answer. It lies in exactly one list: of those that wait for a
 * connection, of its connection's, or of those that are answered; the last one is emptied at the end of the loop turn,
 * so on_done is never called from inside of a function that the caller called.
 */
#include "rpc/client/client_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

#define MARK_BYTES (64 * 1024)
#define UNSENT_MAX_BYTES (8 * 1024 * 1024)
#define METADATA_MAX 32
#define REQUEST_FIELDS 9

void lh_rpc_client_call_deliver(struct lh_rpc_client_call *call)
{
    struct lh_rpc_channel *channel = call->channel;
    struct lh_rpc_result result = {
        .code = call->code,
        .message = call->message.size > 0 ? (const char *)call->message.data : "",
        .delivery = call->delivery,
        .details = call->details.size > 0 ? call->details.data : NULL,
        .details_size = call->details.size,
    };

    if (call->code == LH_GRPC_OK && call->is_unary) {
        result.reply = call->reply.data != NULL ? call->reply.data : (const unsigned char *)"";
        result.reply_size = call->reply.size;
    }
    lh_list_remove(&call->link);
    call->callbacks.on_done(call->arg, &result);
    channel->call_count--;
    lh_rpc_inbox_finish(&call->inbox, &channel->pool);
    lh_rpc_outbox_finish(&call->outbox, &channel->pool);
    lh_rpc_pool_give(&channel->pool, &call->reply);
    lh_rpc_pool_give(&channel->pool, &call->metadata);
    lh_rpc_pool_give(&channel->pool, &call->message);
    lh_rpc_pool_give(&channel->pool, &call->details);
    free(call->path);
    free(call);
}

static void set_message(struct lh_rpc_client_call *call, const char *message)
{
    call->message.size = 0;
    lh_rpc_pool_append(&call->channel->pool, &call->message, message, strlen(message) + 1);
}

static void leave_connection(struct lh_rpc_client_call *call, bool must_reset)
{
    struct client_connection *connection = call->connection;

    call->connection = NULL;
    if (connection == NULL || call->stream_id == 0)
        return;
    nghttp2_session_set_stream_user_data(connection->io.session, call->stream_id, NULL);
    if (!must_reset)
        return;
    lh_rpc_connection_reset(&connection->io, call->stream_id, NGHTTP2_CANCEL);
}

static void move_to_answered(struct lh_rpc_client_call *call, enum lh_grpc_code code, enum lh_rpc_delivery delivery)
{
    call->is_over = true;
    call->code = code;
    call->delivery = delivery;
    lh_timer_finish(&call->deadline);
    lh_list_remove(&call->link);
    lh_list_append(&call->channel->answered, &call->link);
    lh_defer(call->channel->loop, &call->channel->answer);
}

void lh_rpc_client_call_answer(struct lh_rpc_client_call *call, enum lh_grpc_code code, enum lh_rpc_delivery delivery,
                               const char *message)
{
    if (call->is_over)
        return;
    leave_connection(call, true);
    set_message(call, message);
    call->details.size = 0;
    move_to_answered(call, code, delivery);
}

void lh_rpc_client_call_accept(struct lh_rpc_client_call *call)
{
    if (call->is_over)
        return;
    leave_connection(call, false);
    move_to_answered(call, (enum lh_grpc_code)call->grpc_status, LH_RPC_ANSWERED);
}

static void lose(struct lh_rpc_client_call *call, enum lh_grpc_code code, const char *message)
{
    lh_rpc_client_call_answer(call, code, call->is_sent ? LH_RPC_IN_FLIGHT : LH_RPC_NOT_SENT, message);
}

void lh_rpc_client_calls_lose(struct lh_link *calls, enum lh_grpc_code code, const char *message)
{
    while (!lh_list_is_empty(calls))
        lose(LH_LIST_FIRST(struct lh_rpc_client_call, calls, link), code, message);
}

static void on_deadline(void *arg)
{
    struct lh_rpc_client_call *call = arg;
    lose(call, LH_GRPC_DEADLINE_EXCEEDED, "the deadline of the call has passed");
}

void lh_rpc_client_call_cancel(struct lh_rpc_client_call *call)
{
    lose(call, LH_GRPC_CANCELLED, "the call was cancelled");
}

static void tell_writable(struct lh_rpc_client_call *call)
{
    if (!call->was_over_mark || lh_rpc_outbox_unsent(&call->outbox) >= MARK_BYTES / 2)
        return;
    call->was_over_mark = false;
    if (call->callbacks.on_writable != NULL)
        call->callbacks.on_writable(call->arg);
}

static ssize_t read_output(nghttp2_session *session, int32_t stream_id, uint8_t *to, size_t room, uint32_t *flags,
                           nghttp2_data_source *source, void *arg)
{
    struct lh_rpc_client_call *call = nghttp2_session_get_stream_user_data(session, stream_id);
    size_t taken;

    if (call == NULL) /* answered already: its reset is on the way */
        return NGHTTP2_ERR_DEFERRED;
    taken = lh_rpc_outbox_take(&call->outbox, &call->channel->pool, to, room);
    tell_writable(call);
    if (call->is_over)
        return NGHTTP2_ERR_DEFERRED;
    if (lh_rpc_outbox_unsent(&call->outbox) == 0 && call->is_half_closed)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    else if (taken == 0) {
        call->is_deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    return (ssize_t)taken;
}

static size_t add_metadata(const struct lh_rpc_client_call *call, nghttp2_nv *fields, size_t count)
{
    for (size_t at = 0; at < call->metadata.size;) {
        const char *name = (const char *)call->metadata.data + at;
        const char *value = name + strlen(name) + 1;
        fields[count] = lh_rpc_header(name, value, strlen(value));
        /* The call may be gone before nghttp2 has sent it. */
        fields[count++].flags = NGHTTP2_NV_FLAG_NO_INDEX;
        at += strlen(name) + strlen(value) + 2;
    }
    return count;
}

static void watch_silence(struct client_connection *connection)
{
    int64_t keepalive_us = connection->channel->options.keepalive_us;
    if (keepalive_us > 0 && !lh_timer_is_armed(&connection->keepalive))
        lh_timer_arm_at_us(&connection->keepalive, lh_clock_us() + keepalive_us);
}

void lh_rpc_client_call_submit(struct lh_rpc_client_call *call, struct client_connection *connection)
{
    struct lh_rpc_channel *channel = call->channel;
    nghttp2_data_provider output = {.read_callback = read_output};
    nghttp2_nv fields[REQUEST_FIELDS + METADATA_MAX];
    const char *token = lh_rpc_bearer_header(&channel->bearer, lh_clock_us());
    char timeout[LH_GRPC_TIMEOUT_TEXT_BYTES];
    size_t count = 0;

    fields[count++] = RPC_HEADER_LITERAL(":method", "POST");
    fields[count++] =
        channel->tls != NULL ? RPC_HEADER_LITERAL(":scheme", "https") : RPC_HEADER_LITERAL(":scheme", "http");
    fields[count++] = lh_rpc_header_static(":path", call->path);
    fields[count - 1].flags = NGHTTP2_NV_FLAG_NO_COPY_NAME;
    fields[count++] = lh_rpc_header_static(":authority", channel->authority);
    fields[count++] = RPC_HEADER_LITERAL("content-type", "application/grpc");
    fields[count++] = RPC_HEADER_LITERAL("te", "trailers");
    fields[count++] = lh_rpc_header_static("user-agent", channel->user_agent);
    if (call->deadline_us != LH_RPC_FOREVER) {
        lh_grpc_timeout_format(call->deadline_us - lh_clock_us(), timeout);
        fields[count++] = lh_rpc_header("grpc-timeout", timeout, strlen(timeout));
    }
    if (token != NULL) {
        fields[count] = lh_rpc_header("authorization", token, strlen(token));
        fields[count++].flags = NGHTTP2_NV_FLAG_NO_INDEX; /* RFC 7541, section 7.1.3: a secret is not compressed */
    }
    count = add_metadata(call, fields, count);
    lh_list_remove(&call->link);
    lh_list_append(&connection->calls, &call->link);
    call->connection = connection;
    call->stream_id = nghttp2_submit_request(connection->io.session, NULL, fields, count, &output, call);
    if (call->stream_id < 0) {
        call->stream_id = 0;
        lh_rpc_client_call_answer(call, LH_GRPC_UNAVAILABLE, LH_RPC_NOT_SENT, "the connection takes no more calls");
        return;
    }
    watch_silence(connection);
    lh_rpc_connection_touch(&connection->io);
}

static struct lh_rpc_client_call *start(struct lh_rpc_channel *channel, const char *path, int64_t deadline_us,
                                        const struct lh_rpc_stream_callbacks *callbacks, void *arg)
{
    struct lh_rpc_client_call *call;

    if (channel->call_count >= channel->options.max_calls || channel->is_closing)
        return NULL;
    call = lh_alloc_zero(1, sizeof(*call));
    channel->call_count++;
    call->channel = channel;
    call->callbacks = *callbacks;
    call->arg = arg;
    call->path = lh_strdup(path);
    call->grpc_status = -1;
    call->deadline_us = deadline_us;
    lh_timer_init(&call->deadline, channel->loop, on_deadline, call);
    if (deadline_us != LH_RPC_FOREVER)
        lh_timer_arm_at_us(&call->deadline, deadline_us);
    lh_list_append(&channel->waiting, &call->link);
    return call;
}

/* --- the channel, as a call finds it --- */

void lh_rpc_channel_set_state(struct lh_rpc_channel *channel, enum lh_rpc_channel_state state, const char *reason)
{
    if (channel->state == state)
        return;
    channel->state = state;
    lh_debug("channel %s: %s", channel->authority, reason);
    if (channel->options.on_state != NULL)
        channel->options.on_state(channel->options.arg, state, reason);
}

bool lh_rpc_channel_is_connecting(const struct lh_rpc_channel *channel)
{
    return channel->connect_fd >= 0 || lh_link_is_linked(&channel->connect_next.link);
}

/* NULL: no connection takes new calls. */
static struct client_connection *usable(struct lh_rpc_channel *channel)
{
    struct client_connection *connection = channel->current;

    if (connection == NULL)
        return NULL;
    if (connection->io.broken == NULL && nghttp2_session_check_request_allowed(connection->io.session))
        return connection;
    /* Breaking, or out of stream numbers: it ends with its last call. */
    channel->current = NULL;
    nghttp2_submit_goaway(connection->io.session, NGHTTP2_FLAG_NONE, 0, NGHTTP2_NO_ERROR, NULL, 0);
    lh_rpc_connection_touch(&connection->io);
    return NULL;
}

void lh_rpc_channel_want_connection(struct lh_rpc_channel *channel)
{
    if (channel->current != NULL || channel->is_closing || lh_rpc_channel_is_connecting(channel))
        return;
    channel->address_at = 0;
    channel->connect_code = LH_GRPC_UNAVAILABLE;
    lh_rpc_channel_set_state(channel, LH_RPC_CHANNEL_CONNECTING, "connecting");
    lh_defer(channel->loop, &channel->connect_next);
}

/* --- begin and go on --- */

static void dispatch(struct lh_rpc_client_call *call)
{
    struct client_connection *connection = usable(call->channel);
    if (connection != NULL)
        lh_rpc_client_call_submit(call, connection);
    else
        lh_rpc_channel_want_connection(call->channel);
}

struct lh_rpc_client_call *lh_rpc_client_call_unary(struct lh_rpc_channel *channel, const char *path,
                                                    const void *request, size_t size, int64_t deadline_us,
                                                    lh_rpc_done_cb *on_done, void *arg)
{
    struct lh_rpc_stream_callbacks callbacks = {.on_done = on_done};
    struct lh_rpc_client_call *call = start(channel, path, deadline_us, &callbacks, arg);

    if (call == NULL)
        return NULL;
    call->is_unary = true;
    call->is_half_closed = true;
    lh_rpc_outbox_put(&call->outbox, &channel->pool, request, size);
    dispatch(call);
    return call;
}

struct lh_rpc_client_call *lh_rpc_client_call_start(struct lh_rpc_channel *channel, const char *path,
                                                    int64_t deadline_us, const struct lh_rpc_metadata *metadata,
                                                    size_t metadata_count,
                                                    const struct lh_rpc_stream_callbacks *callbacks, void *arg)
{
    struct lh_rpc_client_call *call = start(channel, path, deadline_us, callbacks, arg);

    if (call == NULL)
        return NULL;
    for (size_t i = 0; i < metadata_count && i < METADATA_MAX; i++) {
        lh_buffer_append(&call->metadata, metadata[i].name, strlen(metadata[i].name) + 1);
        lh_buffer_append(&call->metadata, metadata[i].value, strlen(metadata[i].value) + 1);
    }
    dispatch(call);
    return call;
}

void lh_rpc_client_call_on_open(struct lh_rpc_client_call *call, void (*on_open)(void *arg))
{
    call->on_open = on_open;
}

static void wake_output(struct lh_rpc_client_call *call)
{
    if (call->connection == NULL)
        return;
    if (call->is_deferred) {
        call->is_deferred = false;
        nghttp2_session_resume_data(call->connection->io.session, call->stream_id);
    }
    lh_rpc_connection_touch(&call->connection->io);
}

enum lh_status lh_rpc_client_call_send(struct lh_rpc_client_call *call, const void *data, size_t size)
{
    size_t unsent = lh_rpc_outbox_unsent(&call->outbox);

    if (call->is_over || call->is_half_closed)
        return LH_CANCELED;
    if (unsent > UNSENT_MAX_BYTES || size > UINT32_MAX)
        return LH_OVERLOADED;
    lh_rpc_outbox_put(&call->outbox, &call->channel->pool, data, size);
    if (lh_rpc_outbox_unsent(&call->outbox) > MARK_BYTES)
        call->was_over_mark = true;
    wake_output(call);
    return LH_OK;
}

void lh_rpc_client_call_half_close(struct lh_rpc_client_call *call)
{
    if (call->is_over || call->is_half_closed)
        return;
    call->is_half_closed = true;
    wake_output(call);
}
