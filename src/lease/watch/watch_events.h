/* Events: taken from the database, one call at a time, and sent to the watchers that they concern. */
#ifndef LH_LEASE_WATCH_WATCH_EVENTS_H
#define LH_LEASE_WATCH_WATCH_EVENTS_H

#include "lease/turn.h"

/* Takes events if it is time and no call is out. */
void lh_watch_take(struct lh_coordinator *c);

#endif
