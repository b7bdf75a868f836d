/* Batches: Heartbeat, Release, and those of a KeepAlive stream. */
#ifndef LH_SERVICE_METHODS_HOLDER_BATCH_H
#define LH_SERVICE_METHODS_HOLDER_BATCH_H

#include "service/edge/call.h"

/*
 * Starts one batch of a stream of heartbeats. LH_OK: `on_answer` gets the packed HeartbeatResponse once, later, even if
 * the stream has ended. LH_INVALID_ARGUMENT: see `violations`. Any other status: the coordinator refused it. `count` is
 * its number of items.
 */
typedef void lh_heartbeats_cb(void *arg, const void *data, size_t size);
enum lh_status lh_heartbeats_start(struct lh_rpc_call *call, const struct lh_access_caller *who, const void *data,
                                   size_t size, size_t *count, struct lh_violations *violations,
                                   lh_heartbeats_cb *on_answer, void *arg);

#endif
