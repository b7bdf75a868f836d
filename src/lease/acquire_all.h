/* The operation acquire_all: several scopes for one request, in one call; see queue/together.h. */
#ifndef LH_LEASE_ACQUIRE_ALL_H
#define LH_LEASE_ACQUIRE_ALL_H

#include "lease/lane.h"

extern const struct lh_operation lh_acquire_all_operation;

#endif
