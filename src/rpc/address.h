/*
 * Addresses as people write them: "127.0.0.1:7420", "[::1]:7420", "unix:/path"; and sockets that are bound to one.
 *
 * A daemon binds while it is root and listens when it no longer is:
 *
 *     struct lh_rpc_bind how = {.address = "unix:/run/leasehold/s.sock", .socket_mode = 0660};
 *     status = lh_rpc_bind(&how, &fd, bound, &error);
 *     status = lh_rpc_server_adopt(server, fd, &error);
 */
#ifndef LH_RPC_ADDRESS_H
#define LH_RPC_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "base/status.h"

struct rpc_address {
    struct sockaddr_storage storage;
    socklen_t size;
};

#define RPC_ADDRESS_TEXT_BYTES 128

/* Parses one numeric address or unix path. */
enum lh_status lh_rpc_address_parse(const char *text, struct rpc_address *address, struct lh_error *error);

/* Resolves an address or a host name, for which getaddrinfo blocks. Returns the number of addresses; 0: see `error`. */
size_t lh_rpc_address_resolve(const char *text, struct rpc_address *addresses, size_t room, struct lh_error *error);

/* Returns true if only processes of this machine can connect to it: a loopback address or a unix socket. */
bool lh_rpc_address_is_local(const struct rpc_address *address);

/* Writes the address for people. A unix socket without a name, as a client's, is "unix:". */
void lh_rpc_address_format(const struct rpc_address *address, char text[RPC_ADDRESS_TEXT_BYTES]);

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
