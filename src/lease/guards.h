/*
 * Open guards: a transaction that guards a lease keeps the lease from ending, so a session that guards for longer than
 * max_guard is ended. The look for such sessions runs behind a tick, on the control lane, one at a time.
 */
#ifndef LH_LEASE_GUARDS_H
#define LH_LEASE_GUARDS_H

#include "lease/turn.h"

void lh_guards_on_tick(struct lh_coordinator *c);

#endif
