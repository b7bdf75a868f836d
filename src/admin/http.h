/*
 * HTTP/1.1 as an admin port needs it: one request for a connection, answered at once, later, or by a stream.
 *
 *     server = lh_http_create(loop, fd, on_request, arg, &error)
 *     ... on_request(arg, request): lh_http_answer(request, 200, "text/plain", bytes, size)
 *
 * Clients are bounded: LH_HTTP_CONNECTIONS_MAX connections, and LH_HTTP_TIMEOUT_US for each from the accept until its
 * request is complete, and again from the answer to its last byte. At the limit a new client takes the place of the
 * oldest that has no stream, so slow clients hold up no others. Without a free descriptor the process pauses accepting.
 */
#ifndef LH_ADMIN_HTTP_H
#define LH_ADMIN_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "admin/http_head.h"
#include "base/status.h"

struct lh_http;
struct lh_loop;
struct lh_tls_context;

#define LH_HTTP_CONNECTIONS_MAX 64
#define LH_HTTP_TIMEOUT_US INT64_C(5000000)
#define LH_HTTP_ANSWER_TIMEOUT_US INT64_C(30000000) /* from the request to an answer that comes later */
#define LH_HTTP_STALL_TIMEOUT_US INT64_C(30000000)  /* limit of a stream whose client takes none of the waiting bytes */
#define LH_HTTP_REQUEST_MAX_BYTES 8192              /* request line and headers */
#define LH_HTTP_BODY_MAX_BYTES 16384
#define LH_HTTP_PEER_BYTES 80

/* Stays in place until it is answered, and a stream until lh_http_end_stream; or until on_gone. */
struct lh_http_request {
    struct lh_http_head head;
    const char *body; /* ends in NUL */
    size_t body_size;
    bool is_tls;
    bool is_unix;
    int fd;
    /* Principal of the client's certificate; NULL: it showed none. */
    const char *principal;
    char peer[LH_HTTP_PEER_BYTES]; /* "127.0.0.1:4242", "[::1]:4242", "unix:" */

    /* The handler's, if it answers later: on_gone comes when the client is gone before that. */
    void (*on_gone)(void *data);
    void *data;
};

typedef void lh_http_cb(void *arg, struct lh_http_request *request);

/* `fd` is a bound socket; it listens from now on and is the server's. NULL: `error`, and fd is closed. */
struct lh_http *lh_http_create(struct lh_loop *loop, int fd, lh_http_cb *on_request, void *arg, struct lh_error *error);
void lh_http_destroy(struct lh_http *http); /* NULL does nothing */
/* Connections that are accepted from now on speak TLS, but not those of a unix socket. It keeps a reference. */
void lh_http_set_tls(struct lh_http *http, struct lh_tls_context *context);

/* A header of the answer, before the answer. */
void lh_http_add_header(struct lh_http_request *request, const char *name, const char *value);
void lh_http_answer(struct lh_http_request *request, int code, const char *type, const void *bytes, size_t size);

/* An answer without an end of its own: 200, then what is written, until one side closes. */
void lh_http_begin_stream(struct lh_http_request *request, const char *type);
/* Returns how many bytes wait to be sent. */
size_t lh_http_write_stream(struct lh_http_request *request, const void *bytes, size_t size);
/* Ends a stream after its waiting bytes are sent; on_gone does not come. */
void lh_http_end_stream(struct lh_http_request *request);

struct lh_http_stats {
    size_t connections;
    size_t streams;
    uint64_t evicted;   /* closed for a newer one, at LH_HTTP_CONNECTIONS_MAX */
    uint64_t timed_out; /* at one of the time-outs */
};
void lh_http_stats(const struct lh_http *http, struct lh_http_stats *stats);

#endif
