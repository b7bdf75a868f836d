/* The lease of a Hold stream. */
#ifndef LH_SERVICE_HOLD_RENEW_H
#define LH_SERVICE_HOLD_RENEW_H

#include "service/hold_internal.h"

/* Takes over the lease as the database has just answered it, after the grant and after a downgrade. */
void lh_hold_take(struct hold *hold, const struct lh_held_lease *lease);
/* Looks at the lease: asks its client for a sign of life, waits, or finds the lease lost. */
void lh_hold_look(struct hold *hold);
void lh_hold_answered(struct hold *hold); /* renews if it is time, because its client is alive */
/* Releases with hold->release_value; `is_failure`: the value is an error. The client, if it listens, gets the
   result. */
void lh_hold_release(struct hold *hold, bool is_failure);

#endif
