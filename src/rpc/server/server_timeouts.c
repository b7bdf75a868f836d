/*
 * Time. A connection's timer looks at who is silent, who is idle, and what is neither ended nor read; each of these
 * functions applies one limit and returns when to look again.
 *
 * What a call needs that lives for long and acts by itself: an alarm, and to know whether its peer is alive. Calls that
 * want to know share one PING of their connection. Its 8 bytes are the time when it was sent, so that no other answer
 * is taken for its own.
 *
 * An answer that came late may be old: this process stood still while it lay in the socket, or the network kept it. The
 * peer is then asked once more, and that answer counts, so that a slow network costs one round trip more and no lease.
 */
#include "rpc/server/server_internal.h"

#include <string.h>

#include "base/clock.h"

/* Nobody waits in a queue for a machine that lost its power. */
int64_t lh_rpc_server_connection_check_silence(struct server_connection *connection, int64_t now_us)
{
    const struct lh_rpc_server_options *options = &connection->server->options;
    int64_t received_at_us = connection->io.received_at_us;

    /* While bytes wait for the client we may not be reading; then the stall decides. */
    if (options->keepalive_us <= 0 || lh_rpc_connection_unsent(&connection->io) > 0)
        return LH_RPC_FOREVER;
    if (received_at_us > connection->pinged_at_us)
        connection->pinged_at_us = 0;
    if (connection->pinged_at_us == 0 && received_at_us + options->keepalive_us > now_us)
        return received_at_us + options->keepalive_us;
    if (connection->pinged_at_us == 0) {
        connection->pinged_at_us = now_us;
        lh_rpc_connection_ping(&connection->io, NULL);
    } else if (now_us - connection->pinged_at_us >= options->keepalive_timeout_us) {
        if (connection->call_count > 0 || connection->is_going) {
            lh_rpc_server_connection_part(connection, LH_RPC_AWAY_SILENT, "the peer does not answer any more");
            return LH_RPC_FOREVER;
        }
        /* grpc-core does not read while it has no call: the GOAWAY waits for it, and it calls again elsewhere. */
        connection->server->stats.sent_away[LH_RPC_AWAY_SILENT]++;
        lh_rpc_server_connection_goaway(connection);
    }
    return connection->pinged_at_us + options->keepalive_timeout_us;
}

/* In two steps, as at a shutdown: a call that crosses the first GOAWAY on the wire is still answered. */
static int64_t begin_leaving(struct server_connection *connection, enum lh_rpc_away why, int64_t now_us)
{
    connection->server->stats.sent_away[why]++;
    connection->noticed_at_us = now_us;
    lh_rpc_server_connection_notice(connection);
    return now_us + connection->server->options.drain_notice_us;
}

static int64_t go_on_leaving(struct server_connection *connection, int64_t now_us)
{
    int64_t due_us = connection->noticed_at_us + connection->server->options.drain_notice_us;

    if (due_us > now_us)
        return due_us;
    lh_rpc_server_connection_goaway(connection);
    return LH_RPC_FOREVER;
}

int64_t lh_rpc_server_connection_check_age(struct server_connection *connection, int64_t now_us)
{
    if (connection->ends_at_us <= now_us) {
        lh_rpc_server_connection_part(connection, LH_RPC_AWAY_CERTIFICATE, "the client's certificate has expired");
        return LH_RPC_FOREVER;
    }
    if (connection->is_going)
        return connection->ends_at_us;
    if (connection->noticed_at_us != 0)
        return go_on_leaving(connection, now_us);
    if (connection->leaves_at_us > now_us)
        return connection->leaves_at_us;
    return begin_leaving(connection, LH_RPC_AWAY_AGED, now_us);
}

int64_t lh_rpc_server_connection_check_idle(struct server_connection *connection, int64_t now_us)
{
    const struct lh_rpc_server_options *options = &connection->server->options;
    int64_t due_us = connection->idle_at_us + options->idle_timeout_us;

    if (options->idle_timeout_us <= 0 || connection->noticed_at_us != 0 || connection->call_count > 0)
        return LH_RPC_FOREVER;
    if (due_us > now_us)
        return due_us;
    return begin_leaving(connection, LH_RPC_AWAY_IDLE, now_us);
}

