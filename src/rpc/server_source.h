/* Connections whose handshake is not finished, by address. */
#ifndef LH_RPC_SERVER_SOURCE_H
#define LH_RPC_SERVER_SOURCE_H

#include "rpc/server_internal.h"

void lh_rpc_server_sources_init(struct lh_rpc_server *server);
/* Returns false if the address has too many of them. */
bool lh_rpc_server_source_admits(struct lh_rpc_server *server, const struct rpc_address *peer);
void lh_rpc_server_source_enter(struct server_connection *connection, const struct rpc_address *peer);
void lh_rpc_server_source_leave(struct server_connection *connection);

#endif
