/* Hold streams, for the rest of the service. */
#ifndef LH_SERVICE_HOLD_H
#define LH_SERVICE_HOLD_H

#include "service/call.h"

void lh_hold_drain(struct lh_service *service);
/* Ends at most `max` streams of this round whose callers have lost their right. Returns true if more streams are
   left. */
bool lh_hold_check_rights(struct lh_service *service, int max);
/* Tells the client of a stream that holds this lease here that a downgrade of it was answered. */
void lh_hold_downgraded(struct lh_service *service, const struct lh_held_lease *lease);

#endif
