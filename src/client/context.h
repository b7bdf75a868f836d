/*
 * Cancellation contexts, as leasehold.h has them (section 8), and what the client does with those of its leases.
 *
 * A tree shares one lock, which lies in its root; callbacks are called without it. A context holds a reference to its
 * parent, so that its parents can be read without the lock: they do not change, live as long as it does, and their
 * members that are read are atomic. Only a holder of the lock visits children. A context whose time has passed stays
 * so: a renewal after that time does not move it.
 */
#ifndef LH_CLIENT_CONTEXT_H
#define LH_CLIENT_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "leasehold.h"

/* Its time is that of a lease, and moves. */
struct lh_context *lh_context_create_for_lease(struct lh_context *parent, int64_t deadline_us);

/* One more hold of it, given up by lh_context_destroy. */
struct lh_context *lh_context_ref(struct lh_context *context);

/*
 * The time of a lease's context moves with each renewal. False: it has passed already, which a
 * caller may have seen, or the context is cancelled. Then the lease is lost, whatever the server says.
 */
bool lh_context_move(struct lh_context *context, int64_t deadline_us);

/* Is its time, or that of one above it, a lease's, which moves? */
bool lh_context_moves(const struct lh_context *context);

/* The lease is released: no time of its own from now on, for good; nothing is cancelled. */
void lh_context_free_of_time(struct lh_context *context);

/* The clock of a tree, for tests; NULL: lh_clock_us. Set on a root without children. */
void lh_context_set_clock(struct lh_context *root, int64_t (*now_us)(void));

#endif
