/*
 * The renewal of all leases of a client: in one batch, at a third of the shortest duration. A lease goes with a batch
 * if its own third would be over before the next one.
 *
 * A batch goes over the stream of keep_alive.h when there is one, else as a call. A call that fails is repeated as any
 * request, until the next one is due; leases answered RETRY go again soon. Only LOST and the deadline end a lease.
 */
#ifndef LH_CLIENT_RENEWALS_H
#define LH_CLIENT_RENEWALS_H

#include <stdbool.h>
#include <stdint.h>

#include "client/renewal/keep_alive.h"
#include "loop/loop.h"

struct lh_client;
struct lh_lease;

struct renewals {
    struct lh_client *client;
    struct lh_timer tick;
    struct keep_alive keep_alive;
    uint32_t hurried; /* rounds in a row with an answer RETRY */
    bool is_stopped;
};

void lh_renewals_init(struct renewals *renewals, struct lh_client *client);
void lh_renewals_stop(struct renewals *renewals); /* stops for good */

/* Renews the lease from now on, as long as it is held. */
void lh_renewals_add(struct renewals *renewals, const struct lh_lease *lease);

#endif
