/*
 * A connection of the server: nghttp2's callbacks find the call of a stream and pass on what came; the timer sends away
 * who never speaks, who is idle, and who does not take what it asked for.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "rpc/server_internal.h"

/* As much of one stream may be on its way; a larger message needs a round trip for each such part. */
#define STREAM_WINDOW_BYTES (256 * 1024)
#define CONNECTION_WINDOW_BYTES (1024 * 1024)

/* More than the shortest frames of one loop turn (see READS_PER_TURN in connection.c). */
#define MAX_ANSWERS_WAITING 40000

/* How long the peer may take to close after we did. */
#define ENDING_LIMIT_US (2 * LH_US_PER_S)

static struct lh_rpc_call *call_of(nghttp2_session *session, int32_t stream_id)
{
    return nghttp2_session_get_stream_user_data(session, stream_id);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, call_create(arg, frame->hd.stream_id));
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_size,
                     const uint8_t *value, size_t value_size, uint8_t flags, void *arg)
{
    struct lh_rpc_call *call = call_of(session, frame->hd.stream_id);
    if (call != NULL)
        call_on_header(call, (const char *)name, name_size, (const char *)value, value_size);
    return 0;
}

uint64_t server_call_id(const struct server_connection *connection, int32_t stream_id)
{
    return (uint64_t)connection->serial << 32 | (uint32_t)stream_id;
}

/* Of a call that is still there, on_stream_close tells. */
static void on_reset(struct server_connection *connection, nghttp2_session *session, const nghttp2_frame *frame)
{
    const struct lh_rpc_server *server = connection->server;

    if (call_of(session, frame->hd.stream_id) == NULL && frame->rst_stream.error_code == NGHTTP2_CANCEL &&
        server->options.on_late_cancel != NULL)
        server->options.on_late_cancel(server->arg, server_call_id(connection, frame->hd.stream_id));
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct server_connection *connection = arg;
    struct lh_rpc_call *call;

    if (frame->hd.type == NGHTTP2_SETTINGS && !connection->has_preface) {
        connection->has_preface = true;
        lh_timer_arm_at_us(&connection->timer, lh_clock_us()); /* from now on it looks at other limits */
    }
    if (frame->hd.type == NGHTTP2_RST_STREAM)
        on_reset(connection, session, frame);
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
        return 0;
    call = call_of(session, frame->hd.stream_id);
    if (call == NULL)
        return 0;
    if (frame->hd.type == NGHTTP2_HEADERS)
        call_on_headers(call);
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        call_on_half_close(call);
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
        call_on_data(call, data, size);
    else
        nghttp2_session_consume(session, stream_id, size);
    return 0;
}

/* Answered while the client still sends: it may stop (RFC 9113, section 8.1). */
static int on_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct lh_rpc_call *call;

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
    call_end(call, call->has_ended ? LH_RPC_END_FINISHED : LH_RPC_END_CANCELED);
    call_free(call);
    return 0;
}

nghttp2_session_callbacks *server_callbacks_create(void)
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

nghttp2_option *server_session_options_create(const struct lh_rpc_server_options *options)
{
    nghttp2_option *option;

    if (nghttp2_option_new(&option) != 0)
        return NULL;
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_no_closed_streams(option, 1);
    /* A client's deadline is a reset: nghttp2's default of 33 a second would close honest connections. */
    nghttp2_option_set_stream_reset_rate_limit(option, options->reset_burst, options->reset_rate);
    /* PINGs that came in one read: we read no more until their answers are on the way, and that is the bound. */
    nghttp2_option_set_max_outbound_ack(option, MAX_ANSWERS_WAITING);
    return option;
}

