/*
 * A request for several scopes (lh_acquire.also): its places, a waiter in each scope, and whose turn it is.
 *
 * It is asked for by one call for all of its scopes, whichever of them has reached it: where it would be the next in each,
 * and none has a batch in flight. Until then nothing else begins in those that are idle, for as long as its patience; so the
 * wait is that for the slowest batch under way. Then it rests, and those behind it go on. It rests too while a row of it is busy,
 * and while it waits for a hook lane those behind it pass. After a busy row they pass between its rests, too: a stranger may keep
 * that row for long. It still waits with patience for idle scopes, or it would never be asked for.
 *
 * Places stand in the same order everywhere, those with a ticket first, so of several such requests one is always first.
 */
#ifndef LH_LEASE_QUEUE_TOGETHER_H
#define LH_LEASE_QUEUE_TOGETHER_H

#include "lease/queue/waiter.h"

/* The waiter that is to be asked for next, if it is for this scope alone; and if it is a place of several, and may go now. */
struct lh_waiter *lh_together_next_alone(const struct lh_scope *scope);
struct lh_waiter *lh_together_next_place(const struct lh_scope *scope);
/* Is the next one a place that only waits for batches in flight? */
bool lh_together_holds_back(const struct lh_scope *scope);
void lh_together_on_timer(struct lh_coordinator *c, struct lh_together *together);

/* Another waiter has this lease key in one of the other scopes. */
bool lh_together_is_taken(struct lh_coordinator *c, const struct lh_acquire *request);
/* Gives the waiter, which has the first scope, its other places; not where another waiter has the lease key. */
void lh_together_form(struct lh_coordinator *c, struct lh_waiter *first, const struct lh_acquire_scope *also,
                      size_t count);
/* Those that have left are made again; nothing without others. */
void lh_together_reform(struct lh_coordinator *c, struct lh_waiter *first);
void lh_together_dissolve(struct lh_waiter *first); /* its places are left alone; nothing without others */
/* Are these the scopes that the waiter is for, and is it the first of its places? */
bool lh_together_is_same(const struct lh_waiter *waiter, const struct lh_acquire *request);
/* A place is out of its queue. The waiter of them all, once all are out, or NULL. */
struct lh_waiter *lh_together_left(struct lh_coordinator *c, struct lh_waiter *waiter);
/* Has none of its places left; nor is one of them about to? */
bool lh_together_is_there(const struct lh_waiter *waiter);
bool lh_together_is_whole(const struct lh_waiter *waiter);

/* What its answer says. */
void lh_together_done(struct lh_together *together);
void lh_together_busy(struct lh_coordinator *c, struct lh_together *together);
void lh_together_failed(struct lh_coordinator *c, struct lh_waiter *first, bool is_full);
void lh_together_hooked(struct lh_together *together, int64_t timeout_us);
void lh_together_wake(struct lh_coordinator *c,
                      struct lh_waiter *waiter); /* whoever is behind it, or at its one place */
struct lh_waiter *lh_together_place_in(struct lh_waiter *waiter, const struct lh_scope *scope);

#endif
