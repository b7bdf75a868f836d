/* What the tests of the transport do in one step, and what they see of its inside. */
#ifndef LH_TEST_RPC_PEEK_H
#define LH_TEST_RPC_PEEK_H

#include <netinet/in.h>

#include "base/address.h"
#include "rpc/client/client_internal.h"
#include "rpc/server/server_internal.h"

static inline enum lh_status rpc_listen(struct lh_rpc_server *server, const char *address, struct lh_error *error)
{
    const struct lh_bind how = {.address = address};
    int fd;
    enum lh_status status = lh_bind(&how, &fd, NULL, error);

    return status == LH_OK ? lh_rpc_server_adopt(server, fd, error) : status;
}

/* Of the first TCP address; 0: the server listens on none. */
static inline int rpc_port(const struct lh_rpc_server *server)
{
    for (size_t i = 0; i < server->listener_count; i++) {
        const void *storage = &server->listeners[i].address.storage;
        if (server->listeners[i].address.storage.ss_family == AF_INET)
            return ntohs(((const struct sockaddr_in *)storage)->sin_port);
    }
    return 0;
}

#endif
