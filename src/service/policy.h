/* leasehold.v1.Policy and struct lh_policy, both ways, from one table of the fields. */
#ifndef LH_SERVICE_POLICY_H
#define LH_SERVICE_POLICY_H

#include "lease/store.h"
#include "service/validate.h"

/*
 * Fills `policy` (its ns too) and `mask` with the fields to change. Without an update mask these are the fields that
 * are present; "*" is all of them. Returns false, with violations, if a value is out of bounds.
 */
bool lh_policy_from_request(struct lh_validator *v, const Leasehold__V1__SetPolicyRequest *request,
                            struct lh_policy *policy, uint32_t *mask);

/* Returns the message, in the arena. NULL for NULL. */
Leasehold__V1__Policy *lh_policy_to_message(const struct lh_policy *policy, struct lh_arena *arena);

/* Fills the `source` map of GetPolicyResponse, in the arena, and returns its size. */
size_t lh_policy_sources(const struct lh_policy *policy, struct lh_arena *arena,
                         Leasehold__V1__GetPolicyResponse__SourceEntry ***entries);

#endif
