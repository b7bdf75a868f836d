/*
 * Addresses as people write them: "127.0.0.1:7420", "[::1]:7420", "unix:/path"; and sockets that are bound to one.
 *
 * A daemon binds while it is root and listens when it no longer is:
 *
 *     struct lh_bind how = {.address = "unix:/run/leasehold/s.sock", .socket_mode = 0660};
 *     status = lh_bind(&how, &fd, bound, &error);
 *     status = lh_rpc_server_adopt(server, fd, &error);
 */
#ifndef LH_BASE_ADDRESS_H
#define LH_BASE_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "base/status.h"

struct lh_address {
    struct sockaddr_storage storage;
    socklen_t size;
};

#define LH_ADDRESS_TEXT_BYTES 128

/* Parses an address to listen on: numeric, localhost, or a unix path that begins with /. Host names are not looked up: a
   daemon listens on addresses of its own machine. Returns false, with the fault in `why`, if it is not valid. */
bool lh_address_parse(const char *text, struct lh_address *address, char *why, size_t why_bytes);

/* Resolves an address or a host name, for which getaddrinfo blocks. Returns the number of addresses; 0: see `error`. */
size_t lh_address_resolve(const char *text, struct lh_address *addresses, size_t room, struct lh_error *error);

/* Returns true if only processes of this machine can connect to it: a loopback address or a unix socket. */
bool lh_address_is_local(const struct lh_address *address);

/* Writes the address for people. A unix socket without a name, as a client's, is "unix:". */
void lh_address_format(const struct lh_address *address, char text[LH_ADDRESS_TEXT_BYTES]);

struct lh_bind {
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
enum lh_status lh_bind(const struct lh_bind *how, int *fd, char bound[LH_ADDRESS_TEXT_BYTES], struct lh_error *error);

#endif
