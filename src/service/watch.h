/* WatchLeases. For src/service alone. */
#ifndef LH_SERVICE_WATCH_H
#define LH_SERVICE_WATCH_H

#include "lease/watch.h"
#include "rpc/server.h"

struct lh_service;

void lh_watch_leases_on_message(struct lh_rpc_call *call, const void *data, size_t size);
void lh_watch_leases_on_writable(struct lh_rpc_call *call);
void lh_watch_leases_on_end(struct lh_rpc_call *call, enum lh_rpc_end reason);
void lh_watch_leases_drain(struct lh_service *service); /* they would go on for ever */

#endif
