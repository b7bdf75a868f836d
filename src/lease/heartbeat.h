/* The operation heartbeat: renews a lease. */
#ifndef LH_LEASE_HEARTBEAT_H
#define LH_LEASE_HEARTBEAT_H

#include "lease/holder_op.h"

extern const struct lh_holder_op lh_heartbeat_operation;

#endif
