/* The messages to the client of a Hold stream. */
#ifndef LH_SERVICE_HOLD_EVENT_H
#define LH_SERVICE_HOLD_EVENT_H

#include "service/hold_internal.h"

void lh_hold_tell_queued(struct hold *hold, const struct lh_contention *contention);
void lh_hold_tell_granted(struct hold *hold, int64_t waited_us);
void lh_hold_tell_renewed(struct hold *hold);
void lh_hold_tell_alive(struct hold *hold);
void lh_hold_tell_lost(struct hold *hold, enum lh_end_reason reason, const char *message);
void lh_hold_tell_released(struct hold *hold, enum lh_outcome outcome, enum lh_end_reason reason, const char *message);

#endif
