/* An acquire of one scope or several, from its first attempt to its last answer. */
#ifndef LH_CLIENT_ACQUIRE_OP_H
#define LH_CLIENT_ACQUIRE_OP_H

#include "base/memory.h"
#include "client/lease.h"
#include "client/request.h"
#include "leasehold/v1/leasehold.pb-c.h"

struct acquire_item {
    struct lh_acquire_scope wanted; /* its key is the operation's own */
    struct lh_lease *lease;         /* the granted lease, or NULL */
};

struct acquire_op {
    struct lh_request request;
    struct lh_acquire_options options; /* owner, labels and the reference to the context are the operation's own */
    struct lh_arena strings;           /* memory of those, of the keys and of `name` */
    struct lh_uuid key;
    bool is_own_key; /* the caller chose the lease key */
    int64_t wait_until_us;
    /* The grant of a stream that has not ended yet. */
    Leasehold__V1__AcquireEvent *granted;
    lh_acquired_cb *on_done;
    lh_acquired_all_cb *on_all_done; /* set for lh_acquire_all, instead of on_done */
    void *arg;
    char *name; /* "namespace/key" of the first scope */
    size_t count;
    struct acquire_item items[];
};

/* The verbs: Acquire; AcquireStream if on_waiting is set, AcquireAll if on_all_done is. */
extern const struct request_verb lh_acquire_verb, lh_acquire_stream_verb, lh_acquire_all_verb;

/* Starts an acquire after the releases of its scopes that are under way, as `on_start` of each verb. */
void lh_acquire_start(struct lh_request *request);
void lh_acquire_destroy(struct acquire_op *op);

/* Calls on_waiting with the contention that the acquire waits for. */
void lh_acquire_tell(struct acquire_op *op, const Leasehold__V1__Contention *contention);

#endif
