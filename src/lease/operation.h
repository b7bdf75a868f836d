/*
 * A kind of operation as a row of functions. The queue, the batch scheduler and the hook scheduler call operations
 * through their rows only (lh_coordinator.operations), so none of them knows what an operation means.
 */
#ifndef LH_LEASE_OPERATION_H
#define LH_LEASE_OPERATION_H

#include "lease/store.h"

struct lh_coordinator;
struct lh_lane;
struct lh_scope;

enum lh_kind {
    LH_KIND_ACQUIRE,
    LH_KIND_HEARTBEAT,
    LH_KIND_RELEASE,
    LH_KIND_LEAVE,
    LH_KIND_DOWNGRADE,
    LH_KIND_ACQUIRE_ALL,
    LH_SCOPE_KINDS, /* the kinds above are items of a scope */
    LH_KIND_REAP = LH_SCOPE_KINDS,
    LH_KIND_COUNT
};

/* Returns true for the kinds that ask for a lease. */
static inline bool lh_kind_asks(enum lh_kind kind)
{
    return kind == LH_KIND_ACQUIRE || kind == LH_KIND_ACQUIRE_ALL;
}

struct lh_operation {
    const char *name;
    /* Returns when the oldest item of the scope came; LH_NEVER without an item. */
    int64_t (*oldest_us)(const struct lh_scope *scope, enum lh_kind kind);
    /* Returns the client of the oldest item, so that clients take turns; 0: no client. NULL: items of this kind need
       no turns. */
    uint64_t (*client_of)(const struct lh_scope *scope);
    /* Puts at most `room` items of the scope into the lane's batch, or none if they may not go yet. A reap takes
       from the lane's hook queue instead. */
    void (*take)(struct lh_lane *lane, struct lh_scope *scope, size_t room);
    /* Hands the batch to the store. Any status but LH_OK: the lane is down. */
    enum lh_status (*send)(struct lh_lane *lane, lh_store_cb *on_done);
    /* Applies the answer of the batch, or the refusal if it was never sent (lane->is_sent is false). */
    void (*on_done)(struct lh_lane *lane, enum lh_status status, const struct lh_error *error);
    /* Answers RETRY to the items of the scope that came until arrived_us. NULL: items of this kind wait without a
       limit. */
    void (*retry_until)(struct lh_coordinator *c, struct lh_scope *scope, enum lh_kind kind, int64_t arrived_us);
    /* Returns true if no other item of the scope may begin now. NULL: never. */
    bool (*holds_back)(const struct lh_scope *scope);
    bool is_alone; /* a batch has the items of one `take` only */
};

#endif
