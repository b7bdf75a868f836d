/* The wait until a watch may begin. */
#ifndef LH_LEASE_WATCH_WATCH_SETTLE_H
#define LH_LEASE_WATCH_WATCH_SETTLE_H

#include "lease/turn.h"

/* Makes the store calls that are due. */
void lh_watch_settle(struct lh_coordinator *c);

#endif
