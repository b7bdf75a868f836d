/* When a watch may begin. */
#ifndef LH_LEASE_WATCH_WATCH_SETTLE_H
#define LH_LEASE_WATCH_WATCH_SETTLE_H

#include "lease/turn.h"

void lh_watch_settle(struct lh_coordinator *c); /* ask for what is due */

#endif
