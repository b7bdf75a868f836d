/* A call of the server, and how it ends. Its handler sees rpc/server.h. */
#ifndef LH_RPC_CALL_H
#define LH_RPC_CALL_H

#include "rpc/header_check.h"
#include "rpc/server_connection.h"

/*
 * A call's way: HEADERS until its headers are complete, OPEN while the handler may answer, FINISHING from the finish
 * until nghttp2 has sent the trailers and closed the stream. It is freed with the stream or the connection, nothing
 * else.
 */
enum call_state { CALL_HEADERS, CALL_OPEN, CALL_FINISHING };

struct lh_rpc_call {
    struct lh_link in_connection;
    struct lh_link in_queue;   /* of its connection: borrowing or resuming */
    struct lh_link in_waiting; /* of its connection: unfinished or answered */
    struct lh_link in_asking;  /* of its connection */
    struct server_connection *connection;
    const struct lh_rpc_method *method; /* NULL: unknown */
    char *principal;                    /* NULL: its connection's */
    void *data;
    void *trace;
    struct lh_timer deadline;
    struct lh_timer *alarm; /* NULL: never set */
    int64_t arrived_us;
    int64_t deadline_us;
    int64_t waiting_us; /* since when it is in in_waiting */
    struct rpc_inbox inbox;
    struct rpc_outbox outbox;
    struct lh_buffer held; /* arrived, not handed over: a unary message, or the bytes of a paused call */
    const void *borrowed;  /* the unary message, where it still lies in the input */
    size_t borrowed_size;
    struct lh_buffer metadata;  /* name, NUL, value, NUL, and so on */
    struct call_status *status; /* words for the trailers; NULL: none */
    struct rpc_header_check check;
    size_t kept;    /* by the handler */
    size_t counted; /* in the connection's account: all of these */
    size_t header_bytes;
    int32_t stream_id;
    uint8_t state;   /* enum call_state */
    uint8_t code;    /* enum lh_grpc_code */
    uint8_t outcome; /* as struct lh_rpc_method_stats has it */
    bool is_post;    /* what was found among the headers */
    bool is_grpc;
    bool has_bad_timeout;
    bool is_told;        /* the handler knows of it */
    bool is_over;        /* on_end was called, or will never be */
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

struct lh_rpc_call *lh_rpc_call_create(struct server_connection *connection, int32_t stream_id);
void lh_rpc_call_end(struct lh_rpc_call *call, enum lh_rpc_end reason); /* tells the handler, once */
void lh_rpc_call_free(struct lh_rpc_call *call);
void lh_rpc_call_drop_input(struct lh_rpc_call *call);
void lh_rpc_call_wait_for_rest(struct lh_rpc_call *call);   /* a message has begun */
void lh_rpc_call_wait_for_reader(struct lh_rpc_call *call); /* some of the answer was taken, or none yet */
uint64_t lh_rpc_stream_call_id(const struct server_connection *connection, int32_t stream_id);
/* The transport's own error: tells the handler (REFUSED) and answers with details of encode_error. */
void lh_rpc_call_refuse(struct lh_rpc_call *call, enum lh_status status, enum lh_grpc_code code, const char *message);

void lh_rpc_call_refuse_http(struct lh_rpc_call *call, const char *http_status);
/* What is no request at all: its stream is reset. */
void lh_rpc_call_break(struct lh_rpc_call *call, uint32_t error);

#endif
