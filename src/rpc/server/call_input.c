/*
 * What a client sends: headers, then messages cut into DATA frames anywhere, then the end of its half. Every byte is
 * given back to flow control as soon as it is looked at; what a paused call has not looked at stays in its window, so
 * the client stops by itself.
 */
#include "rpc/server/server_internal.h"

#include <stdio.h>
#include <string.h>

#define UNKNOWN_PATH_MAX_BYTES 128
#define SPARE_METADATA_BYTES 64 /* not worth copying for */

static bool is_grpc_content(const char *value, size_t size)
{
    static const char wanted[] = "application/grpc";
    size_t length = sizeof(wanted) - 1;
    if (size < length || memcmp(value, wanted, length) != 0)
        return false;
    return size == length || value[length] == '+' || value[length] == ';';
}

static const struct lh_rpc_method *find_method(const struct lh_rpc_server *server, const char *path, size_t size)
{
    for (size_t i = 0; i < server->method_count; i++)
        if (server->path_sizes[i] == size && memcmp(server->methods[i].path, path, size) == 0)
            return &server->methods[i];
    return NULL;
}

static void keep_metadata(struct lh_rpc_call *call, const char *name, size_t name_size, const char *value,
                          size_t value_size)
{
    lh_rpc_pool_take(&call->connection->server->pool, &call->metadata);
    lh_buffer_append(&call->metadata, name, name_size);
    lh_buffer_append(&call->metadata, "", 1);
    lh_buffer_append(&call->metadata, value, value_size);
    lh_buffer_append(&call->metadata, "", 1);
}

static void read_timeout(struct lh_rpc_call *call, const char *value, size_t size)
{
    int64_t timeout_us;
    if (lh_grpc_timeout_parse(value, size, &timeout_us))
        call->deadline_us = call->arrived_us + timeout_us;
    else
        call->has_bad_timeout = true;
}

/* Of no use to a handler, and in every call. */
static bool is_transport_header(const char *name, size_t size)
{
    return lh_rpc_is_name(name, size, "te") || lh_rpc_is_name(name, size, "user-agent") ||
           lh_rpc_is_name(name, size, "accept-encoding") || lh_rpc_is_name(name, size, "content-length") ||
           (size > 5 && memcmp(name, "grpc-", 5) == 0);
}

void lh_rpc_call_on_header(struct lh_rpc_call *call, const char *name, size_t name_size, const char *value,
                           size_t value_size)
{
    const struct lh_rpc_server *server = call->connection->server;
    bool is_too_large;

    /* nghttp2 does not enforce SETTINGS_MAX_HEADER_LIST_SIZE; the 32 are RFC 9113, section 6.5.2. */
    call->header_bytes += name_size + value_size + 32;
    is_too_large = call->header_bytes > server->options.max_header_bytes;
    /* A byte of HPACK can be a field of 4 KB: of a call that is refused anyway, nobody looks at them. */
    if (is_too_large && name_size > 0 && name[0] != ':')
        return;
    if (!lh_rpc_header_check_field(&call->check, name, name_size, value, value_size) || is_too_large ||
        call->state != CALL_HEADERS)
        return;
    if (lh_rpc_is_name(name, name_size, ":path")) {
        call->method = find_method(server, value, value_size);
        if (call->method == NULL)
            keep_metadata(call, name, name_size, value, value_size);
    } else if (lh_rpc_is_name(name, name_size, ":method")) {
        call->is_post = lh_rpc_is_name(value, value_size, "POST");
    } else if (lh_rpc_is_name(name, name_size, "content-type")) {
        call->is_grpc = is_grpc_content(value, value_size);
    } else if (lh_rpc_is_name(name, name_size, "grpc-timeout")) {
        read_timeout(call, value, value_size);
    } else if (name[0] != ':' && !is_transport_header(name, name_size)) {
        keep_metadata(call, name, name_size, value, value_size);
    }
}

