/* What concerns every scope and every waiter. */
#ifndef LH_LEASE_QUEUE_ALL_SCOPES_H
#define LH_LEASE_QUEUE_ALL_SCOPES_H

#include "lease/queue/scope.h"

void lh_scopes_schedule_all(struct lh_coordinator *c); /* after lanes or the database came or went */
void lh_scopes_ask_all(struct lh_coordinator *c);      /* for every waiter again */
void lh_scopes_wake_all(struct lh_coordinator *c);
void lh_scopes_hand_back_all(struct lh_coordinator *c); /* waiters that max_block bounds, as if that had passed */
void lh_scopes_stop_all(struct lh_coordinator *c);      /* waiters are to leave, and are answered SHUTTING_DOWN */
void lh_scopes_drop_all(struct lh_coordinator *c);      /* answers whatever is not in flight: SHUTTING_DOWN, RETRY */
void lh_scopes_free_all(struct lh_coordinator *c);      /* without touching the requests, which may be gone */

#endif
