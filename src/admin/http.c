/*
 * A connection: its request is read, answered, and the answer written; then our side is shut and what the client still
 * sends is read and dropped until it closes too, for a close with unread bytes would reset the answer on its way. One
 * timer bounds each state.
 *
 *     (SHAKING_HANDS ->) READING -> (ANSWERING ->) WRITING -> LINGERING -> closed
 *                        READING -> (ANSWERING ->) STREAMING -> WRITING ...
 *     any -> closed, at the time-out, an error, or for a newer connection
 *
 * What a handler does is done within its call; a connection that fails meanwhile is closed at the end of the loop turn.
 */
#include "admin/http_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "tls/context.h"

#define BACKLOG 128
#define ACCEPTS_PER_TURN 16
#define ACCEPT_PAUSE_US (100 * LH_US_PER_MS)

#define HANDSHAKE_TURN_US (2 * LH_US_PER_MS)
#define FAILURE_TOLD_US (10 * LH_US_PER_S) /* one handshake that failed in so long is logged */

static void drop(void *arg)
{
    struct http_connection *connection = arg;
    void (*on_gone)(void *) = connection->request.on_gone;

    lh_http_set_state(connection, LINGERING);
    connection->request.on_gone = NULL;
    if (on_gone != NULL)
        on_gone(connection->request.data);
    lh_list_remove(&connection->link);
    connection->http->stats.connections--;
    lh_deferred_cancel(&connection->broken);
    lh_timer_finish(&connection->timer);
    lh_watch_finish(&connection->watch);
    lh_backlog_remove(&connection->handshake);
    lh_tls_session_destroy(connection->tls);
    close(connection->fd);
    lh_buffer_finish(&connection->body);
    lh_buffer_finish(&connection->headers);
    lh_buffer_finish(&connection->answer);
    free(connection);
}

static void on_time_out(void *arg)
{
    struct http_connection *connection = arg;

    connection->http->stats.timed_out++;
    drop(connection);
}

/* --- the request --- */

static void hand_over(struct http_connection *connection)
{
    struct lh_http_request *request = &connection->request;

    lh_buffer_append(&connection->body, "", 1);
    request->body = (const char *)connection->body.data;
    request->body_size = connection->body.size - 1;
    request->is_tls = connection->tls != NULL;
    request->principal = request->is_tls ? lh_tls_session_principal(connection->tls) : NULL;
    connection->http->on_request(connection->http->arg, request);
    if (connection->state != READING)
        return;
    lh_http_set_state(connection, ANSWERING);
    lh_http_bound(connection, LH_HTTP_ANSWER_TIMEOUT_US);
    lh_watch_want(&connection->watch, 0);
}

/* 0, or the status to refuse it with. */
static int read_head(struct http_connection *connection, char *end)
{
    struct lh_http_head *head = &connection->request.head;
    size_t rest = connection->size - (size_t)(end - connection->bytes);
    bool is_get;
    int code;

    connection->has_head = true;
    lh_buffer_append(&connection->body, end, rest);
    *end = '\0';
    code = lh_http_head_parse(connection->bytes, head);
    if (code != 0)
        return code;
    connection->is_head = strcmp(head->method, "HEAD") == 0;
    is_get = connection->is_head || strcmp(head->method, "GET") == 0;
    if (!is_get && strcmp(head->method, "POST") != 0)
        return 405;
    if (is_get)
        head->content_length = 0; /* what it sends besides is dropped */
    return head->content_length > LH_HTTP_BODY_MAX_BYTES ? 413 : 0;
}

static void look_at_input(struct http_connection *connection, const char *from, size_t size)
{
    char *end = connection->has_head ? NULL : lh_http_head_end(connection->bytes);
    int code = 0;

    if (end != NULL)
        code = read_head(connection, end);
    else if (!connection->has_head && memchr(from, '\0', size) != NULL)
        code = 400;
    else if (!connection->has_head && connection->size == LH_HTTP_REQUEST_MAX_BYTES)
        code = 431;
    if (code != 0) {
        lh_http_refuse(connection, code);
    } else if (connection->has_head && connection->body.size >= connection->request.head.content_length) {
        connection->body.size = connection->request.head.content_length;
        hand_over(connection);
    }
}

/* --- bytes in --- */

static ssize_t receive(struct http_connection *connection, void *to, size_t room)
{
    if (connection->tls != NULL)
        return lh_tls_session_read(connection->tls, to, room);
    return recv(connection->fd, to, room, 0);
}

