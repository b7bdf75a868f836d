/* A call that waits on another thread for what the client's thread does. On the caller's stack. */
#ifndef LH_CLIENT_BLOCKING_H
#define LH_CLIENT_BLOCKING_H

#include <semaphore.h>

#include "leasehold.h"

struct blocked {
    sem_t done;
    struct lh_lease *lease;
    struct lh_error *error; /* the caller's, or NULL */
    enum lh_status status;
};

/* LH_WOULD_BLOCK: this thread must not. `client` NULL: there is no lease, which is LH_INVALID_ARGUMENT. */
enum lh_status lh_blocked_begin(struct blocked *blocked, struct lh_client *client, struct lh_error *error);

/* `started`: what refused the call, or the status of the call without blocking; its callback wakes this one. */
enum lh_status lh_blocked_wait(struct blocked *blocked, enum lh_status started);

void lh_blocked_wake(struct blocked *blocked, enum lh_status status, const struct lh_error *error);
lh_done_cb lh_blocked_on_done; /* `arg` is the struct blocked */

#endif
