/* Changes to every scope and every waiter. */
#ifndef LH_LEASE_QUEUE_ALL_SCOPES_H
#define LH_LEASE_QUEUE_ALL_SCOPES_H

#include "lease/queue/scope.h"

void lh_scopes_schedule_all(struct lh_coordinator *c); /* after lanes or the database came or went */
void lh_scopes_ask_all(struct lh_coordinator *c);      /* asks for every waiter again */
void lh_scopes_wake_all(struct lh_coordinator *c);
void lh_scopes_hand_back_all(struct lh_coordinator *c); /* ends waits that max_block bounds, as if it had passed */
void lh_scopes_stop_all(struct lh_coordinator *c);      /* makes waiters leave; they are answered SHUTTING_DOWN */
/* Answers all requests that are not in flight: SHUTTING_DOWN or RETRY. */
void lh_scopes_drop_all(struct lh_coordinator *c);
/* Frees the scopes; does not touch the requests, which may be gone. */
void lh_scopes_free_all(struct lh_coordinator *c);

#endif