static void refuse_unknown(struct lh_rpc_call *call)
{
    const char *path = lh_rpc_call_metadata(call, ":path");
    char message[UNKNOWN_PATH_MAX_BYTES + 64];

    snprintf(message, sizeof(message), "there is no method %.*s", UNKNOWN_PATH_MAX_BYTES, path == NULL ? "" : path);
    lh_rpc_call_refuse(call, LH_UNIMPLEMENTED, LH_GRPC_UNIMPLEMENTED, message);
}

/* Metadata are kept as long as the call: not in a buffer that was made for more. */
static void fit_metadata(struct lh_rpc_call *call)
{
    struct lh_buffer *metadata = &call->metadata;
    struct lh_buffer fitting = {0};

    if (metadata->capacity > 2 * metadata->size + SPARE_METADATA_BYTES) {
        fitting = (struct lh_buffer){lh_alloc(metadata->size), metadata->size, metadata->size};
        memcpy(fitting.data, metadata->data, metadata->size);
        lh_rpc_pool_give(&call->connection->server->pool, metadata);
        *metadata = fitting;
    }
    lh_rpc_call_count(call);
}

static void start(struct lh_rpc_call *call)
{
    if (call->method->on_start == NULL)
        return;
    call->is_told = true;
    call->method->on_start(call);
}

static void begin(struct lh_rpc_call *call, bool is_end)
{
    const struct lh_rpc_server_options *options = &call->connection->server->options;

    if (call->deadline_us != LH_RPC_FOREVER)
        lh_timer_arm_at_us(&call->deadline, call->deadline_us);
    if (!is_end && call->method->kind != LH_RPC_BIDI)
        lh_rpc_call_wait_for_rest(call);
    if (options->on_enter == NULL || options->on_enter(call))
        start(call);
    else
        call->waits_to_start = call->is_paused = true;
}

static void refuse_overloaded(struct lh_rpc_call *call)
{
    lh_rpc_call_refuse(call, LH_OVERLOADED, LH_GRPC_RESOURCE_EXHAUSTED,
                       lh_rpc_server_connection_is_full(call->connection)
                           ? "this connection keeps too much that is not complete or not read: see connection_memory"
                           : "the server keeps too much for its clients: see memory; try again later");
}

void lh_rpc_call_on_headers(struct lh_rpc_call *call, bool is_end)
{
    struct lh_rpc_server *server = call->connection->server;

    if (!lh_rpc_header_check_block(&call->check, is_end)) {
        lh_rpc_call_break(call, NGHTTP2_PROTOCOL_ERROR);
        return;
    }
    if (call->state != CALL_HEADERS)
        return;
    call->state = CALL_OPEN;
    fit_metadata(call);
    if (call->header_bytes > server->options.max_header_bytes) {
        server->stats.refusals[LH_RPC_BOUND_HEADERS]++;
        lh_rpc_call_refuse(call, LH_MESSAGE_TOO_LARGE, LH_GRPC_RESOURCE_EXHAUSTED,
                           "the headers of the call are too large");
    } else if (!call->is_post) {
        lh_rpc_call_refuse_http(call, "405");
    } else if (!call->is_grpc) {
        lh_rpc_call_refuse_http(call, "415");
    } else if (call->method == NULL) {
        refuse_unknown(call);
    } else if (call->has_bad_timeout) {
        lh_rpc_call_refuse(call, LH_INVALID_ARGUMENT, LH_GRPC_INVALID_ARGUMENT,
                           "grpc-timeout is not 1 to 8 digits and a unit");
    } else if (!lh_rpc_server_takes_call(call)) {
        refuse_overloaded(call);
    } else {
        begin(call, is_end);
    }
}

static bool takes_input(const struct lh_rpc_call *call)
{
    return call->state == CALL_OPEN && !call->is_over;
}

/* Is it more than its connection may keep of what is not complete? */
static bool is_too_much(struct lh_rpc_call *call)
{
    size_t before = call->counted;

    lh_rpc_call_count(call);
    if (call->counted <= before || !lh_rpc_server_connection_is_full(call->connection))
        return false;
    call->connection->server->stats.refusals[LH_RPC_BOUND_CONNECTION_MEMORY]++;
    return true;
}

