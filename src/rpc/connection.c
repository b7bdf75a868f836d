#include "rpc/connection.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

/* So much of one connection in one loop turn, then the others get theirs. */
#define READS_PER_TURN 4
#define WRITES_PER_TURN 16
/* The first read of a connection that had not its turn taken, or none yet. */
#define SMALL_READ_BYTES (16 * 1024)

/* The first byte of TLS: of a client, and of a server that refuses; and the second. */
#define TLS_HANDSHAKE_RECORD 0x16
#define TLS_ALERT_RECORD 0x15
#define TLS_MAJOR_VERSION 3

/* Once the session is done, bytes are only thrown away. */
static ssize_t socket_read(struct rpc_connection *connection, unsigned char *to, size_t room)
{
    if (connection->tls != NULL && !connection->is_ending)
        return lh_tls_session_read(connection->tls, to, room);
    return recv(connection->fd, to, room, 0);
}

static ssize_t socket_write(struct rpc_connection *connection, const unsigned char *from, size_t size)
{
    if (connection->tls != NULL)
        return lh_tls_session_write(connection->tls, from, size);
    return send(connection->fd, from, size, MSG_NOSIGNAL);
}

/* The network gave up, not the peer. */
static bool is_network(int error)
{
    return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH || error == ENETDOWN;
}

static bool is_later(int error)
{
    return error == EAGAIN || error == EINTR;
}

size_t lh_rpc_connection_unsent(const struct rpc_connection *connection)
{
    return connection->unsent.size - connection->unsent_at;
}

void lh_rpc_connection_break(struct rpc_connection *connection, const char *reason)
{
    if (connection->broken == NULL)
        connection->broken = reason;
    lh_defer(connection->loop, &connection->flush);
}

/* The socket has failed, or TLS, which knows why. */
static void break_socket(struct rpc_connection *connection, const char *reason)
{
    connection->is_lost = is_network(errno);
    if (connection->tls != NULL && !connection->is_ending)
        reason = lh_tls_session_failure(connection->tls);
    lh_rpc_connection_break(connection, reason);
}

void lh_rpc_connection_touch(struct rpc_connection *connection)
{
    lh_defer(connection->loop, &connection->flush);
}

/* Returns how much the socket took; less than `size` when it is full or broken. */
static size_t write_some(struct rpc_connection *connection, const unsigned char *from, size_t size)
{
    ssize_t written = socket_write(connection, from, size);
    if (written < 0) {
        if (!is_later(errno))
            break_socket(connection, "the socket failed while sending");
        return 0;
    }
    if (written > 0)
        connection->written_at_us = lh_clock_us();
    return (size_t)written;
}

static void write_unsent(struct rpc_connection *connection)
{
    size_t waiting = lh_rpc_connection_unsent(connection);
    if (waiting == 0)
        return;
    connection->unsent_at += write_some(connection, connection->unsent.data + connection->unsent_at, waiting);
    if (connection->unsent_at == connection->unsent.size) {
        lh_rpc_pool_give(connection->pool, &connection->unsent);
        connection->unsent_at = 0;
    }
}

