/* What goes out: an answer that is whole, or a stream. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "admin/http_internal.h"
#include "base/clock.h"

static struct http_connection *connection_of(struct lh_http_request *request)
{
    return LH_CONTAINER(struct http_connection, request, request);
}

void lh_http_bound(struct http_connection *connection, int64_t timeout_us)
{
    lh_timer_arm_at_us(&connection->timer, lh_clock_us() + timeout_us);
}

void lh_http_set_state(struct http_connection *connection, enum http_state state)
{
    connection->http->stats.streams += (size_t)(state == STREAMING) - (size_t)(connection->state == STREAMING);
    connection->state = state;
}

/* --- bytes out --- */

static ssize_t send_bytes(struct http_connection *connection, const unsigned char *from, size_t size)
{
    if (connection->tls != NULL)
        return lh_tls_session_write(connection->tls, from, size);
    return send(connection->fd, from, size, MSG_NOSIGNAL);
}

static void linger(struct http_connection *connection)
{
    lh_http_set_state(connection, LINGERING);
    if (connection->tls != NULL)
        lh_tls_session_close(connection->tls);
    shutdown(connection->fd, SHUT_WR);
    lh_watch_want(&connection->watch, LH_WATCH_READ);
}

static size_t unsent(const struct http_connection *connection)
{
    return connection->answer.size - connection->written;
}

/* A stream goes on for long: what was sent is forgotten. */
static void forget_sent(struct http_connection *connection)
{
    memmove(connection->answer.data, connection->answer.data + connection->written, unsent(connection));
    connection->answer.size -= connection->written;
    connection->written = 0;
}

void lh_http_write(struct http_connection *connection)
{
    bool is_stream = connection->state == STREAMING;

    while (unsent(connection) > 0) {
        ssize_t size = send_bytes(connection, connection->answer.data + connection->written, unsent(connection));
        if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
            lh_watch_want(&connection->watch, LH_WATCH_WRITE | (is_stream ? LH_WATCH_READ : 0));
            return;
        }
        if (size < 0) {
            lh_watch_want(&connection->watch, 0);
            lh_defer(connection->http->loop, &connection->broken);
            return;
        }
        connection->written += (size_t)size;
        if (is_stream)
            lh_http_bound(connection, LH_HTTP_STALL_TIMEOUT_US);
    }
    if (!is_stream) {
        linger(connection);
        return;
    }
    forget_sent(connection);
    lh_timer_cancel(&connection->timer); /* it may be silent for as long as nothing happens */
    lh_watch_want(&connection->watch, LH_WATCH_READ);
}

/* --- answers --- */

static const char *reason(int code)
{
    static const struct {
        int code;
        const char *words;
    } reasons[] = {
        {200, "OK"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {409, "Conflict"},
        {411, "Length Required"},
        {413, "Content Too Large"},
        {415, "Unsupported Media Type"},
        {421, "Misdirected Request"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
    };

    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
        if (reasons[i].code == code)
            return reasons[i].words;
    return "Internal Server Error";
}

void lh_http_add_header(struct lh_http_request *request, const char *name, const char *value)
{
    char *line = lh_format("%s: %s\r\n", name, value);

    lh_buffer_append(&connection_of(request)->headers, line, strlen(line));
    free(line);
}

static void append_head(struct http_connection *connection, int code, const char *type)
{
    char *head = lh_format("HTTP/1.1 %d %s\r\nContent-Type: %s\r\n", code, reason(code), type);

    connection->request.on_gone = NULL;
    lh_buffer_append(&connection->answer, head, strlen(head));
    free(head);
    if (connection->headers.size > 0)
        lh_buffer_append(&connection->answer, connection->headers.data, connection->headers.size);
}

void lh_http_answer(struct lh_http_request *request, int code, const char *type, const void *bytes, size_t size)
{
    struct http_connection *connection = connection_of(request);
    bool is_later = connection->state == ANSWERING;
    char *rest;

    append_head(connection, code, type);
    rest = lh_format("Content-Length: %zu\r\nConnection: close\r\n\r\n", size);
    lh_buffer_append(&connection->answer, rest, strlen(rest));
    free(rest);
    if (!connection->is_head)
        lh_buffer_append(&connection->answer, bytes, size);
    lh_http_set_state(connection, WRITING);
    if (is_later) {
        lh_http_bound(connection, LH_HTTP_TIMEOUT_US);
        lh_http_write(connection);
    }
}

void lh_http_begin_stream(struct lh_http_request *request, const char *type)
{
    static const char rest[] = "Connection: close\r\n\r\n";
    struct http_connection *connection = connection_of(request);
    void (*on_gone)(void *) = request->on_gone;

    append_head(connection, 200, type);
    request->on_gone = on_gone;
    lh_buffer_append(&connection->answer, rest, sizeof(rest) - 1);
    lh_http_set_state(connection, STREAMING);
    lh_http_bound(connection, LH_HTTP_STALL_TIMEOUT_US);
    lh_http_write(connection);
}

size_t lh_http_write_stream(struct lh_http_request *request, const void *bytes, size_t size)
{
    struct http_connection *connection = connection_of(request);
    bool was_idle = unsent(connection) == 0;

    forget_sent(connection);
    lh_buffer_append(&connection->answer, bytes, size);
    if (was_idle) {
        lh_http_bound(connection, LH_HTTP_STALL_TIMEOUT_US);
        lh_http_write(connection);
    }
    return unsent(connection);
}

void lh_http_end_stream(struct lh_http_request *request)
{
    struct http_connection *connection = connection_of(request);

    request->on_gone = NULL;
    lh_http_set_state(connection, WRITING);
    lh_http_bound(connection, LH_HTTP_TIMEOUT_US);
    lh_http_write(connection);
}

void lh_http_refuse(struct http_connection *connection, int code)
{
    char text[64];

    snprintf(text, sizeof(text), "%s\n", reason(code));
    lh_http_add_header(&connection->request, "Cache-Control", "no-store");
    if (code == 405)
        lh_http_add_header(&connection->request, "Allow", "GET, HEAD, POST");
    lh_http_answer(&connection->request, code, "text/plain; charset=utf-8", text, strlen(text));
}
