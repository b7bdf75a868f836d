/*
 * A gRPC server on one event loop: HTTP/2, framing, deadlines and cancellation; messages are opaque bytes.
 *
 *     static const struct lh_rpc_method methods[] = {
 *         {.path = "/leasehold.v1.LeaseService/Acquire", .kind = LH_RPC_UNARY, .on_message = on_acquire,
 *          .on_end = on_end},
 *     };
 *     lh_rpc_server_options_init(&options);
 *     server = lh_rpc_server_create(loop, &options, methods, 1, service);
 *     status = lh_rpc_server_adopt(server, fd, &error);
 *
 * The story of a unary call: its headers are checked (method, content-type, sizes) and its deadline starts to run; its
 * one message is put together; at the end of the client's half of the stream on_message is called, once. The handler
 * answers there or at any later time with lh_rpc_call_reply or lh_rpc_call_finish. on_end is the last callback of a
 * call. Its reason says what ended the call: the answer, a cancel, a disconnect or the deadline.
 */
#ifndef LH_RPC_SERVER_H
#define LH_RPC_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/histogram.h"
#include "base/memory.h"
#include "base/status.h"
#include "rpc/grpc.h"

struct lh_loop;
struct lh_tls_context;
struct lh_rpc_server;
struct lh_rpc_call;

enum lh_rpc_kind {
    LH_RPC_UNARY,         /* exactly one message, handed over when the client has closed its half */
    LH_RPC_SERVER_STREAM, /* one message, answered by any number of messages */
    LH_RPC_BIDI,          /* messages are handed over as they arrive (client streaming too) */
};

enum lh_rpc_end {
    LH_RPC_END_FINISHED,     /* answered; the last byte of it was handed to HTTP/2 */
    LH_RPC_END_CANCELED,     /* the client reset the stream */
    LH_RPC_END_DISCONNECTED, /* the connection is gone */
    LH_RPC_END_DEADLINE,     /* grpc-timeout has passed: the server answered DEADLINE_EXCEEDED itself */
    LH_RPC_END_REFUSED,      /* the server ended it for bytes that were no valid message */
    LH_RPC_END_SHUTDOWN,     /* the server is being destroyed */
};

typedef void lh_rpc_call_cb(struct lh_rpc_call *call);
typedef void lh_rpc_message_cb(struct lh_rpc_call *call, const void *data, size_t size);
typedef void lh_rpc_end_cb(struct lh_rpc_call *call, enum lh_rpc_end reason);

/*
 * A row of the table of methods. It stays in place, with everything it points to, as long as the server. Each callback
 * may be NULL. on_start: the headers have come. on_writable: less than half of `stream_mark_bytes` waits to be sent,
 * after lh_rpc_call_send found more than the mark. on_end: exactly once for each call of which any other callback was
 * called; lh_rpc_call_* getters still work in it, afterwards the pointer is dead. It never fires inside
 * lh_rpc_call_send, reply or finish.
 */
struct lh_rpc_method {
    const char *path;
    enum lh_rpc_kind kind;
    lh_rpc_call_cb *on_start;
    lh_rpc_message_cb *on_message; /* bytes are valid during the callback */
    lh_rpc_call_cb *on_half_close; /* LH_RPC_BIDI only */
    lh_rpc_call_cb *on_writable;
    lh_rpc_call_cb *on_alarm;      /* see lh_rpc_call_set_alarm */
    lh_rpc_call_cb *on_peer_alive; /* see lh_rpc_call_ask_peer */
    lh_rpc_end_cb *on_end;
    void *arg;
    /* Taken while there is memory at all, because other calls depend on it. */
    bool comes_first;
};