static void keep_unsent(struct rpc_connection *connection, const unsigned char *bytes, size_t size)
{
    if (size == 0)
        return;
    if (lh_rpc_connection_unsent(connection) == 0)
        connection->written_at_us = lh_clock_us();
    lh_rpc_pool_take(connection->pool, &connection->unsent);
    if (connection->unsent_at > connection->unsent.size / 2) {
        size_t left = lh_rpc_connection_unsent(connection);
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

    if (*used > 0 && lh_rpc_connection_unsent(connection) == 0)
        written = write_some(connection, scratch, *used);
    keep_unsent(connection, scratch + written, *used - written);
    *used = 0;
    return connection->broken == NULL && lh_rpc_connection_unsent(connection) < connection->output_mark;
}

static void write_session(struct rpc_connection *connection)
{
    size_t used = 0;
    int writes = 0;

    while (lh_rpc_connection_unsent(connection) < connection->output_mark) {
        const uint8_t *frame;
        ssize_t size = nghttp2_session_mem_send(connection->session, &frame);
        if (size < 0)
            lh_rpc_connection_break(connection, nghttp2_strerror((int)size));
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
        lh_rpc_connection_touch(connection);
}

static size_t held_bytes(const struct rpc_connection *connection)
{
    return connection->held.size - connection->held_at;
}

static bool reads_when_writable(const struct rpc_connection *connection)
{
    return connection->tls != NULL && !connection->is_ending && lh_tls_session_reads_when_writable(connection->tls);
}

/* Bytes that the socket does not show: the gate has not taken them, or TLS has read ahead. */
static bool has_input(const struct rpc_connection *connection)
{
    return held_bytes(connection) > 0 ||
           (connection->tls != NULL && !connection->is_ending && lh_tls_session_has_input(connection->tls));
}

static void want(struct rpc_connection *connection)
{
    size_t unsent = lh_rpc_connection_unsent(connection);
    bool takes_input = unsent < connection->output_mark;
    unsigned wanted = 0;

    if (takes_input && held_bytes(connection) == 0)
        wanted |= LH_WATCH_READ;
    if (unsent > 0 || (takes_input && reads_when_writable(connection)))
        wanted |= LH_WATCH_WRITE;
    lh_watch_want(&connection->watch, wanted);
    if (takes_input && has_input(connection))
        lh_watch_again(&connection->watch);
}

void lh_rpc_connection_count(struct rpc_connection *connection)
{
    size_t now = connection->unsent.capacity + connection->held.capacity +
                 (connection->tls != NULL ? lh_tls_session_bytes(connection->tls) : 0);

    rpc_account_change(connection->account, connection->counted, now);
    connection->counted = now;
}

void lh_rpc_connection_end(struct rpc_connection *connection)
{
    if (connection->tls != NULL)
        lh_tls_session_close(connection->tls);
    connection->is_handshaking = false;
    connection->is_ending = true;
    connection->held_at = connection->held.size;
    shutdown(connection->fd, SHUT_WR);
    if (connection->on_ending != NULL)
        connection->on_ending(connection->arg);
}

static void on_flush(void *arg)
{
    struct rpc_connection *connection = arg;

    if (connection->is_closed)
        return;
    if (connection->broken == NULL && connection->is_handshaking)
        return;
    if (connection->broken == NULL && !connection->is_ending) {
        write_unsent(connection);
        write_session(connection);
        if (connection->broken == NULL && lh_rpc_connection_unsent(connection) == 0 &&
            !nghttp2_session_want_read(connection->session) && !nghttp2_session_want_write(connection->session))
            lh_rpc_connection_end(connection);
        lh_rpc_connection_count(connection);
    }
    if (connection->broken != NULL) {
        connection->is_closed = true;
        lh_watch_finish(&connection->watch);
        connection->on_closed(connection->arg, connection->broken);
        return;
    }
    want(connection);
}

static bool is_tls(const unsigned char *bytes, size_t size)
{
    return size >= 2 && (bytes[0] == TLS_HANDSHAKE_RECORD || bytes[0] == TLS_ALERT_RECORD) &&
           bytes[1] == TLS_MAJOR_VERSION;
}

/* True: all of it was taken. */
static bool take(struct rpc_connection *connection, const unsigned char *bytes, size_t size, size_t *taken)
{
    ssize_t used;

    if (!connection->has_received)
        connection->peer_speaks_tls = is_tls(bytes, size);
    connection->has_received = true;
    used = connection->gate != NULL ? lh_rpc_gate_receive(connection->gate, connection->session, bytes, size)
                                    : nghttp2_session_mem_recv(connection->session, bytes, size);

    *taken = used < 0 ? 0 : (size_t)used;
    if (used < 0)
        lh_rpc_connection_break(connection, nghttp2_strerror((int)used));
    else if (connection->on_input_done != NULL)
        connection->on_input_done(connection->arg);
    return used == (ssize_t)size;
}

/* False: its turn is over, or it is broken. */
static bool take_held(struct rpc_connection *connection)
{
    size_t size = held_bytes(connection), taken;
    bool is_all;

    if (size == 0)
        return true;
    is_all = take(connection, connection->held.data + connection->held_at, size, &taken);
    connection->held_at += taken;
    if (is_all) {
        lh_rpc_pool_give(connection->pool, &connection->held);
        connection->held_at = 0;
    }
    return is_all;
}

static void hold(struct rpc_connection *connection, const unsigned char *bytes, size_t size)
{
    lh_rpc_pool_append(connection->pool, &connection->held, bytes, size);
    connection->read_bytes = SMALL_READ_BYTES;
}

static void read_some(struct rpc_connection *connection)
{
    for (int i = 0; i < READS_PER_TURN && connection->broken == NULL; i++) {
        unsigned char *input = connection->pool->input;
        size_t wanted = connection->read_bytes, taken;
        ssize_t size = socket_read(connection, input, wanted);
        if (size < 0 && is_later(errno))
            return;
        if (size < 0)
            break_socket(connection, "the socket failed while receiving");
        if (size == 0)
            lh_rpc_connection_break(connection, "closed by the peer");
        if (size <= 0)
            return;
        if (connection->is_ending)
            continue;
        connection->received_at_us = lh_clock_us();
        if (!take(connection, input, (size_t)size, &taken)) {
            if (connection->broken == NULL)
                hold(connection, input + taken, (size_t)size - taken);
            return;
        }
        if ((size_t)size < wanted)
            return;
        connection->read_bytes = RPC_SCRATCH_BYTES;
    }
}

void lh_rpc_connection_read(struct rpc_connection *connection)
{
    if (connection->is_handshaking)
        return;
    if (connection->gate != NULL)
        lh_rpc_gate_begin_turn(connection->gate, lh_clock_us());
    if (take_held(connection))
        read_some(connection);
    lh_rpc_connection_touch(connection);
}

static void on_ready(void *arg, unsigned ready)
{
    struct rpc_connection *connection = arg;

    if (connection->is_handshaking) {
        lh_watch_want(&connection->watch, 0);
        connection->on_handshake(connection->arg);
        return;
    }
    if ((ready & LH_WATCH_READ) || reads_when_writable(connection))
        lh_rpc_connection_read(connection);
    lh_rpc_connection_touch(connection);
}

void lh_rpc_connection_init(struct rpc_connection *connection, struct lh_loop *loop, struct rpc_pool *pool, int fd,
                            size_t output_mark, void (*on_closed)(void *arg, const char *reason), void *arg)
{
    int yes = 1;

    memset(connection, 0, sizeof(*connection));
    connection->loop = loop;
    connection->pool = pool;
    connection->fd = fd;
    connection->output_mark = output_mark;
    connection->read_bytes = SMALL_READ_BYTES;
    connection->on_closed = on_closed;
    connection->arg = arg;
    connection->received_at_us = lh_clock_us();
    connection->written_at_us = connection->received_at_us;
    lh_deferred_init(&connection->flush, on_flush, connection);
    lh_watch_init(&connection->watch, loop, fd, on_ready, connection);
    /* Refused on unix sockets, which never wait anyway. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

void lh_rpc_connection_finish(struct rpc_connection *connection)
{
    lh_deferred_cancel(&connection->flush);
    lh_watch_finish(&connection->watch);
    nghttp2_session_del(connection->session);
    connection->session = NULL;
    lh_buffer_finish(&connection->unsent);
    lh_buffer_finish(&connection->held);
    lh_tls_session_destroy(connection->tls);
    connection->tls = NULL;
    lh_rpc_connection_count(connection);
    if (connection->fd >= 0)
        close(connection->fd);
    connection->fd = -1;
}

void lh_rpc_connection_reset(struct rpc_connection *connection, int32_t stream_id, uint32_t error)
{
    nghttp2_submit_rst_stream(connection->session, NGHTTP2_FLAG_NONE, stream_id, error);
    lh_rpc_connection_touch(connection);
}

void lh_rpc_connection_ping(struct rpc_connection *connection, const uint8_t *bytes)
{
    nghttp2_submit_ping(connection->session, NGHTTP2_FLAG_NONE, bytes);
    lh_rpc_connection_touch(connection);
}

bool lh_rpc_connection_start(struct rpc_connection *connection, const nghttp2_settings_entry *settings, size_t count,
                             int32_t window_bytes)
{
    return nghttp2_submit_settings(connection->session, NGHTTP2_FLAG_NONE, settings, count) == 0 &&
           nghttp2_session_set_local_window_size(connection->session, NGHTTP2_FLAG_NONE, 0, window_bytes) == 0;
}

nghttp2_nv lh_rpc_header(const char *name, const char *value, size_t value_size)
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

nghttp2_nv lh_rpc_header_static(const char *name, const char *value)
{
    nghttp2_nv field = lh_rpc_header(name, value, strlen(value));
    field.flags = NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE;
    return field;
}
