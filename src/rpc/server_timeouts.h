/* Time limits of a connection. Each function applies one and returns when to look again. */
#ifndef LH_RPC_SERVER_TIMEOUTS_H
#define LH_RPC_SERVER_TIMEOUTS_H

#include "rpc/server_internal.h"

int64_t lh_rpc_server_connection_check_silence(struct server_connection *connection, int64_t now_us);
int64_t lh_rpc_server_connection_check_idle(struct server_connection *connection, int64_t now_us);
int64_t lh_rpc_server_connection_check_age(struct server_connection *connection, int64_t now_us);
int64_t lh_rpc_server_connection_check_calls(struct server_connection *connection, int64_t now_us);

#endif
