#include "rpc/connection.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

/* So much of one connection in one loop turn, then the others get theirs. */
#define READS_PER_TURN 4
#define WRITES_PER_TURN 16

/* These two are all that touches the socket's bytes: TLS takes their place. */
static ssize_t socket_read(struct rpc_connection *connection, unsigned char *to, size_t room)
{
    return recv(connection->fd, to, room, 0);
}

static ssize_t socket_write(struct rpc_connection *connection, const unsigned char *from, size_t size)
{
    return send(connection->fd, from, size, MSG_NOSIGNAL);
}

/* The network gave up, not the peer. */
static bool is_network(int error)
{
    return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH || error == ENETDOWN;
}

static bool is_later(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

size_t rpc_connection_unsent(const struct rpc_connection *connection)
{
    return connection->unsent.size - connection->unsent_at;
}

void rpc_connection_break(struct rpc_connection *connection, const char *reason)
{
    if (connection->broken == NULL)
        connection->broken = reason;
    lh_defer(connection->loop, &connection->flush);
}

void rpc_connection_touch(struct rpc_connection *connection)
{
    lh_defer(connection->loop, &connection->flush);
}

/* Returns how much the socket took; less than `size` when it is full or broken. */
static size_t write_some(struct rpc_connection *connection, const unsigned char *from, size_t size)
{
    ssize_t written = socket_write(connection, from, size);
    if (written < 0) {
        if (!is_later(errno)) {
            connection->is_lost = is_network(errno);
            rpc_connection_break(connection, "the socket failed while sending");
        }
        return 0;
    }
    if (written > 0)
        connection->written_at_us = lh_clock_us();
    return (size_t)written;
}

static void write_unsent(struct rpc_connection *connection)
{
    size_t waiting = rpc_connection_unsent(connection);
    if (waiting == 0)
        return;
    connection->unsent_at += write_some(connection, connection->unsent.data + connection->unsent_at, waiting);
    if (connection->unsent_at == connection->unsent.size) {
        rpc_pool_give(connection->pool, &connection->unsent);
        connection->unsent_at = 0;
    }
}

static void keep_unsent(struct rpc_connection *connection, const unsigned char *bytes, size_t size)
{
    if (size == 0)
        return;
    if (rpc_connection_unsent(connection) == 0)
        connection->written_at_us = lh_clock_us();
    rpc_pool_take(connection->pool, &connection->unsent);
    if (connection->unsent_at > connection->unsent.size / 2) {
        size_t left = rpc_connection_unsent(connection);
        memmove(connection->unsent.data, connection->unsent.data + connection->unsent_at, left);
        connection->unsent.size = left;
        connection->unsent_at = 0;
    }
    lh_buffer_append(&connection->unsent, bytes, size);
}

/* Frames go through the shared scratch straight to the socket; only what it refuses is kept. False: no more now. */
static bool send_scratch(struct rpc_connection *connection, size_t *used)
{
    unsigned char *scratch = connection->pool->output;
    size_t written = 0;

    if (*used > 0 && rpc_connection_unsent(connection) == 0)
        written = write_some(connection, scratch, *used);
    keep_unsent(connection, scratch + written, *used - written);
    *used = 0;
    return connection->broken == NULL && rpc_connection_unsent(connection) < connection->output_mark;
}

static void write_session(struct rpc_connection *connection)
{
    size_t used = 0;
    int writes = 0;

    while (rpc_connection_unsent(connection) < connection->output_mark) {
        const uint8_t *frame;
        ssize_t size = nghttp2_session_mem_send(connection->session, &frame);
        if (size < 0)
            rpc_connection_break(connection, nghttp2_strerror((int)size));
        if (size <= 0)
            break;
        while (size > 0) {
            size_t room = RPC_SCRATCH_BYTES - used;
            size_t step = (size_t)size < room ? (size_t)size : room;
            memcpy(connection->pool->output + used, frame, step);
            used += step;
            frame += step;
            size -= (ssize_t)step;
            if (used == RPC_SCRATCH_BYTES && send_scratch(connection, &used))
                writes++;
        }
        if (connection->broken != NULL || writes >= WRITES_PER_TURN)
            break;
    }
    if (connection->broken == NULL)
        send_scratch(connection, &used);
    if (writes >= WRITES_PER_TURN)
        rpc_connection_touch(connection);
}

static void want(struct rpc_connection *connection)
{
    size_t unsent = rpc_connection_unsent(connection);
    unsigned wanted = 0;
    if (unsent < connection->output_mark)
        wanted |= LH_WATCH_READ;
    if (unsent > 0)
        wanted |= LH_WATCH_WRITE;
    lh_watch_want(&connection->watch, wanted);
}

/* Close would throw away what the peer has not read yet if it sent anything more: shut our half and wait for its. */
static void begin_ending(struct rpc_connection *connection)
{
    connection->is_ending = true;
    shutdown(connection->fd, SHUT_WR);
    if (connection->on_ending != NULL)
        connection->on_ending(connection->arg);
}

static void on_flush(void *arg)
{
    struct rpc_connection *connection = arg;

    if (connection->is_closed)
        return;
    if (connection->broken == NULL && !connection->is_ending) {
        write_unsent(connection);
        write_session(connection);
        if (connection->broken == NULL && rpc_connection_unsent(connection) == 0 &&
            !nghttp2_session_want_read(connection->session) && !nghttp2_session_want_write(connection->session))
            begin_ending(connection);
    }
    if (connection->broken != NULL) {
        connection->is_closed = true;
        lh_watch_finish(&connection->watch);
        connection->on_closed(connection->arg, connection->broken);
        return;
    }
    want(connection);
}

static ssize_t receive(struct rpc_connection *connection, size_t size)
{
    if (connection->early_reset != NULL)
        return rpc_early_reset_receive(connection->early_reset, connection->session, connection->pool->input, size);
    return nghttp2_session_mem_recv(connection->session, connection->pool->input, size);
}

static void read_some(struct rpc_connection *connection)
{
    for (int i = 0; i < READS_PER_TURN && connection->broken == NULL; i++) {
        ssize_t used, size = socket_read(connection, connection->pool->input, RPC_SCRATCH_BYTES);
        if (size < 0 && is_later(errno))
            return;
        if (size <= 0) {
            connection->is_lost = size < 0 && is_network(errno);
            rpc_connection_break(connection, size == 0 ? "closed by the peer" : "the socket failed while receiving");
            return;
        }
        if (connection->is_ending)
            continue;
        connection->received_at_us = lh_clock_us();
        used = receive(connection, (size_t)size);
        if (used < 0) {
            rpc_connection_break(connection, nghttp2_strerror((int)used));
            return;
        }
        if (connection->on_input_done != NULL)
            connection->on_input_done(connection->arg);
        if (size < RPC_SCRATCH_BYTES)
            return;
    }
}

static void on_ready(void *arg, unsigned ready)
{
    struct rpc_connection *connection = arg;
    if (ready & LH_WATCH_READ)
        read_some(connection);
    rpc_connection_touch(connection);
}

void rpc_connection_init(struct rpc_connection *connection, struct lh_loop *loop, struct rpc_pool *pool, int fd,
                         size_t output_mark, void (*on_closed)(void *arg, const char *reason), void *arg)
{
    int yes = 1;

    memset(connection, 0, sizeof(*connection));
    connection->loop = loop;
    connection->pool = pool;
    connection->fd = fd;
    connection->output_mark = output_mark;
    connection->on_closed = on_closed;
    connection->arg = arg;
    connection->received_at_us = lh_clock_us();
    connection->written_at_us = connection->received_at_us;
    lh_deferred_init(&connection->flush, on_flush, connection);
    lh_watch_init(&connection->watch, loop, fd, on_ready, connection);
    /* Refused on unix sockets, which never wait anyway. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

void rpc_connection_finish(struct rpc_connection *connection)
{
    lh_deferred_cancel(&connection->flush);
    lh_watch_finish(&connection->watch);
    nghttp2_session_del(connection->session);
    connection->session = NULL;
    lh_buffer_finish(&connection->unsent);
    if (connection->fd >= 0)
        close(connection->fd);
    connection->fd = -1;
}

nghttp2_nv rpc_header(const char *name, const char *value, size_t value_size)
{
    nghttp2_nv field = {
        .name = (uint8_t *)(uintptr_t)name,
        .value = (uint8_t *)(uintptr_t)value,
        .namelen = strlen(name),
        .valuelen = value_size,
        .flags = NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_INDEX,
    };
    return field;
}

nghttp2_nv rpc_header_static(const char *name, const char *value)
{
    nghttp2_nv field = rpc_header(name, value, strlen(value));
    field.flags = NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE;
    return field;
}
