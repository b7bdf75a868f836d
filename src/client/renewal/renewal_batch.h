/* One batch of renewals: its message, its answer, and its call if the stream does not take it. */
#ifndef LH_CLIENT_RENEWAL_BATCH_H
#define LH_CLIENT_RENEWAL_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"
#include "client/batch.h"
#include "leasehold/v1/leasehold.pb-c.h"

struct renewals;

/* Moves the next round to `at_us` if that is earlier. */
void lh_renewals_arm(struct renewals *renewals, int64_t at_us);

/* Packs the batch. Leases that were released meanwhile are dropped from it. */
void lh_renewals_pack(struct lh_client *client, struct lease_batch *batch, struct lh_buffer *message);
/* Applies an answer. Returns false if it does not fit this batch. */
bool lh_renewals_answer(struct renewals *renewals, struct lease_batch *batch, int64_t sent_us,
                        const Leasehold__V1__HeartbeatResponse *response);
/* Renews again, in pieces, the leases that were not renewed since sent_us; the batch stays the caller's. */
void lh_renewals_hedge(struct renewals *renewals, const struct lease_batch *batch, int64_t sent_us, int64_t until_us);
/* Takes the leases over and renews them by a call, and in pieces if that is not answered soon. */
void lh_renewals_call(struct renewals *renewals, struct lease_batch *batch, int64_t until_us);

#endif
