/* The fields of a server, of its connections and of their calls. */
#ifndef LH_RPC_SERVER_INTERNAL_H
#define LH_RPC_SERVER_INTERNAL_H

#include "base/list.h"
#include "base/table.h"
#include "loop/backlog.h"
#include "loop/loop.h"
#include "rpc/address.h"
#include "rpc/connection.h"
#include "rpc/header_check.h"
#include "rpc/recycle.h"
#include "rpc/server.h"

#define LISTENERS_MAX 16

struct listener {
    struct lh_rpc_server *server;
    struct lh_watch watch;
    struct lh_timer pause; /* runs after the system refused a descriptor */
    struct rpc_address address;
    int fd;
};

struct lh_rpc_server {
    struct lh_loop *loop;
    struct lh_rpc_server_options options;
    const struct lh_rpc_method *methods;
    size_t *path_sizes; /* lengths of the methods' paths */
    size_t method_count;
    void *arg;
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *session_options;
    struct rpc_pool pool;
    struct rpc_recycle recycle;
    struct rpc_account account; /* sum of all connections */
    struct lh_deferred gone;    /* runs when a connection has ended */
    struct lh_deferred shed;
    struct lh_tls_context *tls; /* NULL: none */
    struct lh_link securing;    /* connections whose TLS handshake goes on, the oldest first */
    size_t securing_count;
    struct lh_backlog handshakes;    /* connections whose client has sent the next part of its handshake */
    struct rpc_budget refusals_told; /* bound of refusals in the log */
    size_t refusals_untold;
    struct lh_table sources; /* addresses with unfinished handshakes */
    struct lh_link connections;
    struct lh_rpc_call *free_calls;
    size_t free_call_count;
    struct listener listeners[LISTENERS_MAX];
    size_t listener_count;
    struct lh_rpc_server_stats stats;
    struct lh_rpc_method_stats *method_stats; /* one for each method, and one for unknown ones */
    bool is_out_of_descriptors;

    enum drain_state { DRAIN_NONE, DRAIN_NOTICE, DRAIN_FINAL, DRAIN_IDLE } drain;
    struct lh_timer drain_timer;
    struct lh_deferred told; /* delivers on_final and on_idle */
    void (*on_final)(void *arg);
    void (*on_idle)(void *arg);
    void *drain_arg;
};

struct server_connection {
    struct rpc_connection io;
    struct rpc_gate gate;
    struct rpc_account account;
    struct rpc_counted memory; /* memory of nghttp2 */
    struct lh_rpc_server *server;
    struct lh_link in_server;
    struct lh_link calls;
    struct lh_link borrowing; /* calls whose message lies in the input that is being read */
    struct lh_link resuming;  /* calls whose held bytes are to be looked at */
    /* Calls that have begun a message and not ended it, the oldest first. */
    struct lh_link unfinished;
    /* Calls whose answer was not taken yet, by the time when a part of it was. */
    struct lh_link answered;
    struct lh_link asking; /* calls that ask whether the peer is alive */
    /* Set while its handshake is not finished; NULL: it is, or there is no address. */
    struct source *source;
    struct lh_link in_source;
    struct lh_backlog_item handshake;
    struct lh_link securing;
    void *client;    /* see lh_rpc_call_set_client */
    char *principal; /* NULL: anonymous */
    struct lh_deferred resume;
    struct lh_timer timer; /* next of preface, idle, stall, ending */
    size_t call_count;
    uint32_t serial; /* number among the server's connections */
    /* Time when the PING of the calls that ask was sent; 0: none is in flight. */
    int64_t asked_at_us;
    int64_t pinged_at_us; /* 0: no PING is in flight */
    int64_t idle_at_us;   /* time when the last call ended */
    /* Time of GOAWAY because it is idle; 0: not sent. */
    int64_t noticed_at_us;
    /* Time of GOAWAY: max_age, or before its certificate ends. */
    int64_t leaves_at_us;
    int64_t ends_at_us; /* end of its certificate */
    bool has_preface;
    bool is_going;        /* GOAWAY was sent */
    bool is_flooding;     /* its gate has sent it away */
    bool is_private;      /* a visitor that came in privately */
    bool has_asked_again; /* the answer to the PING before came late */
    char peer[RPC_ADDRESS_TEXT_BYTES];
};

/*
 * The life of a call: HEADERS until its headers are complete, OPEN while the handler may answer, FINISHING from the
 * finish until nghttp2 has sent the trailers and closed the stream. It is freed only with the stream or the connection.
 */
enum call_state { CALL_HEADERS, CALL_OPEN, CALL_FINISHING };

struct lh_rpc_call {
    struct lh_link in_connection;
    struct lh_link in_queue;   /* link in its connection's borrowing or resuming */
    struct lh_link in_waiting; /* link in its connection's unfinished or answered */
    struct lh_link in_asking;  /* link in its connection's asking */
    struct server_connection *connection;
    const struct lh_rpc_method *method; /* NULL: unknown */
    char *principal;                    /* NULL: its connection's */
    void *data;
    void *trace;
    struct lh_timer deadline;
    struct lh_timer *alarm; /* NULL: never set */
    int64_t arrived_us;
    int64_t deadline_us;
    int64_t waiting_us; /* time when it joined in_waiting */
    struct rpc_inbox inbox;
    struct rpc_outbox outbox;
    struct lh_buffer held; /* arrived, not handed over: a unary message, or the bytes of a paused call */
    const void *borrowed;  /* the unary message, while it still lies in the input */
    size_t borrowed_size;
    struct lh_buffer metadata;  /* name, NUL, value, NUL, and so on */
    struct call_status *status; /* words for the trailers; NULL: none */
    struct rpc_header_check check;
    size_t kept;    /* bytes that the handler keeps */
    size_t counted; /* bytes in the connection's account */
    size_t header_bytes;
    int32_t stream_id;
    uint8_t state;   /* enum call_state */
    uint8_t code;    /* enum lh_grpc_code */
    uint8_t outcome; /* index as in struct lh_rpc_method_stats */
    bool is_post;    /* is_post, is_grpc and has_bad_timeout: found in the headers */
    bool is_grpc;
    bool has_bad_timeout;
    bool is_told;        /* the handler knows the call */
    bool is_over;        /* on_end was called, or will never be */
    bool has_message;    /* unary call: its one message came */
    bool has_half_close; /* the client's half is closed */
    bool is_paused;
    bool waits_to_start; /* on_enter returned false, and lh_rpc_call_start was not called yet */
    bool is_to_start;    /* lh_rpc_call_start was called, and the end of the turn has not come yet */
    bool is_deferred;    /* nghttp2 waits for more bytes to send */
    bool has_response;   /* the response headers were submitted */
    bool has_ended;      /* the trailers went out */
    bool was_over_mark;
    bool names_encodings; /* the trailers say that identity is the only one */
};

struct call_status {
    size_t message_size; /* percent-encoded */
    size_t details_size; /* base64 */
    char text[];         /* message, then details */
};

#endif
