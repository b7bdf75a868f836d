/* The fields of a server, of its connections and of their calls. */
#ifndef LH_RPC_SERVER_INTERNAL_H
#define LH_RPC_SERVER_INTERNAL_H

#include "base/address.h"
#include "base/list.h"
#include "base/table.h"
#include "loop/backlog.h"
#include "loop/loop.h"
#include "rpc/connection.h"
#include "rpc/headers.h"
#include "rpc/recycle.h"
#include "rpc/server.h"

#define LISTENERS_MAX 16

struct listener {
    struct lh_rpc_server *server;
    struct lh_watch watch;
    struct lh_timer pause; /* runs after the system refused a descriptor */
    struct lh_address address;
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
    char peer[LH_ADDRESS_TEXT_BYTES];
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

/* --- call.c --- */

struct lh_rpc_call *lh_rpc_call_create(struct server_connection *connection, int32_t stream_id);
void lh_rpc_call_end(struct lh_rpc_call *call, enum lh_rpc_end reason); /* calls on_end, once */
void lh_rpc_call_free(struct lh_rpc_call *call);
void lh_rpc_call_drop_input(struct lh_rpc_call *call);
void lh_rpc_call_wait_for_rest(struct lh_rpc_call *call); /* a message has begun */
uint64_t lh_rpc_stream_call_id(const struct server_connection *connection, int32_t stream_id);
/* Ends a call with an error of the transport: on_end gets REFUSED, the client the details of encode_error. */
void lh_rpc_call_refuse(struct lh_rpc_call *call, enum lh_status status, enum lh_grpc_code code, const char *message);

void lh_rpc_call_refuse_http(struct lh_rpc_call *call, const char *http_status);
/* Resets a stream that carries no valid request. */
void lh_rpc_call_break(struct lh_rpc_call *call, uint32_t error);

/* --- call_input.c --- */

void lh_rpc_call_on_header(struct lh_rpc_call *call, const char *name, size_t name_size, const char *value,
                           size_t value_size);
void lh_rpc_call_on_headers(struct lh_rpc_call *call, bool is_end);
void lh_rpc_call_on_data(struct lh_rpc_call *call, const unsigned char *data, size_t size);
void lh_rpc_call_on_half_close(struct lh_rpc_call *call);
void lh_rpc_call_keep_borrowed(struct lh_rpc_call *call);
void lh_rpc_call_on_resume(struct lh_rpc_call *call);

/* --- server_connection.c --- */

struct server_connection *lh_rpc_server_accept(struct lh_rpc_server *server, int fd, const struct lh_address *peer);
void lh_rpc_server_connection_free(struct server_connection *connection, enum lh_rpc_end reason, const char *why);
nghttp2_session_callbacks *lh_rpc_server_callbacks_create(void);
nghttp2_option *lh_rpc_server_session_options_create(void);

/* --- server_handshake.c --- */

/* Takes the connection out of those whose handshakes share a bound. */
void lh_rpc_server_handshake_leave(struct server_connection *connection);
void lh_rpc_server_handshakes_init(struct lh_rpc_server *server);
void lh_rpc_server_handshakes_finish(struct lh_rpc_server *server);
void lh_rpc_server_connection_secure(struct server_connection *connection);
/* Logs a warning about a client that is refused; of many in a short time only some are written. */
void lh_rpc_server_tell_refusal(struct server_connection *connection, const char *why);

/* --- server_bounds.c --- */

/* Ends the connection at the end of the turn. */
void lh_rpc_server_connection_part(struct server_connection *connection, enum lh_rpc_away why, const char *words);
void lh_rpc_server_connection_notice(struct server_connection *connection);
void lh_rpc_server_connection_goaway(struct server_connection *connection);

void lh_rpc_server_connection_check_memory(struct server_connection *connection);
bool lh_rpc_server_connection_is_full(const struct server_connection *connection); /* too full for new requests */
bool lh_rpc_server_takes_call(const struct lh_rpc_call *call);
bool lh_rpc_server_takes_answer(const struct lh_rpc_call *call, size_t size);
void lh_rpc_server_shed(void *server);            /* lh_deferred */
void lh_rpc_call_count(struct lh_rpc_call *call); /* keeps the books */

void lh_rpc_server_sources_init(struct lh_rpc_server *server);
/* Returns false if the address has too many of them. */
bool lh_rpc_server_source_admits(struct lh_rpc_server *server, const struct lh_address *peer);
void lh_rpc_server_source_enter(struct server_connection *connection, const struct lh_address *peer);
void lh_rpc_server_source_leave(struct server_connection *connection);

/* --- call_facts.c --- */

/* Call it after the handshake. */
void lh_rpc_server_connection_identify_by_certificate(struct server_connection *connection);
void lh_rpc_server_connection_identify_visitor(struct server_connection *connection,
                                               const struct lh_rpc_visitor *visitor);

/* --- server_timeouts.c: each check applies one limit and returns when to look again --- */

int64_t lh_rpc_server_connection_check_silence(struct server_connection *connection, int64_t now_us);
int64_t lh_rpc_server_connection_check_idle(struct server_connection *connection, int64_t now_us);
int64_t lh_rpc_server_connection_check_age(struct server_connection *connection, int64_t now_us);
int64_t lh_rpc_server_connection_check_calls(struct server_connection *connection, int64_t now_us);
/* Handles the answer to a PING with these 8 bytes. */
void lh_rpc_server_connection_on_pong(struct server_connection *connection, const uint8_t *bytes);

#endif
