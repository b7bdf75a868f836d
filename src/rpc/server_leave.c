/* How a connection is sent away: at once, or in two steps (GOAWAY that still allows everything, then the last). */
#include "rpc/server_leave.h"

void lh_rpc_server_connection_part(struct server_connection *connection, enum lh_rpc_away why, const char *words)
{
    connection->server->stats.sent_away[why]++;
    connection->io.is_lost = why == LH_RPC_AWAY_SILENT || why == LH_RPC_AWAY_STALLED;
    lh_rpc_connection_break(&connection->io, words);
}

void lh_rpc_server_connection_notice(struct server_connection *connection)
{
    nghttp2_submit_shutdown_notice(connection->io.session);
    lh_rpc_connection_touch(&connection->io);
}

void lh_rpc_server_connection_goaway(struct server_connection *connection)
{
    nghttp2_session *session = connection->io.session;

    if (connection->is_going)
        return;
    if (connection->io.is_handshaking) {
        lh_rpc_connection_break(&connection->io, "the server shuts down");
        return;
    }
    connection->is_going = true;
    nghttp2_submit_goaway(session, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(session),
                          NGHTTP2_NO_ERROR, NULL, 0);
    lh_rpc_connection_touch(&connection->io);
}
