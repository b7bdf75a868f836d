/*
 * The operation release: ends a lease. The first waiter of its scope rides along in the same transaction. A release
 * whose reply was lost is sent again; if the lease was released already, the first sending did it.
 */
#ifndef LH_LEASE_RELEASE_H
#define LH_LEASE_RELEASE_H

#include "lease/holder_op.h"

extern const struct lh_holder_op lh_release_operation;

#endif
