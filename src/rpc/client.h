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
    LH_RPC_NOT_SENT,  /* the server has not seen it, or told that it did not look at it (GOAWAY, REFUSED_STREAM) */
    LH_RPC_IN_FLIGHT, /* sent, no answer: the connection closed, the deadline passed or the caller cancelled */
    LH_RPC_ANSWERED,  /* the status is the server's */
};

/* Valid during on_done. */
struct lh_rpc_result {
    enum lh_grpc_code code;
    const char *message; /* never NULL */
    enum lh_rpc_delivery delivery;
    const void *details; /* a serialized google.rpc.Status, or NULL */
    size_t details_size;
    const void *reply; /* of a unary call that succeeded */
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
    const char *ca_file;     /* PEM: the authorities of servers; NULL: those of the system */
    const char *crl_file;    /* PEM: a revocation list of each of ca_file; NULL: none is looked at */
    const char *cert_file;   /* PEM: what is shown to the server, the chain behind it; NULL: nothing */
    const char *key_file;    /* PEM: its key */
    const char *server_name; /* that the server's certificate must be for; NULL: the target's host */
};

struct lh_rpc_channel_options {
    const struct lh_rpc_tls *tls; /* copied; NULL: none. A unix socket is connected to without TLS */
    /* Holds a bearer token, sent with each call; copied; NULL: none. Without TLS every address must be of this machine. */
    const char *token_file;
    size_t max_message_bytes;   /* of a reply; default 16 MiB */
    size_t max_calls;           /* open at once, the waiting ones too; default 65,536. More are refused with NULL */
    int64_t connect_timeout_us; /* for each address; default 5 s */
    int64_t keepalive_us;    /* with calls open and silence from the server for that long, send a PING; no answer for as
                                long again: the connection is dead; default 20 s; 0: never */
    size_t max_header_bytes; /* of an answer; default 64 KiB */
    const char *user_agent;  /* default "leasehold/VERSION" */
    void (*on_state)(void *arg, enum lh_rpc_channel_state state, const char *reason);
    void *arg;
};

void lh_rpc_channel_options_init(struct lh_rpc_channel_options *options);

/*
 * "HOST:PORT", "[IPv6]:PORT" or "unix:/path"; `options` NULL: the defaults. A host name is looked up here, once, by
 * getaddrinfo, which blocks; numeric addresses never block. Its addresses are tried in order. NULL: `error` says why.
 */
struct lh_rpc_channel *lh_rpc_channel_create(struct lh_loop *loop, const char *target,
                                             const struct lh_rpc_channel_options *options, struct lh_error *error);
/* On a connected socket, which becomes the channel's: when that connection has ended every call is UNAVAILABLE. */
struct lh_rpc_channel *lh_rpc_channel_create_on(struct lh_loop *loop, int fd);
/* Calls still open are answered first, from in here, with CANCELLED. Never from inside of a callback of the channel. */
void lh_rpc_channel_destroy(struct lh_rpc_channel *channel);
enum lh_rpc_channel_state lh_rpc_channel_state(const struct lh_rpc_channel *channel);

/*
 * `request` is copied. `deadline_us` on lh_clock_us(), or LH_RPC_FOREVER; it goes out as grpc-timeout, and when it has
 * passed here the call is answered DEADLINE_EXCEEDED and reset. NULL: max_calls are open, on_done never fires.
 */
struct lh_rpc_client_call *lh_rpc_client_call_unary(struct lh_rpc_channel *channel, const char *path,
                                                    const void *request, size_t size, int64_t deadline_us,
                                                    lh_rpc_done_cb *on_done, void *arg);

/* on_done follows, CANCELLED, unless the answer is on its way already. */
void lh_rpc_client_call_cancel(struct lh_rpc_client_call *call);

/* Streams: any number of messages either way. */
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
/* on_open is called with the call's arg when the server has begun its answer, and did not refuse the call. */
void lh_rpc_client_call_on_open(struct lh_rpc_client_call *call, void (*on_open)(void *arg));
/* LH_OK; LH_OVERLOADED when more than 8 MiB wait: nothing was taken; LH_CANCELED when its half is closed or it is over.
 */
enum lh_status lh_rpc_client_call_send(struct lh_rpc_client_call *call, const void *data, size_t size);
void lh_rpc_client_call_half_close(struct lh_rpc_client_call *call);

#endif
