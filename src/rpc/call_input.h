/* The input of a call: headers, messages and the end of the client's half. */
#ifndef LH_RPC_CALL_INPUT_H
#define LH_RPC_CALL_INPUT_H

#include "rpc/server_internal.h"

void lh_rpc_call_on_header(struct lh_rpc_call *call, const char *name, size_t name_size, const char *value,
                           size_t value_size);
void lh_rpc_call_on_headers(struct lh_rpc_call *call, bool is_end);
void lh_rpc_call_on_data(struct lh_rpc_call *call, const unsigned char *data, size_t size);
void lh_rpc_call_on_half_close(struct lh_rpc_call *call);
void lh_rpc_call_keep_borrowed(struct lh_rpc_call *call);
void lh_rpc_call_on_resume(struct lh_rpc_call *call);

#endif
