/*
 * What a handler does with a call, and how a call ends. Output waits in the outbox until nghttp2 asks for it; when it
 * has taken everything of a finished call it gets the trailers, inside of that same callback, as nghttp2 wants it. A
 * call that ends before it sent anything is one HEADERS frame (Trailers-Only).
 */
#include "rpc/server/server_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/text.h"

/* Python's gRPC refuses trailers over 8 KiB; with each field's 32 bytes we stay below 6. */
#define TRAILERS_MAX_BYTES (6 * 1024)
#define TRAILERS_FIXED_BYTES 256 /* the other fields and what each costs on top */
#define FREE_CALLS_MAX 1024
#define STATUS_FIELDS_MAX 6

static nghttp2_nv status_field(int code)
{
    static const char *const texts[] = {"0", "1",  "2",  "3",  "4",  "5",  "6",  "7", "8",
                                        "9", "10", "11", "12", "13", "14", "15", "16"};
    nghttp2_nv field = RPC_HEADER_LITERAL("grpc-status", "0");

    field.value = (uint8_t *)(uintptr_t)texts[code];
    field.valuelen = code < 10 ? 1 : 2;
    return field;
}

static void on_deadline(void *arg);

uint64_t lh_rpc_stream_call_id(const struct server_connection *connection, int32_t stream_id)
{
    return (uint64_t)connection->serial << 32 | (uint32_t)stream_id;
}

struct lh_rpc_call *lh_rpc_call_create(struct server_connection *connection, int32_t stream_id)
{
    struct lh_rpc_server *server = connection->server;
    struct lh_rpc_call *call = server->free_calls;

    if (call != NULL) {
        server->free_calls = call->data;
        server->free_call_count--;
    } else {
        call = lh_alloc(sizeof(*call));
    }
    memset(call, 0, sizeof(*call));
    call->connection = connection;
    call->stream_id = stream_id;
    call->arrived_us = lh_clock_us();
    call->deadline_us = LH_RPC_FOREVER;
    lh_timer_init(&call->deadline, server->loop, on_deadline, call);
    lh_list_append(&connection->calls, &call->in_connection);
    connection->call_count++;
    server->stats.calls++;
    server->stats.calls_total++;
    return call;
}

static void count_end(const struct lh_rpc_call *call, enum lh_rpc_end reason)
{
    struct lh_rpc_server *server = call->connection->server;
    size_t index = call->method == NULL ? server->method_count : (size_t)(call->method - server->methods);
    struct lh_rpc_method_stats *stats = &server->method_stats[index];

    server->stats.calls_ended[reason]++;
    stats->outcomes[call->state == CALL_FINISHING ? call->outcome : LH_CANCELED]++;
    lh_histogram_add(&stats->duration_us, &lh_latency_bounds, lh_clock_us() - call->arrived_us);
}

void lh_rpc_call_end(struct lh_rpc_call *call, enum lh_rpc_end reason)
{
    if (call->is_over)
        return;
    call->is_over = true;
    count_end(call, reason);
    if (call->waits_to_start && call->connection->server->options.on_left != NULL)
        call->connection->server->options.on_left(call);
    if (call->is_told && call->method->on_end != NULL)
        call->method->on_end(call, reason);
    call->kept = 0;
    lh_rpc_call_count(call);
}

void lh_rpc_call_drop_input(struct lh_rpc_call *call)
{
    struct rpc_pool *pool = &call->connection->server->pool;

    lh_rpc_inbox_finish(&call->inbox, pool);
    lh_rpc_pool_give(pool, &call->held);
    lh_list_remove(&call->in_queue);
    call->borrowed = NULL;
    lh_rpc_call_count(call);
}

static void finish_alarm(struct lh_rpc_call *call)
{
    lh_list_remove(&call->in_asking);
    if (call->alarm == NULL)
        return;
    lh_timer_finish(call->alarm);
    free(call->alarm);
    call->alarm = NULL;
}

