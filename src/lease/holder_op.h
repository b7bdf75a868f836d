/*
 * Heartbeat, release and downgrade, the operations of a holder: they have no queue. Each item waits in its scope for a
 * lane and is retried while the row is busy or the database away, for busy_limit at most; then it is RETRY. Items and
 * their memory are the callers'.
 */
#ifndef LH_LEASE_HOLDER_OP_H
#define LH_LEASE_HOLDER_OP_H

#include "lease/lane.h"
#include "lease/queue/scope.h"

struct lh_holder_op {
    struct lh_operation row;
    void (*on_answer)(struct lh_coordinator *c, struct lh_holder_entry *entry); /* applies the item's outcome */
    void (*on_lost)(struct lh_lane *lane, struct lh_holder_entry *entry);       /* a reply may be lost; may be NULL */
};

void lh_holder_ops_create(struct lh_coordinator *c);
enum lh_status lh_holder_op_submit(struct lh_coordinator *c, struct lh_holder_request *request, enum lh_kind kind);

/* Functions for the rows of heartbeat, release and downgrade. */
int64_t lh_holder_op_oldest_us(const struct lh_scope *scope, enum lh_kind kind);
void lh_holder_op_take(struct lh_lane *lane, struct lh_scope *scope, size_t room);
void lh_holder_op_on_done(struct lh_lane *lane, enum lh_status status, const struct lh_error *error);
void lh_holder_op_retry_until(struct lh_coordinator *c, struct lh_scope *scope, enum lh_kind kind, int64_t arrived_us);

bool lh_holder_op_is_due(const struct lh_coordinator *c);
void lh_holder_op_deliver(struct lh_coordinator *c);

#endif
