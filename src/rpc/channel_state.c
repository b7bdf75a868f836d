/* What a channel has at the moment: its state, and the connection for new calls. */
#include "rpc/channel_state.h"

#include "base/clock.h"
#include "base/log.h"

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

struct client_connection *lh_rpc_channel_usable(struct lh_rpc_channel *channel)
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

void lh_rpc_client_connection_watch_silence(struct client_connection *connection)
{
    int64_t keepalive_us = connection->channel->options.keepalive_us;
    if (keepalive_us > 0 && !lh_timer_is_armed(&connection->keepalive))
        lh_timer_arm_at_us(&connection->keepalive, lh_clock_us() + keepalive_us);
}
