/* The fields of a channel, of its connections and of its calls. */
#ifndef LH_RPC_CLIENT_INTERNAL_H
#define LH_RPC_CLIENT_INTERNAL_H

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
    int connect_fd;                     /* -1: no socket */
    struct lh_tls_session *connect_tls; /* its handshake; NULL: not begun, or no TLS */
    /* Code of the attempt's failure: one for a certificate outweighs the others. */
    enum lh_grpc_code connect_code;
    struct lh_watch connect_watch;
    struct lh_timer connect_timer;
    struct lh_deferred connect_next;
    char connect_failure[768];

    struct client_connection *current; /* the connection for new calls; NULL: there is none */
    struct lh_link connections;        /* all connections, with those that are draining */
    struct lh_link waiting;            /* calls that wait for a connection */
    struct lh_link answered;           /* calls that wait for their on_done */
    struct lh_deferred answer;
};

struct client_connection {
    struct rpc_connection io;
    struct lh_rpc_channel *channel;
    struct lh_link in_channel;
    struct lh_link calls;
    struct lh_timer keepalive;
    int64_t pinged_at_us; /* 0: no PING is in flight */
};

struct lh_rpc_client_call {
    /* Link in one of: waiting, a connection's calls, answered. */
    struct lh_link link;
    struct lh_rpc_channel *channel;
    struct client_connection *connection; /* NULL: none yet, or none any more */
    struct lh_rpc_stream_callbacks callbacks;
    void (*on_open)(void *arg); /* may be NULL */
    void *arg;
    char *path;
    struct lh_buffer metadata; /* name, NUL, value, NUL, and so on */
    struct lh_timer deadline;
    int64_t deadline_us;
    struct rpc_inbox inbox;
    struct rpc_outbox outbox;
    struct lh_buffer reply;   /* the reply of a unary call */
    struct lh_buffer message; /* grpc-message as it came, then decoded, with a final NUL */
    struct lh_buffer details; /* grpc-status-details-bin, in the same way */
    size_t header_bytes;
    int32_t stream_id;
    int http_status;
    int grpc_status; /* -1: not received */
    enum lh_grpc_code code;
    enum lh_rpc_delivery delivery;
    bool is_unary;
    bool is_over; /* waits for its on_done */
    bool is_sent; /* its HEADERS were handed to the connection's output */
    bool is_half_closed;
    bool is_deferred; /* nghttp2 waits for more bytes to send */
    bool was_over_mark;
    bool has_reply;
};

#endif
