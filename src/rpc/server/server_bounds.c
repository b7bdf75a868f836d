/*
 * What connections may take, and how one is sent away.
 *
 * Memory. A client that does not read, or sends what it does not finish, makes its own connection fill:
 * first that one takes no more work, then it is reset. Where all together keep too much, those that came last are
 * refused, and then the one that keeps the most is reset.
 *
 * Unfinished handshakes, by address. One address may have so many, so that it cannot take all
 * descriptors by saying nothing. Those that wait are looked at before another one is refused, for their preface may be
 * there already.
 */
#include "rpc/server/server_internal.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

/* --- to send away: at once, or in two steps (GOAWAY that still allows everything, then the last) --- */

void lh_rpc_server_connection_part(struct server_connection *connection, enum lh_rpc_away why, const char *words)
{
    connection->server->stats.sent_away[why]++;
    connection->io.is_lost = why == LH_RPC_AWAY_SILENT || why == LH_RPC_AWAY_STALLED;
    lh_rpc_connection_break(&connection->io, words);
}

void lh_rpc_server_connection_notice(struct server_connection *connection)
{
    nghttp2_submit_shutdown_notice(connection->io.session);
    lh_rpc_connection_touch(&connection->io);
}

void lh_rpc_server_connection_goaway(struct server_connection *connection)
{
    nghttp2_session *session = connection->io.session;

    if (connection->is_going)
        return;
    if (connection->io.is_handshaking) {
        lh_rpc_connection_break(&connection->io, "the server shuts down");
        return;
    }
    connection->is_going = true;
    nghttp2_submit_goaway(session, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(session),
                          NGHTTP2_NO_ERROR, NULL, 0);
    lh_rpc_connection_touch(&connection->io);
}

/* --- memory --- */

/* Answers of up to so much are always taken: that something was done is worth telling. */
#define SMALL_ANSWER_BYTES 4096

static size_t three_quarters(size_t bytes)
{
    return bytes / 4 * 3;
}

void lh_rpc_server_connection_check_memory(struct server_connection *connection)
{
    struct lh_rpc_server *server = connection->server;

    if (connection->account.bytes > server->options.connection_memory && connection->io.broken == NULL) {
        server->stats.refusals[LH_RPC_BOUND_CONNECTION_MEMORY]++;
        lh_rpc_server_connection_part(connection, LH_RPC_AWAY_MEMORY, "it keeps more than connection_memory");
    }
    if (server->account.bytes > server->options.memory)
        lh_defer(server->loop, &server->shed);
}

void lh_rpc_server_shed(void *arg)
{
    struct lh_rpc_server *server = arg;
    size_t going = 0;

    for (;;) {
        struct server_connection *largest = NULL;
        going = 0;
        LH_LIST_EACH(struct server_connection, connection, &server->connections, in_server) {
            if (connection->io.broken != NULL)
                going += connection->account.bytes;
            else if (largest == NULL || connection->account.bytes > largest->account.bytes)
                largest = connection;
        }
        if (largest == NULL || server->account.bytes - going <= server->options.memory)
            return;
        server->stats.refusals[LH_RPC_BOUND_MEMORY]++;
        lh_rpc_server_connection_part(largest, LH_RPC_AWAY_MEMORY, "it keeps the most, and all keep more than memory");
    }
}

bool lh_rpc_server_connection_is_full(const struct server_connection *connection)
{
    return connection->account.bytes > connection->server->options.connection_memory / 2;
}

bool lh_rpc_server_takes_call(const struct lh_rpc_call *call)
{
    struct lh_rpc_server *server = call->connection->server;

    if (lh_rpc_server_connection_is_full(call->connection)) {
        server->stats.refusals[LH_RPC_BOUND_CONNECTION_MEMORY]++;
        return false;
    }
    if (server->account.bytes > three_quarters(server->options.memory) && !call->method->comes_first) {
        server->stats.refusals[LH_RPC_BOUND_MEMORY]++;
        return false;
    }
    return true;
}

bool lh_rpc_server_takes_answer(const struct lh_rpc_call *call, size_t size)
{
    const struct lh_rpc_server_options *options = &call->connection->server->options;
    size_t unsent = lh_rpc_outbox_unsent(&call->outbox);

    if (size <= SMALL_ANSWER_BYTES && unsent < options->stream_mark_bytes)
        return true;
    return call->connection->account.bytes + lh_buffer_growth(&call->outbox.bytes, size) <=
           three_quarters(options->connection_memory);
}