struct lh_rpc_server_options {
    size_t max_message_bytes; /* default 4 MiB */
    size_t max_connections;   /* connections beyond it are closed at once; default 10,000 */
    uint32_t max_streams;     /* streams open at once on a connection; default 1000 */
    /* Limit of one request, as RFC 9113 counts (32 for each field on top); default 16 KiB. */
    size_t max_header_bytes;
    /* Limit of a connection; default 16 MiB. Above half of it new calls and requests that need more are refused
       OVERLOADED, above three quarters large answers; beyond it the connection is reset. */
    size_t connection_memory;
    /* Limit of all connections; default 512 MiB. Above three quarters new calls are refused OVERLOADED, beyond it
       the connection with the most is reset. */
    size_t memory;
    /* Mark of a connection: above it no frame is taken from HTTP/2; default 256 KiB. */
    size_t output_mark_bytes;
    size_t stream_mark_bytes; /* mark of a call: see lh_rpc_call_send; default 64 KiB */
    /* Unsent bytes of a call above which lh_rpc_call_send refuses; default 8 MiB. */
    size_t max_stream_bytes;
    /* Connections of one address that have not sent their HTTP/2 preface; any more are closed at once. Default 512, as
       worker_connections of nginx, which opens one for each call and writes on none before it has opened them all. */
    size_t max_handshakes;
    /* Time until a connection without a preface is closed; default 5 s. The bound of a TLS handshake too. */
    int64_t handshake_timeout_us;
    /* Time until a message that has begun, or a unary call, is complete; default 10 s. */
    int64_t request_timeout_us;
    /* Time after which a connection without calls is sent away; default 10 min; 0: never. */
    int64_t idle_timeout_us;
    /* Silence after which a client gets a PING. Default 30 s; 0: never. */
    int64_t keepalive_us;
    /* Further silence after which it is gone. Default 10 s. */
    int64_t keepalive_timeout_us;
    /* Limit of an answer to lh_rpc_call_ask_peer; after a later one the peer is asked again. Default 100 ms. */
    int64_t late_answer_us;
    /* Limit for a connection whose client takes none of the waiting bytes, and for an answered call whose client
       reads none of its answer; default 30 s. */
    int64_t stall_timeout_us;
    /* Calls that a client may reset at once before they are answered (its deadlines are resets); default 10,000. */
    uint64_t reset_burst;
    uint64_t reset_rate;    /* further resets a second; default 2,000 */
    uint64_t control_burst; /* frames without content, see rpc/gate.h; default 10,000 */
    uint64_t control_rate;  /* further ones a second; default 1,000 */
    /* Age at which a TLS connection is sent away; default 0: never. */
    int64_t max_age_us;
    int64_t drain_notice_us; /* time between the shutdown notice and the final GOAWAY; default 500 ms */
    int64_t drain_limit_us;  /* time from the final GOAWAY until open calls are cut; default 10 s */

    /* Appends the serialized google.rpc.Status of an error that the transport itself found (MESSAGE_TOO_LARGE,
       OVERLOADED, UNIMPLEMENTED). NULL: such errors go without details. */
    void (*encode_error)(void *arg, enum lh_status status, const char *message, struct lh_buffer *details);

    /* The headers of a call are there, before any callback of its method. Returns false if the call waits: what it sends is
       kept, and its method hears of it after lh_rpc_call_start. on_left: such a call has ended. Each may be NULL. */
    bool (*on_enter)(struct lh_rpc_call *call);
    void (*on_left)(struct lh_rpc_call *call);

    /* The client reset (CANCEL) a call after its on_end had said LH_RPC_END_FINISHED: cancel and answer crossed on the
       wire, and the client does not read the answer. May be NULL. Never inside the call's callbacks. */
    void (*on_late_cancel)(void *arg, uint64_t call_id);

    /* A connection with a client (lh_rpc_call_set_client) is gone. May be NULL. */
    void (*on_client_gone)(void *arg, void *client);
};

void lh_rpc_server_options_init(struct lh_rpc_server_options *options);

/* Creates a server. `arg` is passed to encode_error and returned by lh_rpc_call_arg. */
struct lh_rpc_server *lh_rpc_server_create(struct lh_loop *loop, const struct lh_rpc_server_options *options,
                                           const struct lh_rpc_method *methods, size_t method_count, void *arg);

/* Listens on a socket of lh_bind (base/address.h). The server takes the socket over, even if it refuses. A unix
   socket's file is removed with it. May be called several times. */
