/* The state of a channel and its current connection. */
#ifndef LH_RPC_CHANNEL_STATE_H
#define LH_RPC_CHANNEL_STATE_H

#include "rpc/client_internal.h"

void lh_rpc_channel_set_state(struct lh_rpc_channel *channel, enum lh_rpc_channel_state state, const char *reason);
bool lh_rpc_channel_is_connecting(const struct lh_rpc_channel *channel);
/* NULL: no connection takes new calls. */
struct client_connection *lh_rpc_channel_usable(struct lh_rpc_channel *channel);
void lh_rpc_channel_want_connection(struct lh_rpc_channel *channel);
void lh_rpc_client_connection_watch_silence(struct client_connection *connection);

#endif
