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
    LH_RPC_SERVER_STREAM, /* the same, answered by any number of messages */
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
 * The methods, with everything they point to, stay in place as long as the server. Each callback may be NULL. on_start:
 * the headers are there. on_writable: less than half of `stream_mark_bytes` waits to be sent, after lh_rpc_call_send
 * said there was more than the mark. on_end: exactly once for each call of which any other callback told; lh_rpc_call_*
 * getters still work in it, afterwards the pointer is dead. It never fires inside lh_rpc_call_send, reply or finish.
 */
struct lh_rpc_method {
    const char *path;
    enum lh_rpc_kind kind;
    lh_rpc_call_cb *on_start;
    lh_rpc_message_cb *on_message; /* bytes are valid during the callback */
    lh_rpc_call_cb *on_half_close; /* for LH_RPC_BIDI only */
    lh_rpc_call_cb *on_writable;
    lh_rpc_call_cb *on_alarm;      /* see lh_rpc_call_set_alarm */
    lh_rpc_call_cb *on_peer_alive; /* see lh_rpc_call_ask_peer */
    lh_rpc_end_cb *on_end;
    void *arg;
    bool comes_first; /* taken while there is memory at all: what others depend on */
};

struct lh_rpc_server_options {
    size_t max_message_bytes; /* default 4 MiB */
    size_t max_connections;   /* default 10,000; more are closed at once */
    uint32_t max_streams;     /* at once on a connection; default 1000 */
    size_t max_header_bytes;  /* of one request, as RFC 9113 counts (32 for each field on top); default 16 KiB */
    size_t connection_memory; /* that a connection may keep; default 16 MiB. Above half of it new calls and requests
                                 that need more are refused OVERLOADED, above three quarters large answers; beyond it
                                 the connection is reset */
    size_t memory;            /* the same for all; default 512 MiB. Above three quarters new calls are refused
                                 OVERLOADED, beyond it the connection with the most is reset */
    size_t output_mark_bytes; /* of a connection: above it nothing more is taken from HTTP/2; default 256 KiB */
    size_t stream_mark_bytes; /* of a call: see lh_rpc_call_send; default 64 KiB */
    size_t max_stream_bytes;  /* of a call: unsent bytes above which lh_rpc_call_send refuses; default 8 MiB */
    size_t max_handshakes; /* of one address, connections that have not sent their HTTP/2 preface; default 64. More are
                              closed at once */
    int64_t handshake_timeout_us; /* a connection that has not sent it by then is closed; default 5 s. The bound of a
                                     TLS handshake too */
    int64_t request_timeout_us;   /* a message that has begun, or a unary call, is complete by then; default 10 s */
    int64_t idle_timeout_us;      /* a connection without calls for that long is sent away; default 10 min; 0: never */
    int64_t keepalive_us;         /* a client that was silent for that long gets a PING. Default 30 s; 0: never */
    int64_t keepalive_timeout_us; /* no sign of it for that long afterwards: it is gone. Default 10 s */
    int64_t late_answer_us;       /* a later answer to lh_rpc_call_ask_peer is asked for again; default 100 ms */
    int64_t stall_timeout_us;     /* a connection whose client takes none of the bytes that wait, and a call that is
                                     answered and whose client reads none of it; default 30 s */
    uint64_t reset_burst;         /* calls that a client may reset at once before they are answered (its deadlines are
                                     resets) */
    uint64_t reset_rate;          /* and how many a second on top; default 10,000 and 2,000 */
    uint64_t control_burst;       /* frames that carry nothing, see rpc/gate.h */
    uint64_t control_rate;        /* default 10,000 and 1,000 */
    int64_t max_age_us;           /* a TLS connection older than that is sent away; default 0: never */
    int64_t drain_notice_us;      /* between the shutdown notice and the final GOAWAY; default 500 ms */
    int64_t drain_limit_us;       /* from the final GOAWAY until what is left is cut; default 10 s */

