/* Sending a connection away. */
#ifndef LH_RPC_SERVER_LEAVE_H
#define LH_RPC_SERVER_LEAVE_H

#include "rpc/server_internal.h"

/* Ends the connection at the end of the turn. */
void lh_rpc_server_connection_part(struct server_connection *connection, enum lh_rpc_away why, const char *words);
void lh_rpc_server_connection_notice(struct server_connection *connection);
void lh_rpc_server_connection_goaway(struct server_connection *connection);

#endif
