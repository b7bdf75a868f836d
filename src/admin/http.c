/*
 * A connection: its request is read until the empty line, answered, and the answer written; then our side is shut and
 * what the client still sends is read and dropped until it closes too, for a close with unread bytes would reset the
 * answer on its way. One timer bounds all of it.
 *
 *     (SHAKING_HANDS ->) READING -> WRITING -> LINGERING -> closed;  any -> closed, at the time-out, an error, or for a newer connection
 */
#include "admin/http.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/memory.h"
#include "loop/backlog.h"
#include "loop/loop.h"
#include "tls/context.h"
#include "tls/session.h"

#define BACKLOG 128
#define ACCEPTS_PER_TURN 16
#define ACCEPT_PAUSE_US (100 * LH_US_PER_MS)

#define HANDSHAKE_TURN_US (2 * LH_US_PER_MS)
#define FAILURE_TOLD_US (10 * LH_US_PER_S) /* one handshake that failed in so long is logged */

enum state { SHAKING_HANDS, READING, WRITING, LINGERING };

struct connection {
    struct lh_http *http;
    struct lh_link link;
    struct lh_watch watch;
    struct lh_timer timer;
    int fd;
    struct lh_tls_session *tls; /* NULL: none */
    struct lh_backlog_item handshake;
    enum state state;
    bool is_head;
    char request[LH_HTTP_REQUEST_MAX_BYTES + 1];
    size_t request_size;
    struct lh_buffer answer;
    size_t written;
};

struct lh_http {
    struct lh_loop *loop;
    int fd;
    struct lh_watch watch;
    struct lh_timer pause;
    bool is_short; /* of descriptors; logged once */
    lh_http_cb *on_request;
    void *arg;
    struct lh_tls_context *tls; /* NULL: none */
    struct lh_backlog handshakes;
    int64_t failure_told_us;
    struct lh_link connections; /* the oldest first */
    struct lh_http_stats stats;
};

static void drop(struct connection *connection)
{
    lh_list_remove(&connection->link);
    connection->http->stats.connections--;
    lh_timer_finish(&connection->timer);
    lh_watch_finish(&connection->watch);
    lh_backlog_remove(&connection->handshake);
    lh_tls_session_destroy(connection->tls);
    close(connection->fd);
    lh_buffer_finish(&connection->answer);
    free(connection);
}

static void on_time_out(void *arg)
{
    struct connection *connection = arg;

    connection->http->stats.timed_out++;
    drop(connection);
}

/* --- answers --- */

static const char *reason(int code)
{
    switch (code) {
    case 200:
        return "OK";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 431:
        return "Request Header Fields Too Large";
    case 503:
        return "Service Unavailable";
    default:
        return "Bad Request";
    }
}

void lh_http_answer(struct lh_http_request *request, int code, const char *type, const void *bytes, size_t size)
{
    struct connection *connection = request->connection;
    char *head = lh_format("HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n%s"
                           "Connection: close\r\n\r\n",
                           code, reason(code), type, size, code == 405 ? "Allow: GET, HEAD\r\n" : "");

    lh_buffer_append(&connection->answer, head, strlen(head));
    if (!connection->is_head)
        lh_buffer_append(&connection->answer, bytes, size);
    connection->state = WRITING;
    free(head);
}

static void refuse(struct connection *connection, int code)
{
    struct lh_http_request request = {NULL, connection};
    char text[64];

    snprintf(text, sizeof(text), "%s\n", reason(code));
    lh_http_answer(&request, code, "text/plain; charset=utf-8", text, strlen(text));
}

/* "GET /metrics?x HTTP/1.1" (RFC 9112, section 3). Nothing in the headers changes what is answered. */
static void answer(struct connection *connection)
{
    struct lh_http_request request = {NULL, connection};
    char *target, *version;

    connection->request[strcspn(connection->request, "\r\n")] = '\0';
    target = strchr(connection->request, ' ');
    version = target == NULL ? NULL : strchr(target + 1, ' ');
    if (version == NULL || strncmp(version, " HTTP/1.", 8) != 0 || target[1] != '/') {
        refuse(connection, 400);
        return;
    }
    *target++ = '\0';
    *version = '\0';
    target[strcspn(target, "?#")] = '\0';
    connection->is_head = strcmp(connection->request, "HEAD") == 0;
    if (!connection->is_head && strcmp(connection->request, "GET") != 0) {
        refuse(connection, 405);
        return;
    }
    request.path = target;
    connection->http->on_request(connection->http->arg, &request);
}

