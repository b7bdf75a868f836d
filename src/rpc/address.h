/* Addresses as people write them: "127.0.0.1:7420", "[::1]:7420", "unix:/path". */
#ifndef LH_RPC_ADDRESS_H
#define LH_RPC_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

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

#endif
