/* The fields of a server. */
#ifndef LH_RPC_SERVER_INTERNAL_H
#define LH_RPC_SERVER_INTERNAL_H

#include "base/list.h"
#include "base/table.h"
#include "loop/backlog.h"
#include "loop/loop.h"
#include "rpc/address.h"
#include "rpc/connection.h"
#include "rpc/recycle.h"
#include "rpc/server.h"

#define LISTENERS_MAX 16

struct listener {
    struct lh_rpc_server *server;
    struct lh_watch watch;
    struct lh_timer pause; /* after the system refused a descriptor */
    struct rpc_address address;
    int fd;
};

struct lh_rpc_server {
    struct lh_loop *loop;
    struct lh_rpc_server_options options;
    const struct lh_rpc_method *methods;
    size_t *path_sizes; /* of the methods */
    size_t method_count;
    void *arg;
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *session_options;
    struct rpc_pool pool;
    struct rpc_recycle recycle;
    struct rpc_account account; /* of all connections */
    struct lh_deferred gone;    /* a connection has ended */
    struct lh_deferred shed;
    struct lh_tls_context *tls; /* NULL: none */
    struct lh_link securing;    /* connections whose TLS handshake goes on, the oldest first */
    size_t securing_count;
    struct lh_backlog handshakes;    /* of connections whose client has sent the next part of it */
    struct rpc_budget refusals_told; /* in the log */
    size_t refusals_untold;
    struct lh_table sources; /* addresses with unfinished handshakes */
    struct lh_link connections;
    struct lh_rpc_call *free_calls;
    size_t free_call_count;
    struct listener listeners[LISTENERS_MAX];
    size_t listener_count;
    struct lh_rpc_server_stats stats;
    struct lh_rpc_method_stats *method_stats; /* one more than there are methods */
    bool is_out_of_descriptors;

    enum drain_state { DRAIN_NONE, DRAIN_NOTICE, DRAIN_FINAL, DRAIN_IDLE } drain;
    struct lh_timer drain_timer;
    struct lh_deferred told; /* what is to be told of the drain */
    void (*on_final)(void *arg);
    void (*on_idle)(void *arg);
    void *drain_arg;
};

#endif
