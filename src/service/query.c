/* GetLease and ListLeases: what the store knows, without touching a lease. */
#include <stdlib.h>

#include "service/call.h"
#include "service/message.h"
#include "service/page_token.h"
#include "service/words.h"

/* --- GetLease --- */

static Leasehold__V1__LastHold *new_last_hold(const struct lh_last_hold *last, struct lh_arena *arena)
{
    Leasehold__V1__LastHold *message = lh_arena_alloc(arena, sizeof(*message));

    leasehold__v1__last_hold__init(message);
    message->token = last->token;
    if (last->owner != NULL)
        message->owner = (char *)last->owner;
    message->end_reason = (Leasehold__V1__EndReason)last->end_reason;
    if (last->result != NULL)
        message->result = (char *)last->result;
    if (last->error != NULL)
        message->error = (char *)last->error;
    message->ended_at = lh_message_timestamp(last->ended_at_us, arena);
    return message;
}

static void fail_not_held(const struct lh_store_call *store_call)
{
    char name[LH_WORDS_NAME_BYTES];
    char *words = lh_format("lease %s/%s is not held", store_call->ns, lh_words_name(store_call->key, name));
    struct lh_failure failure = {.status = LH_NOT_HELD, .message = words, .ns = store_call->ns, .key = store_call->key};

    lh_failure_send(store_call->call, &failure);
    free(words);
}

static void reply_scope(struct lh_store_call *store_call, const struct lh_scope_answer *answer)
{
    struct lh_arena *arena = &store_call->service->scratch;
    Leasehold__V1__GetLeaseResponse response;
    struct lh_contention contention = {.has_holder = answer->is_held, .waiters_ahead = answer->waiters};

    leasehold__v1__get_lease_response__init(&response);
    if (answer->is_held) {
        contention.holder = answer->lease;
        contention.holder.ns = store_call->ns;
        contention.holder.key = store_call->key;
        response.lease = lh_message_lease(&contention.holder, LH_LEASE_PUBLIC, arena);
    }
    if (answer->is_held || answer->waiters > 0)
        response.contention = lh_message_contention(&contention, arena);
    if (answer->has_last)
        response.last = new_last_hold(&answer->last, arena);
    lh_call_reply(store_call->call, &response.base, arena);
    lh_arena_reset(arena);
}

static void on_scope(void *arg, enum lh_status status, const struct lh_error *error,
                     const struct lh_scope_answer *answer)
{
    struct lh_store_call *store_call = arg;

    if (store_call->call != NULL && status == LH_NOT_HELD)
        fail_not_held(store_call);
    else if (lh_store_call_is_answered(store_call, status, error)) {
        if (answer->is_held || answer->has_last || answer->waiters > 0)
            reply_scope(store_call, answer);
        else
            fail_not_held(store_call);
    }
    lh_store_call_destroy(store_call);
}

void lh_get_lease_on_message(struct lh_rpc_call *call, const void *data, size_t size)
{
    struct lh_service *service = lh_call_service(call);
    struct lh_violations violations = {0};
    struct lh_validator v = {.arena = &service->scratch, .violations = &violations};
    Leasehold__V1__GetLeaseRequest *request =
        lh_call_unpack(call, &leasehold__v1__get_lease_request__descriptor, data, size, v.arena);
    const char *ns, *key;

    if (request != NULL && !lh_validate_scope(&v, request->scope, "scope", &ns, &key)) {
        lh_call_refuse(call, &violations);
    } else if (request != NULL) {
        struct lh_store_call *store_call = lh_store_call_create(call, ns, key);
        lh_store_call_check(store_call, service->store->ops->get(service->store, store_call->ns, store_call->key,
                                                                 on_scope, store_call));
    }
    lh_arena_reset(&service->scratch);
}

/* --- ListLeases --- */

static void on_list(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_list_answer *answer)
{
    struct lh_store_call *store_call = arg;
    struct lh_arena *arena = &store_call->service->scratch;
    Leasehold__V1__ListLeasesResponse response;
    size_t bytes = 0;

    if (!lh_store_call_is_answered(store_call, status, error)) {
        lh_store_call_destroy(store_call);
        return;
    }
    leasehold__v1__list_leases_response__init(&response);
    response.leases = lh_arena_alloc(arena, (answer->lease_count + 1) * sizeof(*response.leases));
    while (response.n_leases < answer->lease_count && bytes < LH_REPLY_MAX_BYTES) {
        Leasehold__V1__Lease *lease = lh_message_lease(&answer->leases[response.n_leases], LH_LEASE_PUBLIC, arena);
        bytes += protobuf_c_message_get_packed_size(&lease->base);
        response.leases[response.n_leases++] = lease;
    }
    if (response.n_leases > 0 && (answer->has_more || response.n_leases < answer->lease_count)) {
        const struct lh_lease *last = &answer->leases[response.n_leases - 1];
        response.next_page_token = lh_page_token_make(LH_PAGE_LEASES, store_call->filter, last->ns, last->key, arena);
    }
    lh_call_reply(store_call->call, &response.base, arena);
    lh_arena_reset(arena);
    lh_store_call_destroy(store_call);
}

static bool read_list(struct lh_validator *v, const Leasehold__V1__ListLeasesRequest *request,
                      struct lh_list_request *list, uint64_t *filter)
{
    if (!lh_validate_list(v, request, list))
        return false;
    *filter = lh_page_filter(lh_page_filter(0, list->ns), list->owner);
    *filter = lh_page_filter(*filter, list->include_children ? "children" : "");
    if (request->page_token[0] == '\0' ||
        lh_page_token_parse(request->page_token, LH_PAGE_LEASES, *filter, v->arena, &list->after_ns, &list->after_key))
        return true;
    lh_violations_add(v->violations, "page_token",
                      "must be the next_page_token of a page that was asked with the same filters");
    return false;
}

void lh_list_leases_on_message(struct lh_rpc_call *call, const void *data, size_t size)
{
    struct lh_service *service = lh_call_service(call);
    struct lh_violations violations = {0};
    struct lh_validator v = {.arena = &service->scratch, .violations = &violations};
    struct lh_list_request list = {0};
    uint64_t filter;
    Leasehold__V1__ListLeasesRequest *request =
        lh_call_unpack(call, &leasehold__v1__list_leases_request__descriptor, data, size, v.arena);

    if (request != NULL && !read_list(&v, request, &list, &filter)) {
        lh_call_refuse(call, &violations);
    } else if (request != NULL) {
        struct lh_store_call *store_call = lh_store_call_create(call, NULL, NULL);
        store_call->filter = filter;
        lh_store_call_check(store_call, service->store->ops->list(service->store, &list, on_list, store_call));
    }
    lh_arena_reset(&service->scratch);
}
