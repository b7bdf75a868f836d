/* An acquire of one scope or several, from its first attempt to its last answer. */
#ifndef LH_CLIENT_ACQUIRE_OP_H
#define LH_CLIENT_ACQUIRE_OP_H

#include "base/bounds.h"
#include "client/lease.h"
#include "client/request.h"
#include "leasehold/v1/leasehold.pb-c.h"

struct acquire_item {
    struct lh_declared *declared;
    char *scope_key;
    int64_t at_least_us;
    enum lh_mode mode;
    int32_t units;
    void *user;
    struct lh_lease *lease; /* the granted lease, or NULL */
};

struct acquire_op {
    struct lh_request request;
    struct lh_uuid key;
    bool is_own_key; /* the caller chose the lease key */
    bool waits_while_alive;
    int64_t wait_us;
    int64_t wait_until_us;
    struct lh_context *parent; /* parent of the leases' contexts, or NULL */
    lh_waiting_cb *on_waiting; /* may be NULL */
    void *on_waiting_arg;
    /* The grant of a stream that has not ended yet. */
    Leasehold__V1__AcquireEvent *granted;
    lh_acquired_cb *on_done;
    lh_acquired_all_cb *on_all_done; /* set for lh_acquire_all, instead of on_done */
    void *arg;
    size_t label_count;
    char *labels[LH_LABELS_MAX]; /* name, NUL, value */
    char *owner;
    char *name; /* "namespace/key" of the first scope */
    size_t count;
    struct acquire_item items[];
};

/* The verbs: Acquire; AcquireStream if on_waiting is set, AcquireAll if on_all_done is. */
extern const struct request_verb lh_acquire_verb, lh_acquire_stream_verb, lh_acquire_all_verb;

/* Starts an acquire after the releases of its scopes that are under way, as `on_start` of each verb. */
void lh_acquire_start(struct lh_request *request);
void lh_acquire_destroy(struct acquire_op *op);

#endif
