/* A connection of a channel, from the moment it is connected to its end. */
#ifndef LH_RPC_CLIENT_CONNECTION_H
#define LH_RPC_CLIENT_CONNECTION_H

#include "rpc/client_internal.h"

nghttp2_session_callbacks *lh_rpc_client_callbacks_create(void);
void lh_rpc_client_connection_on_closed(void *connection, const char *reason); /* frees it */
/* `tls` NULL: none. Both are the connection's. */
void lh_rpc_channel_use_connection(struct lh_rpc_channel *channel, int fd, struct lh_tls_session *tls);

#endif