void server_connection_free(struct server_connection *connection, enum lh_rpc_end reason, const char *why)
{
    struct lh_rpc_server *server = connection->server;

    lh_debug("connection closed peer=%s calls=%zu: %s", connection->peer, connection->call_count, why);
    lh_deferred_cancel(&connection->resume);
    lh_timer_finish(&connection->timer);
    while (!lh_list_is_empty(&connection->calls)) {
        struct lh_rpc_call *call = LH_LIST_FIRST(struct lh_rpc_call, &connection->calls, in_connection);
        call_end(call, call->has_ended ? LH_RPC_END_FINISHED : reason);
        call_free(call);
    }
    rpc_connection_finish(&connection->io);
    lh_deferred_cancel(&connection->resume);
    lh_list_remove(&connection->in_server);
    if (connection->is_refused)
        server->refusing--;
    else
        server->stats.connections--;
    free(connection);
    server_check_idle(server);
}

static void on_closed(void *arg, const char *reason)
{
    server_connection_free(arg, LH_RPC_END_DISCONNECTED, reason);
}

static void on_input_done(void *arg)
{
    struct server_connection *connection = arg;
    while (!lh_list_is_empty(&connection->borrowing))
        call_keep_borrowed(LH_LIST_FIRST(struct lh_rpc_call, &connection->borrowing, in_queue));
}

static void on_resume(void *arg)
{
    struct server_connection *connection = arg;
    while (!lh_list_is_empty(&connection->resuming)) {
        struct lh_rpc_call *call = LH_LIST_FIRST(struct lh_rpc_call, &connection->resuming, in_queue);
        lh_list_remove(&call->in_queue);
        call_on_resume(call);
    }
}

static void on_ending(void *arg)
{
    struct server_connection *connection = arg;
    lh_timer_arm_at_us(&connection->timer, lh_clock_us() + ENDING_LIMIT_US);
}

static int64_t earlier(int64_t a_us, int64_t b_us)
{
    return a_us < b_us ? a_us : b_us;
}

static void part(struct server_connection *connection, enum lh_rpc_away why, const char *words)
{
    connection->server->stats.sent_away[why]++;
    connection->io.is_lost = why == LH_RPC_AWAY_SILENT || why == LH_RPC_AWAY_STALLED;
    rpc_connection_break(&connection->io, words);
}

/* Nobody waits in a queue for a machine that lost its power. Returns when to look again. */
static int64_t check_silence(struct server_connection *connection, int64_t now_us)
{
    const struct lh_rpc_server_options *options = &connection->server->options;
    int64_t received_at_us = connection->io.received_at_us;

    /* While bytes wait for the client we may not be reading; then the stall decides. */
    if (options->keepalive_us <= 0 || rpc_connection_unsent(&connection->io) > 0)
        return LH_RPC_FOREVER;
    if (received_at_us > connection->pinged_at_us)
        connection->pinged_at_us = 0;
    if (connection->pinged_at_us == 0 && received_at_us + options->keepalive_us > now_us)
        return received_at_us + options->keepalive_us;
    if (connection->pinged_at_us == 0) {
        connection->pinged_at_us = now_us;
        nghttp2_submit_ping(connection->io.session, NGHTTP2_FLAG_NONE, NULL);
        rpc_connection_touch(&connection->io);
    } else if (now_us - connection->pinged_at_us >= options->keepalive_timeout_us) {
        if (connection->call_count > 0 || connection->is_going) {
            part(connection, LH_RPC_AWAY_SILENT, "the peer does not answer any more");
            return LH_RPC_FOREVER;
        }
        /* grpc-core does not read while it has no call: the GOAWAY waits for it, and it calls again elsewhere. */
        connection->server->stats.sent_away[LH_RPC_AWAY_SILENT]++;
        server_connection_goaway(connection);
    }
    return connection->pinged_at_us + options->keepalive_timeout_us;
}

/* In two steps, as at a shutdown: a call that crosses the first GOAWAY on the wire is still answered. */
static int64_t check_idle(struct server_connection *connection, int64_t now_us)
{
    const struct lh_rpc_server_options *options = &connection->server->options;
    int64_t due_us = connection->idle_at_us + options->idle_timeout_us;

    if (options->idle_timeout_us <= 0 || connection->is_going)
        return LH_RPC_FOREVER;
    if (connection->noticed_at_us != 0) {
        due_us = connection->noticed_at_us + options->drain_notice_us;
        if (due_us > now_us)
            return due_us;
        server_connection_goaway(connection);
        return LH_RPC_FOREVER;
    }
    if (connection->call_count > 0)
        return LH_RPC_FOREVER;
    if (due_us > now_us)
        return due_us;
    connection->server->stats.sent_away[LH_RPC_AWAY_IDLE]++;
    connection->noticed_at_us = now_us;
    server_connection_notice(connection);
    return now_us + options->drain_notice_us;
}

