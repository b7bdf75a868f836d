/*
 * Memory for nghttp2, which takes and gives back eight small blocks for each call: they are kept in lists by size and
 * used again. One for each server or channel; it outlives its sessions.
 */
#ifndef LH_RPC_RECYCLE_H
#define LH_RPC_RECYCLE_H

#include <nghttp2/nghttp2.h>

#include "rpc/account.h"

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
