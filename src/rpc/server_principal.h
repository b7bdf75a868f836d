/* The principal of a connection. */
#ifndef LH_RPC_SERVER_PRINCIPAL_H
#define LH_RPC_SERVER_PRINCIPAL_H

#include "rpc/server_internal.h"

void lh_rpc_server_connection_identify(struct server_connection *connection, bool is_unix);
/* Call it after the handshake. */
void lh_rpc_server_connection_identify_by_certificate(struct server_connection *connection);
void lh_rpc_server_connection_identify_visitor(struct server_connection *connection,
                                               const struct lh_rpc_visitor *visitor);

#endif
