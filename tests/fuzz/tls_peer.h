/*
 * A client's side of TLS, in memory: what it sends goes to a socket of sockets.h, and it reads what the server sends to
 * it. Certificates are made at the start.
 */
#ifndef LH_FUZZ_TLS_PEER_H
#define LH_FUZZ_TLS_PEER_H

#include <stdbool.h>
#include <stddef.h>

struct fuzz_tls_peer;
struct lh_tls_context;

struct lh_tls_context *fuzz_tls_init(void); /* once: the server's context */

struct fuzz_tls_peer *fuzz_tls_connect(int fd, bool shows_certificate);
void fuzz_tls_free(struct fuzz_tls_peer *peer); /* sends nothing; NULL: does nothing */

/* A step of the handshake, or what was written before its end, or a read of what the server has sent. */
void fuzz_tls_pump(struct fuzz_tls_peer *peer);
void fuzz_tls_write(struct fuzz_tls_peer *peer, const void *data, size_t size);
void fuzz_tls_update_keys(struct fuzz_tls_peer *peer);
void fuzz_tls_end(struct fuzz_tls_peer *peer); /* close_notify */

#endif
