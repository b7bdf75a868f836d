/* Leases on their way in one message: what renewals and releases have in common. */
#ifndef LH_CLIENT_BATCH_H
#define LH_CLIENT_BATCH_H

#include "client/lease.h"

#define BATCH_ITEMS_MAX 10000
#define BATCH_BYTES_MAX (3 * 1024 * 1024 + 512 * 1024) /* below the server's 4 MiB */

struct lease_batch {
    struct lh_lease **leases;
    size_t count;
    size_t capacity;
    size_t bytes; /* of the message so far, at most */
};

/* Takes over a reference. False: it is full, nothing was taken. */
bool lh_lease_batch_add(struct lease_batch *batch, struct lh_lease *lease);
void lh_lease_batch_finish(struct lease_batch *batch); /* gives the references up */

#endif
