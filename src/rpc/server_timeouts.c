/* What a connection's timer looks at: who is silent, who is idle, and what is neither ended nor read. */
#include "rpc/server_timeouts.h"

#include "rpc/call.h"
#include "rpc/server_leave.h"

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
        nghttp2_submit_ping(connection->io.session, NGHTTP2_FLAG_NONE, NULL);
        lh_rpc_connection_touch(&connection->io);
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
    struct rpc_connection *io = &call->connection->io;

    call->connection->server->stats.refusals[LH_RPC_BOUND_STALL_TIME]++;
    lh_list_remove(&call->in_waiting);
    nghttp2_submit_rst_stream(io->session, NGHTTP2_FLAG_NONE, call->stream_id, NGHTTP2_CANCEL);
    lh_rpc_connection_touch(io);
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
