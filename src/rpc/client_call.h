/* A call of the client, from its request to its answer. */
#ifndef LH_RPC_CLIENT_CALL_H
#define LH_RPC_CLIENT_CALL_H

#include "rpc/client_internal.h"

void lh_rpc_client_call_submit(struct lh_rpc_client_call *call, struct client_connection *connection);
/* Takes the call out of its connection (resetting its stream if that is still open) and lets on_done follow, once. */
void lh_rpc_client_call_answer(struct lh_rpc_client_call *call, enum lh_grpc_code code, enum lh_rpc_delivery delivery,
                               const char *message);
/* Answers the call with the server's answer. */
void lh_rpc_client_call_accept(struct lh_rpc_client_call *call);
/* Answers a call whose connection is of no use any more: IN_FLIGHT once its headers were sent. */
void lh_rpc_client_call_lose(struct lh_rpc_client_call *call, enum lh_grpc_code code, const char *message);
void lh_rpc_client_call_deliver(struct lh_rpc_client_call *call); /* calls on_done and frees the call */

#endif