/* A unary call's message waits for the end of the client's half, in the input if it lasts until then. */
static void hold_message(struct lh_rpc_call *call, const unsigned char *message, size_t size)
{
    if (call->has_message) {
        lh_rpc_call_refuse(call, LH_UNIMPLEMENTED, LH_GRPC_UNIMPLEMENTED, "a second message in a unary call");
        return;
    }
    call->has_message = true;
    if (lh_rpc_inbox_move(&call->inbox, &call->held))
        return;
    call->borrowed = message;
    call->borrowed_size = size;
    lh_list_append(&call->connection->borrowing, &call->in_queue);
}

void lh_rpc_call_keep_borrowed(struct lh_rpc_call *call)
{
    lh_list_remove(&call->in_queue);
    lh_rpc_pool_append(&call->connection->server->pool, &call->held, call->borrowed, call->borrowed_size);
    call->borrowed = NULL;
    if (is_too_much(call))
        refuse_overloaded(call);
}

static void hand_over(struct lh_rpc_call *call, const void *message, size_t size)
{
    call->is_told = true;
    if (call->method->on_message != NULL)
        call->method->on_message(call, message, size);
}

static void refuse_message(struct lh_rpc_call *call, enum rpc_inbox_result why)
{
    char message[96];

    if (why == RPC_INBOX_COMPRESSED) {
        call->names_encodings = true;
        lh_rpc_call_refuse(call, LH_UNIMPLEMENTED, LH_GRPC_UNIMPLEMENTED, "compressed messages are not supported");
        return;
    }
    snprintf(message, sizeof(message), "the message has %u bytes, the limit is %zu", call->inbox.message_bytes,
             call->connection->server->options.max_message_bytes);
    call->connection->server->stats.refusals[LH_RPC_BOUND_MESSAGE]++;
    lh_rpc_call_refuse(call, LH_MESSAGE_TOO_LARGE, LH_GRPC_RESOURCE_EXHAUSTED, message);
}

/* Of a stream: has a message begun that is not complete? */
static void note_rest(struct lh_rpc_call *call)
{
    if (call->method->kind != LH_RPC_BIDI)
        return;
    if (call->is_paused || lh_rpc_inbox_is_between(&call->inbox))
        lh_list_remove(&call->in_waiting);
    else if (!lh_link_is_linked(&call->in_waiting))
        lh_rpc_call_wait_for_rest(call);
}

/* Look at the bytes until they are used up, or the call does not want more. Returns how many it looked at. */
static size_t take_input(struct lh_rpc_call *call, const unsigned char *data, size_t size)
{
    struct lh_rpc_server *server = call->connection->server;
    size_t left = size;

    while (takes_input(call) && !call->is_paused) {
        const unsigned char *message;
        size_t message_size;
        enum rpc_inbox_result result = lh_rpc_inbox_next(&call->inbox, &server->pool, server->options.max_message_bytes,
                                                         &data, &left, &message, &message_size);
        if (result == RPC_INBOX_MORE)
            break;
        if (result != RPC_INBOX_MESSAGE)
            refuse_message(call, result);
        else if (call->method->kind == LH_RPC_BIDI)
            hand_over(call, message, message_size);
        else
            hold_message(call, message, message_size);
    }
    if (!takes_input(call))
        return size;
    note_rest(call);
    if (is_too_much(call))
        refuse_overloaded(call);
    return size - left;
}

void lh_rpc_call_on_data(struct lh_rpc_call *call, const unsigned char *data, size_t size)
{
    nghttp2_session *session = call->connection->io.session;
    size_t looked_at = 0;

    /* The connection's window is never held back: one paused call must not stop the others. */
    nghttp2_session_consume_connection(session, size);
    lh_rpc_header_check_data(&call->check, size);
    if (!call->is_to_start && (call->held.size == 0 || call->method == NULL || call->method->kind != LH_RPC_BIDI))
        looked_at = take_input(call, data, size);
    if (looked_at > 0)
        nghttp2_session_consume_stream(session, call->stream_id, looked_at);
    if (looked_at < size) {
        lh_rpc_pool_append(&call->connection->server->pool, &call->held, data + looked_at, size - looked_at);
        if (is_too_much(call))
            refuse_overloaded(call);
    }
}

