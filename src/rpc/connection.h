/*
 * One HTTP/2 connection, either side of it: a socket, an nghttp2 session, and the bytes that the socket did not take
 * yet.
 *
 * The story: bytes that arrive go through the session, whose callbacks (the owner's) see streams; all frames submitted
 * meanwhile leave in one write at the end of the loop turn (lh_rpc_connection_touch). While more than the mark waits
 * for the socket, no frame is taken from the session and no byte is read: a client that does not read is not served.
 * Over TLS (tls/session.h) no byte is sent or taken before the owner has finished the handshake. A server's gate
 * (rpc/gate.h) takes a bounded part of one connection in a turn; the rest of its bytes is held, and no more are read
 * until they are taken too. However a connection ends (peer, protocol, socket, owner), on_closed is called at the end
 * of a turn, once, never from inside of the session.
 */
#ifndef LH_RPC_CONNECTION_H
#define LH_RPC_CONNECTION_H

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "loop/loop.h"
#include "rpc/frame.h"
#include "rpc/gate.h"
#include "rpc/recycle.h"
#include "tls/session.h"

/* Answers to frames of control that may wait in a session: more than the shortest frames of one loop turn. PINGs that
   came in one read are the bound: no more is read until their answers are on the way. */
#define RPC_ANSWERS_MAX 40000

struct rpc_connection {
    struct lh_loop *loop;
    struct rpc_pool *pool;
    nghttp2_session *session;
    struct rpc_gate *gate;       /* the server's; NULL in a client */
    struct rpc_account *account; /* the server's; NULL in a client */
    void (*on_closed)(void *arg, const char *reason);
    /* Called before the bytes that callbacks saw go away; may be NULL. */
    void (*on_input_done)(void *arg);
    /* Called when is_ending has become true; may be NULL. */
    void (*on_ending)(void *arg);
    /* Called while is_handshaking when the socket is ready; the owner watches it again. */
    void (*on_handshake)(void *arg);
    void *arg;
    struct lh_watch watch;
    struct lh_deferred flush;
    struct lh_buffer unsent;
    size_t unsent_at;
    struct lh_buffer held; /* bytes read, and not taken by the gate */
    size_t held_at;
    /* Bytes at once: less for peers that send more than their turn takes. */
    size_t read_bytes;
    size_t counted; /* bytes in the account */
    size_t output_mark;
    int64_t received_at_us; /* time when bytes came last */
    /* Time when the socket took bytes last, or began to wait for that. */
    int64_t written_at_us;
    const char *broken; /* the reason; NULL: it works */
    int fd;
    /* The connection's own; NULL: no TLS. */
    struct lh_tls_session *tls;
    bool is_handshaking;  /* set until the owner ends it */
    bool has_received;    /* a byte of HTTP/2 came, or of another protocol */
    bool peer_speaks_tls; /* the peer's first bytes are TLS, and we do not speak it */
    bool is_lost;         /* ended without an end from the peer */
    bool is_closed;       /* on_closed has been called */
    bool is_ending;       /* the session is done: our half is shut, the peer's bytes are thrown away */
};

/* Initialises a connection, which takes over `fd`. The owner sets `session`, `gate` and `account` before the first
   touch. */
void lh_rpc_connection_init(struct rpc_connection *connection, struct lh_loop *loop, struct rpc_pool *pool, int fd,
                            size_t output_mark, void (*on_closed)(void *arg, const char *reason), void *arg);
/* Frees the connection and its session; not from inside of the session's callbacks. */
void lh_rpc_connection_finish(struct rpc_connection *connection);

/* Reads the available bytes, as in a turn of its own; does nothing while is_handshaking. */
void lh_rpc_connection_read(struct rpc_connection *connection);

/* Sends submitted frames at the end of the turn. */
void lh_rpc_connection_touch(struct rpc_connection *connection);
/* Submits the settings of a new session, and the window of the connection. */
bool lh_rpc_connection_start(struct rpc_connection *connection, const nghttp2_settings_entry *settings, size_t count,
                             int32_t window_bytes);
void lh_rpc_connection_reset(struct rpc_connection *connection, int32_t stream_id, uint32_t error);
void lh_rpc_connection_ping(struct rpc_connection *connection, const uint8_t *bytes); /* 8 bytes; NULL: zeroes */
void lh_rpc_connection_count(struct rpc_connection *connection);                      /* updates the account */

/* Ends the connection at the end of the turn; unsent bytes are lost. `reason` is a literal. */
void lh_rpc_connection_break(struct rpc_connection *connection, const char *reason);

/* Shuts our half and throws away input until the peer shuts its own: to close at once would take the last bytes away
   from it. */
void lh_rpc_connection_end(struct rpc_connection *connection);

size_t lh_rpc_connection_unsent(const struct rpc_connection *connection);

/* Makes a header field of literals and of bytes that stay in place until submitted (nghttp2 copies the value). */
nghttp2_nv lh_rpc_header(const char *name, const char *value, size_t value_size);
nghttp2_nv lh_rpc_header_static(const char *name, const char *value);
/* A header field of two literals, whose lengths the compiler knows: nearly every header that is ever sent. */
#define RPC_HEADER_LITERAL(literal_name, literal_value)                                                                \
    ((nghttp2_nv){.name = (uint8_t *)(uintptr_t)("" literal_name),                                                     \
                  .value = (uint8_t *)(uintptr_t)("" literal_value),                                                   \
                  .namelen = sizeof(literal_name) - 1,                                                                 \
                  .valuelen = sizeof(literal_value) - 1,                                                               \
                  .flags = NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE})

#endif