void lh_rpc_call_free(struct lh_rpc_call *call)
{
    struct server_connection *connection = call->connection;
    struct lh_rpc_server *server = connection->server;

    call->kept = 0;
    lh_rpc_outbox_finish(&call->outbox, &server->pool);
    lh_rpc_pool_give(&server->pool, &call->metadata);
    lh_rpc_call_drop_input(call); /* and count */
    free(call->status);
    free(call->principal);
    lh_timer_finish(&call->deadline);
    lh_list_remove(&call->in_waiting);
    lh_list_remove(&call->in_connection);
    finish_alarm(call);
    if (--connection->call_count == 0)
        connection->idle_at_us = lh_clock_us();
    server->stats.calls--;
    if (server->free_call_count == FREE_CALLS_MAX) {
        free(call);
        return;
    }
    call->data = server->free_calls;
    server->free_calls = call;
    server->free_call_count++;
}

static size_t add_status_fields(const struct lh_rpc_call *call, nghttp2_nv *fields, size_t count)
{
    const struct call_status *status = call->status;

    fields[count++] = status_field(call->code);
    if (status != NULL && status->message_size > 0)
        fields[count++] = lh_rpc_header("grpc-message", status->text, status->message_size);
    if (status != NULL && status->details_size > 0)
        fields[count++] =
            lh_rpc_header("grpc-status-details-bin", status->text + status->message_size, status->details_size);
    if (call->names_encodings)
        fields[count++] = RPC_HEADER_LITERAL("grpc-accept-encoding", "identity");
    return count;
}

static size_t add_response_fields(nghttp2_nv *fields)
{
    fields[0] = RPC_HEADER_LITERAL(":status", "200");
    fields[1] = RPC_HEADER_LITERAL("content-type", "application/grpc");
    return 2;
}

static void wait_in(struct lh_rpc_call *call, struct lh_link *list, int64_t since_us)
{
    lh_list_remove(&call->in_waiting);
    call->waiting_us = since_us;
    lh_list_append(list, &call->in_waiting);
}

void lh_rpc_call_wait_for_rest(struct lh_rpc_call *call)
{
    wait_in(call, &call->connection->unfinished, lh_clock_us());
}

/* Some of the answer was taken, or none yet. */
static void wait_for_reader(struct lh_rpc_call *call)
{
    wait_in(call, &call->connection->answered, lh_clock_us());
}

static void tell_writable(struct lh_rpc_call *call)
{
    const struct lh_rpc_server *server = call->connection->server;

    if (!call->was_over_mark || lh_rpc_outbox_unsent(&call->outbox) >= server->options.stream_mark_bytes / 2)
        return;
    call->was_over_mark = false;
    if (!call->is_over && call->state == CALL_OPEN && call->method->on_writable != NULL)
        call->method->on_writable(call);
}

/* nghttp2 asks for the next bytes of a response. */
static ssize_t on_read_output(nghttp2_session *session, int32_t stream_id, uint8_t *to, size_t room, uint32_t *flags,
                              nghttp2_data_source *source, void *user_data)
{
    struct lh_rpc_call *call = source->ptr;
    size_t taken = lh_rpc_outbox_take(&call->outbox, &call->connection->server->pool, to, room);

    lh_rpc_call_count(call);
    tell_writable(call);
    if (lh_rpc_outbox_unsent(&call->outbox) > 0) {
        if (call->state == CALL_FINISHING)
            wait_for_reader(call);
        return (ssize_t)taken;
    }
    if (call->state == CALL_FINISHING) {
        nghttp2_nv fields[STATUS_FIELDS_MAX];
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        if (nghttp2_submit_trailer(session, stream_id, fields, add_status_fields(call, fields, 0)) != 0)
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        return (ssize_t)taken;
    }
    if (taken > 0)
        return (ssize_t)taken;
    call->is_deferred = true;
    return NGHTTP2_ERR_DEFERRED;
}

