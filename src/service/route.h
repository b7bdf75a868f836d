/*
 * The coordinator's calls, each to the coordinator of the database in which its namespace lives; see lease/coordinator.h
 * and lease/watch.h. What concerns several databases is split, and answered when all have answered; heartbeats and
 * releases at the latest a second after the first of them, with RETRY for the items of the others. Requests were
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
/* Items whose database does not take them are answered RETRY; refused where none does. */
enum lh_status lh_route_heartbeat(const struct lh_service *service, struct lh_holder_request *request);
enum lh_status lh_route_release(const struct lh_service *service, struct lh_holder_request *request);
enum lh_status lh_route_downgrade(const struct lh_service *service, struct lh_holder_request *request);
void lh_route_wake(const struct lh_service *service, const char *ns, const char *key);

/* One watcher of all databases that have some of what it watches: active when it is in each, caught up when it has in
   each, ended with the first. The callbacks are those of `watcher`. NULL: `status` says why. */
struct lh_routed_watch *lh_route_watch(const struct lh_service *service, struct lh_watcher *watcher,
                                       enum lh_status *status);
void lh_route_unwatch(struct lh_routed_watch *watch); /* after its end too */
void lh_routed_watch_destroy(
    struct lh_routed_watch *watch); /* once it is not watched, and not from a callback of its */
void lh_route_catch_up(struct lh_routed_watch *watch);

#endif