static void on_timer(void *arg)
{
    struct server_connection *connection = arg;
    int64_t stall_us = connection->server->options.stall_timeout_us;
    int64_t now_us = lh_clock_us();
    int64_t next_us = now_us + stall_us / 2;

    if (connection->io.is_ending) {
        rpc_connection_break(&connection->io, "the peer did not close in time");
        return;
    }
    if (!connection->has_preface) {
        part(connection, LH_RPC_AWAY_NO_PREFACE, "no HTTP/2 preface in time");
        return;
    }
    if (rpc_connection_unsent(&connection->io) > 0 && now_us - connection->io.written_at_us >= stall_us) {
        part(connection, LH_RPC_AWAY_STALLED, "the peer does not take what is sent");
        return;
    }
    next_us = earlier(next_us, check_silence(connection, now_us));
    next_us = earlier(next_us, check_idle(connection, now_us));
    next_us = earlier(next_us, server_connection_check_listening(connection, now_us));
    lh_timer_arm_at_us(&connection->timer, next_us);
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
                                    &server->recycle.mem) != 0)
        return false;
    connection->io.session = session;
    rpc_early_reset_init(&connection->early_reset);
    connection->io.early_reset = &connection->early_reset;
    return nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings, sizeof(settings) / sizeof(settings[0])) == 0 &&
           nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0, CONNECTION_WINDOW_BYTES) == 0;
}

static void submit_goaway(struct server_connection *connection, uint32_t error)
{
    nghttp2_session *session = connection->io.session;

    connection->is_going = true;
    nghttp2_submit_goaway(session, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(session), error, NULL, 0);
}

static void count_connection(struct server_connection *connection)
{
    struct lh_rpc_server *server = connection->server;

    server->stats.connections_total++;
    connection->serial = (uint32_t)server->stats.connections_total;
    if (connection->is_refused)
        server->refusing++;
    else
        server->stats.connections++;
}

/* Above the bound it is answered by GOAWAY alone: a client that hears nothing would try again at once. */
void server_accept(struct lh_rpc_server *server, int fd, const struct rpc_address *peer, bool is_refused)
{
    struct server_connection *connection = lh_alloc_zero(1, sizeof(*connection));

    connection->server = server;
    connection->is_refused = is_refused;
    connection->idle_at_us = lh_clock_us();
    lh_list_init(&connection->calls);
    lh_list_init(&connection->borrowing);
    lh_list_init(&connection->resuming);
    lh_deferred_init(&connection->resume, on_resume, connection);
    lh_list_append(&server->connections, &connection->in_server);
    rpc_address_format(peer, connection->peer);
    rpc_connection_init(&connection->io, server->loop, &server->pool, fd, server->options.output_mark_bytes, on_closed,
                        connection);
    connection->io.on_input_done = on_input_done;
    connection->io.on_ending = on_ending;
    lh_timer_init(&connection->timer, server->loop, on_timer, connection);
    lh_timer_arm_at_us(&connection->timer, lh_clock_us() + server->options.preface_timeout_us);
    count_connection(connection);
    if (!start_session(connection)) {
        server_connection_free(connection, LH_RPC_END_DISCONNECTED, "no HTTP/2 session");
        return;
    }
    if (is_refused)
        submit_goaway(connection, NGHTTP2_ENHANCE_YOUR_CALM);
    rpc_connection_touch(&connection->io);
}

void server_connection_notice(struct server_connection *connection)
{
    nghttp2_submit_shutdown_notice(connection->io.session);
    rpc_connection_touch(&connection->io);
}

void server_connection_goaway(struct server_connection *connection)
{
    if (connection->is_going)
        return;
    submit_goaway(connection, NGHTTP2_NO_ERROR);
    rpc_connection_touch(&connection->io);
}
