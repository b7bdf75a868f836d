/* Leases on their way in one message: what renewals and releases have in common. */
#ifndef LH_CLIENT_BATCH_H
#define LH_CLIENT_BATCH_H

#include "client/lease.h"

struct lease_batch {
    struct lh_lease **leases;
    size_t count;
    size_t capacity;
    size_t bytes; /* of the message so far, at most */
};

/* Takes over a reference. False: it is full, nothing was taken. */
bool lease_batch_add(struct lease_batch *batch, struct lh_lease *lease);
void lease_batch_finish(struct lease_batch *batch); /* gives the references up */

/* At most what an item takes in a message. */
size_t lease_item_bytes(const struct lh_lease *lease);

#endif
