/*
 * One HTTP/2 connection, either side of it: a socket, an nghttp2 session, and what the socket did not take yet.
 *
 * The story: bytes that arrive go through the session, whose callbacks (the owner's) see streams; whatever anybody
 * submits meanwhile leaves in one write at the end of the loop turn (rpc_connection_touch). While more than the mark
 * waits for the socket, nothing is taken from the session and nothing is read: a client that does not read is not
 * served. However a connection ends (peer, protocol, socket, owner), on_closed is called at the end of a turn, once,
 * never from inside of the session.
 */
#ifndef LH_RPC_CONNECTION_H
#define LH_RPC_CONNECTION_H

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "loop/loop.h"
#include "rpc/early_reset.h"
#include "rpc/frame.h"

struct rpc_connection {
    struct lh_loop *loop;
    struct rpc_pool *pool;
    nghttp2_session *session;
    struct rpc_early_reset *early_reset; /* of a server; NULL in a client */
    void (*on_closed)(void *arg, const char *reason);
    void (*on_input_done)(void *arg); /* the bytes that callbacks saw are about to go; may be NULL */
    void (*on_ending)(void *arg);     /* is_ending has become true; may be NULL */
    void *arg;
    struct lh_watch watch;
    struct lh_deferred flush;
    struct lh_buffer unsent;
    size_t unsent_at;
    size_t output_mark;
    int64_t received_at_us; /* when bytes came last */
    int64_t written_at_us;  /* when the socket took bytes last, or began to wait for that */
    const char *broken;     /* why; NULL: it works */
    int fd;
    bool is_lost;   /* it ended without a word of the peer */
    bool is_closed; /* on_closed has been called */
    bool is_ending; /* the session is done: our half is shut, the peer's bytes are thrown away */
};

/* The connection takes `fd`; `session` and `early_reset` are set by the owner before the first touch. */
void rpc_connection_init(struct rpc_connection *connection, struct lh_loop *loop, struct rpc_pool *pool, int fd,
                         size_t output_mark, void (*on_closed)(void *arg, const char *reason), void *arg);
/* Frees the session too; not from inside of its callbacks. */
void rpc_connection_finish(struct rpc_connection *connection);

/* Something was submitted: send it at the end of the turn. */
void rpc_connection_touch(struct rpc_connection *connection);

/* End it at the end of the turn, unsent bytes and all. `reason` is a literal. */
void rpc_connection_break(struct rpc_connection *connection, const char *reason);

size_t rpc_connection_unsent(const struct rpc_connection *connection);

/* A header field of literals and of bytes that stay in place until submitted (nghttp2 copies the value). */
nghttp2_nv rpc_header(const char *name, const char *value, size_t value_size);
nghttp2_nv rpc_header_static(const char *name, const char *value);
/* The same of two literals, whose lengths the compiler knows: nearly every header that is ever sent. */
#define RPC_HEADER_LITERAL(literal_name, literal_value)                                                                \
    ((nghttp2_nv){.name = (uint8_t *)(uintptr_t)("" literal_name),                                                     \
                  .value = (uint8_t *)(uintptr_t)("" literal_value),                                                   \
                  .namelen = sizeof(literal_name) - 1,                                                                 \
                  .valuelen = sizeof(literal_value) - 1,                                                               \
                  .flags = NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE})

#endif
