/* TLS on the side of the server. */
#ifndef LH_RPC_SERVER_HANDSHAKE_H
#define LH_RPC_SERVER_HANDSHAKE_H

#include "rpc/server_internal.h"

/* Takes the connection out of those whose handshakes share a bound. */
void lh_rpc_server_handshake_leave(struct server_connection *connection);
void lh_rpc_server_handshakes_init(struct lh_rpc_server *server);
void lh_rpc_server_handshakes_finish(struct lh_rpc_server *server);
void lh_rpc_server_connection_secure(struct server_connection *connection);
/* Logs a warning about a client that is refused; of many in a short time only some are written. */
void lh_rpc_server_tell_refusal(struct server_connection *connection, const char *why);

#endif