enum lh_status lh_rpc_server_adopt(struct lh_rpc_server *server, int fd, struct lh_error *error);

/*
 * Opens a connection from inside of this process, on behalf of a client of another port. Returns the other end, for
 * lh_rpc_channel_create_on; its calls run as that client. -1: the server shuts down, or no descriptor is left.
 */
struct lh_rpc_visitor {
    const char *principal; /* NULL: LH_RPC_ANONYMOUS */
    const char *peer;      /* as lh_rpc_call_peer */
    bool is_private;       /* as lh_rpc_call_is_private */
};
int lh_rpc_server_open(struct lh_rpc_server *server, const struct lh_rpc_visitor *visitor);
/* Returns "user:NAME" of the process at the other end of a unix socket, to be freed; NULL: unknown. */
char *lh_rpc_unix_principal(int fd);

/*
 * Lets TCP connections accepted from now on speak TLS, in this context (tls/context.h), of which the server keeps a
 * reference. Open connections keep theirs, and end if its revocation lists name the client's certificate. Unix sockets
 * never speak TLS.
 */
void lh_rpc_server_set_tls(struct lh_rpc_server *server, struct lh_tls_context *context);
/* Sets the bound for new connections; open ones stay. */
void lh_rpc_server_set_max_connections(struct lh_rpc_server *server, size_t max_connections);

/*
 * Tells clients to go, takes no more of them, and lets calls end. on_final fires once, when each client has had the
 * time to react: calls that come from now on are not answered, those that came before still are. on_idle fires once,
 * after it, when no connection is left. Neither fires inside this call.
 */
void lh_rpc_server_drain(struct lh_rpc_server *server, void (*on_final)(void *arg), void (*on_idle)(void *arg),
                         void *arg);
/* Destroys the server, at any time outside of its callbacks; calls end with LH_RPC_END_SHUTDOWN. */
void lh_rpc_server_destroy(struct lh_rpc_server *server);

/* Bounds, and how often each was the reason for a refusal. */
enum lh_rpc_bound {
    LH_RPC_BOUND_CONNECTIONS,       /* max_connections: closed */
    LH_RPC_BOUND_STREAMS,           /* max_streams, by a client that does not keep to it: REFUSED_STREAM or GOAWAY */
    LH_RPC_BOUND_CONNECTION_MEMORY, /* connection_memory: OVERLOADED, or a reset */
    LH_RPC_BOUND_MEMORY,            /* memory: OVERLOADED, or a reset */
    LH_RPC_BOUND_MESSAGE,           /* max_message_bytes: MESSAGE_TOO_LARGE */
    LH_RPC_BOUND_HEADERS,           /* max_header_bytes: MESSAGE_TOO_LARGE */
    LH_RPC_BOUND_OUTPUT,            /* max_stream_bytes: a message was refused */
    LH_RPC_BOUND_HANDSHAKES,        /* max_handshakes: closed */
    LH_RPC_BOUND_REQUEST_TIME,      /* request_timeout: the call ends */
    LH_RPC_BOUND_STALL_TIME,        /* stall_timeout of an answer: its stream is reset */
    LH_RPC_BOUND_RESETS,            /* reset_burst: GOAWAY ENHANCE_YOUR_CALM */
    LH_RPC_BOUND_CONTROL_FRAMES,    /* control_burst: GOAWAY ENHANCE_YOUR_CALM */
    LH_RPC_BOUND_CONTINUATIONS,     /* LH_RPC_CONTINUATIONS_MAX: GOAWAY ENHANCE_YOUR_CALM */
    LH_RPC_BOUND_TURN,              /* the share of one connection in a turn of the loop: the rest waits */
    LH_RPC_BOUND_COUNT,
};

#define LH_RPC_STREAMS_PER_TURN 64   /* new ones of one connection, see rpc/gate.h */
#define LH_RPC_CONTINUATIONS_MAX 128 /* frames of one block of headers */

