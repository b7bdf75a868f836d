/*
 * A bound socket, not yet listening: a daemon binds while it is root and listens when it no longer is.
 *
 *     struct lh_rpc_bind how = {.address = "unix:/run/leasehold/s.sock", .socket_mode = 0660};
 *     status = lh_rpc_bind(&how, &fd, bound, &error);
 *     status = lh_rpc_server_adopt(server, fd, &error);
 */
#ifndef LH_RPC_LISTEN_H
#define LH_RPC_LISTEN_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"

#define LH_RPC_BOUND_BYTES 128 /* room for an address as text */

struct lh_rpc_bind {
    const char *address; /* "127.0.0.1:7420", "[::1]:7420" (port 0 picks one) or "unix:/path" */
    bool reuse_port;     /* SO_REUSEPORT */
    mode_t socket_mode;  /* mode of a unix socket's file; 0: as the umask leaves it */
    uid_t owner;         /* its owner; 0: this process's */
    gid_t group;
};

/*
 * Binds. A unix socket that no process answers on is replaced. Refused: a path that is no socket, and a socket that is
 * served. `bound` (may be NULL) is the address with its real port.
 */
enum lh_status lh_rpc_bind(const struct lh_rpc_bind *how, int *fd, char bound[LH_RPC_BOUND_BYTES],
                           struct lh_error *error);

#endif
