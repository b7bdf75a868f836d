/* A call that blocks its thread until the client's thread is done. On the caller's stack. */
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

/* Begins a blocking call. LH_WOULD_BLOCK: this thread must not block. `client` NULL: there is no lease, which is
   LH_INVALID_ARGUMENT. */
enum lh_status lh_blocked_begin(struct blocked *blocked, struct lh_client *client, struct lh_error *error);

/* Waits for the callback of the call, which wakes this one. `started`: the refusal of lh_blocked_begin, or the
   return of the call. */
enum lh_status lh_blocked_wait(struct blocked *blocked, enum lh_status started);

void lh_blocked_wake(struct blocked *blocked, enum lh_status status, const struct lh_error *error);
lh_done_cb lh_blocked_on_done; /* `arg` is the struct blocked */

#endif