    /* Appends the serialized google.rpc.Status of an error that the transport itself found (MESSAGE_TOO_LARGE,
       OVERLOADED, UNIMPLEMENTED). NULL: such errors go without details. */
    void (*encode_error)(void *arg, enum lh_status status, const char *message, struct lh_buffer *details);

    /* The client reset (CANCEL) a call after its on_end had said LH_RPC_END_FINISHED: cancel and answer crossed on the
       wire, and the client does not read the answer. May be NULL. Never inside the call's callbacks. */
    void (*on_late_cancel)(void *arg, uint64_t call_id);

    /* A connection whose data were set is gone, see lh_rpc_call_set_client. May be NULL. */
    void (*on_client_gone)(void *arg, void *client);
};

void lh_rpc_server_options_init(struct lh_rpc_server_options *options);

/* `arg` is what lh_rpc_call_arg returns and encode_error gets. */
struct lh_rpc_server *lh_rpc_server_create(struct lh_loop *loop, const struct lh_rpc_server_options *options,
                                           const struct lh_rpc_method *methods, size_t method_count, void *arg);

/* A socket of lh_rpc_bind (rpc/listen.h) listens from now on. It is the server's, also when this is refused. A unix
   socket's file is removed with it. May be called several times. */
enum lh_status lh_rpc_server_adopt(struct lh_rpc_server *server, int fd, struct lh_error *error);

/*
 * A connection from inside of this process, on behalf of a client of another port. Returns the other end, for
 * lh_rpc_channel_create_on; its calls run as that client. -1: the server shuts down, or no descriptor is left.
 */
struct lh_rpc_visitor {
    const char *principal; /* NULL: LH_RPC_ANONYMOUS */
    const char *peer;      /* as lh_rpc_call_peer */
    bool is_private;       /* as lh_rpc_call_is_private */
};
int lh_rpc_server_open(struct lh_rpc_server *server, const struct lh_rpc_visitor *visitor);
/* "user:NAME" of the process at the other end of a unix socket, to be freed; NULL: unknown. */
char *lh_rpc_unix_principal(int fd);

/*
 * From now on TCP connections that are accepted speak TLS, in this context (tls/context.h), of which the server keeps a
 * reference. Those that are open keep theirs, and end where its revocation lists name the client's certificate. Unix sockets never speak TLS.
 */
void lh_rpc_server_set_tls(struct lh_rpc_server *server, struct lh_tls_context *context);

/*
 * Tell clients to go, take no more of them, and let calls end. on_final fires once, when each client was given the time
 * to hear of it: calls that come from now on are not answered, those that came before still are. on_idle fires once,
 * after it, when no connection is left. Neither from inside of this.
 */
void lh_rpc_server_drain(struct lh_rpc_server *server, void (*on_final)(void *arg), void (*on_idle)(void *arg),
                         void *arg);
/* At any time outside of the server's callbacks; calls end with LH_RPC_END_SHUTDOWN. */
void lh_rpc_server_destroy(struct lh_rpc_server *server);

/* Bounds, and how often each was the reason to refuse something. */
enum lh_rpc_bound {
    LH_RPC_BOUND_CONNECTIONS,       /* max_connections: closed */
    LH_RPC_BOUND_STREAMS,           /* max_streams, by a client that does not keep to it: REFUSED_STREAM or GOAWAY */
    LH_RPC_BOUND_CONNECTION_MEMORY, /* connection_memory: OVERLOADED, or a reset */
    LH_RPC_BOUND_MEMORY,            /* memory: the same */
    LH_RPC_BOUND_MESSAGE,           /* max_message_bytes: MESSAGE_TOO_LARGE */
    LH_RPC_BOUND_HEADERS,           /* max_header_bytes: MESSAGE_TOO_LARGE */
    LH_RPC_BOUND_OUTPUT,            /* max_stream_bytes: a message was not taken for sending */
    LH_RPC_BOUND_HANDSHAKES,        /* max_handshakes: closed */
    LH_RPC_BOUND_REQUEST_TIME,      /* request_timeout: the call ends */
    LH_RPC_BOUND_STALL_TIME,        /* stall_timeout of an answer: its stream is reset */
    LH_RPC_BOUND_RESETS,            /* reset_burst: GOAWAY ENHANCE_YOUR_CALM */
    LH_RPC_BOUND_CONTROL_FRAMES,    /* control_burst: the same */
    LH_RPC_BOUND_CONTINUATIONS,     /* LH_RPC_CONTINUATIONS_MAX: the same */
    LH_RPC_BOUND_TURN,              /* what one connection may ask in a turn of the loop: the rest waits */
    LH_RPC_BOUND_COUNT,
};

