/*
 * What a handler may ask of a call: who calls, what came with it, and what the handler keeps with it.
 *
 * A connection has a principal from its beginning: the user at the other end of a unix socket, whom the
 * system names, or nobody; a certificate replaces that. A call may have one of its own.
 */
#include "rpc/server/server_internal.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"

/* Looked up once for a connection, because it reads the system's files. A user without a name has a number. */
char *lh_rpc_unix_principal(int fd)
{
    struct ucred credentials;
    socklen_t size = sizeof(credentials);
    const struct passwd *user;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0 || credentials.uid == (uid_t)-1)
        return NULL;
    user = getpwuid(credentials.uid);
    return user != NULL ? lh_format("user:%s", user->pw_name) : lh_format("user:%u", (unsigned)credentials.uid);
}

void lh_rpc_server_connection_identify_visitor(struct server_connection *connection,
                                               const struct lh_rpc_visitor *visitor)
{
    free(connection->principal);
    connection->principal = lh_strdup(visitor->principal);
    connection->is_private = visitor->is_private;
    snprintf(connection->peer, sizeof(connection->peer), "%s", visitor->peer);
}

void lh_rpc_server_connection_identify_by_certificate(struct server_connection *connection)
{
    const struct lh_tls_session *tls = connection->io.tls;
    const char *principal = lh_tls_session_principal(tls);

    if (principal != NULL)
        connection->principal = lh_strdup(principal);
    else if (lh_tls_session_not_after_s(tls) != 0 &&
             lh_rpc_budget_take(&connection->server->refusals_told, 1, lh_clock_us()))
        lh_warn("the client's certificate has no URI and no DNS name that can be used: the client is " LH_RPC_ANONYMOUS
                " peer=%s",
                connection->peer);
    lh_debug("connection secured peer=%s principal=%s", connection->peer, principal != NULL ? principal : "");
}

const char *lh_rpc_call_principal(const struct lh_rpc_call *call)
{
    if (call->principal != NULL)
        return call->principal;
    return call->connection->principal != NULL ? call->connection->principal : LH_RPC_ANONYMOUS;
}

void lh_rpc_call_set_principal(struct lh_rpc_call *call, const char *principal)
{
    free(call->principal);
    call->principal = lh_strdup(principal);
}

const char *lh_rpc_call_peer(const struct lh_rpc_call *call)
{
    return call->connection->peer;
}

bool lh_rpc_call_is_private(const struct lh_rpc_call *call)
{
    static const char *const of_this_machine[] = {"unix:", "127.", "[::1]", "[::ffff:127."};
    const struct server_connection *connection = call->connection;

    for (size_t i = 0; i < sizeof(of_this_machine) / sizeof(of_this_machine[0]); i++)
        if (strncmp(connection->peer, of_this_machine[i], strlen(of_this_machine[i])) == 0)
            return true;
    return connection->io.tls != NULL || connection->is_private;
}

void *lh_rpc_call_arg(const struct lh_rpc_call *call)
{
    return call->connection->server->arg;
}

const struct lh_rpc_method *lh_rpc_call_method(const struct lh_rpc_call *call)
{
    return call->method;
}

uint64_t lh_rpc_call_id(const struct lh_rpc_call *call)
{
    return lh_rpc_stream_call_id(call->connection, call->stream_id);
}

void lh_rpc_call_set_client(struct lh_rpc_call *call, void *client)
{
    call->connection->client = client;
}

void *lh_rpc_call_client(const struct lh_rpc_call *call)
{
    return call->connection->client;
}

void lh_rpc_call_set_data(struct lh_rpc_call *call, void *data)
{
    call->data = data;
}

void *lh_rpc_call_data(const struct lh_rpc_call *call)
{
    return call->data;
}

void lh_rpc_call_set_trace(struct lh_rpc_call *call, void *trace)
{
    call->trace = trace;
}

void *lh_rpc_call_trace(const struct lh_rpc_call *call)
{
    return call->trace;
}

int64_t lh_rpc_call_arrived_us(const struct lh_rpc_call *call)
{
    return call->arrived_us;
}

enum lh_grpc_code lh_rpc_call_code(const struct lh_rpc_call *call)
{
    return call->state == CALL_FINISHING ? (enum lh_grpc_code)call->code : LH_GRPC_CANCELLED;
}

/* Of that name, the first from `*at` on; `*at` is moved behind it. */
static const char *next_metadata(const struct lh_rpc_call *call, const char *name, size_t *at)
{
    const char *all = (const char *)call->metadata.data; /* NULL: there is none */

    while (*at < call->metadata.size) {
        const char *field = all + *at;
        const char *value = field + strlen(field) + 1;
        *at += strlen(field) + strlen(value) + 2;
        if (strcmp(field, name) == 0)
            return value;
    }
    return NULL;
}

const char *lh_rpc_call_metadata(const struct lh_rpc_call *call, const char *name)
{
    size_t at = 0;
    return next_metadata(call, name, &at);
}

const char *lh_rpc_call_metadata_alone(const struct lh_rpc_call *call, const char *name)
{
    size_t at = 0;
    const char *value = next_metadata(call, name, &at);

    return value != NULL && next_metadata(call, name, &at) == NULL ? value : NULL;
}

bool lh_rpc_call_is_over_mark(const struct lh_rpc_call *call)
{
    return call->was_over_mark;
}

size_t lh_rpc_call_unsent(const struct lh_rpc_call *call)
{
    return lh_rpc_outbox_unsent(&call->outbox);
}
