/* Access rules and bearer tokens: requests, checked and converted for the store, and its answers as messages. */
#ifndef LH_SERVICE_RULES_H
#define LH_SERVICE_RULES_H

#include "lease/access_admin.h"
#include "service/validate.h"

#define LH_TOKEN_NAME_MAX_BYTES 63

/* Return false, with violations added, if a value is out of bounds. */
bool lh_rule_from_grant(struct lh_validator *v, const Leasehold__V1__GrantAccessRequest *request,
                        struct lh_access_change *change);
bool lh_rule_from_revoke(struct lh_validator *v, const Leasehold__V1__RevokeAccessRequest *request,
                         struct lh_access_change *change);
/* `expires_us` 0: the token never expires. */
bool lh_validate_create_token(struct lh_validator *v, const Leasehold__V1__CreateTokenRequest *request,
                              int64_t *expires_us);
bool lh_validate_revoke_token(struct lh_validator *v, const Leasehold__V1__RevokeTokenRequest *request);

Leasehold__V1__AccessRule *lh_rule_to_message(const struct lh_rule_facts *facts, struct lh_arena *arena);
Leasehold__V1__AccessToken *lh_token_to_message(const struct lh_token_facts *facts, struct lh_arena *arena);

#endif
