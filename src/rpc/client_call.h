/* A call of the client, from its request to its answer. */
#ifndef LH_RPC_CLIENT_CALL_H
#define LH_RPC_CLIENT_CALL_H

#include "rpc/client_connection.h"

struct lh_rpc_client_call {
    struct lh_link link; /* in one of: waiting, a connection's calls, answered */
    struct lh_rpc_channel *channel;
    struct client_connection *connection; /* NULL: none yet, or none any more */
    struct lh_rpc_stream_callbacks callbacks;
    void (*on_open)(void *arg); /* NULL: not wanted */
    void *arg;
    char *path;
    struct lh_buffer metadata; /* name, NUL, value, NUL, and so on */
    struct lh_timer deadline;
    int64_t deadline_us;
    struct rpc_inbox inbox;
    struct rpc_outbox outbox;
    struct lh_buffer reply;   /* of a unary call */
    struct lh_buffer message; /* as it came, then decoded, with a final NUL */
    struct lh_buffer details; /* the same */
    size_t header_bytes;
    int32_t stream_id;
    int http_status;
    int grpc_status; /* -1: none came */
    enum lh_grpc_code code;
    enum lh_rpc_delivery delivery;
    bool is_unary;
    bool is_over; /* waits for its on_done */
    bool is_sent; /* its HEADERS were handed to the connection's output */
    bool is_half_closed;
    bool is_deferred; /* nghttp2 waits until there is more to send */
    bool was_over_mark;
    bool has_reply;
};

void lh_rpc_client_call_submit(struct lh_rpc_client_call *call, struct client_connection *connection);
/* Takes the call out of its connection (resetting its stream if that is still open) and has on_done called, once. */
void lh_rpc_client_call_answer(struct lh_rpc_client_call *call, enum lh_grpc_code code, enum lh_rpc_delivery delivery,
                               const char *message);
/* Answer a call whose connection is of no use any more: IN_FLIGHT once its headers were sent. */
void lh_rpc_client_call_lose(struct lh_rpc_client_call *call, enum lh_grpc_code code, const char *message);
/* All of a connection: the server has taken none of them. */
void lh_rpc_channel_refuse_calls(struct client_connection *connection, enum lh_grpc_code code, const char *reason);
/* The same with what the server said. */
void lh_rpc_client_call_accept(struct lh_rpc_client_call *call);
void lh_rpc_client_call_deliver(struct lh_rpc_client_call *call); /* calls on_done and frees the call */

#endif