/* Where what comes next goes, and what of it was there before. */
static char *room_for_input(struct http_connection *connection, size_t *room)
{
    if (!connection->has_head) {
        *room = LH_HTTP_REQUEST_MAX_BYTES - connection->size;
        return connection->bytes + connection->size;
    }
    *room = connection->request.head.content_length - connection->body.size;
    return (char *)lh_buffer_reserve(&connection->body, *room);
}

static void read_request(struct http_connection *connection)
{
    while (connection->state == READING) {
        size_t room;
        char *to = room_for_input(connection, &room);
        ssize_t size = receive(connection, to, room);
        if (size < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (size <= 0) {
            drop(connection);
            return;
        }
        if (connection->has_head) {
            connection->body.size += (size_t)size;
        } else {
            connection->size += (size_t)size;
            connection->bytes[connection->size] = '\0';
        }
        look_at_input(connection, to, (size_t)size);
    }
    if (connection->state == WRITING)
        lh_http_write(connection);
}

/* A client of a stream says nothing more but that it goes. */
static void read_stream(struct http_connection *connection)
{
    char bytes[512];
    ssize_t size = receive(connection, bytes, sizeof(bytes));

    if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR))
        drop(connection);
}

static void read_and_drop(struct http_connection *connection)
{
    char bytes[4096];
    ssize_t size = recv(connection->fd, bytes, sizeof(bytes), 0);

    if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR))
        drop(connection);
}

/* --- TLS --- */

static void tell_failure(struct http_connection *connection)
{
    struct lh_http *http = connection->http;
    int64_t now_us = lh_clock_us();

    if (lh_tls_session_fault(connection->tls) == LH_TLS_FAULT_NETWORK ||
        now_us - http->failure_told_us < FAILURE_TOLD_US)
        return;
    http->failure_told_us = now_us;
    lh_warn("admin: connection refused: %s", lh_tls_session_failure(connection->tls));
}

static void take_step(void *arg)
{
    struct http_connection *connection = arg;

    switch (lh_tls_session_handshake(connection->tls)) {
    case LH_TLS_DONE:
        if (lh_tls_session_is_revoked(connection->tls, connection->http->tls)) { /* since it began */
            drop(connection);
            break;
        }
        connection->state = READING;
        lh_watch_want(&connection->watch, LH_WATCH_READ);
        read_request(connection); /* it may have come with the handshake */
        break;
    case LH_TLS_WANTS_READ:
        lh_watch_want(&connection->watch, LH_WATCH_READ);
        break;
    case LH_TLS_WANTS_WRITE:
        lh_watch_want(&connection->watch, LH_WATCH_WRITE);
        break;
    case LH_TLS_FAILED:
        tell_failure(connection);
        drop(connection);
        break;
    }
}

static void on_ready(void *arg, unsigned ready)
{
    struct http_connection *connection = arg;

    switch (connection->state) {
    case SHAKING_HANDS:
        lh_watch_want(&connection->watch, 0);
        lh_backlog_add(&connection->http->handshakes, &connection->handshake);
        break;
    case READING:
        read_request(connection);
        break;
    case ANSWERING:
        break;
    case WRITING:
        lh_http_write(connection);
        break;
    case STREAMING:
        if (ready & LH_WATCH_WRITE)
            lh_http_write(connection);
        else
            read_stream(connection);
        break;
    case LINGERING:
        read_and_drop(connection);
        break;
    }
}

/* --- connections --- */

static void make_room(struct lh_http *http)
{
    LH_LIST_EACH(struct http_connection, connection, &http->connections, link) {
        if (connection->state == STREAMING)
            continue;
        http->stats.evicted++;
        drop(connection);
        return;
    }
}

static void name_peer(struct lh_http_request *request, const struct sockaddr_storage *peer)
{
    const struct sockaddr_in *v4 = (const void *)peer;
    const struct sockaddr_in6 *v6 = (const void *)peer;
    char text[INET6_ADDRSTRLEN] = "";

    request->is_unix = peer->ss_family != AF_INET && peer->ss_family != AF_INET6;
    if (request->is_unix)
        snprintf(request->peer, sizeof(request->peer), "unix:");
    else if (peer->ss_family == AF_INET)
        snprintf(request->peer, sizeof(request->peer), "%s:%d", inet_ntop(AF_INET, &v4->sin_addr, text, sizeof(text)),
                 ntohs(v4->sin_port));
    else
        snprintf(request->peer, sizeof(request->peer), "[%s]:%d",
                 inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text)), ntohs(v6->sin6_port));
}

