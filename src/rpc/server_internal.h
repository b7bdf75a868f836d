/* What the files of the server share. */
#ifndef LH_RPC_SERVER_INTERNAL_H
#define LH_RPC_SERVER_INTERNAL_H

#include "base/list.h"
#include "loop/loop.h"
#include "rpc/address.h"
#include "rpc/connection.h"
#include "rpc/frame.h"
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
    struct lh_link connections;
    struct lh_rpc_call *free_calls;
    size_t free_call_count;
    struct listener listeners[LISTENERS_MAX];
    size_t listener_count;
    struct lh_rpc_server_stats stats;
    struct lh_rpc_method_stats *method_stats; /* one more than there are methods */
    size_t refusing; /* connections above the bound that are being told so; not in stats.connections */

    enum drain_state { DRAIN_NONE, DRAIN_NOTICE, DRAIN_FINAL, DRAIN_IDLE } drain;
    struct lh_timer drain_timer;
    struct lh_deferred idle;
    void (*on_idle)(void *arg);
    void *idle_arg;
};

struct server_connection {
    struct rpc_connection io;
    struct rpc_early_reset early_reset;
    struct lh_rpc_server *server;
    struct lh_link in_server;
    struct lh_link calls;
    struct lh_link borrowing; /* calls whose message lies in the input that is being read */
    struct lh_link resuming;  /* calls whose held bytes are to be looked at */
    struct lh_deferred resume;
    struct lh_timer timer; /* preface, idle, stall, ending */
    size_t call_count;
    uint32_t serial;       /* among the server's connections */
    size_t buffered;       /* of its calls */
    int64_t listen_us;     /* the shortest of its calls, see lh_rpc_call_listen; 0: none listens */
    int64_t asked_at_us;   /* when a PING was sent for that */
    int64_t pinged_at_us;  /* 0: no PING is on its way */
    int64_t idle_at_us;    /* when the last call ended */
    int64_t noticed_at_us; /* when it was told to go because it is idle; 0: it was not */
    bool has_preface;
    bool is_going; /* GOAWAY was sent */
    bool is_refused;
    char peer[RPC_ADDRESS_TEXT_BYTES];
};

/*
 * A call's way: HEADERS until its headers are complete, OPEN while the handler may answer, FINISHING from the finish
 * until nghttp2 has sent the trailers and closed the stream. It is freed with the stream or the connection, nothing
 * else.
 */
enum call_state { CALL_HEADERS, CALL_OPEN, CALL_FINISHING };

struct lh_rpc_call {
    struct lh_link in_connection;
    struct lh_link in_queue; /* of its connection: borrowing or resuming */
    struct server_connection *connection;
    const struct lh_rpc_method *method; /* NULL: unknown */
    void *data;
    struct lh_timer deadline;
    struct lh_timer *alarm; /* NULL: never set */
    int64_t listen_us;
    int64_t arrived_us;
    int64_t deadline_us;
    struct rpc_inbox inbox;
    struct rpc_outbox outbox;
    struct lh_buffer held; /* arrived, not handed over: a unary message, or the bytes of a paused call */
    const void *borrowed;  /* the unary message, where it still lies in the input */
    size_t borrowed_size;
    struct lh_buffer metadata;  /* name, NUL, value, NUL, and so on */
    struct call_status *status; /* words for the trailers; NULL: none */
    size_t buffered;            /* of inbox and held, as counted in the server's statistics */
    size_t header_bytes;
    int32_t stream_id;
    uint8_t state;   /* enum call_state */
    uint8_t code;    /* enum lh_grpc_code */
    uint8_t outcome; /* as struct lh_rpc_method_stats has it */
    bool is_post;    /* what was found among the headers */
    bool is_grpc;
    bool has_bad_timeout;
    bool is_told;        /* the handler knows of it */
    bool is_over;        /* the handler has heard on_end, or will never hear of it */
    bool has_message;    /* of a unary call: its one message came */
    bool has_half_close; /* the client's half is closed */
    bool is_paused;
    bool is_deferred;  /* nghttp2 waits until there is more to send */
    bool has_response; /* the response headers were submitted */
    bool has_ended;    /* the trailers went out */
    bool was_over_mark;
    bool names_encodings; /* the trailers say that identity is the only one */
};

struct call_status {
    size_t message_size; /* percent-encoded */
    size_t details_size; /* base64 */
    char text[];         /* message, then details */
};

/* server_connection.c */
uint64_t server_call_id(const struct server_connection *connection, int32_t stream_id);
void server_accept(struct lh_rpc_server *server, int fd, const struct rpc_address *peer, bool is_refused);
void server_connection_notice(struct server_connection *connection);
void server_connection_goaway(struct server_connection *connection);
void server_connection_free(struct server_connection *connection, enum lh_rpc_end reason, const char *why);
nghttp2_session_callbacks *server_callbacks_create(void);
nghttp2_option *server_session_options_create(const struct lh_rpc_server_options *options);
void server_check_idle(struct lh_rpc_server *server);

/* call_alarm.c */
void call_finish_alarm(struct lh_rpc_call *call);
/* Asks a peer that is silent; returns when to look again. */
int64_t server_connection_check_listening(struct server_connection *connection, int64_t now_us);

/* call.c */
struct lh_rpc_call *call_create(struct server_connection *connection, int32_t stream_id);
void call_end(struct lh_rpc_call *call, enum lh_rpc_end reason); /* tells the handler, once */
void call_free(struct lh_rpc_call *call);
/* The transport's own error: tells the handler (REFUSED) and answers with details of encode_error. */
void call_refuse(struct lh_rpc_call *call, enum lh_status status, enum lh_grpc_code code, const char *message);

void call_refuse_http(struct lh_rpc_call *call, const char *http_status);

/* call_input.c: what the client sends */
void call_on_header(struct lh_rpc_call *call, const char *name, size_t name_size, const char *value, size_t value_size);
void call_on_headers(struct lh_rpc_call *call);
void call_on_data(struct lh_rpc_call *call, const unsigned char *data, size_t size);
void call_on_half_close(struct lh_rpc_call *call);
void call_keep_borrowed(struct lh_rpc_call *call);
void call_on_resume(struct lh_rpc_call *call);
void call_drop_input(struct lh_rpc_call *call);

#endif
