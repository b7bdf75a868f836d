/* A call of the server, and its end. Its handler sees rpc/server.h. */
#ifndef LH_RPC_CALL_H
#define LH_RPC_CALL_H

#include "rpc/server_internal.h"

struct lh_rpc_call *lh_rpc_call_create(struct server_connection *connection, int32_t stream_id);
void lh_rpc_call_end(struct lh_rpc_call *call, enum lh_rpc_end reason); /* calls on_end, once */
void lh_rpc_call_free(struct lh_rpc_call *call);
void lh_rpc_call_drop_input(struct lh_rpc_call *call);
void lh_rpc_call_wait_for_rest(struct lh_rpc_call *call);   /* a message has begun */
void lh_rpc_call_wait_for_reader(struct lh_rpc_call *call); /* some of the answer was taken, or none yet */
uint64_t lh_rpc_stream_call_id(const struct server_connection *connection, int32_t stream_id);
/* Ends a call with an error of the transport: on_end gets REFUSED, the client the details of encode_error. */
void lh_rpc_call_refuse(struct lh_rpc_call *call, enum lh_status status, enum lh_grpc_code code, const char *message);

void lh_rpc_call_refuse_http(struct lh_rpc_call *call, const char *http_status);
/* Resets a stream that carries no valid request. */
void lh_rpc_call_break(struct lh_rpc_call *call, uint32_t error);

#endif
