/*
 * TLS on the server's side. A step of a handshake costs up to some milliseconds of computing, and hundreds of clients
 * may begin one at once. So a connection whose client has sent the next part waits in a queue, and a turn of the loop
 * takes steps for HANDSHAKE_TURN_US: calls of the others go on in between.
 */
#include "rpc/server/server_internal.h"

#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "tls/context.h"

#define HANDSHAKE_TURN_US (2 * LH_US_PER_MS)

/* Refused clients that the log names at once, and each second. */
#define REFUSALS_TOLD 20
#define REFUSALS_TOLD_PER_S 1

/* Connections that were made in the same moment leave within a tenth of max_age. */
#define AGE_SPREAD 64

void lh_rpc_server_tell_refusal(struct server_connection *connection, const char *why)
{
    struct lh_rpc_server *server = connection->server;

    if (!lh_rpc_budget_take(&server->refusals_told, 1, lh_clock_us())) {
        server->refusals_untold++;
        return;
    }
    lh_warn("connection refused peer=%s: %s", connection->peer, why);
    if (server->refusals_untold > 0)
        lh_warn("more connections were refused before, and not logged connections=%zu", server->refusals_untold);
    server->refusals_untold = 0;
}

static void on_failed(struct server_connection *connection)
{
    const struct lh_tls_session *tls = connection->io.tls;

    if (lh_tls_session_fault(tls) == LH_TLS_FAULT_NETWORK) {
        lh_rpc_connection_break(&connection->io, lh_tls_session_failure(tls));
        return;
    }
    connection->server->stats.sent_away[LH_RPC_AWAY_TLS]++;
    lh_rpc_server_tell_refusal(connection, lh_tls_session_failure(tls));
    lh_rpc_connection_end(&connection->io);
    lh_rpc_connection_touch(&connection->io);
}

static void set_end(struct server_connection *connection)
{
    const struct lh_rpc_server_options *options = &connection->server->options;
    int64_t not_after_s = lh_tls_session_not_after_s(connection->io.tls), now_us = lh_clock_us(), notice_us;

    if (options->max_age_us > 0)
        connection->leaves_at_us =
            now_us + options->max_age_us - options->max_age_us / 10 * (connection->serial % AGE_SPREAD) / AGE_SPREAD;
    if (not_after_s == 0)
        return;
    connection->ends_at_us = now_us + (not_after_s + 1 - (int64_t)time(NULL)) * LH_US_PER_S;
    notice_us = (connection->ends_at_us - now_us) / 2;
    if (notice_us > options->drain_limit_us)
        notice_us = options->drain_limit_us;
    if (connection->ends_at_us - notice_us < connection->leaves_at_us)
        connection->leaves_at_us = connection->ends_at_us - notice_us;
}

void lh_rpc_server_handshake_leave(struct server_connection *connection)
{
    if (lh_link_is_linked(&connection->securing))
        connection->server->securing_count--;
    lh_list_remove(&connection->securing);
}

/*
 * Handshakes cost the most, before anybody has proved anything: all together they keep a quarter of the memory, and the
 * oldest gives way. One that goes well takes milliseconds.
 */
static void make_room(struct lh_rpc_server *server)
{
    struct server_connection *oldest;

    if (server->securing_count <= 1 || server->securing_count * LH_TLS_HANDSHAKE_BYTES <= server->options.memory / 4)
        return;
    oldest = LH_LIST_FIRST(struct server_connection, &server->securing, securing);
    lh_rpc_server_handshake_leave(oldest);
    server->stats.refusals[LH_RPC_BOUND_MEMORY]++;
    lh_rpc_server_connection_part(oldest, LH_RPC_AWAY_MEMORY,
                                  "handshakes keep a quarter of memory, and it is the oldest");
}

/* True: it has ended. */
static bool end_if_revoked(struct server_connection *connection)
{
    bool is_revoked = lh_tls_session_is_revoked(connection->io.tls, connection->server->tls);

    if (is_revoked)
        lh_rpc_server_connection_part(connection, LH_RPC_AWAY_CERTIFICATE, "the client's certificate is revoked");
    return is_revoked;
}

static void on_secured(struct server_connection *connection)
{
    lh_rpc_server_handshake_leave(connection);
    if (end_if_revoked(connection)) /* since it began */
        return;
    lh_rpc_server_connection_identify_by_certificate(connection);
    set_end(connection);
    connection->io.is_handshaking = false;
    lh_rpc_connection_read(&connection->io);
}

static void take_step(void *arg)
{
    struct server_connection *connection = arg;
    struct rpc_connection *io = &connection->io;

    if (io->broken != NULL)
        return;
    switch (lh_tls_session_handshake(io->tls)) {
    case LH_TLS_DONE:
        on_secured(connection);
        break;
    case LH_TLS_WANTS_READ:
        lh_watch_want(&io->watch, LH_WATCH_READ);
        break;
    case LH_TLS_WANTS_WRITE:
        lh_watch_want(&io->watch, LH_WATCH_WRITE);
        break;
    case LH_TLS_FAILED:
        on_failed(connection);
        break;
    }
    lh_rpc_connection_count(io);
    lh_rpc_server_connection_check_memory(connection);
}

static void on_handshake(void *arg)
{
    struct server_connection *connection = arg;

    lh_backlog_add(&connection->server->handshakes, &connection->handshake);
}

void lh_rpc_server_connection_secure(struct server_connection *connection)
{
    struct rpc_connection *io = &connection->io;

    io->tls = lh_tls_session_create(connection->server->tls, io->fd, NULL);
    io->is_handshaking = true;
    lh_list_append(&connection->server->securing, &connection->securing);
    connection->server->securing_count++;
    lh_rpc_connection_count(io);
    make_room(connection->server);
    io->on_handshake = on_handshake;
    lh_backlog_item_init(&connection->handshake, take_step, connection);
    lh_watch_want(&io->watch, LH_WATCH_READ);
}

void lh_rpc_server_set_tls(struct lh_rpc_server *server, struct lh_tls_context *context)
{
    lh_tls_context_release(server->tls);
    server->tls = lh_tls_context_hold(context);
    LH_LIST_EACH(struct server_connection, connection, &server->connections, in_server)
        if (connection->io.tls != NULL && connection->io.broken == NULL)
            end_if_revoked(connection);
}

void lh_rpc_server_handshakes_init(struct lh_rpc_server *server)
{
    lh_list_init(&server->securing);
    lh_backlog_init(&server->handshakes, server->loop, HANDSHAKE_TURN_US);
    lh_rpc_budget_init(&server->refusals_told, REFUSALS_TOLD, REFUSALS_TOLD_PER_S, lh_clock_us());
}

void lh_rpc_server_handshakes_finish(struct lh_rpc_server *server)
{
    lh_backlog_finish(&server->handshakes);
    lh_tls_context_release(server->tls);
}
