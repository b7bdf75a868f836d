/* Packing and reading the messages of an acquire. */
#ifndef LH_CLIENT_ACQUIRE_MESSAGE_H
#define LH_CLIENT_ACQUIRE_MESSAGE_H

#include "client/acquire_op.h"

void lh_acquire_all_pack(struct lh_request *request, struct lh_buffer *buffer);
void lh_acquire_pack(struct lh_request *request, struct lh_buffer *buffer);
/* Calls on_waiting with the contention that the acquire waits for. */
void lh_acquire_tell(struct acquire_op *op, const Leasehold__V1__Contention *contention);

#endif
