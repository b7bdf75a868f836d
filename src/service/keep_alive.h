/* Streams of heartbeats. */
#ifndef LH_SERVICE_KEEP_ALIVE_H
#define LH_SERVICE_KEEP_ALIVE_H

#include "service/call.h"

/* Ends the streams before the coordinator stops; heartbeats in flight are still answered. */
void lh_keep_alive_drain(struct lh_service *service);

#endif
