/* The operation downgrade: makes an exclusive lease shared. */
#ifndef LH_LEASE_DOWNGRADE_H
#define LH_LEASE_DOWNGRADE_H

#include "lease/holder_op.h"

extern const struct lh_holder_op lh_downgrade_operation;

#endif
