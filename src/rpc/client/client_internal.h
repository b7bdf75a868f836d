/* The fields of a channel, of its connections and of its calls. */
#ifndef LH_RPC_CLIENT_INTERNAL_H
#define LH_RPC_CLIENT_INTERNAL_H

#include <sys/stat.h>

#include "base/address.h"
#include "base/list.h"
#include "loop/loop.h"
#include "rpc/client.h"
#include "rpc/connection.h"
#include "rpc/recycle.h"

#define ADDRESSES_MAX 16

/*
 * The bearer token that a channel sends with each call, from a file. The file is looked at when a connection is made, and
 * with the calls at most once a second; it is read again when it has changed. A file that cannot be used any more leaves
 * the token that was read before in force, with a warning. The token is never logged, nor part of an error.
 */
#define RPC_TOKEN_MAX_BYTES 4096

struct rpc_bearer {
    char *file;        /* NULL: no token */
    char *header;      /* "Bearer TOKEN"; NULL: not read yet */
    struct stat seen;  /* state of the file when it was read */
    int64_t looked_us; /* time of the last look */
};

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
    struct lh_address addresses[ADDRESSES_MAX];
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

/* --- client_connection.c --- */

nghttp2_session_callbacks *lh_rpc_client_callbacks_create(void);
void lh_rpc_client_connection_on_closed(void *connection, const char *reason); /* frees it */
/* Makes `fd` the channel's connection, which owns it and `tls` (NULL: no TLS). */
void lh_rpc_channel_use_connection(struct lh_rpc_channel *channel, int fd, struct lh_tls_session *tls);

/* --- client_call.c --- */

void lh_rpc_client_call_submit(struct lh_rpc_client_call *call, struct client_connection *connection);
/* Takes the call out of its connection (resetting its stream if that is still open) and lets on_done follow, once. */
void lh_rpc_client_call_answer(struct lh_rpc_client_call *call, enum lh_grpc_code code, enum lh_rpc_delivery delivery,
                               const char *message);
/* Answers the call with the server's answer. */
void lh_rpc_client_call_accept(struct lh_rpc_client_call *call);
/* Answers each call of a connection that is of no use any more: IN_FLIGHT once its headers were sent. */
void lh_rpc_client_calls_lose(struct lh_link *calls, enum lh_grpc_code code, const char *message);
void lh_rpc_client_call_deliver(struct lh_rpc_client_call *call); /* calls on_done and frees the call */

void lh_rpc_channel_set_state(struct lh_rpc_channel *channel, enum lh_rpc_channel_state state, const char *reason);
bool lh_rpc_channel_is_connecting(const struct lh_rpc_channel *channel);
void lh_rpc_channel_want_connection(struct lh_rpc_channel *channel);

/* --- client_answer.c --- */

void lh_rpc_client_call_on_header(struct lh_rpc_client_call *call, const char *name, size_t name_size,
                                  const char *value, size_t value_size);
void lh_rpc_client_call_on_data(struct lh_rpc_client_call *call, const unsigned char *data, size_t size);
void lh_rpc_client_call_on_close(struct lh_rpc_client_call *call, uint32_t error);

/* --- channel_connect.c --- */

void lh_rpc_channel_set_tls(struct lh_rpc_channel *channel, const char *target); /* copies `tls` of the options */
void lh_rpc_channel_finish_tls(struct lh_rpc_channel *channel);
void lh_rpc_channel_connect_next(void *channel); /* lh_deferred */
void lh_rpc_channel_on_connect_timeout(void *channel);
void lh_rpc_channel_stop_connecting(struct lh_rpc_channel *channel);

/* --- bearer.c --- */

void lh_rpc_bearer_finish(struct rpc_bearer *bearer);

/* Reads the file for a new connection. Returns false, with the file in `error`, if there is no token. */
bool lh_rpc_bearer_read(struct rpc_bearer *bearer, struct lh_error *error);

/* Returns the value of `authorization` for a call at this time; NULL: none. */
const char *lh_rpc_bearer_header(struct rpc_bearer *bearer, int64_t now_us);

#endif