static void take(struct lh_http *http, int fd, const struct sockaddr_storage *peer)
{
    struct http_connection *connection;
    int yes = 1;

    if (http->stats.connections == LH_HTTP_CONNECTIONS_MAX)
        make_room(http);
    /* The metrics are more than one segment: the last would wait for an acknowledgement. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    connection = lh_alloc_zero(1, sizeof(*connection));
    connection->http = http;
    connection->fd = connection->request.fd = fd;
    connection->state = READING;
    name_peer(&connection->request, peer);
    if (http->tls != NULL) {
        connection->state = SHAKING_HANDS;
        connection->tls = lh_tls_session_create(http->tls, fd, NULL);
        lh_backlog_item_init(&connection->handshake, take_step, connection);
    }
    lh_list_append(&http->connections, &connection->link);
    http->stats.connections++;
    lh_deferred_init(&connection->broken, drop, connection);
    lh_timer_init(&connection->timer, http->loop, on_time_out, connection);
    lh_http_bound(connection, LH_HTTP_TIMEOUT_US);
    lh_watch_init(&connection->watch, http->loop, fd, on_ready, connection);
    lh_watch_want(&connection->watch, LH_WATCH_READ);
}

static void on_pause_over(void *arg)
{
    struct lh_http *http = arg;
    lh_watch_want(&http->watch, LH_WATCH_READ);
}

static void pause_accepting(struct lh_http *http)
{
    if (!http->is_short)
        lh_warn("admin: cannot accept connections: %s; trying again each %d ms", strerror(errno),
                (int)(ACCEPT_PAUSE_US / LH_US_PER_MS));
    http->is_short = true;
    lh_watch_want(&http->watch, 0);
    lh_timer_arm_at_us(&http->pause, lh_clock_us() + ACCEPT_PAUSE_US);
}

static void on_connection(void *arg, unsigned ready)
{
    struct lh_http *http = arg;

    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        struct sockaddr_storage peer = {0};
        socklen_t size = sizeof(peer);
        int fd = accept4(http->fd, (struct sockaddr *)(void *)&peer, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            http->is_short = false;
            take(http, fd, &peer);
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != ECONNABORTED && errno != EINTR) {
            pause_accepting(http);
            return;
        }
    }
}

struct lh_http *lh_http_create(struct lh_loop *loop, int fd, lh_http_cb *on_request, void *arg, struct lh_error *error)
{
    struct lh_http *http;

    if (listen(fd, BACKLOG) != 0) {
        lh_error_set(error, LH_INTERNAL, "cannot listen on the admin port: %s", strerror(errno));
        close(fd);
        return NULL;
    }
    http = lh_alloc_zero(1, sizeof(*http));
    http->loop = loop;
    http->fd = fd;
    http->on_request = on_request;
    http->arg = arg;
    lh_list_init(&http->connections);
    lh_backlog_init(&http->handshakes, loop, HANDSHAKE_TURN_US);
    http->failure_told_us = -FAILURE_TOLD_US;
    lh_timer_init(&http->pause, loop, on_pause_over, http);
    lh_watch_init(&http->watch, loop, fd, on_connection, http);
    lh_watch_want(&http->watch, LH_WATCH_READ);
    return http;
}

void lh_http_destroy(struct lh_http *http)
{
    if (http == NULL)
        return;
    LH_LIST_EACH(struct http_connection, connection, &http->connections, link)
        drop(connection);
    lh_timer_finish(&http->pause);
    lh_backlog_finish(&http->handshakes);
    lh_watch_finish(&http->watch);
    lh_tls_context_release(http->tls);
    close(http->fd);
    free(http);
}

void lh_http_set_tls(struct lh_http *http, struct lh_tls_context *context)
{
    struct sockaddr_storage own = {0};
    socklen_t size = sizeof(own);

    if (getsockname(http->fd, (struct sockaddr *)(void *)&own, &size) == 0 && own.ss_family == AF_UNIX)
        return;
    lh_tls_context_release(http->tls);
    http->tls = lh_tls_context_hold(context);
    LH_LIST_EACH(struct http_connection, connection, &http->connections, link)
        if (connection->tls != NULL && lh_tls_session_is_revoked(connection->tls, context))
            drop(connection);
}

void lh_http_stats(const struct lh_http *http, struct lh_http_stats *stats)
{
    *stats = http->stats;
}
