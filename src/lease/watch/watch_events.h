/* Events: taken from the database, one call at a time, and sent to the watchers that they concern. */
#ifndef LH_LEASE_WATCH_WATCH_EVENTS_H
#define LH_LEASE_WATCH_WATCH_EVENTS_H

#include "lease/turn.h"

void lh_watch_take(struct lh_coordinator *c); /* if it is due */

#endif
