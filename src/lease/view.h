/* Views, lists and changes of policies, rules and tokens, as people ask a store for them. The answers are rows of text. */
#ifndef LH_LEASE_VIEW_H
#define LH_LEASE_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "access/access.h"
#include "base/rows.h"

enum lh_view {
    LH_VIEW_NAMESPACES,
    LH_VIEW_EXPLAIN,
    LH_VIEW_QUEUE,
    LH_VIEW_WAITS,
    LH_VIEW_HISTORY,
    LH_VIEW_FAILURES,
    LH_VIEW_AUDIT,
    LH_VIEW_DAEMONS,
    LH_VIEW_DATABASE,
    LH_VIEW_SCHEDULES,
    LH_VIEW_TICKS, /* the newest first */
    LH_VIEW_SCHEDULE_DAYS,
    LH_VIEW_COUNT,
};

/* A page of a view. The namespaces, with include_children also all below them; `key` "" is any. `after` is the cell
   "after" of the last row of the page before, "" for the first page. The store copies it. */
struct lh_view_request {
    enum lh_view view;
    const char *const *namespaces;
    size_t namespace_count;
    bool include_children;
    const char *key;
    int32_t page_size;
    const char *after;
    const char *state; /* TICKS: as in SQL; NULL: any */
    int64_t since_us;  /* TICKS: of these instants or later; INT64_MIN: any */
};

enum lh_list {
    LH_LIST_POLICIES, /* own ones, by namespace */
    LH_LIST_RULES,    /* by principal and namespace */
    LH_LIST_TOKENS,   /* by name and ID */
    LH_LIST_COUNT,
};

/* A page of a list, behind the one that has these two; NULL: the first page. The store copies it. */
struct lh_list_page {
    enum lh_list list;
    int32_t page_size;
    const char *after[2];
};

/* Settings of a namespace, "" is the root: for each name a value, as policy_update() in SQL takes it; NULL: inherit again.
   Of a schedule: those of the request, as schedule_daemon.sql takes them. */
struct lh_policy_change {
    const char *ns;
    size_t count;
    const char *const *names;
    const char *const *values;
};

enum lh_admin_verb {
    LH_ADMIN_SET_POLICY,   /* answers what is in force last */
    LH_ADMIN_GET_POLICY,   /* answers the namespace's own policy, then the one in force */
    LH_ADMIN_GRANT,        /* answers the rule as it is now */
    LH_ADMIN_REVOKE,       /* the same, none if no right is left; without rights the whole rule goes */
    LH_ADMIN_CREATE_TOKEN, /* answers the new token */
    LH_ADMIN_REVOKE_TOKEN, /* answers the number of tokens */
    LH_ADMIN_SET_SCHEDULE, /* answers the schedule */
    LH_ADMIN_GET_SCHEDULE, /* answers a row for each of the last ticks, each with the schedule; one if there is no tick */
    LH_ADMIN_PAUSE_SCHEDULE,
    LH_ADMIN_REMOVE_SCHEDULE,
    LH_ADMIN_RUN_SCHEDULE_NOW, /* answers the instant */
    LH_ADMIN_CLAIM_TICK,       /* answers the lease, if a tick was due, and how long until the next may be */
    LH_ADMIN_ASK_HAND_OVER,    /* answers a row for each holder; none: nobody holds it */
    LH_ADMIN_REFUSE_HAND_OVER, /* answers the outcome, and the request */
    LH_ADMIN_COUNT,
};

struct lh_requester;

/* A look at a policy or a schedule, or a change of policies, rules, tokens or schedules. The store copies it. */
struct lh_admin_request {
    enum lh_admin_verb verb;
    const struct lh_requester *by; /* the one who changes it: history and audit name it */
    const char *ns;                /* the policy's or the rule's; NULL: it is about a token */
    const struct lh_policy_change *change;
    const char *name; /* the principal of a rule; a token's name, or its ID to revoke it */
    unsigned rights;  /* the rule's, to give or take */
    int64_t expires_us;
};

#endif
