/* Waiting for a scope over a caller's connection, in the one queue of all waiters. */
#ifndef LH_EMBED_WAIT_H
#define LH_EMBED_WAIT_H

#include "embed/call.h"

struct lh_wait_scope {
    const char *ns;
    const char *key;
    const char *lease_key;
    int32_t units; /* 0: exclusive */
};

/*
 * Repeat `acquire` (a call that answers LH_LEASE_HELD) when its turn may have come, for at most `wait_us`. The place in
 * the queue is kept meanwhile and given up at the end. LH_WAIT_TIMEOUT: the time has passed.
 */
enum lh_status lh_wait_for_turn(struct lh_call *acquire, const struct lh_wait_scope *scope, int64_t wait_us,
                                struct lh_error *error);

#endif
