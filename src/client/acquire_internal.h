/* One lh_acquire or lh_acquire_all: its operation, and its request. */
#ifndef LH_CLIENT_ACQUIRE_INTERNAL_H
#define LH_CLIENT_ACQUIRE_INTERNAL_H

#include "base/memory.h"
#include "client/lease_internal.h"
#include "client/request_internal.h"
#include "leasehold/v1/leasehold.pb-c.h"

/* An acquire of one scope or several, from its first attempt to its last answer. */

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

/* The request of an acquire: its options are checked, kept while it lasts, and packed into messages. A new field of the
   options is named in acquire_request.c alone. */

/* Check what the caller passes. LH_INVALID_ARGUMENT: `error` names the field. `lease_key` is set if options has one. */
enum lh_status lh_acquire_check_options(const struct lh_acquire_options *options, struct lh_uuid *lease_key,
                                        struct lh_error *error);
enum lh_status lh_acquire_check_scope(const struct lh_acquire_scope *scope, struct lh_error *error);

/* Keeps a copy of all that was checked. `lease_key` counts if options has one. */
struct acquire_op *lh_acquire_create(const struct lh_acquire_scope *scopes, size_t count,
                                     const struct lh_acquire_options *options, const struct lh_uuid *lease_key);

/* Makes the message of an acquire of one scope; `left_us` is what is left of the wait. It borrows its arguments. */
Leasehold__V1__AcquireRequest *lh_acquire_message(Leasehold__V1__Scope *scope, char *lease_key, int64_t duration_us,
                                                  const struct lh_acquire_options *options, int64_t left_us,
                                                  struct lh_arena *arena);

/* The `pack` of the verbs. */
void lh_acquire_pack(struct lh_request *request, struct lh_buffer *buffer);
void lh_acquire_all_pack(struct lh_request *request, struct lh_buffer *buffer);

#endif
