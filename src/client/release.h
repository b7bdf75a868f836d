/* Release, as a message; lh_release sends one lease, the set of lh_try_release many. */
#ifndef LH_CLIENT_RELEASE_H
#define LH_CLIENT_RELEASE_H

#include "client/lease.h"

void release_pack(struct lh_lease *const *leases, size_t count, struct lh_buffer *message);

/* What of `options` goes with the lease. LH_INVALID_ARGUMENT with words. */
enum lh_status release_check(const struct lh_release_options *options, struct lh_error *error);
void release_take_result(struct lh_lease *lease, const struct lh_release_options *options);

#endif