/* Reasons for the server to part from a connection by itself. */
enum lh_rpc_away {
    LH_RPC_AWAY_IDLE,
    LH_RPC_AWAY_SILENT,
    LH_RPC_AWAY_STALLED,
    LH_RPC_AWAY_NO_PREFACE,
    LH_RPC_AWAY_SLOW,     /* headers were not complete in time */
    LH_RPC_AWAY_FLOODING, /* GOAWAY ENHANCE_YOUR_CALM */
    LH_RPC_AWAY_MEMORY,
    LH_RPC_AWAY_AGED,        /* max_age */
    LH_RPC_AWAY_CERTIFICATE, /* the client's certificate has expired or was revoked since the handshake */
    LH_RPC_AWAY_TLS,         /* the handshake failed */
    LH_RPC_AWAY_COUNT
};

struct lh_rpc_server_stats {
    size_t connections;
    size_t calls;
    size_t buffered_bytes; /* bytes of calls: metadata, requests and answers */
    size_t memory;         /* bytes of connections, with all memory of HTTP/2 */
    size_t handshakes;     /* connections that have not sent their preface */
    uint64_t connections_total;
    uint64_t calls_total;
    uint64_t calls_ended[6]; /* by enum lh_rpc_end */
    uint64_t refusals[LH_RPC_BOUND_COUNT];
    uint64_t sent_away[LH_RPC_AWAY_COUNT];
};
void lh_rpc_server_stats(const struct lh_rpc_server *server, struct lh_rpc_server_stats *stats);
const struct lh_rpc_server_options *lh_rpc_server_options(const struct lh_rpc_server *server);

/*
 * Counts of one method: calls that are over by outcome, and how long each was open, with its wait in a queue.
 * outcomes[s] for s < LH_STATUS_COUNT were answered with that status; outcomes[LH_STATUS_COUNT + c] with the gRPC code
 * c and no reason of ours. A call that ended without an answer counts as LH_CANCELED.
 */
#define LH_RPC_OUTCOME_COUNT (LH_STATUS_COUNT + LH_GRPC_UNAUTHENTICATED + 1)

struct lh_rpc_method_stats {
    uint64_t outcomes[LH_RPC_OUTCOME_COUNT];
    struct lh_histogram duration_us; /* in lh_latency_bounds */
};
/* Returns the counts of a method. `index` as in the server's table of methods; its size: calls of methods that do
   not exist. */
const struct lh_rpc_method_stats *lh_rpc_server_method_stats(const struct lh_rpc_server *server, size_t index);

/* The functions below take a call, from its first callback until on_end. */
void *lh_rpc_call_arg(const struct lh_rpc_call *call);
const struct lh_rpc_method *lh_rpc_call_method(const struct lh_rpc_call *call);
uint64_t lh_rpc_call_id(const struct lh_rpc_call *call);         /* unique in this server, never used again */
void lh_rpc_call_set_data(struct lh_rpc_call *call, void *data); /* memory of the handler; NULL at first */
void *lh_rpc_call_data(const struct lh_rpc_call *call);
void lh_rpc_call_set_trace(struct lh_rpc_call *call, void *trace); /* memory of the observer; NULL at first */
void *lh_rpc_call_trace(const struct lh_rpc_call *call);
int64_t lh_rpc_call_arrived_us(const struct lh_rpc_call *call); /* arrival of its headers, on lh_clock_us() */
/* Valid in on_end; CANCELLED: it was not answered. */
enum lh_grpc_code lh_rpc_call_code(const struct lh_rpc_call *call);

/*
 * Returns the caller: the principal of lh_rpc_call_set_principal; else "spiffe://...", "uri:..." or "dns:NAME" of the
 * certificate that its connection has shown; else "user:NAME" of the process at the other end of a unix socket; else
 * LH_RPC_ANONYMOUS. Stays in place until the next set_principal, or on_end.
 */
#define LH_RPC_ANONYMOUS "anonymous"
const char *lh_rpc_call_principal(const struct lh_rpc_call *call);
/* Sets the principal that the call itself has proved ("token:NAME"), from now on; copied. */
void lh_rpc_call_set_principal(struct lh_rpc_call *call, const char *principal);
/* Returns the caller's address: "127.0.0.1:4242", "unix:". */
const char *lh_rpc_call_peer(const struct lh_rpc_call *call);

