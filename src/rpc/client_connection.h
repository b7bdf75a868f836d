/* A connection of a channel, from the moment it is connected to its end. */
#ifndef LH_RPC_CLIENT_CONNECTION_H
#define LH_RPC_CLIENT_CONNECTION_H

#include "rpc/client_internal.h"

nghttp2_session_callbacks *lh_rpc_client_callbacks_create(void);
void lh_rpc_client_connection_on_closed(void *connection, const char *reason); /* frees it */
/* Makes `fd` the channel's connection, which owns it and `tls` (NULL: no TLS). */
void lh_rpc_channel_use_connection(struct lh_rpc_channel *channel, int fd, struct lh_tls_session *tls);

#endif
