/*
 * The hook scheduler: one item, or one run of reaps, of a namespace a turn. A namespace whose hooks are slow never gets
 * the last hook lane.
 */
#ifndef LH_LEASE_HOOKS_HOOK_SCHEDULER_H
#define LH_LEASE_HOOKS_HOOK_SCHEDULER_H

#include "lease/coordinator_internal.h"

bool lh_hooks_could_dispatch(const struct lh_coordinator *c);
void lh_hooks_dispatch(struct lh_coordinator *c);
void lh_hooks_on_timer(struct lh_coordinator *c);

#endif
