/*
 * A connection of the server: nghttp2's callbacks find the call of a stream and pass on what came; the timer looks at
 * what takes too long (server_timeouts.c).
 */
#include "rpc/server/server_internal.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"

/* As much of one stream may be on its way; a larger message needs a round trip for each such part. */
#define STREAM_WINDOW_BYTES (256 * 1024)
#define CONNECTION_WINDOW_BYTES (1024 * 1024)

/* How long the peer may take to close after we did. */
#define ENDING_LIMIT_US (2 * LH_US_PER_S)

static struct lh_rpc_call *call_of(nghttp2_session *session, int32_t stream_id)
{
    return nghttp2_session_get_stream_user_data(session, stream_id);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        nghttp2_session_set_stream_user_data(session, frame->hd.stream_id,
                                             lh_rpc_call_create(arg, frame->hd.stream_id));
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_size,
                     const uint8_t *value, size_t value_size, uint8_t flags, void *arg)
{
    struct lh_rpc_call *call = call_of(session, frame->hd.stream_id);
    if (call != NULL)
        lh_rpc_call_on_header(call, (const char *)name, name_size, (const char *)value, value_size);
    return 0;
}

/* Of a call that is still there, on_stream_close tells. */
static void on_reset(struct server_connection *connection, nghttp2_session *session, const nghttp2_frame *frame)
{
    const struct lh_rpc_server *server = connection->server;
    const struct lh_rpc_call *call = call_of(session, frame->hd.stream_id);

    if (call == NULL || !call->has_ended)
        lh_rpc_gate_on_reset(&connection->gate, session);
    if (call == NULL && frame->rst_stream.error_code == NGHTTP2_CANCEL && server->options.on_late_cancel != NULL)
        server->options.on_late_cancel(server->arg, lh_rpc_stream_call_id(connection, frame->hd.stream_id));
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct server_connection *connection = arg;
    struct lh_rpc_call *call;

    if (frame->hd.type == NGHTTP2_SETTINGS && !connection->has_preface) {
        connection->has_preface = true;
        lh_rpc_server_source_leave(connection);
        lh_timer_arm_at_us(&connection->timer, lh_clock_us()); /* from now on it looks at other limits */
    }
    if (frame->hd.type == NGHTTP2_RST_STREAM)
        on_reset(connection, session, frame);
    if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK))
        lh_rpc_server_connection_on_pong(connection, frame->ping.opaque_data);
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
        return 0;
    call = call_of(session, frame->hd.stream_id);
    if (call == NULL)
        return 0;
    if (frame->hd.type == NGHTTP2_HEADERS)
        lh_rpc_call_on_headers(call, (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0);
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        lh_rpc_call_on_half_close(call);
    return 0;
}

/* A stream above the bound: nghttp2 answers it, and we never hear of its call. */
static int on_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int error, void *arg)
{
    struct server_connection *connection = arg;

    if (frame->hd.type == NGHTTP2_HEADERS &&
        (error == NGHTTP2_ERR_REFUSED_STREAM || connection->call_count >= connection->server->options.max_streams))
        connection->server->stats.refusals[LH_RPC_BOUND_STREAMS]++;
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream_id, const uint8_t *data, size_t size,
                   void *arg)
{
    struct lh_rpc_call *call = call_of(session, stream_id);
    if (call != NULL)
        lh_rpc_call_on_data(call, data, size);
    else
        nghttp2_session_consume(session, stream_id, size);
    return 0;
}

/* Answered while the client still sends: it may stop (RFC 9113, section 8.1). */
static int on_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct server_connection *connection = arg;
    struct lh_rpc_call *call;

    if (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA ||
        (frame->hd.type == NGHTTP2_PING && !(frame->hd.flags & NGHTTP2_FLAG_ACK)))
        lh_rpc_gate_on_sent(&connection->gate);
    if (frame->hd.type != NGHTTP2_HEADERS || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    call = call_of(session, frame->hd.stream_id);
    if (call == NULL)
        return 0;
    call->has_ended = true;
    if (!call->has_half_close)
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR);
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream_id, uint32_t error, void *arg)
{
    struct lh_rpc_call *call = call_of(session, stream_id);
    if (call == NULL)
        return 0;
    lh_rpc_call_end(call, call->has_ended ? LH_RPC_END_FINISHED : LH_RPC_END_CANCELED);
    lh_rpc_call_free(call);
    return 0;
}

nghttp2_session_callbacks *lh_rpc_server_callbacks_create(void)
{
    nghttp2_session_callbacks *callbacks;

    if (nghttp2_session_callbacks_new(&callbacks) != 0)
        return NULL;
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_invalid_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    return callbacks;
}

