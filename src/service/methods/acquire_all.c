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
    for (size_t i = 0; i < response.n_leases; i++)
        response.leases[i] = lh_acquire_lease(acquire, result, i);
    response.waited = lh_message_duration(result->waited_us, arena);
    lh_call_reply(acquire->call, &response.base, arena);
    lh_arena_reset(arena);
}

void lh_acquire_all_on_request(struct lh_asked *asked, const void *request)
{
    struct lh_acquire acquire = {0};

    if (lh_asked_check(asked, lh_validate_acquire_all(&asked->v, request, &acquire)))
        lh_acquire_begin_call(asked->call, &acquire, NULL, tell_granted);
}
