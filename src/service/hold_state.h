/* The state of a Hold stream, and its memory. */
#ifndef LH_SERVICE_HOLD_STATE_H
#define LH_SERVICE_HOLD_STATE_H

#include "service/hold_internal.h"

void lh_hold_start(struct lh_service *service);
void lh_hold_finish(struct lh_service *service);
/* Changes the state. lh_hold_find finds the stream only while it is HELD. */
void lh_hold_set_state(struct hold *hold, enum hold_state state);
/* Returns the stream that holds this lease here, or NULL. */
struct hold *lh_hold_find(const struct lh_service *service, const char *ns, const char *key, struct lh_uuid lease_key);
void lh_hold_leave(struct hold *hold); /* drops one user; the last one frees it */

#endif
