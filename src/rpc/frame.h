/*
 * gRPC's framing of messages inside of HTTP/2 DATA: a byte of flags, four of length, then the message. The frames of
 * HTTP/2 may be cut anywhere; neither side of this knows about streams.
 */
#ifndef LH_RPC_FRAME_H
#define LH_RPC_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"

#define RPC_PREFIX_BYTES 5

/* The buffers that the connections of one server or channel share, so that an idle one owns no buffer. */
#define RPC_SCRATCH_BYTES (64 * 1024)
#define RPC_SPARES_MAX 1024

struct rpc_pool {
    unsigned char *input;  /* RPC_SCRATCH_BYTES */
    unsigned char *output; /* RPC_SCRATCH_BYTES */
    struct lh_buffer spares[RPC_SPARES_MAX];
    size_t spare_count;
};

void lh_rpc_pool_init(struct rpc_pool *pool);
void lh_rpc_pool_finish(struct rpc_pool *pool);
void lh_rpc_pool_take(struct rpc_pool *pool, struct lh_buffer *buffer); /* gives a buffer without one a spare */
/* Appends to a buffer, which may be a spare. */
void lh_rpc_pool_append(struct rpc_pool *pool, struct lh_buffer *buffer, const void *bytes, size_t size);
void lh_rpc_pool_give(struct rpc_pool *pool, struct lh_buffer *buffer); /* takes it back, emptied */

/* Messages on their way in. Zero-initialised it is empty. */
struct rpc_inbox {
    struct lh_buffer partial; /* part of the message that has begun */
    uint32_t message_bytes;
    uint8_t prefix[RPC_PREFIX_BYTES];
    uint8_t prefix_bytes; /* bytes of `prefix` received */
    bool is_handed_over;  /* `partial` holds the message that was returned last */
};

enum rpc_inbox_result {
    RPC_INBOX_MORE,       /* the input is used up */
    RPC_INBOX_MESSAGE,    /* `message` is in the input, or in the inbox until the next call */
    RPC_INBOX_TOO_LARGE,  /* known from its prefix, before anything was buffered */
    RPC_INBOX_COMPRESSED, /* flag 1, or an undefined flag */
};

/* Takes bytes from `data`, which moves on, up to the end of one message. */
enum rpc_inbox_result lh_rpc_inbox_next(struct rpc_inbox *inbox, struct rpc_pool *pool, size_t max_message_bytes,
                                        const unsigned char **data, size_t *size, const unsigned char **message,
                                        size_t *message_size);
/* Moves the message that was returned last to `to`, if the inbox holds it; false: it lies in the input. */
bool lh_rpc_inbox_move(struct rpc_inbox *inbox, struct lh_buffer *to);
bool lh_rpc_inbox_is_between(const struct rpc_inbox *inbox); /* whether no message has begun */
void lh_rpc_inbox_finish(struct rpc_inbox *inbox, struct rpc_pool *pool);

/* Messages on their way out. Zero-initialised it is empty. */
struct rpc_outbox {
    struct lh_buffer bytes;
    size_t sent;
};

void lh_rpc_outbox_put(struct rpc_outbox *outbox, struct rpc_pool *pool, const void *message, size_t size);
size_t lh_rpc_outbox_take(struct rpc_outbox *outbox, struct rpc_pool *pool, unsigned char *to, size_t room);
size_t lh_rpc_outbox_unsent(const struct rpc_outbox *outbox);
void lh_rpc_outbox_finish(struct rpc_outbox *outbox, struct rpc_pool *pool);

#endif
