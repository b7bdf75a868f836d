/* Hold streams, for the rest of the service. */
#ifndef LH_SERVICE_HOLD_H
#define LH_SERVICE_HOLD_H

#include "service/call.h"

void lh_hold_drain(struct lh_service *service);
/* Of this round, `max` at most: ends what its caller may not do any more. True: there are more. */
bool lh_hold_check_rights(struct lh_service *service, int max);
/* A downgrade of this lease was answered: a stream that holds it here tells its client. */
void lh_hold_downgraded(struct lh_service *service, const struct lh_held_lease *lease);

#endif
