/*
 * HTTP/1.1 as an admin port needs it: one request for a connection, GET and HEAD, an answer that is whole.
 *
 *     server = lh_http_create(loop, fd, on_request, arg, &error)
 *     ... on_request(arg, &request): lh_http_answer(&request, 200, "text/plain", bytes, size)
 *
 * Clients are bounded: LH_HTTP_CONNECTIONS_MAX connections, and LH_HTTP_TIMEOUT_US for each from the accept to the last
 * byte of the answer. At the limit a new client takes the place of the oldest, so slow clients
 * hold up no others. Without a free descriptor the process pauses accepting.
 */
#ifndef LH_ADMIN_HTTP_H
#define LH_ADMIN_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct lh_http;
struct lh_loop;
struct lh_tls_context;

#define LH_HTTP_CONNECTIONS_MAX 64
#define LH_HTTP_TIMEOUT_US INT64_C(5000000)
#define LH_HTTP_REQUEST_MAX_BYTES 8192 /* request line and headers */

struct lh_http_request {
    const char *path; /* without the query */
    void *connection;
};

/* Answers within the call. */
typedef void lh_http_cb(void *arg, struct lh_http_request *request);

/* `fd` is a bound socket; it listens from now on and is the server's. NULL: `error`, and fd is closed. */
struct lh_http *lh_http_create(struct lh_loop *loop, int fd, lh_http_cb *on_request, void *arg, struct lh_error *error);
void lh_http_destroy(struct lh_http *http); /* NULL does nothing */
/* Connections that are accepted from now on speak TLS, but not those of a unix socket. It keeps a reference. */
void lh_http_set_tls(struct lh_http *http, struct lh_tls_context *context);

void lh_http_answer(struct lh_http_request *request, int code, const char *type, const void *bytes, size_t size);

struct lh_http_stats {
    size_t connections;
    uint64_t evicted;   /* for a newer one, at LH_HTTP_CONNECTIONS_MAX */
    uint64_t timed_out; /* at LH_HTTP_TIMEOUT_US */
};
void lh_http_stats(const struct lh_http *http, struct lh_http_stats *stats);

#endif
