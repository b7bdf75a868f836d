/* The fields of a channel. */
#ifndef LH_RPC_CHANNEL_INTERNAL_H
#define LH_RPC_CHANNEL_INTERNAL_H

#include "base/list.h"
#include "loop/loop.h"
#include "rpc/address.h"
#include "rpc/bearer.h"
#include "rpc/client.h"
#include "rpc/connection.h"
#include "rpc/recycle.h"

#define ADDRESSES_MAX 16

struct lh_rpc_channel {
    struct lh_loop *loop;
    struct lh_rpc_channel_options options;
    struct lh_rpc_tls *tls; /* the channel's copy; NULL: no TLS */
    struct rpc_bearer bearer;
    char *user_agent;
    char *authority;
    struct rpc_pool pool;
    struct rpc_recycle recycle;
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *session_options;
    struct rpc_address addresses[ADDRESSES_MAX];
    size_t address_count;
    enum lh_rpc_channel_state state;
    size_t call_count;
    bool is_closing;

    /* The attempt that is going on: from the first address to the last. */
    size_t address_at;
    int connect_fd;                     /* -1: none */
    struct lh_tls_session *connect_tls; /* its handshake; NULL: not yet, or no TLS */
    enum lh_grpc_code connect_code;     /* of the attempt's failure: one for a certificate outweighs the others */
    struct lh_watch connect_watch;
    struct lh_timer connect_timer;
    struct lh_deferred connect_next;
    char connect_failure[768];

    struct client_connection *current; /* where new calls go; NULL: there is none */
    struct lh_link connections;        /* with those that are draining */
    struct lh_link waiting;            /* calls, for a connection */
    struct lh_link answered;           /* calls, for their on_done */
    struct lh_deferred answer;
};

#endif
