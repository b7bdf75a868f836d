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
    LH_SCOPE_KINDS, /* those above are items of a scope */
    LH_KIND_REAP = LH_SCOPE_KINDS,
    LH_KIND_COUNT
};

/* Does it ask for a lease? */
static inline bool lh_kind_asks(enum lh_kind kind)
{
    return kind == LH_KIND_ACQUIRE || kind == LH_KIND_ACQUIRE_ALL;
}

struct lh_operation {
    const char *name;
    /* When the oldest item of the scope came; LH_NEVER. */
    int64_t (*oldest_us)(const struct lh_scope *scope, enum lh_kind kind);
    /* Whose the oldest item is, for turns; 0: of no client. NULL: items of this kind need no turns. */
    uint64_t (*client_of)(const struct lh_scope *scope);
    /* Puts at most `room` items of the scope into the lane's batch, or none where they may not go by now. A reap takes from the lane's hook queue instead. */
    void (*take)(struct lh_lane *lane, struct lh_scope *scope, size_t room);
    /* Hands the batch to the store. Refused: the lane is down. */
    enum lh_status (*send)(struct lh_lane *lane, lh_store_cb *on_done);
    /* The batch is answered, or was never sent (lane->is_sent). */
    void (*on_done)(struct lh_lane *lane, enum lh_status status, const struct lh_error *error);
    /* Answers RETRY to the items of the scope that came until then. NULL: its items wait for as long as it takes. */
    void (*retry_until)(struct lh_coordinator *c, struct lh_scope *scope, enum lh_kind kind, int64_t arrived_us);
    /* Must nothing of the scope begin now? NULL: no. */
    bool (*holds_back)(const struct lh_scope *scope);
    bool is_alone; /* a batch has what one `take` put into it */
};

#endif
