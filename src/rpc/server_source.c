/*
 * Connections whose handshake is not finished, by address: one address may have so many, so that it cannot take all
 * descriptors by saying nothing. Those that wait are looked at before another one is refused, for their preface may be
 * there already.
 */
#include "rpc/server_source.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

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
static bool read_address(const struct rpc_address *peer, uint8_t address[SOURCE_BYTES])
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

bool lh_rpc_server_source_admits(struct lh_rpc_server *server, const struct rpc_address *peer)
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

void lh_rpc_server_source_enter(struct server_connection *connection, const struct rpc_address *peer)
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