/* Returns true over TLS, a unix socket or loopback: no stranger reads its content. */
bool lh_rpc_call_is_private(const struct lh_rpc_call *call);
/* Returns the first value of a request header (lower case), or NULL. Those of gRPC itself and user-agent are not
   kept. Values of names in -bin are base64. */
const char *lh_rpc_call_metadata(const struct lh_rpc_call *call, const char *name);
/* Returns the only value of a header; NULL also if the call has several of that name. */
const char *lh_rpc_call_metadata_alone(const struct lh_rpc_call *call, const char *name);

/*
 * The client: an object of the handlers that all calls of a connection share, and several connections may. NULL at
 * first. on_client_gone fires when the connection is gone, after its last on_end.
 */
void lh_rpc_call_set_client(struct lh_rpc_call *call, void *client);
void *lh_rpc_call_client(const struct lh_rpc_call *call);

/* Counts `bytes` that the handler keeps for this call, until the next time or on_end, as its connection's. Returns
   false if the handler should not keep them, because the connection keeps too much. */
bool lh_rpc_call_set_kept(struct lh_rpc_call *call, size_t bytes);

/*
 * Asks the peer by a PING whether it is alive: on_peer_alive is called once, when its answer has come, however late;
 * never in here, nor when the call is finished or over by then. The calls of a connection that ask meanwhile share the
 * PING. Asking again before the answer does nothing.
 */
void lh_rpc_call_ask_peer(struct lh_rpc_call *call);
/* Returns, in on_end with LH_RPC_END_DISCONNECTED, true if we gave the connection up, or the network did; the peer
   may live on and not know. False: the peer, or its system, closed it. */
bool lh_rpc_call_is_peer_lost(const struct lh_rpc_call *call);

/* Sets the time of on_alarm (soon after it; at once when it has passed), replacing the one before. It does not fire
   once the call is finished or over. */
void lh_rpc_call_set_alarm(struct lh_rpc_call *call, int64_t at_us);

/*
 * Sends one message (copied). LH_OK; LH_OVERLOADED when more than max_stream_bytes already wait, or the connection
 * keeps too much for a message of this size: the message was not taken; LH_CANCELED when the call is finished or over
 * (then on_end is on its way). Output leaves at the end of the loop turn.
 */
enum lh_status lh_rpc_call_send(struct lh_rpc_call *call, const void *data, size_t size);
/* Sends the response's headers now, for a client that waits for them; else they go with the first message. */
void lh_rpc_call_send_headers(struct lh_rpc_call *call);
/* Bytes; above stream_mark_bytes a sender should pause. */
size_t lh_rpc_call_unsent(const struct lh_rpc_call *call);

/* Returns true while on_writable is to come, because more than stream_mark_bytes were waiting. */
bool lh_rpc_call_is_over_mark(const struct lh_rpc_call *call);

/* Start a call that on_enter let wait. Its method's callbacks come soon after, not from inside of this. */
void lh_rpc_call_start(struct lh_rpc_call *call);

/* Stop reading messages of a LH_RPC_BIDI call (flow control then stops the client), and go on. */
void lh_rpc_call_pause(struct lh_rpc_call *call);
void lh_rpc_call_resume(struct lh_rpc_call *call);

/*
 * Ends the call after the messages sent. `message` may be NULL; `details` is a serialized google.rpc.Status, whose code
 * and message must equal these, or NULL. If the trailers would be longer than 6 KiB, the details are left out first,
 * then the end of the message. A second finish does nothing. on_end fires later.
 */
void lh_rpc_call_finish(struct lh_rpc_call *call, enum lh_grpc_code code, const char *message, const void *details,
                        size_t details_size);
/* Sets the status that the code stands for, for the statistics. Call it before finish. */
void lh_rpc_call_set_reason(struct lh_rpc_call *call, enum lh_status reason);
/* Sends one message and OK. */
void lh_rpc_call_reply(struct lh_rpc_call *call, const void *data, size_t size);

#endif
