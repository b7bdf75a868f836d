/*
 * Cancellation contexts, as leasehold.h has them (section 8), and the client's use of those of its leases.
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

/* Creates a context whose time is that of a lease, and moves. */
struct lh_context *lh_context_create_for_lease(struct lh_context *parent, int64_t deadline_us);

/* Takes one more reference, given up by lh_context_destroy. */
struct lh_context *lh_context_ref(struct lh_context *context);

/*
 * Moves the time of a lease's context, with each renewal. Returns false if the time has passed already, which a caller
 * may have seen, or the context is canceled. The lease is lost then, even if the server renewed it.
 */
bool lh_context_move(struct lh_context *context, int64_t deadline_us);

/* Returns true if its time, or that of a context above it, is a lease's and moves. */
bool lh_context_moves(const struct lh_context *context);

/* Ends the context's own time for good, because the lease is released; cancels no context. */
void lh_context_free_of_time(struct lh_context *context);

/* Sets the clock of a tree, for tests; NULL: lh_clock_us. Call it on a root without children. */
void lh_context_set_clock(struct lh_context *root, int64_t (*now_us)(void));

#endif
