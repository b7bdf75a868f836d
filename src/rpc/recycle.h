/*
 * Memory for nghttp2, which takes and gives back eight small blocks for each call: they are kept in lists by size and
 * used again. One for each server or channel; it outlives its sessions.
 */
#ifndef LH_RPC_RECYCLE_H
#define LH_RPC_RECYCLE_H

#include <nghttp2/nghttp2.h>
#include <stddef.h>

/*
 * Books of memory: each connection of a server has an account, and the server one for all of them. They count the
 * allocated bytes: headers and other metadata, requests that are not complete, replies that are not sent, and all
 * memory of nghttp2.
 */
struct rpc_account {
    size_t bytes;
    struct rpc_account *whole; /* the account that it is a part of, or NULL */
};

/* Counts that memory of `before` bytes now has `now`. `account` NULL: does nothing. */
static inline void rpc_account_change(struct rpc_account *account, size_t before, size_t now)
{
    if (account == NULL || before == now)
        return;
    account->bytes += now - before;
    if (account->whole != NULL)
        account->whole->bytes += now - before;
}

#define RECYCLE_STEP_BYTES 32
#define RECYCLE_CLASSES 16 /* blocks of up to 512 bytes */

struct rpc_recycle {
    nghttp2_mem mem; /* give this to nghttp2 */
    struct recycled {
        struct recycled *next;
    } * blocks[RECYCLE_CLASSES + 1];
    unsigned counts[RECYCLE_CLASSES + 1];
};

/* Such memory for one session, whose blocks are counted. It stays in place as long as the session. */
struct rpc_counted {
    nghttp2_mem mem; /* give this to nghttp2 */
    struct rpc_recycle *recycle;
    struct rpc_account *account;
};

void lh_rpc_counted_init(struct rpc_counted *counted, struct rpc_recycle *recycle, struct rpc_account *account);

void lh_rpc_recycle_init(struct rpc_recycle *recycle);
void lh_rpc_recycle_finish(struct rpc_recycle *recycle);

#endif