#define LH_RPC_STREAMS_PER_TURN 64   /* new ones of one connection, see rpc/gate.h */
#define LH_RPC_CONTINUATIONS_MAX 128 /* frames of one block of headers */

/* Why the server parted from a connection by itself. */
enum lh_rpc_away {
    LH_RPC_AWAY_IDLE,
    LH_RPC_AWAY_SILENT,
    LH_RPC_AWAY_STALLED,
    LH_RPC_AWAY_NO_PREFACE,
    LH_RPC_AWAY_SLOW,     /* its headers were not complete in time */
    LH_RPC_AWAY_FLOODING, /* GOAWAY ENHANCE_YOUR_CALM */
    LH_RPC_AWAY_MEMORY,
    LH_RPC_AWAY_AGED,        /* max_age */
    LH_RPC_AWAY_CERTIFICATE, /* the client's has expired or was revoked since the handshake */
    LH_RPC_AWAY_TLS,         /* the handshake failed */
    LH_RPC_AWAY_COUNT
};

struct lh_rpc_server_stats {
    size_t connections;
    size_t calls;
    size_t buffered_bytes; /* of calls: metadata, requests and answers */
    size_t memory;         /* of connections, with all that HTTP/2 keeps for them */
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
 * Of one method: calls that are over by how they ended, and how long each was open, its wait in a queue included.
 * outcomes[s] for s < LH_STATUS_COUNT were answered with that status; outcomes[LH_STATUS_COUNT + c] with the gRPC code
 * c and no reason of ours. A call that ended without an answer counts as LH_CANCELED.
 */
#define LH_RPC_OUTCOME_COUNT (LH_STATUS_COUNT + LH_GRPC_UNAUTHENTICATED + 1)

struct lh_rpc_method_stats {
    uint64_t outcomes[LH_RPC_OUTCOME_COUNT];
    struct lh_histogram duration_us; /* in lh_latency_bounds */
};
/* `index` as in the server's table of methods; its size: calls of methods that do not exist. */
const struct lh_rpc_method_stats *lh_rpc_server_method_stats(const struct lh_rpc_server *server, size_t index);

/* A call, from its first callback until on_end. */
void *lh_rpc_call_arg(const struct lh_rpc_call *call);
const struct lh_rpc_method *lh_rpc_call_method(const struct lh_rpc_call *call);
uint64_t lh_rpc_call_id(const struct lh_rpc_call *call);         /* of this server alone, never used again */
void lh_rpc_call_set_data(struct lh_rpc_call *call, void *data); /* the handler's own; NULL at first */
void *lh_rpc_call_data(const struct lh_rpc_call *call);
void lh_rpc_call_set_trace(struct lh_rpc_call *call, void *trace); /* another one, for who observes it; NULL at first */
void *lh_rpc_call_trace(const struct lh_rpc_call *call);
int64_t lh_rpc_call_arrived_us(const struct lh_rpc_call *call);     /* its headers, on lh_clock_us() */
enum lh_grpc_code lh_rpc_call_code(const struct lh_rpc_call *call); /* in on_end; CANCELLED: it was not answered */

/*
 * Who calls: what lh_rpc_call_set_principal has said of this call; else "spiffe://...", "uri:..." or "dns:NAME" of the
 * certificate that its connection has shown; else "user:NAME" of the process at the other end of a unix socket; else
 * LH_RPC_ANONYMOUS. Stays in place until the next set_principal, or on_end.
 */
#define LH_RPC_ANONYMOUS "anonymous"
const char *lh_rpc_call_principal(const struct lh_rpc_call *call);
/* What the call itself has proved ("token:NAME"), from now on; copied. */
void lh_rpc_call_set_principal(struct lh_rpc_call *call, const char *principal);
/* From where: "127.0.0.1:4242", "unix:". */
const char *lh_rpc_call_peer(const struct lh_rpc_call *call);

/* Over TLS, a unix socket or loopback: no stranger reads what it carries. */
bool lh_rpc_call_is_private(const struct lh_rpc_call *call);
/* The first value of a request header (lower case), or NULL. Those of gRPC itself and user-agent are not kept. Values
   of names in -bin are base64. */
const char *lh_rpc_call_metadata(const struct lh_rpc_call *call, const char *name);
/* NULL also where the call has several of that name. */
const char *lh_rpc_call_metadata_alone(const struct lh_rpc_call *call, const char *name);

/*
 * The caller: an object of the handlers' own that all calls of a connection share, and several connections may. NULL at
 * first. on_client_gone tells when the connection is gone, after its last on_end.
 */
void lh_rpc_call_set_client(struct lh_rpc_call *call, void *client);
void *lh_rpc_call_client(const struct lh_rpc_call *call);

/* The handler keeps so many bytes for this call, until the next time or on_end: they count as its connection's. False:
   it had better not, the connection keeps too much. */
bool lh_rpc_call_set_kept(struct lh_rpc_call *call, size_t bytes);

/*
 * Ask the peer by a PING whether it is alive: on_peer_alive is called once, when its answer has come, however late;
 * never in here, nor when the call is finished or over by then. The calls of a connection that ask meanwhile share the
 * PING. Asking again before the answer does nothing.
 */
void lh_rpc_call_ask_peer(struct lh_rpc_call *call);
/* In on_end with LH_RPC_END_DISCONNECTED: we gave the connection up, or the network did; the peer may live on and not
   know. False: the peer, or its system, closed it. */
bool lh_rpc_call_is_peer_lost(const struct lh_rpc_call *call);

/* Call on_alarm then (soon after; at once when that has passed), unless the call is finished or over by then. Replaces
   the time before. */
void lh_rpc_call_set_alarm(struct lh_rpc_call *call, int64_t at_us);

/*
 * Send one message (copied). LH_OK; LH_OVERLOADED when more than max_stream_bytes already wait, or the connection keeps
 * too much for a message of this size: nothing was taken;
 * LH_CANCELED when the call is finished or over (then on_end is on its way). Output leaves at the end of the loop turn.
 */
enum lh_status lh_rpc_call_send(struct lh_rpc_call *call, const void *data, size_t size);
/* Send the response's headers now, where a client waits for them; else they go with the first message. */
void lh_rpc_call_send_headers(struct lh_rpc_call *call);
size_t lh_rpc_call_unsent(const struct lh_rpc_call *call); /* bytes; over stream_mark_bytes a sender should pause */

/* More than stream_mark_bytes were waiting, and on_writable is to come. */
bool lh_rpc_call_is_over_mark(const struct lh_rpc_call *call);

/* Stop reading messages of a LH_RPC_BIDI call (flow control then stops the client), and go on. */
void lh_rpc_call_pause(struct lh_rpc_call *call);
void lh_rpc_call_resume(struct lh_rpc_call *call);

/*
 * End the call after what was sent. `message` may be NULL; `details` is a serialized google.rpc.Status, whose code and
 * message must equal these, or NULL. What would make the trailers longer than 6 KiB is left out: details first, then
 * the end of the message. A second finish does nothing. on_end fires later.
 */
void lh_rpc_call_finish(struct lh_rpc_call *call, enum lh_grpc_code code, const char *message, const void *details,
                        size_t details_size);
/* Before finish, for the statistics: which status the code stands for. */
void lh_rpc_call_set_reason(struct lh_rpc_call *call, enum lh_status reason);
/* One message and OK. */
void lh_rpc_call_reply(struct lh_rpc_call *call, const void *data, size_t size);

#endif