/* --- bytes --- */

static ssize_t send_bytes(struct connection *connection, const unsigned char *from, size_t size)
{
    if (connection->tls != NULL)
        return lh_tls_session_write(connection->tls, from, size);
    return send(connection->fd, from, size, MSG_NOSIGNAL);
}

static ssize_t receive(struct connection *connection, char *to, size_t room)
{
    if (connection->tls != NULL)
        return lh_tls_session_read(connection->tls, to, room);
    return recv(connection->fd, to, room, 0);
}

static void write_answer(struct connection *connection)
{
    while (connection->written < connection->answer.size) {
        ssize_t size = send_bytes(connection, connection->answer.data + connection->written,
                                  connection->answer.size - connection->written);
        if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
            lh_watch_want(&connection->watch, LH_WATCH_WRITE);
            return;
        }
        if (size < 0) {
            drop(connection);
            return;
        }
        connection->written += (size_t)size;
    }
    connection->state = LINGERING;
    if (connection->tls != NULL)
        lh_tls_session_close(connection->tls);
    shutdown(connection->fd, SHUT_WR);
    lh_watch_want(&connection->watch, LH_WATCH_READ);
}

/* A line may end without the carriage return (RFC 9112, section 2.2). */
static bool is_whole(const char *request)
{
    return strstr(request, "\n\r\n") != NULL || strstr(request, "\n\n") != NULL;
}

static void read_request(struct connection *connection)
{
    char *end = connection->request + connection->request_size;
    ssize_t size = receive(connection, end, LH_HTTP_REQUEST_MAX_BYTES - connection->request_size);

    if (size < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (size <= 0) {
        drop(connection);
        return;
    }
    connection->request_size += (size_t)size;
    connection->request[connection->request_size] = '\0';
    if (is_whole(connection->request))
        answer(connection);
    else if (memchr(end, '\0', (size_t)size) != NULL)
        refuse(connection, 400);
    else if (connection->request_size == LH_HTTP_REQUEST_MAX_BYTES)
        refuse(connection, 431);
    if (connection->state == WRITING)
        write_answer(connection);
}

static void read_and_drop(struct connection *connection)
{
    char bytes[4096];
    ssize_t size = recv(connection->fd, bytes, sizeof(bytes), 0);

    if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR))
        drop(connection);
}

/* --- TLS --- */

static void tell_failure(struct connection *connection)
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
    struct connection *connection = arg;

    switch (lh_tls_session_handshake(connection->tls)) {
    case LH_TLS_DONE:
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
    struct connection *connection = arg;

    switch (connection->state) {
    case SHAKING_HANDS:
        lh_watch_want(&connection->watch, 0);
        lh_backlog_add(&connection->http->handshakes, &connection->handshake);
        break;
    case READING:
        read_request(connection);
        break;
    case WRITING:
        write_answer(connection);
        break;
    case LINGERING:
        read_and_drop(connection);
        break;
    }
}

/* --- connections --- */

static void take(struct lh_http *http, int fd)
{
    struct connection *connection;
    int yes = 1;

    if (http->stats.connections == LH_HTTP_CONNECTIONS_MAX) {
        http->stats.evicted++;
        drop(LH_LIST_FIRST(struct connection, &http->connections, link));
    }
    /* The metrics are more than one segment: the last would wait for an acknowledgement. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    connection = lh_alloc_zero(1, sizeof(*connection));
    connection->http = http;
    connection->fd = fd;
    connection->state = READING;
    if (http->tls != NULL) {
        connection->state = SHAKING_HANDS;
        connection->tls = lh_tls_session_create(http->tls, fd, NULL);
        lh_backlog_item_init(&connection->handshake, take_step, connection);
    }
    lh_list_append(&http->connections, &connection->link);
    http->stats.connections++;
    lh_timer_init(&connection->timer, http->loop, on_time_out, connection);
    lh_timer_arm_at_us(&connection->timer, lh_clock_us() + LH_HTTP_TIMEOUT_US);
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
        int fd = accept4(http->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            http->is_short = false;
            take(http, fd);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
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
    LH_LIST_EACH(struct connection, connection, &http->connections, link)
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
}

void lh_http_stats(const struct lh_http *http, struct lh_http_stats *stats)
{
    *stats = http->stats;
}
