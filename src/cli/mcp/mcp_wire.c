/*
 * Messages of JSON, one a line. The loop renews leases, so neither a silent writer nor a reader that sleeps may stop it:
 * stdin is read when there is something, and stdout written as far as it takes bytes. Neither gets O_NONBLOCK, which the
 * programs that share them would have too.
 */
#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/standard.h"
#include "cli/error.h"
#include "cli/mcp/mcp_internal.h"

#define READ_BYTES 65536

static void end(struct lh_mcp_wire *wire)
{
    if (wire->is_over)
        return;
    wire->is_over = true;
    event_del(wire->readable);
    wire->on_over(wire->arg);
}

/* --- stdin --- */

static void drop(struct lh_buffer *buffer, size_t size)
{
    memmove(buffer->data, buffer->data + size, buffer->size - size);
    buffer->size -= size;
}

static void take_line(struct lh_mcp_wire *wire, const char *line, size_t size)
{
    if (size > 0 && line[size - 1] == '\r')
        size--;
    if (!wire->is_skipping && size > 0)
        wire->on_line(wire->arg, size > LH_MCP_LINE_MAX ? NULL : line, size);
    wire->is_skipping = false;
}

static void take_lines(struct lh_mcp_wire *wire)
{
    struct lh_buffer *in = &wire->in;
    size_t at = 0;
    const char *newline;

    while (in->size > at && !lh_mcp_wire_is_clogged(wire) &&
           (newline = memchr(in->data + at, '\n', in->size - at)) != NULL) {
        const char *line = (const char *)in->data + at;
        at += (size_t)(newline - line) + 1;
        take_line(wire, line, (size_t)(newline - line));
    }
    if (at > 0)
        drop(in, at);
    if (in->size > LH_MCP_LINE_MAX && memchr(in->data, '\n', in->size) == NULL) {
        if (!wire->is_skipping)
            wire->on_line(wire->arg, NULL, 0);
        wire->is_skipping = true;
        in->size = 0;
    }
    if (lh_mcp_wire_is_clogged(wire))
        event_del(wire->readable);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct lh_mcp_wire *wire = arg;
    ssize_t size = read(fd, lh_buffer_reserve(&wire->in, READ_BYTES), READ_BYTES);

    (void)what;
    if (size < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (size <= 0) {
        end(wire);
        return;
    }
    wire->in.size += (size_t)size;
    take_lines(wire);
}

/* --- stdout --- */

/* A pipe that is writable takes so much at once. */
static ssize_t write_some(int fd, const void *data, size_t size)
{
    ssize_t sent = send(fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);

    if (sent < 0 && errno == ENOTSOCK)
        sent = write(fd, data, size < LH_STANDARD_LINE_BYTES ? size : LH_STANDARD_LINE_BYTES);
    return sent;
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    struct lh_mcp_wire *wire = arg;
    ssize_t sent = write_some(fd, wire->out.data, wire->out.size);

    (void)what;
    if (sent < 0 && errno != EINTR && errno != EAGAIN) {
        lh_error_print("cannot write to the client: %s", strerror(errno));
        wire->out.size = 0;
        event_del(wire->writable);
        end(wire);
        return;
    }
    if (sent > 0)
        drop(&wire->out, (size_t)sent);
    if (wire->out.size == 0)
        event_del(wire->writable);
    if (!wire->is_over && !lh_mcp_wire_is_clogged(wire)) {
        event_add(wire->readable, NULL);
        take_lines(wire);
    }
}

void lh_mcp_wire_send(struct lh_mcp_wire *wire, json_t *message)
{
    char *text = json_dumps(message, JSON_COMPACT);

    json_decref(message);
    if (text == NULL)
        abort(); /* a string that is no UTF-8: ours to check */
    lh_buffer_append(&wire->out, text, strlen(text));
    lh_buffer_append(&wire->out, "\n", 1);
    free(text);
    event_add(wire->writable, NULL);
}

bool lh_mcp_wire_is_clogged(const struct lh_mcp_wire *wire)
{
    return wire->out.size > LH_MCP_UNREAD_MAX;
}

bool lh_mcp_wire_is_flushed(const struct lh_mcp_wire *wire)
{
    return wire->out.size == 0;
}

bool lh_mcp_wire_open(struct lh_mcp_wire *wire, struct event_base *base)
{
    wire->base = base;
    wire->readable = event_new(base, STDIN_FILENO, EV_READ | EV_PERSIST, on_readable, wire);
    wire->writable = event_new(base, STDOUT_FILENO, EV_WRITE | EV_PERSIST, on_writable, wire);
    return wire->readable != NULL && wire->writable != NULL && event_add(wire->readable, NULL) == 0;
}

void lh_mcp_wire_close(struct lh_mcp_wire *wire)
{
    if (wire->readable != NULL)
        event_free(wire->readable);
    if (wire->writable != NULL)
        event_free(wire->writable);
    lh_buffer_finish(&wire->in);
    lh_buffer_finish(&wire->out);
}
