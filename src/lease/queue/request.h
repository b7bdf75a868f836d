/* The calls lh_coordinator_acquire and lh_coordinator_cancel, and the timer of a request. */
#ifndef LH_LEASE_QUEUE_REQUEST_H
#define LH_LEASE_QUEUE_REQUEST_H

#include "lease/turn.h"

void lh_request_on_timer(struct lh_coordinator *c, struct lh_acquire *request);

#endif