static void wake_output(struct lh_rpc_call *call)
{
    struct rpc_connection *io = &call->connection->io;

    if (!call->has_response) {
        nghttp2_nv fields[STATUS_FIELDS_MAX];
        nghttp2_data_provider output = {.source = {.ptr = call}, .read_callback = on_read_output};
        call->has_response = true;
        nghttp2_submit_response(io->session, call->stream_id, fields, add_response_fields(fields), &output);
    } else if (call->is_deferred) {
        call->is_deferred = false;
        nghttp2_session_resume_data(io->session, call->stream_id);
    }
    lh_rpc_connection_touch(io);
}

void lh_rpc_call_send_headers(struct lh_rpc_call *call)
{
    if (!call->is_over && call->state == CALL_OPEN && !call->has_response)
        wake_output(call);
}

enum lh_status lh_rpc_call_send(struct lh_rpc_call *call, const void *data, size_t size)
{
    struct lh_rpc_server *server = call->connection->server;
    size_t unsent = lh_rpc_outbox_unsent(&call->outbox);

    if (call->is_over || call->state != CALL_OPEN)
        return LH_CANCELED;
    if (unsent > server->options.max_stream_bytes || size > UINT32_MAX) {
        server->stats.refusals[LH_RPC_BOUND_OUTPUT]++;
        return LH_OVERLOADED;
    }
    if (!lh_rpc_server_takes_answer(call, size)) {
        server->stats.refusals[LH_RPC_BOUND_CONNECTION_MEMORY]++;
        return LH_OVERLOADED;
    }
    lh_rpc_outbox_put(&call->outbox, &call->connection->server->pool, data, size);
    lh_rpc_call_count(call);
    if (lh_rpc_outbox_unsent(&call->outbox) >= server->options.stream_mark_bytes)
        call->was_over_mark = true;
    wake_output(call);
    return LH_OK;
}

/* Words for the trailers within their bound: without details rather than cut ones, then as much of the message as fits.
 */
static struct call_status *encode_status(const char *message, const void *details, size_t details_size)
{
    size_t room = TRAILERS_MAX_BYTES - TRAILERS_FIXED_BYTES;
    size_t size = message == NULL ? 0 : strlen(message);
    struct lh_buffer text = {0};
    struct call_status *status;
    size_t message_size;

    if (size == 0 && details_size == 0)
        return NULL;
    if (size > room)
        size = lh_utf8_cut(message, size, room);
    lh_grpc_percent_encode(&text, message, size);
    while (text.size > room) {
        size = lh_utf8_cut(message, size, size - (text.size - room + 2) / 3);
        text.size = 0;
        lh_grpc_percent_encode(&text, message, size);
    }
    message_size = text.size;
    if ((details_size + 2) / 3 * 4 <= room - message_size)
        lh_base64_encode(&text, details, details_size);
    status = lh_alloc(sizeof(*status) + text.size);
    status->message_size = message_size;
    status->details_size = text.size - message_size;
    memcpy(status->text, text.data, text.size);
    lh_buffer_finish(&text);
    return status;
}

static void finish(struct lh_rpc_call *call, enum lh_grpc_code code, const char *message, const void *details,
                   size_t details_size)
{
    struct rpc_connection *io = &call->connection->io;

    call->code = (uint8_t)(code > LH_GRPC_UNAUTHENTICATED ? LH_GRPC_UNKNOWN : code);
    call->status = encode_status(message, details, details_size);
    call->state = CALL_FINISHING;
    lh_list_remove(&call->in_waiting);
    if (lh_rpc_outbox_unsent(&call->outbox) > 0)
        wait_for_reader(call);
    if (call->outcome >= LH_STATUS_COUNT || lh_status_grpc((enum lh_status)call->outcome) != call->code)
        call->outcome = (uint8_t)(LH_STATUS_COUNT + call->code);
    if (!call->has_response) {
        nghttp2_nv fields[STATUS_FIELDS_MAX];
        size_t count = add_response_fields(fields);
        call->has_response = true;
        nghttp2_submit_response(io->session, call->stream_id, fields, add_status_fields(call, fields, count), NULL);
        lh_rpc_connection_touch(io);
        return;
    }
    wake_output(call);
}

