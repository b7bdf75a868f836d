/* A connection of a channel, from the moment it is connected to its end. */
#ifndef LH_RPC_CLIENT_CONNECTION_H
#define LH_RPC_CLIENT_CONNECTION_H

#include "rpc/channel_internal.h"

struct client_connection {
    struct rpc_connection io;
    struct lh_rpc_channel *channel;
    struct lh_link in_channel;
    struct lh_link calls;
    struct lh_timer keepalive;
    int64_t pinged_at_us; /* 0: no PING is on its way */
};

nghttp2_session_callbacks *lh_rpc_client_callbacks_create(void);
void lh_rpc_client_connection_on_closed(void *connection, const char *reason); /* frees it */
/* `tls` NULL: none. Both are the connection's. */
void lh_rpc_channel_use_connection(struct lh_rpc_channel *channel, int fd, struct lh_tls_session *tls);

#endif
