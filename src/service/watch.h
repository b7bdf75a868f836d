/* WatchLeases. For src/service alone. */
#ifndef LH_SERVICE_WATCH_H
#define LH_SERVICE_WATCH_H

struct lh_service;

void lh_watch_leases_drain(struct lh_service *service); /* they would go on for ever */

#endif
