/* Administration of access rules and bearer tokens: the requests to a store and its answers. */
#ifndef LH_LEASE_ACCESS_ADMIN_H
#define LH_LEASE_ACCESS_ADMIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "access/access.h"
#include "base/status.h"
#include "lease/types.h"

struct lh_access_change {
    struct lh_access_rule rule; /* the rights to give or take */
    bool is_revoke;             /* take them away; without rights: the whole rule */
};

struct lh_rule_facts {
    struct lh_access_rule rule;
    int64_t created_at_us;
    const char *created_by;
};

struct lh_token_facts {
    const char *id;
    const char *name;
    /* The secret of a token that was created just now, else NULL. */
    const char *token;
    int64_t created_at_us;
    const char *created_by;
    int64_t expires_at_us;   /* INT64_MAX: never */
    int64_t last_used_at_us; /* INT64_MIN: never */
};

/* The answer of a store to a change or a list. Its strings live until the callback returns. */
struct lh_access_admin_answer {
    /* List: one page; change: the rule as changed, none if no right is left. */
    const struct lh_rule_facts *rules;
    size_t rule_count;
    const struct lh_token_facts *tokens; /* list: one page; create: the new token */
    size_t token_count;
    int64_t revoked; /* number of tokens revoked */
    bool has_more;
    /* List of rules: the next page begins behind this one; NULL: behind the last of `rules`. */
    const struct lh_access_rule *stop;
};

typedef void lh_access_admin_cb(void *arg, enum lh_status status, const struct lh_error *error,
                                const struct lh_access_admin_answer *answer);

#endif
