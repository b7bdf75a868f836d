/* An attempt to connect. */
#ifndef LH_RPC_CHANNEL_CONNECT_H
#define LH_RPC_CHANNEL_CONNECT_H

#include "rpc/client_internal.h"

void lh_rpc_channel_set_tls(struct lh_rpc_channel *channel, const char *target); /* copies `tls` of the options */
void lh_rpc_channel_finish_tls(struct lh_rpc_channel *channel);
void lh_rpc_channel_connect_next(void *channel); /* lh_deferred */
void lh_rpc_channel_on_connect_timeout(void *channel);
void lh_rpc_channel_stop_connecting(struct lh_rpc_channel *channel);

#endif
