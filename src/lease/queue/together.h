/*
 * A request for several scopes (lh_acquire.also): its places, a waiter in each scope, and its turn.
 *
 * One call asks for all of its scopes, when the request would be the next in each and none has a batch in flight; any
 * of its scopes may make that call. Until then no other item begins in the idle scopes, for as long as the request's
 * patience, so the wait is that for the slowest batch under way. After that the request rests, and those behind it go
 * on. It also rests while one of its rows is busy, and those behind it pass while it waits for a hook lane. After a
 * busy row they pass between its rests, too: another session may keep that row for long. The request still waits with
 * patience for idle scopes; without that it would never be asked for.
 *
 * While the request is queued, the scope that its last answer names (waits_for) keeps it from all of its scopes. The end
 * of that is reported, and only then one call asks again, whatever happens in the other scopes.
 *
 * Places stand in the same order everywhere, those with a ticket first, so one of several such requests is always
 * first.
 */
#ifndef LH_LEASE_QUEUE_TOGETHER_H
#define LH_LEASE_QUEUE_TOGETHER_H

#include "lease/queue_internal.h"

/* Return the waiter to be asked for next, or NULL: the first if it is for this scope alone, the second if it is a
   place of several and may go now. */
struct lh_waiter *lh_together_next_alone(const struct lh_scope *scope);
struct lh_waiter *lh_together_next_place(const struct lh_scope *scope);
/* Returns true if the next waiter is a place that only waits for batches in flight. */
bool lh_together_holds_back(const struct lh_scope *scope);
void lh_together_on_timer(struct lh_coordinator *c, struct lh_together *together);

/* Returns true if another waiter has this lease key in one of the other scopes. */
bool lh_together_is_taken(struct lh_coordinator *c, const struct lh_acquire *request);
/* Gives the waiter of the first scope its other places, except where another waiter has the lease key. */
void lh_together_form(struct lh_coordinator *c, struct lh_waiter *first, const struct lh_wanted_scope *also,
                      size_t count);
/* Makes the places again that have left. Does nothing to a waiter for one scope. */
void lh_together_reform(struct lh_coordinator *c, struct lh_waiter *first);
/* Frees the group and leaves its places alone; does nothing to a waiter for one scope. */
void lh_together_dissolve(struct lh_waiter *first);
/* Returns true if the waiter is the first place of a request for just these scopes and units. */
bool lh_together_is_same(const struct lh_waiter *waiter, const struct lh_acquire *request);
/* Notes that a place has left its queue. Returns the first place once all have left, before that NULL. */
struct lh_waiter *lh_together_left(struct lh_coordinator *c, struct lh_waiter *waiter);
/* Tell whether all places stand: lh_together_is_there, none has left; lh_together_is_whole, and no leave is in
   flight. */
bool lh_together_is_there(const struct lh_waiter *waiter);
bool lh_together_is_whole(const struct lh_waiter *waiter);

/* Notes that this scope is in the way; returns whether it was before, and true for a waiter of one scope. */
bool lh_together_waits_for(struct lh_waiter *waiter, const struct lh_scope *scope);
/* Apply the answer to the request. */
void lh_together_done(struct lh_together *together);
void lh_together_busy(struct lh_coordinator *c, struct lh_together *together);
void lh_together_failed(struct lh_coordinator *c, struct lh_waiter *first, bool is_full);
void lh_together_hooked(struct lh_together *together, int64_t timeout_us);
/* Wakes the waiters behind it, in each of its scopes. */
void lh_together_wake(struct lh_coordinator *c, struct lh_waiter *waiter);

#endif
