/* The operation reap: runs of expired leases that have reap hooks; reap_job.h is one of them. */
#ifndef LH_LEASE_HOOKS_REAP_H
#define LH_LEASE_HOOKS_REAP_H

#include "lease/operation.h"

extern const struct lh_operation lh_reap_operation;

#endif
