/* One batch of renewals: its message, its answer, and the call that it is where the stream does not take it. */
#ifndef LH_CLIENT_RENEWAL_BATCH_H
#define LH_CLIENT_RENEWAL_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"
#include "client/batch.h"
#include "leasehold/v1/leasehold.pb-c.h"

struct renewals;

/* The next round is no later than that. */
void lh_renewals_arm(struct renewals *renewals, int64_t at_us);

/* Leases that were released meanwhile are dropped from the batch. */
void lh_renewals_pack(struct lh_client *client, struct lease_batch *batch, struct lh_buffer *message);
/* False: it is no answer to this batch. */
bool lh_renewals_answer(struct renewals *renewals, struct lease_batch *batch, int64_t sent_us,
                        const Leasehold__V1__HeartbeatResponse *response);
/* Those that were not renewed since sent_us again, in pieces; they stay the caller's. */
void lh_renewals_hedge(struct renewals *renewals, const struct lease_batch *batch, int64_t sent_us, int64_t until_us);
/* Takes the leases over: by a call, and in pieces where that is not answered soon. */
void lh_renewals_call(struct renewals *renewals, struct lease_batch *batch, int64_t until_us);

#endif