static void end_unary(struct lh_rpc_call *call)
{
    if (!call->has_message) {
        if (lh_rpc_inbox_is_between(&call->inbox))
            lh_rpc_call_refuse(call, LH_UNIMPLEMENTED, LH_GRPC_UNIMPLEMENTED, "a unary call without a message");
        else
            lh_rpc_call_refuse(call, LH_INVALID_ARGUMENT, LH_GRPC_INVALID_ARGUMENT,
                               "the call ends inside of a message");
        return;
    }
    if (call->borrowed != NULL)
        hand_over(call, call->borrowed, call->borrowed_size);
    else
        hand_over(call, call->held.data, call->held.size);
    lh_rpc_call_drop_input(call);
}

static void end_stream(struct lh_rpc_call *call)
{
    if (!lh_rpc_inbox_is_between(&call->inbox)) {
        lh_rpc_call_refuse(call, LH_INVALID_ARGUMENT, LH_GRPC_INVALID_ARGUMENT, "the call ends inside of a message");
        return;
    }
    lh_rpc_call_drop_input(call);
    call->is_told = true;
    if (call->method->on_half_close != NULL)
        call->method->on_half_close(call);
}

void lh_rpc_call_on_half_close(struct lh_rpc_call *call)
{
    if (call->has_half_close)
        return;
    call->has_half_close = true;
    if (!takes_input(call))
        return;
    if (!lh_rpc_header_check_end(&call->check)) {
        lh_rpc_call_break(call, NGHTTP2_PROTOCOL_ERROR);
        return;
    }
    lh_list_remove(&call->in_waiting);
    if (call->waits_to_start || call->is_to_start)
        return;
    if (call->method->kind != LH_RPC_BIDI)
        end_unary(call);
    else if (!call->is_paused && call->held.size == 0)
        end_stream(call);
}

void lh_rpc_call_start(struct lh_rpc_call *call)
{
    call->waits_to_start = false;
    call->is_to_start = true;
    lh_rpc_call_resume(call);
}

void lh_rpc_call_pause(struct lh_rpc_call *call)
{
    call->is_paused = call->method->kind == LH_RPC_BIDI;
}

void lh_rpc_call_resume(struct lh_rpc_call *call)
{
    struct server_connection *connection = call->connection;

    if (!call->is_paused || call->is_over)
        return;
    call->is_paused = false;
    if (!lh_link_is_linked(&call->in_queue))
        lh_list_append(&connection->resuming, &call->in_queue);
    lh_defer(connection->server->loop, &connection->resume);
}

/* At the end of the turn, so that a handler is never called from inside of its own resume. */
void lh_rpc_call_on_resume(struct lh_rpc_call *call)
{
    struct rpc_connection *io = &call->connection->io;
    struct rpc_pool *pool = &call->connection->server->pool;
    struct lh_buffer held;
    size_t looked_at;

    if (call->is_to_start && takes_input(call)) {
        call->is_to_start = false;
        start(call);
    }
    if (call->is_paused || !takes_input(call))
        return;
    held = call->held;
    memset(&call->held, 0, sizeof(call->held));
    looked_at = take_input(call, held.data, held.size);
    if (looked_at > 0)
        nghttp2_session_consume_stream(io->session, call->stream_id, looked_at);
    if (looked_at < held.size)
        lh_rpc_pool_append(pool, &call->held, held.data + looked_at, held.size - looked_at);
    if (call->borrowed != NULL)
        lh_rpc_call_keep_borrowed(call);
    lh_rpc_pool_give(pool, &held);
    lh_rpc_call_count(call);
    if (takes_input(call) && !call->is_paused && call->has_half_close) {
        if (call->method->kind != LH_RPC_BIDI)
            end_unary(call);
        else if (call->held.size == 0)
            end_stream(call);
    }
    lh_rpc_connection_touch(io);
}
