/*
 * The renewal of all leases of a client: in one batch, at a third of the shortest duration. A lease goes with a batch
 * if its own third would be over before the next one.
 *
 * A batch that fails is repeated as any request, until the next one is due; leases that were told RETRY go again soon.
 * None of that is a loss: only LOST is, and the deadline.
 */
#ifndef LH_CLIENT_RENEWALS_H
#define LH_CLIENT_RENEWALS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "loop/loop.h"

struct lh_client;
struct lh_lease;

#define BATCH_ITEMS_MAX 10000
#define BATCH_BYTES_MAX (3 * 1024 * 1024 + 512 * 1024) /* below the server's 4 MiB */

struct renewals {
    struct lh_client *client;
    struct lh_link declarations; /* that have leases held */
    struct lh_timer tick;
    uint32_t hurried; /* rounds in a row that left somebody told RETRY */
    bool is_stopped;
};

void renewals_init(struct renewals *renewals, struct lh_client *client);
void renewals_stop(struct renewals *renewals); /* for good */

void renewals_add(struct renewals *renewals, struct lh_lease *lease);
void renewals_remove(struct renewals *renewals, struct lh_lease *lease);

#endif