void lh_rpc_call_count(struct lh_rpc_call *call)
{
    struct server_connection *connection = call->connection;
    size_t now = call->inbox.partial.capacity + call->held.capacity + call->metadata.capacity +
                 call->outbox.bytes.capacity + call->kept;
    size_t before = call->counted;

    if (now == before)
        return;
    rpc_account_change(&connection->account, before, now);
    connection->server->stats.buffered_bytes += now - before;
    call->counted = now;
    if (now > before)
        lh_rpc_server_connection_check_memory(connection);
}

bool lh_rpc_call_set_kept(struct lh_rpc_call *call, size_t bytes)
{
    size_t before = call->kept;

    if (bytes > before && !lh_rpc_server_takes_answer(call, bytes - before))
        return false;
    call->kept = bytes;
    lh_rpc_call_count(call);
    return true;
}

/* --- unfinished handshakes --- */

/* Of an IPv6 address the network counts: who has one address has 2^64. */
#define SOURCE_BYTES 8

struct source {
    struct lh_table_entry entry;
    uint8_t address[SOURCE_BYTES];
    struct lh_link connections;
    size_t count;
};

static bool is_source(const struct lh_table_entry *entry, const void *key)
{
    return memcmp(LH_CONTAINER(const struct source, entry, entry)->address, key, SOURCE_BYTES) == 0;
}

/* False: it has none. The peers of a unix socket were let in by its file's permissions. */
static bool read_address(const struct lh_address *peer, uint8_t address[SOURCE_BYTES])
{
    const void *storage = &peer->storage;

    memset(address, 0, SOURCE_BYTES);
    if (peer->storage.ss_family == AF_INET)
        memcpy(address, &((const struct sockaddr_in *)storage)->sin_addr, 4);
    else if (peer->storage.ss_family == AF_INET6)
        memcpy(address, &((const struct sockaddr_in6 *)storage)->sin6_addr, SOURCE_BYTES);
    else
        return false;
    return true;
}

static struct source *find(const struct lh_rpc_server *server, const uint8_t address[SOURCE_BYTES])
{
    struct lh_table_entry *entry = lh_table_find(&server->sources, lh_hash(address, SOURCE_BYTES, 0), address);
    return entry == NULL ? NULL : LH_CONTAINER(struct source, entry, entry);
}

void lh_rpc_server_sources_init(struct lh_rpc_server *server)
{
    lh_table_init(&server->sources, is_source);
}

static void leave(struct lh_rpc_server *server, struct source *source)
{
    if (--source->count > 0)
        return;
    lh_table_remove(&server->sources, &source->entry);
    free(source);
}

bool lh_rpc_server_source_admits(struct lh_rpc_server *server, const struct lh_address *peer)
{
    uint8_t address[SOURCE_BYTES];
    struct source *source;
    size_t count;

    if (!read_address(peer, address))
        return true;
    source = find(server, address);
    if (source == NULL || source->count < server->options.max_handshakes)
        return true;
    source->count++; /* it stays while its list is walked */
    LH_LIST_EACH(struct server_connection, connection, &source->connections, in_source)
        lh_rpc_connection_read(&connection->io);
    count = source->count - 1;
    leave(server, source);
    return count < server->options.max_handshakes;
}

void lh_rpc_server_source_enter(struct server_connection *connection, const struct lh_address *peer)
{
    struct lh_rpc_server *server = connection->server;
    uint8_t address[SOURCE_BYTES];
    struct source *source;

    server->stats.handshakes++;
    if (!read_address(peer, address))
        return;
    source = find(server, address);
    if (source == NULL) {
        source = lh_alloc_zero(1, sizeof(*source));
        memcpy(source->address, address, SOURCE_BYTES);
        lh_list_init(&source->connections);
        lh_table_insert(&server->sources, &source->entry, lh_hash(address, SOURCE_BYTES, 0));
    }
    source->count++;
    connection->source = source;
    lh_list_append(&source->connections, &connection->in_source);
}

void lh_rpc_server_source_leave(struct server_connection *connection)
{
    struct source *source = connection->source;

    connection->server->stats.handshakes--;
    if (source == NULL)
        return;
    connection->source = NULL;
    lh_list_remove(&connection->in_source);
    leave(connection->server, source);
}
