/* Batches: Heartbeat, Release, and those of a KeepAlive stream. */
#ifndef LH_SERVICE_BATCH_H
#define LH_SERVICE_BATCH_H

#include "service/call.h"

/*
 * One batch of a stream of heartbeats. LH_OK: `on_answer` gets the packed HeartbeatResponse once, later, whatever
 * becomes of the stream. LH_INVALID_ARGUMENT: `violations` say why; else the coordinator does not take it. `count` is
 * how many items it has.
 */
typedef void lh_heartbeats_cb(void *arg, const void *data, size_t size);
enum lh_status lh_heartbeats_start(struct lh_rpc_call *call, const struct lh_access_caller *who, const void *data,
                                   size_t size, size_t *count, struct lh_violations *violations,
                                   lh_heartbeats_cb *on_answer, void *arg);

#endif
