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
    struct lh_lease *lease; /* granted */
};

struct acquire_op {
    struct lh_request request;
    struct lh_uuid key;
    bool is_own_key; /* the caller chose it */
    bool waits_while_alive;
    int64_t wait_us;
    int64_t wait_until_us;
    struct lh_context *parent; /* of the leases' contexts, or NULL */
    lh_waiting_cb *on_waiting; /* or NULL */
    void *on_waiting_arg;
    Leasehold__V1__AcquireEvent *granted; /* of a stream that has not ended yet */
    lh_acquired_cb *on_done;
    lh_acquired_all_cb *on_all_done; /* of lh_acquire_all, instead */
    void *arg;
    size_t label_count;
    char *labels[LH_LABELS_MAX]; /* name, NUL, value */
    char *owner;
    char *name; /* "namespace/key", of the first */
    size_t count;
    struct acquire_item items[];
};

/* Acquire; AcquireStream where on_waiting is set, AcquireAll where on_all_done is. */
extern const struct request_verb lh_acquire_verb, lh_acquire_stream_verb, lh_acquire_all_verb;

/* `on_start` of each: it follows the releases of its scopes that are under way. */
void lh_acquire_start(struct lh_request *request);
void lh_acquire_destroy(struct acquire_op *op);

#endif
