/* A call that acquires: Acquire, AcquireAll, AcquireStream; Hold shares how it fails. */
#ifndef LH_SERVICE_ACQUIRE_H
#define LH_SERVICE_ACQUIRE_H

#include "service/refusal.h"

struct acquire_call;
/* Sends the leases to the caller. */
typedef void acquire_granted_fn(struct acquire_call *acquire, const struct lh_acquire_result *result);

struct acquire_call {
    struct lh_acquire acquire;
    struct lh_service *service;
    struct lh_rpc_call *call; /* NULL: ABANDONED */
    acquire_granted_fn *tell_granted;
    struct lh_usage *caller;
    struct lh_access_caller who;
    uint64_t rights_round; /* that looked at it last */
    bool is_told;          /* TOLD: a new lease, whose reply is on its way */
    bool is_refused;       /* REFUSED: the holders are looked up */
    uint64_t call_id;      /* what a late cancel names */
    int64_t told_us;
    struct lh_table_entry by_call;  /* in lh_service.told and told_in_order, once its call has ended */
    struct lh_link in_order;        /* of lh_service.acquires before that */
    struct lh_acquire_scope also[]; /* behind them, the strings */
};

/* Check the request and begin; refused, the call is answered. With on_progress it is a stream. */
void lh_acquire_begin(struct lh_rpc_call *call, const void *data, size_t size, lh_progress_cb *on_progress,
                      acquire_granted_fn *tell);
/* The same with what the request asks, checked. */
void lh_acquire_begin_call(struct lh_rpc_call *call, const struct lh_acquire *request, lh_progress_cb *on_progress,
                           acquire_granted_fn *tell);

size_t lh_acquire_scope_count(const struct lh_acquire *request);
struct lh_acquire_scope lh_acquire_nth_scope(const struct lh_acquire *request, size_t i);
/* The first namespace that the caller may not lease in, or NULL. */
const char *lh_acquire_forbidden(const struct lh_access_caller *who, const struct lh_acquire *request);

/* What an acquire counts as among its caller's, until it is done. */
enum lh_usage_bound lh_acquire_bound(const struct lh_acquire *request);

/* Why it was not granted, to the caller. */
void lh_acquire_fail(struct lh_rpc_call *call, const struct lh_access_caller *who, const struct lh_acquire *request,
                     const struct lh_acquire_result *result);

/*
 * Before lh_acquire_fail: where several hold the scope they are looked up first. `then` is called once, at once or later,
 * with the result to fail with; `request` stays until then.
 */
void lh_acquire_name_holders(struct lh_service *service, const struct lh_acquire *request,
                             const struct lh_acquire_result *result, lh_refusal_cb *then, void *arg);

/* What lh_coordinator_acquire did not take, to the caller. */
void lh_acquire_refuse(struct lh_rpc_call *call, const struct lh_acquire *request, enum lh_status status);

/* Who has no right to read hears that it is held, and not by whom. */
void lh_acquire_hide_holder(const struct lh_access_caller *who, const char *ns, const char *key,
                            struct lh_contention *contention);

void lh_acquire_start(struct lh_service *service);
void lh_acquire_tick(struct lh_service *service);
void lh_acquire_finish(struct lh_service *service);
/* Of this round, `max` at most: ends what its caller may not do any more. True: there are more. */
bool lh_acquire_check_rights(struct lh_service *service, int max);

#endif
