/* A connection of the server: nghttp2's callbacks, its timer, its end. */
#ifndef LH_RPC_SERVER_CONNECTION_H
#define LH_RPC_SERVER_CONNECTION_H

#include "rpc/server_internal.h"

struct server_connection *lh_rpc_server_accept(struct lh_rpc_server *server, int fd, const struct rpc_address *peer);
void lh_rpc_server_connection_free(struct server_connection *connection, enum lh_rpc_end reason, const char *why);
nghttp2_session_callbacks *lh_rpc_server_callbacks_create(void);
nghttp2_option *lh_rpc_server_session_options_create(void);

#endif
