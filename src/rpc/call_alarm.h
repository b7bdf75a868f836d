/* The alarm of a call, and the sign of life of its peer. */
#ifndef LH_RPC_CALL_ALARM_H
#define LH_RPC_CALL_ALARM_H

#include "rpc/server_internal.h"

void lh_rpc_call_finish_alarm(struct lh_rpc_call *call);
/* Handles the answer to a PING with these 8 bytes. */
void lh_rpc_server_connection_on_pong(struct server_connection *connection, const uint8_t *bytes);

#endif
