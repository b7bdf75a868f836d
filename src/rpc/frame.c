#include "rpc/frame.h"

#include <stdlib.h>
#include <string.h>

/* A spare larger than this is not worth keeping. */
#define SPARE_MAX_BYTES (4 * 1024)

void lh_rpc_pool_init(struct rpc_pool *pool)
{
    memset(pool, 0, sizeof(*pool));
    pool->input = lh_alloc(RPC_SCRATCH_BYTES);
    pool->output = lh_alloc(RPC_SCRATCH_BYTES);
}

void lh_rpc_pool_finish(struct rpc_pool *pool)
{
    while (pool->spare_count > 0)
        lh_buffer_finish(&pool->spares[--pool->spare_count]);
    free(pool->input);
    free(pool->output);
}

void lh_rpc_pool_take(struct rpc_pool *pool, struct lh_buffer *buffer)
{
    if (buffer->data == NULL && pool->spare_count > 0)
        *buffer = pool->spares[--pool->spare_count];
}

void lh_rpc_pool_append(struct rpc_pool *pool, struct lh_buffer *buffer, const void *bytes, size_t size)
{
    lh_rpc_pool_take(pool, buffer);
    lh_buffer_append(buffer, bytes, size);
}

void lh_rpc_pool_give(struct rpc_pool *pool, struct lh_buffer *buffer)
{
    if (buffer->data == NULL)
        return;
    if (buffer->capacity > SPARE_MAX_BYTES || pool->spare_count == RPC_SPARES_MAX) {
        lh_buffer_finish(buffer);
    } else {
        buffer->size = 0;
        pool->spares[pool->spare_count++] = *buffer;
    }
    memset(buffer, 0, sizeof(*buffer));
}

static uint32_t read_u32(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static bool take_prefix(struct rpc_inbox *inbox, const unsigned char **data, size_t *size)
{
    size_t wanted = RPC_PREFIX_BYTES - (size_t)inbox->prefix_bytes;
    size_t step = *size < wanted ? *size : wanted;

    memcpy(inbox->prefix + inbox->prefix_bytes, *data, step);
    inbox->prefix_bytes = (uint8_t)(inbox->prefix_bytes + step);
    *data += step;
    *size -= step;
    if (inbox->prefix_bytes < RPC_PREFIX_BYTES)
        return false;
    inbox->message_bytes = read_u32(inbox->prefix + 1);
    return true;
}

enum rpc_inbox_result lh_rpc_inbox_next(struct rpc_inbox *inbox, struct rpc_pool *pool, size_t max_message_bytes,
                                        const unsigned char **data, size_t *size, const unsigned char **message,
                                        size_t *message_size)
{
    size_t missing, step;

    if (inbox->is_handed_over) {
        lh_rpc_pool_give(pool, &inbox->partial);
        inbox->is_handed_over = false;
    }
    if (inbox->prefix_bytes < RPC_PREFIX_BYTES) {
        if (*size == 0 || !take_prefix(inbox, data, size))
            return RPC_INBOX_MORE;
        if (inbox->prefix[0] != 0)
            return RPC_INBOX_COMPRESSED;
        if (inbox->message_bytes > max_message_bytes)
            return RPC_INBOX_TOO_LARGE;
    }
    missing = inbox->message_bytes - inbox->partial.size;
    if (inbox->partial.size == 0 && *size >= missing) {
        *message = *data; /* the usual case: all of it is here, nothing is copied */
    } else {
        step = *size < missing ? *size : missing;
        if (step > 0) {
            lh_rpc_pool_take(pool, &inbox->partial);
            lh_buffer_append(&inbox->partial, *data, step);
        }
        if (step < missing) {
            *data += step;
            *size -= step;
            return RPC_INBOX_MORE;
        }
        *message = inbox->partial.data;
        inbox->is_handed_over = true;
    }
    *message_size = inbox->message_bytes;
    *data += missing;
    *size -= missing;
    inbox->prefix_bytes = 0;
    return RPC_INBOX_MESSAGE;
}

bool lh_rpc_inbox_move(struct rpc_inbox *inbox, struct lh_buffer *to)
{
    if (!inbox->is_handed_over)
        return false;
    *to = inbox->partial;
    memset(&inbox->partial, 0, sizeof(inbox->partial));
    inbox->is_handed_over = false;
    return true;
}

bool lh_rpc_inbox_is_between(const struct rpc_inbox *inbox)
{
    return inbox->prefix_bytes == 0;
}

void lh_rpc_inbox_finish(struct rpc_inbox *inbox, struct rpc_pool *pool)
{
    lh_rpc_pool_give(pool, &inbox->partial);
    memset(inbox, 0, sizeof(*inbox));
}

void lh_rpc_outbox_put(struct rpc_outbox *outbox, struct rpc_pool *pool, const void *message, size_t size)
{
    unsigned char *to;

    lh_rpc_pool_take(pool, &outbox->bytes);
    /* What was sent goes when it is the larger part, so that a stream that is never empty does not grow. */
    if (outbox->sent > outbox->bytes.size / 2) {
        memmove(outbox->bytes.data, outbox->bytes.data + outbox->sent, outbox->bytes.size - outbox->sent);
        outbox->bytes.size -= outbox->sent;
        outbox->sent = 0;
    }
    to = lh_buffer_reserve(&outbox->bytes, RPC_PREFIX_BYTES + size);
    to[0] = 0;
    to[1] = (unsigned char)(size >> 24);
    to[2] = (unsigned char)(size >> 16);
    to[3] = (unsigned char)(size >> 8);
    to[4] = (unsigned char)size;
    if (size > 0)
        memcpy(to + RPC_PREFIX_BYTES, message, size);
    outbox->bytes.size += RPC_PREFIX_BYTES + size;
}

size_t lh_rpc_outbox_take(struct rpc_outbox *outbox, struct rpc_pool *pool, unsigned char *to, size_t room)
{
    size_t unsent = lh_rpc_outbox_unsent(outbox);
    size_t step = unsent < room ? unsent : room;

    if (step > 0)
        memcpy(to, outbox->bytes.data + outbox->sent, step);
    outbox->sent += step;
    if (step == unsent)
        lh_rpc_outbox_finish(outbox, pool);
    return step;
}

size_t lh_rpc_outbox_unsent(const struct rpc_outbox *outbox)
{
    return outbox->bytes.size - outbox->sent;
}

void lh_rpc_outbox_finish(struct rpc_outbox *outbox, struct rpc_pool *pool)
{
    lh_rpc_pool_give(pool, &outbox->bytes);
    outbox->sent = 0;
}
