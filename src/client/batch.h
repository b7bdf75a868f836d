/* Leases on their way in one message, for renewals and releases. */
#ifndef LH_CLIENT_BATCH_H
#define LH_CLIENT_BATCH_H

#include "client/lease.h"

#define BATCH_ITEMS_MAX 10000
#define BATCH_BYTES_MAX (3 * 1024 * 1024 + 512 * 1024) /* below the server's 4 MiB */

struct lease_batch {
    struct lh_lease **leases;
    size_t count;
    size_t capacity;
    size_t bytes; /* upper bound of the message's size so far */
};

/* Takes over a reference. Returns false, without taking it, if the batch is full. */
bool lh_lease_batch_add(struct lease_batch *batch, struct lh_lease *lease);
void lh_lease_batch_finish(struct lease_batch *batch); /* gives the references up */

#endif
