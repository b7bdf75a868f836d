/* The answer of the server to a call. */
#ifndef LH_RPC_CLIENT_ANSWER_H
#define LH_RPC_CLIENT_ANSWER_H

#include "rpc/client_internal.h"

void lh_rpc_client_call_on_header(struct lh_rpc_client_call *call, const char *name, size_t name_size,
                                  const char *value, size_t value_size);
void lh_rpc_client_call_on_data(struct lh_rpc_client_call *call, const unsigned char *data, size_t size);
void lh_rpc_client_call_on_close(struct lh_rpc_client_call *call, uint32_t error);

#endif
