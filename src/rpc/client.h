/*
 * A gRPC channel: one HTTP/2 connection to one server, made when the first call needs it and made anew by the first
 * call after it broke. It does not retry and does not back off: the caller does.
 *
 *     channel = lh_rpc_channel_create(loop, "127.0.0.1:7420", NULL, &error);
 *     lh_rpc_client_call_unary(channel, "/leasehold.v1.LeaseService/Acquire", bytes, size, lh_clock_us() + 5 * LH_US_PER_S,
 *                       on_acquired, request);
 *
 * A certificate that one side does not accept, or a file that cannot be used, is UNAUTHENTICATED, NOT_SENT.
 *
 * Each call is answered exactly once by on_done: later, never before the function that made it returned. After it the
 * call's pointer is dead. `delivery` tells an error before anything was sent from one after.
 */
#ifndef LH_RPC_CLIENT_H
#define LH_RPC_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "rpc/grpc.h"

struct lh_loop;
struct lh_rpc_channel;
struct lh_rpc_client_call;

enum lh_rpc_delivery {
    /* The server has not seen it, or has said that it did not process it (GOAWAY, REFUSED_STREAM). */
    LH_RPC_NOT_SENT,
    /* Sent without an answer: the connection closed, the deadline passed or the caller canceled. */
    LH_RPC_IN_FLIGHT,
    LH_RPC_ANSWERED, /* the status is the server's */
};

/* The result of a call. Valid during on_done. */
struct lh_rpc_result {
    enum lh_grpc_code code;
    const char *message; /* never NULL */
    enum lh_rpc_delivery delivery;
    const void *details; /* a serialized google.rpc.Status, or NULL */
    size_t details_size;
    const void *reply; /* reply of a unary call that succeeded */
    size_t reply_size;
};
typedef void lh_rpc_done_cb(void *arg, const struct lh_rpc_result *result);

enum lh_rpc_channel_state {
    LH_RPC_CHANNEL_IDLE,       /* no connection; the next call makes one */
    LH_RPC_CHANNEL_CONNECTING, /* calls wait for the connection until their deadlines */
    LH_RPC_CHANNEL_READY,
    LH_RPC_CHANNEL_DRAINING, /* the server sent GOAWAY: old calls end, a new call makes a new connection */
};

/* TLS to a server. The files are read for each attempt to connect: they may be replaced at any time. */
struct lh_rpc_tls {
    const char *ca_file; /* PEM: the authorities of servers; NULL: those of the system */
    /* PEM: a revocation list of each of ca_file; NULL: no check. */
    const char *crl_file;
    /* PEM: shown to the server, with the chain behind it; NULL: none. */
    const char *cert_file;
    const char *key_file; /* PEM: its key */
    /* Name that the server's certificate must be for; NULL: the target's host. */
    const char *server_name;
};

struct lh_rpc_channel_options {
    /* Copied; NULL: no TLS. A unix socket is connected to without TLS. */
    const struct lh_rpc_tls *tls;
    /* A file with a bearer token, sent with each call; copied; NULL: none. Without TLS every address must be of this
       machine. */
    const char *token_file;
    size_t max_message_bytes; /* limit of a reply; default 16 MiB */
    /* Open calls, the waiting ones too; default 65,536. Any more are refused with NULL. */
    size_t max_calls;
    int64_t connect_timeout_us; /* limit for each address; default 5 s */
    /* Silence from the server, with calls open, after which a PING is sent; without an answer for as long again the
       connection is dead. Default 20 s; 0: never. */
    int64_t keepalive_us;
    size_t max_header_bytes; /* limit of an answer's headers; default 64 KiB */
    const char *user_agent;  /* default "leasehold/VERSION" */
    void (*on_state)(void *arg, enum lh_rpc_channel_state state, const char *reason);
    void *arg;
};

void lh_rpc_channel_options_init(struct lh_rpc_channel_options *options);

/*
 * Creates a channel to "HOST:PORT", "[IPv6]:PORT" or "unix:/path"; `options` NULL: the defaults. A host name is looked
 * up here, once, by getaddrinfo, which blocks; numeric addresses never block. Its addresses are tried in order. Returns
 * NULL, with `error`, if the target is not valid.
 */
struct lh_rpc_channel *lh_rpc_channel_create(struct lh_loop *loop, const char *target,
                                             const struct lh_rpc_channel_options *options, struct lh_error *error);
/* Creates a channel on a connected socket, which becomes its own: when that connection has ended every call is
   UNAVAILABLE. */
struct lh_rpc_channel *lh_rpc_channel_create_on(struct lh_loop *loop, int fd);
/* Destroys the channel. Calls still open are answered first, from in here, with CANCELLED. Never call it inside a
   callback of the channel. */
void lh_rpc_channel_destroy(struct lh_rpc_channel *channel);
enum lh_rpc_channel_state lh_rpc_channel_state(const struct lh_rpc_channel *channel);

/*
 * Starts a unary call. `request` is copied. `deadline_us` on lh_clock_us(), or LH_RPC_FOREVER; it goes out as
 * grpc-timeout, and when it has passed here the call is answered DEADLINE_EXCEEDED and reset. Returns NULL if max_calls
 * are open; on_done never fires then.
 */
struct lh_rpc_client_call *lh_rpc_client_call_unary(struct lh_rpc_channel *channel, const char *path,
                                                    const void *request, size_t size, int64_t deadline_us,
                                                    lh_rpc_done_cb *on_done, void *arg);

/* Cancels the call: on_done follows, CANCELLED, unless the answer is on its way already. */
void lh_rpc_client_call_cancel(struct lh_rpc_client_call *call);

/* The callbacks of a stream: any number of messages either way. */
struct lh_rpc_stream_callbacks {
    void (*on_message)(void *arg, const void *data, size_t size); /* may be NULL; bytes are valid during the callback */
    void (*on_writable)(void *arg); /* may be NULL: fewer than 32 KiB wait to be sent, after more than 64 KiB did */
    lh_rpc_done_cb *on_done;
};

struct lh_rpc_metadata {
    const char *name; /* lower case */
    const char *value;
};

struct lh_rpc_client_call *lh_rpc_client_call_start(struct lh_rpc_channel *channel, const char *path,
                                                    int64_t deadline_us, const struct lh_rpc_metadata *metadata,
                                                    size_t metadata_count,
                                                    const struct lh_rpc_stream_callbacks *callbacks, void *arg);
/* Sets a callback for when the server has begun its answer, and did not refuse the call. It gets the call's arg. */
void lh_rpc_client_call_on_open(struct lh_rpc_client_call *call, void (*on_open)(void *arg));
/* Sends a message. LH_OK; LH_OVERLOADED when more than 8 MiB wait: the message was not taken; LH_CANCELED when the
   call's half is closed or the call is over. */
enum lh_status lh_rpc_client_call_send(struct lh_rpc_client_call *call, const void *data, size_t size);
void lh_rpc_client_call_half_close(struct lh_rpc_client_call *call);

#endif
