/* WatchLeases. Private to src/service. */
#ifndef LH_SERVICE_WATCH_H
#define LH_SERVICE_WATCH_H

struct lh_service;

/* Ends the watches, which have no end of their own. */
void lh_watch_leases_drain(struct lh_service *service);

#endif
