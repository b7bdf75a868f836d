/* The common part of lh_heartbeat, lh_downgrade and lh_release: one lease in one request, and a caller that gets the
   answer. */
#ifndef LH_CLIENT_LEASE_OP_H
#define LH_CLIENT_LEASE_OP_H

#include "client/lease.h"
#include "client/request.h"
#include "leasehold/v1/leasehold.pb-c.h"

struct lease_op {
    struct lh_request request;
    struct lh_lease *lease;
    bool was_sent; /* an attempt may have been carried out */
    int32_t units; /* units of a downgrade */
    lh_done_cb *on_done;
    void *arg;
};

struct lease_op *lh_lease_op_of(struct lh_request *request);

struct lease_op *lh_lease_op_create(struct lh_lease *lease, const struct request_verb *verb,
                                    const struct lh_call_options *options, lh_done_cb *on_done, void *arg);

/* Submits `op` and takes it over. LH_OK: on_done follows, by lh_lease_op_finish, which is the `finish` of the verb.
   Any other status: refused, on_done never fires. */
enum lh_status lh_lease_op_submit(struct lease_op *op, void (*on_start)(struct lh_request *request),
                                  struct lh_request **request, struct lh_error *error);
void lh_lease_op_finish(struct lh_request *request);

/* `on_start` and `finish` of requests that need the lease held, when they are sent and when they are answered; else
   LH_LOST. */
void lh_lease_op_start_held(struct lh_request *request);
void lh_lease_op_finish_held(struct lh_request *request);

/* Judge an answer and return the reason for `judge`: an answer with the wrong number of leases, and the answer for
   the one lease. */
unsigned lh_lease_op_miscounted(struct lh_request *request, size_t count);
unsigned lh_lease_op_answered(struct lh_request *request, enum lh_status status, Leasehold__V1__EndReason end_reason,
                              const char *message);

#endif
