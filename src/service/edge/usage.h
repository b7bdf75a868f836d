/*
 * A caller, and how much of the daemon it uses: its share of each common bound is bounded. A caller is a principal, on
 * all of its connections together; an anonymous caller is one for each connection.
 *
 *     if (!lh_usage_take(call, LH_USAGE_WAITERS, 1, &caller)) return;      the call was answered
 *     lh_usage_give(caller, LH_USAGE_WAITERS, 1);                          later, also if the call has ended
 */
#ifndef LH_SERVICE_EDGE_USAGE_H
#define LH_SERVICE_EDGE_USAGE_H

#include <stdbool.h>
#include <stddef.h>

struct lh_access_caller;
struct lh_usage;
struct lh_rpc_call;

enum lh_usage_bound {
    LH_USAGE_WAITERS,  /* acquires that wait, until they have left the database's queue */
    LH_USAGE_PENDING,  /* items of other requests */
    LH_USAGE_WATCHERS, /* watches of leases and of health */
    LH_USAGE_CONTROL,  /* calls of the store: lists, policies and the like */
    LH_USAGE_BOUNDS,
};

/* Returns the caller of this call. It stays until the next call of its connection, and as long as it has taken a
   share. */
struct lh_usage *lh_usage_of(struct lh_rpc_call *call);

/* Compares a caller with a principal, as lh_table_equal. */
struct lh_table_entry;
bool lh_usage_is_of(const struct lh_table_entry *entry, const void *principal);

/* Returns the identity of the call's connection, see access/access.h. Call it before a token gives the call another
   principal. */
const struct lh_access_caller *lh_usage_identity(struct lh_rpc_call *call);

/* Takes a share of `count`, to be given back by lh_usage_give. Returns false, and counts a refusal, if the caller
   would exceed its share. A caller that has taken no share may always have one request, of any size. */
bool lh_usage_may_take(struct lh_usage *caller, enum lh_usage_bound bound, size_t count);
void lh_usage_give(struct lh_usage *caller, enum lh_usage_bound bound, size_t count);

/* Does as lh_usage_may_take for the caller of the call, and answers the call if that returns false. */
bool lh_usage_take(struct lh_rpc_call *call, enum lh_usage_bound bound, size_t count, struct lh_usage **caller);
void lh_usage_refuse(struct lh_rpc_call *call, enum lh_usage_bound bound);

#endif
