/*
 * The coordinator's calls, each to the coordinator of the database in which its namespace lives; see
 * lease/coordinator.h and lease/watch.h. A request for several databases is split, and answered when all have answered;
 * heartbeats and releases at the latest a second after the first answer, with RETRY for the other items. Requests were
 * validated: their namespaces live in a database, and those of one acquire in the same.
 */
#ifndef LH_SERVICE_ROUTE_H
#define LH_SERVICE_ROUTE_H

#include "lease/coordinator.h"
#include "lease/watch.h"

struct lh_service;
struct lh_routed_watch;

enum lh_status lh_route_acquire(const struct lh_service *service, struct lh_acquire *acquire);
void lh_route_cancel(const struct lh_service *service, struct lh_acquire *acquire);
/* Send items to several databases. Items of a database that does not take them are answered RETRY; the call is
   refused if no database takes its items. */
enum lh_status lh_route_heartbeat(const struct lh_service *service, struct lh_holder_request *request);
enum lh_status lh_route_release(const struct lh_service *service, struct lh_holder_request *request);
enum lh_status lh_route_downgrade(const struct lh_service *service, struct lh_holder_request *request);
void lh_route_wake(const struct lh_service *service, const char *ns, const char *key);

/* Starts one watcher for all databases that have some of its namespaces: active when it is in each, caught up when
   it has in each, ended with the first. The callbacks are those of `watcher`. NULL: refused, see `status`. */
struct lh_routed_watch *lh_route_watch(const struct lh_service *service, struct lh_watcher *watcher,
                                       enum lh_status *status);
void lh_route_unwatch(struct lh_routed_watch *watch); /* allowed after its end too */
/* Call it after lh_route_unwatch, and not inside of a callback of the watch. */
void lh_routed_watch_destroy(struct lh_routed_watch *watch);
void lh_route_catch_up(struct lh_routed_watch *watch);

#endif
