/* An acquire, and its message. */
#ifndef LH_CLIENT_ACQUIRE_MESSAGE_H
#define LH_CLIENT_ACQUIRE_MESSAGE_H

#include "base/bounds.h"
#include "client/lease.h"
#include "client/request.h"
#include "leasehold/v1/leasehold.pb-c.h"

struct acquire_op {
    struct lh_request request;
    struct lh_declared *declared;
    struct lh_uuid key;
    bool is_own_key; /* the caller chose it */
    bool waits_while_alive;
    int64_t wait_us;
    int64_t wait_until_us;
    int64_t at_least_us;
    enum lh_mode mode;
    int32_t units;
    void *user;
    struct lh_context *parent; /* of the lease's context, or NULL */
    lh_waiting_cb *on_waiting; /* or NULL */
    void *on_waiting_arg;
    Leasehold__V1__AcquireEvent *granted; /* of a stream that has not ended yet */
    struct lh_lease *lease;
    lh_acquired_cb *on_done;
    void *arg;
    size_t label_count;
    char *labels[LH_LABELS_MAX]; /* name, NUL, value */
    char *owner;
    char *name; /* "namespace/key" */
    char *scope_key;
};

void lh_acquire_pack(struct lh_request *request, struct lh_buffer *buffer);
/* Calls on_waiting with what it waits for. */
void lh_acquire_tell(struct acquire_op *op, const Leasehold__V1__Contention *contention);

#endif
