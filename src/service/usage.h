/*
 * A caller, and how much of the daemon it uses: its share of each common bound is bounded. A caller is a
 * principal, on all of its connections together; who is anonymous is a caller for each connection.
 *
 *     if (!lh_usage_take(call, LH_USAGE_WAITERS, 1, &caller)) return;      the call was answered
 *     lh_usage_give(caller, LH_USAGE_WAITERS, 1);                          later, whatever became of the call
 */
#ifndef LH_SERVICE_USAGE_H
#define LH_SERVICE_USAGE_H

#include <stdbool.h>
#include <stddef.h>

struct lh_access_caller;
struct lh_usage;
struct lh_rpc_call;

enum lh_usage_bound {
    LH_USAGE_WAITERS,  /* acquires that wait, until the database has forgotten them */
    LH_USAGE_PENDING,  /* items of other requests */
    LH_USAGE_WATCHERS, /* of leases and of health */
    LH_USAGE_CONTROL,  /* lists, policies and the like */
    LH_USAGE_BOUNDS,
};

/* The caller of this call. Stays until the next call of its connection, and as long as it has taken something. */
struct lh_usage *lh_usage_of(struct lh_rpc_call *call);

/* lh_table_equal, by the principal. */
struct lh_table_entry;
bool lh_usage_is_of(const struct lh_table_entry *entry, const void *principal);

/* Who its connection is, see access/access.h; asked before a token gives the call another principal. */
const struct lh_access_caller *lh_usage_identity(struct lh_rpc_call *call);

/* False: it would exceed its share. A caller that has none may always have one request, whatever its size. */
bool lh_usage_may_take(struct lh_usage *caller, enum lh_usage_bound bound, size_t count);
void lh_usage_give(struct lh_usage *caller, enum lh_usage_bound bound, size_t count);

/* The same, and answers the call when it may not. */
bool lh_usage_take(struct lh_rpc_call *call, enum lh_usage_bound bound, size_t count, struct lh_usage **caller);
void lh_usage_refuse(struct lh_rpc_call *call, enum lh_usage_bound bound);

#endif
