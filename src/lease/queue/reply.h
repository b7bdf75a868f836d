/* Tells acquires their answers, at the end of a turn: an answer points into the batch that it came with. */
#ifndef LH_LEASE_QUEUE_REPLY_H
#define LH_LEASE_QUEUE_REPLY_H

#include "lease/turn.h"

bool lh_reply_is_due(const struct lh_coordinator *c);
void lh_reply_deliver(struct lh_coordinator *c);

#endif
