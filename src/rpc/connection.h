/*
 * One HTTP/2 connection, either side of it: a socket, an nghttp2 session, and what the socket did not take yet.
 *
 * The story: bytes that arrive go through the session, whose callbacks (the owner's) see streams; whatever anybody
 * submits meanwhile leaves in one write at the end of the loop turn (lh_rpc_connection_touch). While more than the mark
 * waits for the socket, nothing is taken from the session and nothing is read: a client that does not read is not
 * served. Over TLS (tls/session.h) nothing is sent or taken before the owner has finished the
 * handshake. A server's gate (rpc/gate.h) takes so much of one connection in a turn; what is left of its bytes is held,
 * and nothing is read until they are taken too. However a connection ends (peer, protocol, socket, owner), on_closed is
 * called at the end of a turn, once, never from inside of the session.
 */
#ifndef LH_RPC_CONNECTION_H
#define LH_RPC_CONNECTION_H

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "loop/loop.h"
#include "rpc/account.h"
#include "rpc/frame.h"
#include "rpc/gate.h"
#include "tls/session.h"

struct rpc_connection {
    struct lh_loop *loop;
    struct rpc_pool *pool;
    nghttp2_session *session;
    struct rpc_gate *gate;       /* of a server; NULL in a client */
    struct rpc_account *account; /* the same */
    void (*on_closed)(void *arg, const char *reason);
    void (*on_input_done)(void *arg); /* the bytes that callbacks saw are about to go; may be NULL */
    void (*on_ending)(void *arg);     /* is_ending has become true; may be NULL */
    void (*on_handshake)(void *arg);  /* while is_handshaking: the socket is ready; it is watched again by the owner */
    void *arg;
    struct lh_watch watch;
    struct lh_deferred flush;
    struct lh_buffer unsent;
    size_t unsent_at;
    struct lh_buffer held; /* read, and not taken by the gate */
    size_t held_at;
    size_t read_bytes; /* at once: less for those that send more than their turn takes */
    size_t counted;    /* in the account */
    size_t output_mark;
    int64_t received_at_us; /* when bytes came last */
    int64_t written_at_us;  /* when the socket took bytes last, or began to wait for that */
    const char *broken;     /* why; NULL: it works */
    int fd;
    struct lh_tls_session *tls; /* NULL: none; the connection's */
    bool is_handshaking;        /* the owner's to end */
    bool has_received;          /* a byte of HTTP/2, or what came in its place */
    bool peer_speaks_tls;       /* its first bytes say so, and we do not */
    bool is_lost;               /* it ended without a word of the peer */
    bool is_closed;             /* on_closed has been called */
    bool is_ending;             /* the session is done: our half is shut, the peer's bytes are thrown away */
};

/* The connection takes `fd`; `session`, `gate` and `account` are set by the owner before the
   first touch. */
void lh_rpc_connection_init(struct rpc_connection *connection, struct lh_loop *loop, struct rpc_pool *pool, int fd,
                            size_t output_mark, void (*on_closed)(void *arg, const char *reason), void *arg);
/* Frees the session too; not from inside of its callbacks. */
void lh_rpc_connection_finish(struct rpc_connection *connection);

/* Read what is there, as in a turn of its own; nothing while is_handshaking. */
void lh_rpc_connection_read(struct rpc_connection *connection);

/* Something was submitted: send it at the end of the turn. */
void lh_rpc_connection_touch(struct rpc_connection *connection);
void lh_rpc_connection_count(struct rpc_connection *connection); /* what it keeps now, in the account */

/* End it at the end of the turn, unsent bytes and all. `reason` is a literal. */
void lh_rpc_connection_break(struct rpc_connection *connection, const char *reason);

/* Shut our half and throw away what comes until the peer shuts its own: close at once would take away from it what was
   sent last. */
void lh_rpc_connection_end(struct rpc_connection *connection);

size_t lh_rpc_connection_unsent(const struct rpc_connection *connection);

/* A header field of literals and of bytes that stay in place until submitted (nghttp2 copies the value). */
nghttp2_nv lh_rpc_header(const char *name, const char *value, size_t value_size);
nghttp2_nv lh_rpc_header_static(const char *name, const char *value);
/* The same of two literals, whose lengths the compiler knows: nearly every header that is ever sent. */
#define RPC_HEADER_LITERAL(literal_name, literal_value)                                                                \
    ((nghttp2_nv){.name = (uint8_t *)(uintptr_t)("" literal_name),                                                     \
                  .value = (uint8_t *)(uintptr_t)("" literal_value),                                                   \
                  .namelen = sizeof(literal_name) - 1,                                                                 \
                  .valuelen = sizeof(literal_value) - 1,                                                               \
                  .flags = NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE})

#endif
