/* The settings that a SetPolicy asks for. */
#ifndef LH_SERVICE_METHODS_POLICIES_H
#define LH_SERVICE_METHODS_POLICIES_H

#include "lease/view.h"
#include "service/edge/validate.h"

/*
 * Fills `change` from the fields of the update mask, in the validator's arena. Without a mask these are the fields that are
 * present; "*" is all of them. Returns false, with violations, if a value is out of bounds.
 */
bool lh_policy_from_request(struct lh_validator *v, const Leasehold__V1__SetPolicyRequest *request,
                            struct lh_policy_change *change);

#endif
