/* AcquireAll: an Acquire of several scopes. The checked request goes Acquire's way; the reply has a lease for each. */
#include "service/methods/acquire_call.h"
#include "service/words_internal.h"

static void tell_granted(struct acquire_call *acquire, const struct lh_acquire_result *result)
{
    struct lh_arena *arena = &acquire->service->scratch;
    Leasehold__V1__AcquireAllResponse response;

    leasehold__v1__acquire_all_response__init(&response);
    response.n_leases = lh_acquire_scope_count(&acquire->acquire);
    response.leases = lh_arena_alloc(arena, response.n_leases * sizeof(response.leases[0]));
    for (size_t i = 0; i < response.n_leases; i++) {
        struct lh_acquire_scope scope = lh_acquire_nth_scope(&acquire->acquire, i);
        struct lh_held_lease lease = result->all == NULL ? *result->lease : result->all[i].lease;
        lease.ns = scope.ns;
        lease.key = scope.key;
        lease.lease_key = acquire->acquire.lease_key;
        response.leases[i] = lh_message_lease(&lease, LH_LEASE_WITH_KEY, arena);
    }
    response.waited = lh_message_duration(result->waited_us, arena);
    lh_call_reply(acquire->call, &response.base, arena);
    lh_arena_reset(arena);
}

void lh_acquire_all_on_message(struct lh_rpc_call *call, const void *data, size_t size)
{
    struct lh_asked asked;
    struct lh_acquire acquire = {0};
    Leasehold__V1__AcquireAllRequest *request;

    lh_tracing_begin(call);
    request = lh_asked_begin(&asked, call, &leasehold__v1__acquire_all_request__descriptor, data, size);
    if (request != NULL && lh_asked_check(&asked, lh_validate_acquire_all(&asked.v, request, &acquire)))
        lh_acquire_begin_call(call, &acquire, NULL, tell_granted);
    lh_asked_end(&asked);
}
