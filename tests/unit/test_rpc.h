/*
 * A server in the test's own loop whose handlers write down what they hear, and a raw client: an HTTP/2 session whose
 * bytes the test itself carries to the socket, whole, cut, or spoiled.
 */
#ifndef LH_TEST_RPC_H
#define LH_TEST_RPC_H

#include <check.h>
#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/clock.h"
#include "base/memory.h"
#include "loop/loop.h"
#include "rpc_peek.h"
#include "virtual_clock.h"

#define PATIENCE_US (20 * LH_US_PER_S)

extern struct lh_loop *loop;
extern struct lh_rpc_server *server;
extern struct lh_rpc_server_options server_options;
extern struct lh_tls_context *server_tls;              /* of the servers that are started from now on; NULL: none */
extern const struct lh_rpc_method *const test_methods; /* of the server */

/* What the handlers heard, of all calls. */
struct heard {
    int starts;
    int messages;
    size_t message_bytes;
    int half_closes;
    int writables;
    int alarms;  /* of Bidi */
    int alive;   /* the same: answers of its peer */
    int lost;    /* of the ends: without a word of the peer */
    int ends[6]; /* by enum lh_rpc_end */
    struct lh_rpc_call *last;
    bool is_pausing;        /* Bidi pauses after each message */
    char authorization[64]; /* of the last Echo or Bidi; "": none */
};
extern struct heard heard;

/*
 * Methods: /t.T/Echo (unary; header x-fail: a code, then with "details" as its details; x-words: so many bytes of
 * message), /t.T/Never (unary), /t.T/Answer (unary: answers the Never that is `heard.last`, then itself), /t.T/Stream
 * (server_stream: sends messages of 1000 bytes until it is refused), /t.T/Bidi (echoes; finishes at the half close),
 * /t.T/First (as Echo; comes first), /t.T/Early (bidi: finishes at its start).
 */
void server_start(void); /* with server_options */
void rpc_setup(void);    /* loop, default options, started */
void rpc_teardown(void);
void rpc_secure(bool needs_client_cert); /* before rpc_setup: server_tls, with certificates.h's "ca" and "server" */
void rpc_plain(void);                    /* undoes it */
int ends_total(void);

/* Turn the loop until `condition`, or fail. */
#define WAIT_FOR(condition)                                                                                            \
    do {                                                                                                               \
        int64_t until_us = lh_clock_us() + PATIENCE_US;                                                                \
        while (!(condition) && lh_clock_us() < until_us)                                                               \
            virtual_clock_turn(loop);                                                                                  \
        ck_assert_msg(condition, "never came: %s", #condition);                                                        \
    } while (0)

#define RAW_STREAMS_MAX 64
#define RAW_HEADERS_MAX_BYTES ((size_t)4 * 1024 * 1024)
#define RAW_FRAME_BYTES ((size_t)16384)

struct raw_answer {
    int http_status;
    int grpc_status; /* -1: none */
    char message[8192];
    char details[8192];
    char encodings[64];
    size_t trailer_bytes; /* as RFC 9113 counts */
    struct lh_buffer data;
    bool is_closed;
    uint32_t error;
};

struct raw {
    nghttp2_session *session;
    struct lh_buffer out; /* what the session wants to send */
    int fd;
    bool is_gone; /* the server closed */
    bool reads_not;
    int goaways;
    uint32_t goaway_error;                      /* of the last */
    int pongs;                                  /* answers to ours */
    int pings;                                  /* the server's */
    struct raw_answer answers[RAW_STREAMS_MAX]; /* of the latest streams */
};

void raw_open(struct raw *raw);  /* session and socket; with its preface in `out` */
void raw_close(struct raw *raw); /* may be repeated */
int raw_connect(void);           /* just a socket */
/* Headers of a call; `extra` is "name", "value", ..., NULL. Returns the stream. */
int32_t raw_call(struct raw *raw, const char *path, const char *const *extra);
int32_t raw_request(struct raw *raw, const char *method, const char *path, const char *content_type,
                    const char *const *extra);
void raw_data(struct raw *raw, int32_t stream_id, const void *data, size_t size, bool is_last); /* one DATA frame */
void raw_message(struct raw *raw, int32_t stream_id, const char *text, bool is_last); /* with its prefix, in frames */
void raw_reset(struct raw *raw, int32_t stream_id);
void raw_collect(struct raw *raw);            /* session to `out` */
void raw_write(struct raw *raw, size_t size); /* the first bytes of `out` to the socket */
void raw_flush(struct raw *raw);              /* collect and write all */
void raw_pump(struct raw *raw);               /* a turn of the loop; read what came */
struct raw_answer *raw_answer(struct raw *raw, int32_t stream_id);
void raw_forget(struct raw *raw, int32_t stream_id); /* the answer of an earlier stream in its place */
void raw_wait_closed(struct raw *raw, int32_t stream_id);
void raw_expect_echo(struct raw *raw, int32_t stream_id, const char *text);

#define RAW_WAIT(raw, condition)                                                                                       \
    do {                                                                                                               \
        int64_t until_us = lh_clock_us() + PATIENCE_US;                                                                \
        while (!(condition) && lh_clock_us() < until_us)                                                               \
            raw_pump(raw);                                                                                             \
        ck_assert_msg(condition, "never came: %s", #condition);                                                        \
    } while (0)

TCase *text_tests(void);
TCase *frame_tests(void);
TCase *input_tests(void);
TCase *call_tests(void);
TCase *alarm_tests(void);
TCase *hostile_tests(void);
TCase *gate_tests(void);
TCase *header_tests(void);
TCase *bounds_tests(void);
TCase *client_tests(void);
TCase *secure_client_tests(void);
TCase *tls_tests(void);
TCase *token_tests(void);

#endif
