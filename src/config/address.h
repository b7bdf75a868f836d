/*
 * An address to listen on, as text: "127.0.0.1:7420", "[::1]:7420", "localhost:7420", "unix:/run/leasehold.sock". Host
 * names are not looked up: a daemon listens on addresses of its own machine.
 */
#ifndef LH_CONFIG_ADDRESS_H
#define LH_CONFIG_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

struct lh_address {
    struct sockaddr_storage socket;
    socklen_t size;
};

/* Parses an address. Returns false, with the fault in `why` (of `why_bytes`), if it is not valid. */
bool lh_address_parse(const char *text, struct lh_address *address, char *why, size_t why_bytes);

/* Only processes of this machine can reach it: a loopback address or a unix socket. */
bool lh_address_is_local(const struct lh_address *address);

/* As it is written, with the port the kernel chose when `socket` came from getsockname(2). */
#define LH_ADDRESS_TEXT_BYTES 128
void lh_address_format(const struct lh_address *address, char text[LH_ADDRESS_TEXT_BYTES]);

#endif
