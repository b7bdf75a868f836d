/*
 * What connections keep. A client that does not read, or sends what it does not finish, makes its own connection fill:
 * first that one takes no more work, then it is reset. Where all together keep too much, those that came last are
 * refused, and then the one that keeps the most is reset.
 */
#include "rpc/server_memory.h"

#include "rpc/server_leave.h"

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
