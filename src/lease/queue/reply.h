/* Answers to acquires, given at the end of the turn, while the batch that they point into is still there. */
#ifndef LH_LEASE_QUEUE_REPLY_H
#define LH_LEASE_QUEUE_REPLY_H

#include "lease/turn.h"

bool lh_reply_is_due(const struct lh_coordinator *c);
void lh_reply_deliver(struct lh_coordinator *c);

#endif
