/* A call that acquires: Acquire, AcquireAll, AcquireStream. Hold uses its failures. */
#ifndef LH_SERVICE_METHODS_ACQUIRE_CALL_H
#define LH_SERVICE_METHODS_ACQUIRE_CALL_H

#include "service/edge/refusal.h"

struct acquire_call;
/* Sends the leases to the caller. */
typedef void acquire_granted_fn(struct acquire_call *acquire, const struct lh_acquire_result *result);

struct acquire_call {
    struct lh_acquire acquire;
    struct lh_service *service;
    struct lh_coordinator *coordinator; /* the coordinator that has it; its key may be elsewhere by now */
    struct lh_rpc_call *call;           /* NULL: the call is ABANDONED */
    acquire_granted_fn *tell_granted;
    struct lh_usage *caller;
    struct lh_access_caller who;
    uint64_t rights_round; /* last round of rights that looked at it */
    /* TOLD: the reply with a new lease is on its way. */
    bool is_told;
    bool is_refused;  /* REFUSED: the holders are looked up */
    uint64_t call_id; /* the call's number, which a late cancel names */
    int64_t told_us;
    /* Link in lh_service.told, once its call has ended. */
    struct lh_table_entry by_call;
    /* Link in lh_service.acquires, then in lh_service.told_in_order. */
    struct lh_link in_order;
    struct lh_wanted_scope also[]; /* the strings follow them */
};

/* Checks the AcquireRequest and begins; if it is refused, the call is answered. With on_progress the call is a stream. */
void lh_acquire_begin(struct lh_asked *asked, const void *request, lh_progress_cb *on_progress,
                      acquire_granted_fn *tell);
/* Begins with a request that was checked already. */
void lh_acquire_begin_call(struct lh_rpc_call *call, const struct lh_acquire *request, lh_progress_cb *on_progress,
                           acquire_granted_fn *tell);

/* Returns the lease of the request's nth scope as its holder gets it. */
Leasehold__V1__Lease *lh_acquire_lease(const struct acquire_call *acquire, const struct lh_acquire_result *result,
                                       size_t n);
size_t lh_acquire_scope_count(const struct lh_acquire *request);
struct lh_wanted_scope lh_acquire_nth_scope(const struct lh_acquire *request, size_t i);
/* Returns the first namespace in which the caller has no right to lease, or NULL. */
const char *lh_acquire_forbidden(const struct lh_access_caller *who, const struct lh_acquire *request);
/* Marks a priority that the policy's max_priority does not bind, for the caller has the right admin. */
void lh_acquire_set_rights(const struct lh_access_caller *who, struct lh_acquire *request);

/* Returns the bound of its caller that the request counts against until it is done. */
enum lh_usage_bound lh_acquire_bound(const struct lh_acquire *request);

/* Answers the call with the reason that the request was not granted. */
void lh_acquire_fail(struct lh_rpc_call *call, const struct lh_access_caller *who, const struct lh_acquire *request,
                     const struct lh_acquire_result *result);

/*
 * Looks up the holders before lh_acquire_fail, if several hold the scope. Calls `then` once, at once or later, with the
 * result to fail with; leave `request` in place until then.
 */
void lh_acquire_name_holders(struct lh_service *service, const struct lh_acquire *request,
                             const struct lh_acquire_result *result, lh_refusal_cb *then, void *arg);

/* Returns the coordinator of the database that may grant the request, or NULL: the databases have to agree first. */
struct lh_coordinator *lh_acquire_coordinator(const struct lh_service *service, const struct lh_acquire *request);
/* Answers the call with a refusal of lh_coordinator_acquire, or that its key is in another database than it was. */
void lh_acquire_refuse(struct lh_rpc_call *call, const struct lh_acquire *request, enum lh_status status);
void lh_acquire_refuse_moved(struct lh_rpc_call *call, const struct lh_acquire *request);

/* Hides the holder from a caller without the right to read; it learns only that the scope is held. */
void lh_acquire_hide_holder(const struct lh_access_caller *who, const char *ns, const char *key,
                            struct lh_contention *contention);

void lh_acquires_start(struct lh_service *service);
void lh_acquire_tick(struct lh_service *service);
void lh_acquire_finish(struct lh_service *service);
/* Looks at no more than `max` calls of this round, and ends those whose callers have lost their right or whose keys are in
   another database now. Returns true if more calls are left. */
bool lh_acquire_check_rights(struct lh_service *service, int max);

#endif
