/*
 * The renewal of all leases of a client: in one batch, at a third of the shortest duration. A lease goes with a batch
 * if its own third would be over before the next one.
 *
 * It goes over the stream of keep_alive.h where that is there, else as a call. A call that fails is repeated as any
 * request, until the next one is due; leases that were told RETRY go again soon. None of that is a loss: only LOST is,
 * and the deadline.
 */
#ifndef LH_CLIENT_RENEWALS_H
#define LH_CLIENT_RENEWALS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "client/keep_alive.h"
#include "leasehold/v1/leasehold.pb-c.h"
#include "loop/loop.h"

struct lease_batch;
struct lh_buffer;
struct lh_client;
struct lh_lease;

#define BATCH_ITEMS_MAX 10000
#define BATCH_BYTES_MAX (3 * 1024 * 1024 + 512 * 1024) /* below the server's 4 MiB */

struct renewals {
    struct lh_client *client;
    struct lh_link declarations; /* that have leases held */
    struct lh_timer tick;
    struct keep_alive keep_alive;
    uint32_t hurried; /* rounds in a row that left somebody told RETRY */
    bool is_stopped;
};

void renewals_init(struct renewals *renewals, struct lh_client *client);
void renewals_stop(struct renewals *renewals); /* for good */

void renewals_add(struct renewals *renewals, struct lh_lease *lease);
void renewals_remove(struct renewals *renewals, struct lh_lease *lease);

/* For the stream. Leases that were released meanwhile are dropped from the batch. */
void renewals_pack(struct lh_client *client, struct lease_batch *batch, struct lh_buffer *message);
/* False: it is no answer to this batch. */
bool renewals_answer(struct renewals *renewals, struct lease_batch *batch, int64_t sent_us,
                     const Leasehold__V1__HeartbeatResponse *response);
/* Those that were not renewed since sent_us again, in pieces; they stay the caller's. */
void renewals_hedge(struct renewals *renewals, const struct lease_batch *batch, int64_t sent_us, int64_t until_us);
/* Takes the leases over: by a call, and in pieces where that is not answered soon. */
void renewals_call(struct renewals *renewals, struct lease_batch *batch, int64_t until_us);

#endif
