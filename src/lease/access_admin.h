/* What administrators do with access rules and bearer tokens: what a store is asked, and what it answers. */
#ifndef LH_LEASE_ACCESS_ADMIN_H
#define LH_LEASE_ACCESS_ADMIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "access/access.h"
#include "base/status.h"
#include "lease/types.h"

struct lh_access_change {
    struct lh_access_rule rule; /* what is given or taken */
    bool is_revoke;             /* without rights: of the whole rule */
};

struct lh_rule_facts {
    struct lh_access_rule rule;
    int64_t created_at_us;
    const char *created_by;
};

struct lh_token_facts {
    const char *id;
    const char *name;
    const char *token; /* the secret, of one that was made just now; else NULL */
    int64_t created_at_us;
    const char *created_by;
    int64_t expires_at_us;   /* INT64_MAX: never */
    int64_t last_used_at_us; /* INT64_MIN: never */
};

/* Strings live until the callback returns. */
struct lh_access_admin_answer {
    const struct lh_rule_facts *rules; /* list; change: the rule as it is then, none where none is left */
    size_t rule_count;
    const struct lh_token_facts *tokens; /* list; create */
    size_t token_count;
    int64_t revoked; /* tokens */
    bool has_more;
    const struct lh_access_rule *stop; /* list of rules: it goes on behind this one; NULL: behind the last */
};

typedef void lh_access_admin_cb(void *arg, enum lh_status status, const struct lh_error *error,
                                const struct lh_access_admin_answer *answer);

#endif
