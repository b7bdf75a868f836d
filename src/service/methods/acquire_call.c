/*
 * A call that acquires, from its request at the coordinator to its end.
 *
 *     WAITING --- on_done: answered, not granted -------------------------> gone
 *        |   `--- on_done: refused, several hold it --> REFUSED --- their names are there, or on_end ---> gone
 *        |   `--- on_done: granted, replied ---> TOLD --- on_end ---------> not sent: released again, gone
 *        |                                          `---- on_end: sent ---> kept for 2 s, then gone; a cancel that
 *        |                                                                  crossed the reply: released again, gone;
 *        |                                                                  of a stream: gone
 *        `------- on_end: the client is gone --> ABANDONED --- on_done ---> gone
 *
 * A client that cancels a unary call has not read the reply. A client that cancels a stream may have read `granted` and
 * may work under the lease. The server cannot know, so it leaves the lease to its deadline. A lease without a holder
 * does less harm than a lease taken from its holder.
 *
 * A client may call again with the same lease key, here or at another coordinator, while the end of its first call is
 * on its way to us. If that call renews the lease, the client keeps it: a renewed lease is not released again.
 */
#include "service/call_internal.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "service/words_internal.h"

/* As long as a cancel may be on its way, and no more than so many. */
#define TOLD_KEPT_US (2 * LH_US_PER_S)
#define TOLD_MAX 4096

/* --- a lease nobody heard of is given back --- */

/* Its last user is gone. */
void lh_acquire_call_destroy(struct acquire_call *acquire)
{
    lh_list_remove(&acquire->in_order);
    lh_access_leave(&acquire->who);
    free(acquire);
}

struct give_back {
    struct lh_holder_request request;
    struct acquire_call *acquire; /* keeps the strings */
    struct lh_holder_entry items[];
};

static void on_given_back(struct lh_holder_request *request)
{
    struct give_back *back = request->arg;

    for (size_t i = 0; i < request->count; i++) {
        if (back->items[i].item.outcome != LH_OUTCOME_OK)
            lh_info("lease of an ended call was not released, it ends by its deadline scope=%s",
                    LH_SCOPE_NAME(back->items[i].item.ns, back->items[i].item.key));
    }
    lh_acquire_call_destroy(back->acquire);
    free(back);
}

static void give_back(struct acquire_call *acquire)
{
    const struct lh_acquire *request = &acquire->acquire;
    size_t count = lh_acquire_scope_count(request);
    struct give_back *back = lh_alloc_zero(1, sizeof(*back) + count * sizeof(back->items[0]));

    back->acquire = acquire;
    for (size_t i = 0; i < count; i++) {
        struct lh_wanted_scope scope = lh_acquire_nth_scope(request, i);
        back->items[i].item.ns = scope.ns;
        back->items[i].item.key = scope.key;
        back->items[i].item.lease_key = request->lease_key;
        /* He may have asked another coordinator meanwhile, and have it from there. */
        back->items[i].item.is_unheard = true;
    }
    back->request.items = back->items;
    back->request.count = count;
    back->request.on_done = on_given_back;
    back->request.arg = back;
    if (lh_route_release(acquire->service, &back->request) != LH_OK)
        on_given_back(&back->request);
}

/* --- grants whose replies went out lately --- */

static bool is_call(const struct lh_table_entry *entry, const void *key)
{
    return LH_CONTAINER(struct acquire_call, by_call, entry)->call_id == *(const uint64_t *)key;
}

void lh_acquires_start(struct lh_service *service)
{
    lh_table_init(&service->told, is_call);
    lh_list_init(&service->told_in_order);
    lh_list_init(&service->acquires);
    lh_list_init(&service->refusals);
}

static void take_out(struct acquire_call *acquire)
{
    lh_table_remove(&acquire->service->told, &acquire->by_call);
    lh_list_remove(&acquire->in_order);
}

static void forget_told(struct lh_service *service, int64_t before_us)
{
    LH_LIST_EACH(struct acquire_call, acquire, &service->told_in_order, in_order) {
        if (acquire->told_us >= before_us && service->told.count <= TOLD_MAX)
            return;
        take_out(acquire);
        lh_acquire_call_destroy(acquire);
    }
}

void lh_acquire_tick(struct lh_service *service)
{
    forget_told(service, lh_clock_us() - TOLD_KEPT_US);
    lh_refusals_tick(service);
}

void lh_acquire_finish(struct lh_service *service)
{
    forget_told(service, INT64_MAX);
    lh_table_finish(&service->told);
}

static void keep_told(struct acquire_call *acquire)
{
    struct lh_service *service = acquire->service;

    acquire->told_us = lh_clock_us();
    lh_table_insert(&service->told, &acquire->by_call, lh_hash(&acquire->call_id, sizeof(acquire->call_id), 0));
    lh_list_append(&service->told_in_order, &acquire->in_order);
    forget_told(service, acquire->told_us - TOLD_KEPT_US);
}

void lh_service_on_late_cancel(void *arg, uint64_t call_id)
{
    struct lh_service *service = arg;
    struct lh_table_entry *entry = lh_table_find(&service->told, lh_hash(&call_id, sizeof(call_id), 0), &call_id);

    if (entry != NULL) {
        struct acquire_call *acquire = LH_CONTAINER(struct acquire_call, by_call, entry);
        take_out(acquire);
        give_back(acquire);
    }
}

/* --- answers --- */

Leasehold__V1__Lease *lh_acquire_lease(const struct acquire_call *acquire, const struct lh_acquire_result *result,
                                       size_t n)
{
    struct lh_wanted_scope scope = lh_acquire_nth_scope(&acquire->acquire, n);
    struct lh_held_lease lease = result->all == NULL ? *result->lease : result->all[n].lease;

    lease.ns = scope.ns;
    lease.key = scope.key;
    lease.lease_key = acquire->acquire.lease_key;
    return lh_message_lease(&lease, LH_LEASE_WITH_KEY, &acquire->service->scratch);
}