void lh_rpc_call_finish(struct lh_rpc_call *call, enum lh_grpc_code code, const char *message, const void *details,
                        size_t details_size)
{
    if (!call->is_over && call->state == CALL_OPEN)
        finish(call, code, message, details, details_size);
}

void lh_rpc_call_set_reason(struct lh_rpc_call *call, enum lh_status reason)
{
    if (!call->is_over && call->state == CALL_OPEN)
        call->outcome = (uint8_t)reason;
}

static void finish_with_details(struct lh_rpc_call *call, enum lh_status status, enum lh_grpc_code code,
                                const char *message)
{
    const struct lh_rpc_server *server = call->connection->server;
    struct lh_buffer details = {0};

    if (server->options.encode_error != NULL)
        server->options.encode_error(server->arg, status, message, &details);
    call->outcome = (uint8_t)status;
    finish(call, code, message, details.data, details.size);
    lh_buffer_finish(&details);
}

/* In place of an answer: to the handler it is one. */
static void refuse_answer(struct lh_rpc_call *call)
{
    finish_with_details(call, LH_OVERLOADED, LH_GRPC_RESOURCE_EXHAUSTED,
                        "too many answers wait to be read on this connection: read them, then ask again");
}

void lh_rpc_call_reply(struct lh_rpc_call *call, const void *data, size_t size)
{
    enum lh_status status = lh_rpc_call_send(call, data, size);
    if (status == LH_OK)
        lh_rpc_call_finish(call, LH_GRPC_OK, NULL, NULL, 0);
    else if (status == LH_OVERLOADED)
        refuse_answer(call);
}

void lh_rpc_call_refuse(struct lh_rpc_call *call, enum lh_status status, enum lh_grpc_code code, const char *message)
{
    if (call->state == CALL_FINISHING)
        return;
    lh_rpc_call_drop_input(call);
    finish_with_details(call, status, code, message);
    lh_rpc_call_end(call, LH_RPC_END_REFUSED);
}

void lh_rpc_call_break(struct lh_rpc_call *call, uint32_t error)
{
    lh_rpc_call_drop_input(call);
    if (call->state == CALL_HEADERS)
        call->outcome = LH_STATUS_COUNT + LH_GRPC_UNKNOWN;
    call->state = CALL_FINISHING;
    lh_list_remove(&call->in_waiting);
    lh_rpc_connection_reset(&call->connection->io, call->stream_id, error);
    lh_rpc_call_end(call, LH_RPC_END_REFUSED);
}

void lh_rpc_call_refuse_http(struct lh_rpc_call *call, const char *http_status)
{
    struct rpc_connection *io = &call->connection->io;
    nghttp2_nv field = lh_rpc_header_static(":status", http_status);

    call->state = CALL_FINISHING;
    call->outcome = LH_STATUS_COUNT + LH_GRPC_UNKNOWN;
    call->has_response = true;
    nghttp2_submit_response(io->session, call->stream_id, &field, 1, NULL);
    lh_rpc_connection_touch(io);
    lh_rpc_call_end(call, LH_RPC_END_REFUSED);
}

/* The client does not wait any longer, and neither do we for it to read what was sent. */
static void on_deadline(void *arg)
{
    struct lh_rpc_call *call = arg;

    if (call->state == CALL_FINISHING) {
        lh_rpc_connection_reset(&call->connection->io, call->stream_id, NGHTTP2_CANCEL);
    } else {
        lh_rpc_outbox_finish(&call->outbox, &call->connection->server->pool);
        lh_rpc_call_drop_input(call);
        finish_with_details(call, LH_TIMED_OUT, LH_GRPC_DEADLINE_EXCEEDED, "the deadline of the call has passed");
    }
    lh_rpc_call_end(call, LH_RPC_END_DEADLINE);
}
