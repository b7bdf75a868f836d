/* Registration of this coordinator in the database, and the tick each second. */
#ifndef LH_LEASE_REGISTRATION_H
#define LH_LEASE_REGISTRATION_H

#include "lease/turn.h"

void lh_registration_start(struct lh_coordinator *c);
void lh_registration_stop(struct lh_coordinator *c);
void lh_registration_on_tick(struct lh_coordinator *c);
void lh_registration_on_up(void *arg);
void lh_registration_on_down(void *arg);

#endif
