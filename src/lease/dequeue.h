/* The operation leave: takes a waiter out of the queue in the database. */
#ifndef LH_LEASE_DEQUEUE_H
#define LH_LEASE_DEQUEUE_H

#include "lease/operation.h"

extern const struct lh_operation lh_dequeue_operation;

#endif