nghttp2_option *lh_rpc_server_session_options_create(void)
{
    nghttp2_option *option;

    if (nghttp2_option_new(&option) != 0)
        return NULL;
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_no_closed_streams(option, 1);
    /* A client's deadline is a reset: nghttp2's default of 33 a second would close honest connections. The gate counts
       them, and the frames of a block of headers, which it cuts anew. */
    nghttp2_option_set_stream_reset_rate_limit(option, UINT64_MAX, UINT64_MAX);
    nghttp2_option_set_max_continuations(option, SIZE_MAX);
    nghttp2_option_set_no_http_messaging(option, 1); /* see rpc/headers.h */
    nghttp2_option_set_max_outbound_ack(option, RPC_ANSWERS_MAX);
    return option;
}

void lh_rpc_server_connection_free(struct server_connection *connection, enum lh_rpc_end reason, const char *why)
{
    struct lh_rpc_server *server = connection->server;

    lh_debug("connection closed peer=%s calls=%zu: %s", connection->peer, connection->call_count, why);
    lh_deferred_cancel(&connection->resume);
    lh_timer_finish(&connection->timer);
    while (!lh_list_is_empty(&connection->calls)) {
        struct lh_rpc_call *call = LH_LIST_FIRST(struct lh_rpc_call, &connection->calls, in_connection);
        lh_rpc_call_end(call, call->has_ended ? LH_RPC_END_FINISHED : reason);
        lh_rpc_call_free(call);
    }
    if (connection->client != NULL && server->options.on_client_gone != NULL)
        server->options.on_client_gone(server->arg, connection->client);
    if (!connection->has_preface)
        lh_rpc_server_source_leave(connection);
    lh_backlog_remove(&connection->handshake);
    lh_rpc_server_handshake_leave(connection);
    lh_rpc_connection_finish(&connection->io);
    lh_rpc_gate_finish(&connection->gate);
    free(connection->principal);
    lh_deferred_cancel(&connection->resume);
    lh_list_remove(&connection->in_server);
    server->stats.connections--;
    free(connection);
    lh_defer(server->loop, &server->gone);
}

static void on_closed(void *arg, const char *reason)
{
    struct server_connection *connection = arg;

    if (connection->io.peer_speaks_tls)
        lh_rpc_server_tell_refusal(connection,
                                   "the client speaks TLS, and this address does not: set tls_cert and tls_key");
    lh_rpc_server_connection_free(arg, LH_RPC_END_DISCONNECTED, reason);
}

static void note_gate(struct server_connection *connection)
{
    static const enum lh_rpc_bound bounds[] = {
        [RPC_GATE_RESETS] = LH_RPC_BOUND_RESETS,
        [RPC_GATE_CONTROL_FRAMES] = LH_RPC_BOUND_CONTROL_FRAMES,
        [RPC_GATE_CONTINUATIONS] = LH_RPC_BOUND_CONTINUATIONS,
    };
    struct lh_rpc_server_stats *stats = &connection->server->stats;

    connection->gate.open_streams = connection->call_count;
    stats->refusals[LH_RPC_BOUND_TURN] += connection->gate.pauses;
    connection->gate.pauses = 0;
    if (connection->gate.excess == RPC_GATE_CALM || connection->is_flooding)
        return;
    connection->is_flooding = true;
    stats->refusals[bounds[connection->gate.excess]]++;
    stats->sent_away[LH_RPC_AWAY_FLOODING]++;
}

static void on_input_done(void *arg)
{
    struct server_connection *connection = arg;

    note_gate(connection);
    lh_rpc_server_connection_check_memory(connection);
    while (!lh_list_is_empty(&connection->borrowing))
        lh_rpc_call_keep_borrowed(LH_LIST_FIRST(struct lh_rpc_call, &connection->borrowing, in_queue));
}

static void on_resume(void *arg)
{
    struct server_connection *connection = arg;
    while (!lh_list_is_empty(&connection->resuming)) {
        struct lh_rpc_call *call = LH_LIST_FIRST(struct lh_rpc_call, &connection->resuming, in_queue);
        lh_list_remove(&call->in_queue);
        lh_rpc_call_on_resume(call);
    }
}

/* Of one that is sent away, the calls do not wait for the peer. */
static void on_ending(void *arg)
{
    struct server_connection *connection = arg;

    LH_LIST_EACH(struct lh_rpc_call, call, &connection->calls, in_connection)
        lh_rpc_call_end(call, call->has_ended ? LH_RPC_END_FINISHED : LH_RPC_END_DISCONNECTED);
    lh_timer_arm_at_us(&connection->timer, lh_clock_us() + ENDING_LIMIT_US);
}

static int64_t earlier(int64_t a_us, int64_t b_us)
{
    return a_us < b_us ? a_us : b_us;
}

/* So often that whatever may take a time-out's length is looked at before it has taken that. */
static int64_t next_look_us(const struct server_connection *connection, int64_t now_us)
{
    const struct lh_rpc_server_options *options = &connection->server->options;
    return now_us + earlier(options->stall_timeout_us, options->request_timeout_us) / 2;
}

