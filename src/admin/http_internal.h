/* State shared by the files of the admin port's HTTP. */
#ifndef LH_ADMIN_HTTP_INTERNAL_H
#define LH_ADMIN_HTTP_INTERNAL_H

#include "admin/http.h"
#include "base/list.h"
#include "base/memory.h"
#include "loop/backlog.h"
#include "loop/loop.h"
#include "tls/session.h"

enum http_state { SHAKING_HANDS, READING, ANSWERING, WRITING, STREAMING, LINGERING };

struct http_connection {
    struct lh_http *http;
    struct lh_link link;
    struct lh_watch watch;
    struct lh_timer timer;
    struct lh_deferred broken;
    int fd;
    struct lh_tls_session *tls; /* NULL: none */
    struct lh_backlog_item handshake;
    enum http_state state;
    bool is_head;
    bool has_head; /* the head of its request is complete */
    char bytes[LH_HTTP_REQUEST_MAX_BYTES + 1];
    size_t size;
    struct lh_buffer body;
    struct lh_http_request request;
    struct lh_buffer headers; /* headers of the answer */
    struct lh_buffer answer;
    size_t written;
};

struct lh_http {
    struct lh_loop *loop;
    int fd;
    struct lh_watch watch;
    struct lh_timer pause;
    bool is_short; /* descriptors were short; logged once */
    lh_http_cb *on_request;
    void *arg;
    struct lh_tls_context *tls; /* NULL: none */
    struct lh_backlog handshakes;
    int64_t failure_told_us;
    struct lh_link connections; /* the oldest first */
    struct lh_http_stats stats;
};

/* http_answer.c */
void lh_http_bound(struct http_connection *connection, int64_t timeout_us);
void lh_http_set_state(struct http_connection *connection, enum http_state state);
void lh_http_write(struct http_connection *connection); /* as much as the socket takes */
void lh_http_refuse(struct http_connection *connection, int code);

#endif