static void end_unfinished(struct lh_rpc_call *call)
{
    call->connection->server->stats.refusals[LH_RPC_BOUND_REQUEST_TIME]++;
    lh_list_remove(&call->in_waiting);
    lh_rpc_call_refuse(call, LH_TIMED_OUT, LH_GRPC_DEADLINE_EXCEEDED,
                       "the request is not complete in time: send it at once, request_timeout is the server's limit");
}

static void end_unread(struct lh_rpc_call *call)
{
    call->connection->server->stats.refusals[LH_RPC_BOUND_STALL_TIME]++;
    lh_list_remove(&call->in_waiting);
    lh_rpc_connection_reset(&call->connection->io, call->stream_id, NGHTTP2_CANCEL);
}

/* The oldest are first. Returns when the next one is due. */
static int64_t end_overdue(struct lh_link *list, int64_t timeout_us, int64_t now_us, void (*end)(struct lh_rpc_call *))
{
    struct lh_rpc_call *call;

    while ((call = LH_LIST_FIRST(struct lh_rpc_call, list, in_waiting)) != NULL) {
        if (call->waiting_us + timeout_us > now_us)
            return call->waiting_us + timeout_us;
        end(call);
    }
    return LH_RPC_FOREVER;
}

int64_t lh_rpc_server_connection_check_calls(struct server_connection *connection, int64_t now_us)
{
    const struct lh_rpc_server_options *options = &connection->server->options;
    int64_t rest_us = end_overdue(&connection->unfinished, options->request_timeout_us, now_us, end_unfinished);
    int64_t read_us = end_overdue(&connection->answered, options->stall_timeout_us, now_us, end_unread);

    return rest_us < read_us ? rest_us : read_us;
}

/* --- calls that act by themselves --- */

bool lh_rpc_call_is_peer_lost(const struct lh_rpc_call *call)
{
    return call->connection->io.is_lost;
}

static void ask(struct server_connection *connection)
{
    connection->asked_at_us = lh_clock_us();
    lh_rpc_connection_ping(&connection->io, (const uint8_t *)&connection->asked_at_us);
}

void lh_rpc_call_ask_peer(struct lh_rpc_call *call)
{
    struct server_connection *connection = call->connection;

    if (call->is_over || call->state != CALL_OPEN)
        return;
    lh_list_remove(&call->in_asking);
    lh_list_append(&connection->asking, &call->in_asking);
    if (connection->asked_at_us == 0)
        ask(connection);
}

void lh_rpc_server_connection_on_pong(struct server_connection *connection, const uint8_t *bytes)
{
    bool is_late = lh_clock_us() - connection->asked_at_us > connection->server->options.late_answer_us;
    struct lh_link asking;

    if (connection->asked_at_us == 0 || memcmp(bytes, &connection->asked_at_us, sizeof(connection->asked_at_us)) != 0)
        return;
    if (is_late && !connection->has_asked_again) {
        connection->has_asked_again = true;
        ask(connection);
        return;
    }
    connection->asked_at_us = 0;
    connection->has_asked_again = false;
    lh_list_init(&asking);
    lh_list_splice(&asking, &connection->asking);
    while (!lh_list_is_empty(&asking)) {
        struct lh_rpc_call *call = LH_LIST_FIRST(struct lh_rpc_call, &asking, in_asking);
        lh_list_remove(&call->in_asking);
        if (!call->is_over && call->state == CALL_OPEN && call->method->on_peer_alive != NULL)
            call->method->on_peer_alive(call);
    }
}

static void on_due(void *arg)
{
    struct lh_rpc_call *call = arg;
    if (!call->is_over && call->state == CALL_OPEN && call->method->on_alarm != NULL)
        call->method->on_alarm(call);
}

void lh_rpc_call_set_alarm(struct lh_rpc_call *call, int64_t at_us)
{
    if (call->is_over || call->state != CALL_OPEN)
        return;
    if (call->alarm == NULL) {
        call->alarm = lh_alloc(sizeof(*call->alarm));
        lh_timer_init(call->alarm, call->connection->server->loop, on_due, call);
    }
    lh_timer_arm_at_us(call->alarm, at_us);
}