static void on_timer(void *arg)
{
    struct server_connection *connection = arg;
    const struct lh_rpc_server_options *options = &connection->server->options;
    int64_t now_us = lh_clock_us();
    int64_t next_us = next_look_us(connection, now_us);

    if (connection->io.is_ending) {
        lh_rpc_connection_break(&connection->io, "the peer did not close in time");
    } else if (!connection->has_preface) {
        lh_rpc_server_connection_part(connection, LH_RPC_AWAY_NO_PREFACE, "no HTTP/2 preface in time");
    } else if (lh_rpc_connection_unsent(&connection->io) > 0 &&
               now_us - connection->io.written_at_us >= options->stall_timeout_us) {
        lh_rpc_server_connection_part(connection, LH_RPC_AWAY_STALLED, "the peer does not take what is sent");
    } else if (connection->gate.block_stream != 0 &&
               now_us - connection->gate.block_began_us >= options->request_timeout_us) {
        lh_rpc_server_connection_part(connection, LH_RPC_AWAY_SLOW, "its headers are not complete in time");
    } else {
        next_us = earlier(next_us, lh_rpc_server_connection_check_calls(connection, now_us));
        next_us = earlier(next_us, lh_rpc_server_connection_check_silence(connection, now_us));
        next_us = earlier(next_us, lh_rpc_server_connection_check_idle(connection, now_us));
        next_us = earlier(next_us, lh_rpc_server_connection_check_age(connection, now_us));
        if (connection->gate.block_stream != 0)
            next_us = earlier(next_us, connection->gate.block_began_us + options->request_timeout_us);
        lh_timer_arm_at_us(&connection->timer, next_us);
    }
}

static bool start_session(struct server_connection *connection)
{
    struct lh_rpc_server *server = connection->server;
    nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, server->options.max_streams},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW_BYTES},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)server->options.max_header_bytes},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };
    nghttp2_session *session;

    if (nghttp2_session_server_new3(&session, server->callbacks, connection, server->session_options,
                                    &connection->memory.mem) != 0)
        return false;
    connection->io.session = session;
    return lh_rpc_connection_start(&connection->io, settings, sizeof(settings) / sizeof(settings[0]),
                                   CONNECTION_WINDOW_BYTES);
}

static void count_connection(struct server_connection *connection)
{
    struct lh_rpc_server *server = connection->server;

    server->stats.connections_total++;
    connection->serial = (uint32_t)server->stats.connections_total;
    server->stats.connections++;
}

static void open_gate(struct server_connection *connection, int64_t now_us)
{
    const struct lh_rpc_server_options *options = &connection->server->options;
    struct rpc_gate *gate = &connection->gate;

    lh_rpc_gate_init(gate, options->max_header_bytes);
    lh_rpc_budget_init(&gate->resets, options->reset_burst, options->reset_rate, now_us);
    lh_rpc_budget_init(&gate->control, options->control_burst, options->control_rate, now_us);
    connection->io.gate = gate;
}

struct server_connection *lh_rpc_server_accept(struct lh_rpc_server *server, int fd, const struct lh_address *peer)
{
    struct server_connection *connection = lh_alloc_zero(1, sizeof(*connection));

    connection->server = server;
    connection->account.whole = &server->account;
    connection->idle_at_us = lh_clock_us();
    lh_list_init(&connection->calls);
    lh_list_init(&connection->borrowing);
    lh_list_init(&connection->resuming);
    lh_list_init(&connection->unfinished);
    lh_list_init(&connection->answered);
    lh_list_init(&connection->asking);
    lh_rpc_counted_init(&connection->memory, &server->recycle, &connection->account);
    lh_deferred_init(&connection->resume, on_resume, connection);
    lh_list_append(&server->connections, &connection->in_server);
    lh_address_format(peer, connection->peer);
    lh_rpc_connection_init(&connection->io, server->loop, &server->pool, fd, server->options.output_mark_bytes,
                           on_closed, connection);
    if (peer->storage.ss_family == AF_UNIX)
        connection->principal = lh_rpc_unix_principal(connection->io.fd);
    connection->io.account = &connection->account;
    connection->io.on_input_done = on_input_done;
    connection->io.on_ending = on_ending;
    open_gate(connection, connection->idle_at_us);
    lh_timer_init(&connection->timer, server->loop, on_timer, connection);
    lh_timer_arm_at_us(&connection->timer, connection->idle_at_us + server->options.handshake_timeout_us);
    count_connection(connection);
    lh_rpc_server_source_enter(connection, peer);
    if (!start_session(connection)) {
        lh_rpc_server_connection_free(connection, LH_RPC_END_DISCONNECTED, "no HTTP/2 session");
        return NULL;
    }
    connection->leaves_at_us = connection->ends_at_us = LH_RPC_FOREVER;
    if (server->tls != NULL && peer->storage.ss_family != AF_UNIX)
        lh_rpc_server_connection_secure(connection);
    lh_rpc_connection_touch(&connection->io);
    return connection;
}