void lh_acquire_tell_lease(struct acquire_call *acquire, const struct lh_acquire_result *result)
{
    struct lh_arena *arena = &acquire->service->scratch;
    Leasehold__V1__AcquireResponse response = LEASEHOLD__V1__ACQUIRE_RESPONSE__INIT;

    response.lease = lh_acquire_lease(acquire, result, 0);
    response.waited = lh_message_duration(result->waited_us, arena);
    lh_call_reply(acquire->call, &response.base, arena);
    lh_arena_reset(arena);
}

void lh_acquire_tell_leases(struct acquire_call *acquire, const struct lh_acquire_result *result)
{
    struct lh_arena *arena = &acquire->service->scratch;
    Leasehold__V1__AcquireAllResponse response = LEASEHOLD__V1__ACQUIRE_ALL_RESPONSE__INIT;

    response.n_leases = lh_acquire_scope_count(&acquire->acquire);
    response.leases = lh_arena_alloc(arena, response.n_leases * sizeof(response.leases[0]));
    for (size_t i = 0; i < response.n_leases; i++)
        response.leases[i] = lh_acquire_lease(acquire, result, i);
    response.waited = lh_message_duration(result->waited_us, arena);
    lh_call_reply(acquire->call, &response.base, arena);
    lh_arena_reset(arena);
}

static void on_refused(void *arg, const struct lh_acquire_result *result)
{
    struct acquire_call *acquire = arg;

    if (acquire->call != NULL) {
        lh_acquire_fail(acquire->call, &acquire->who, &acquire->acquire, result);
        lh_rpc_call_set_data(acquire->call, NULL);
    }
    lh_acquire_call_destroy(acquire);
}

void lh_acquire_on_done(struct lh_acquire *request, const struct lh_acquire_result *result)
{
    struct acquire_call *acquire = request->arg;

    lh_usage_give(acquire->caller, lh_acquire_bound(request), lh_acquire_scope_count(request));
    lh_list_remove(&acquire->in_order);
    if (acquire->call != NULL)
        lh_tracing_acquired(acquire->call, result);
    if (acquire->call != NULL && result->status == LH_OK) {
        acquire->tell_granted(acquire, result);
        /* A renewal is not ours to take back: its holder has it, whatever becomes of this reply. */
        acquire->is_told = !result->is_renewal;
        if (acquire->is_told)
            return;
    } else if (acquire->call != NULL && result->status == LH_DATABASE_UNAVAILABLE &&
               lh_acquire_coordinator(acquire->service, request) != acquire->coordinator) {
        lh_acquire_refuse_moved(acquire->call, request);
    } else if (acquire->call != NULL) {
        acquire->is_refused = true;
        lh_acquire_name_holders(acquire->service, request, result, on_refused, acquire);
        return;
    } else if (result->status == LH_OK && !result->is_renewal) {
        /* Granted in the instant of the cancel, and on its way to us before the coordinator heard of it. */
        give_back(acquire);
        return;
    }
    if (acquire->call != NULL)
        lh_rpc_call_set_data(acquire->call, NULL);
    lh_acquire_call_destroy(acquire);
}

/* --- the call --- */

struct lh_coordinator *lh_acquire_coordinator(const struct lh_service *service, const struct lh_acquire *request)
{
    const struct lh_place *place = NULL;

    for (size_t i = 0; i < lh_acquire_scope_count(request); i++) {
        struct lh_wanted_scope scope = lh_acquire_nth_scope(request, i);
        const struct lh_place *of = lh_places_granting(service->places, scope.ns, scope.key);
        if (of == NULL || (place != NULL && of != place))
            return NULL;
        place = of;
    }
    return place->coordinator;
}

void lh_acquire_on_end(struct lh_rpc_call *call, enum lh_rpc_end reason)
{
    struct acquire_call *acquire = lh_rpc_call_data(call);

    lh_tracing_end(call);
    if (acquire == NULL)
        return;
    acquire->call = NULL;
    if (acquire->is_refused)
        return;
    if (!acquire->is_told)
        lh_coordinator_cancel(acquire->coordinator, &acquire->acquire);
    else if (reason == LH_RPC_END_FINISHED && acquire->acquire.on_progress == NULL)
        keep_told(acquire);
    else if (reason == LH_RPC_END_FINISHED)
        lh_acquire_call_destroy(acquire);
    else
        give_back(acquire);
}

bool lh_acquire_check_rights(struct lh_service *service, int max)
{
    struct acquire_call *acquire;

    while ((acquire = LH_LIST_FIRST(struct acquire_call, &service->acquires, in_order)) != NULL &&
           acquire->rights_round != service->rights_round) {
        struct lh_rpc_call *call = acquire->call;
        if (max-- == 0)
            return true;
        acquire->rights_round = service->rights_round;
        lh_list_remove(&acquire->in_order);
        lh_list_append(&service->acquires, &acquire->in_order);
        const char *forbidden = call == NULL ? NULL : lh_permit_forbidden(&acquire->who, &acquire->acquire);
        if (forbidden != NULL) {
            acquire->call = NULL;
            lh_rpc_call_set_data(call, NULL);
            lh_permit_refuse(call, &acquire->who, LH_RIGHT_LEASE, forbidden);
            lh_coordinator_cancel(acquire->coordinator, &acquire->acquire);
        } else if (call != NULL && lh_acquire_coordinator(service, &acquire->acquire) != acquire->coordinator) {
            lh_coordinator_send_back(acquire->coordinator, &acquire->acquire);
        }
    }
    return false;
}
