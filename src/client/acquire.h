/* Acquires: the verb, and those that wait until a release of their scope is answered. */
#ifndef LH_CLIENT_ACQUIRE_H
#define LH_CLIENT_ACQUIRE_H

#include "client/check.h"
#include "client/lease.h"
#include "client/request.h"

struct acquire_op {
    struct lh_request request;
    struct lh_link following; /* in the followers of a lease that is being released */
    struct lh_declared *declared;
    struct lh_uuid key;
    bool is_own_key; /* the caller chose it */
    bool waits_while_alive;
    int64_t wait_us;
    int64_t wait_until_us;
    void *user;
    struct lh_context *parent; /* of the lease's context, or NULL */
    lh_waiting_cb *on_waiting; /* NULL: nobody wants to know */
    void *on_waiting_arg;
    Leasehold__V1__AcquireEvent *granted; /* of a stream that has not ended yet */
    struct lh_lease *lease;
    lh_acquired_cb *on_done;
    void *arg;
    size_t label_count;
    char *labels[CHECK_LABELS_MAX]; /* name, NUL, value */
    char *owner;
    char *name; /* "namespace/key" */
    char *scope_key;
};

/* The release that these waited for is over. */
void acquire_follow(struct lh_link *followers);

/* acquire_message.c */
void acquire_pack(struct lh_request *request, struct lh_buffer *buffer);
void acquire_tell(struct acquire_op *op, const Leasehold__V1__Contention *contention);

#endif
