/* The memory of connections, and the refusals when it is too much. */
#ifndef LH_RPC_SERVER_MEMORY_H
#define LH_RPC_SERVER_MEMORY_H

#include "rpc/server_internal.h"

void lh_rpc_server_connection_check_memory(struct server_connection *connection);
bool lh_rpc_server_connection_is_full(const struct server_connection *connection); /* too full for new requests */
bool lh_rpc_server_takes_call(const struct lh_rpc_call *call);
bool lh_rpc_server_takes_answer(const struct lh_rpc_call *call, size_t size);
void lh_rpc_server_shed(void *server);            /* lh_deferred */
void lh_rpc_call_count(struct lh_rpc_call *call); /* keeps the books */

#endif
