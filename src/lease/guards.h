/*
 * Open guards: a transaction that guards a lease keeps it from ending, so one that stays open for longer than max_guard
 * is ended with its session. Looked for behind a tick, on the control lane, one look at a time.
 */
#ifndef LH_LEASE_GUARDS_H
#define LH_LEASE_GUARDS_H

#include "lease/turn.h"

void lh_guards_on_tick(struct lh_coordinator *c);

#endif
