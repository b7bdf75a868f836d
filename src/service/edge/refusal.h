/*
 * A refusal names the holders that are in the way. The database answers an acquire with the oldest one. If several
 * share the scope, the service looks up the others, and then answers the caller.
 */
#ifndef LH_SERVICE_EDGE_REFUSAL_H
#define LH_SERVICE_EDGE_REFUSAL_H

#include "service/edge/call.h"

typedef void lh_refusal_cb(void *arg, const struct lh_acquire_result *result);

/*
 * Looks up the holders. Calls `then` once, later, with the same result, whose contention has the holders; without them
 * if the store does not answer within a second or two. Returns false, without calling `then`, if too many lookups are
 * out or the store is away. `scope` and `result` may go after the call.
 */
bool lh_refusal_look_up(struct lh_service *service, const struct lh_wanted_scope *scope,
                        const struct lh_acquire_result *result, lh_refusal_cb *then, void *arg);

void lh_refusals_tick(struct lh_service *service); /* call it once a second */

#endif
