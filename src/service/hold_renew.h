/* The lease of a Hold stream. */
#ifndef LH_SERVICE_HOLD_RENEW_H
#define LH_SERVICE_HOLD_RENEW_H

#include "service/hold_internal.h"

/* The lease as the database has just answered it, at first and by a downgrade. */
void lh_hold_take(struct hold *hold, const struct lh_held_lease *lease);
void lh_hold_look(struct hold *hold);     /* ask its client, wait, or find it lost */
void lh_hold_answered(struct hold *hold); /* its client is alive: renew, when it is due */
/* Releases with hold->release_value; `is_failure`: that is the error. The client, if it listens, gets the result. */
void lh_hold_release(struct hold *hold, bool is_failure);

#endif
