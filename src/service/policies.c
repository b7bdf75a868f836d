/* AdminService: SetPolicy, GetPolicy, ListPolicies. */
#include "service/call.h"
#include "service/message.h"
#include "service/page_token.h"
#include "service/policy.h"

static const struct lh_policy *policy_at(const struct lh_policy_answer *answer, size_t index)
{
    return index < answer->policy_count ? &answer->policies[index] : NULL;
}

static void on_set(void *arg, enum lh_status status, const struct lh_error *error,
                   const struct lh_policy_answer *answer)
{
    struct lh_store_call *store_call = arg;

    if (lh_store_call_is_answered(store_call, status, error)) {
        struct lh_arena *arena = &store_call->service->scratch;
        Leasehold__V1__SetPolicyResponse response;

        leasehold__v1__set_policy_response__init(&response);
        response.effective = lh_policy_to_message(policy_at(answer, 0), arena);
        lh_call_reply(store_call->call, &response.base, arena);
        lh_arena_reset(arena);
    }
    lh_store_call_destroy(store_call);
}

void lh_set_policy_on_message(struct lh_rpc_call *call, const void *data, size_t size)
{
    struct lh_service *service = lh_call_service(call);
    struct lh_violations violations = {0};
    struct lh_validator v = {.arena = &service->scratch, .violations = &violations};
    struct lh_policy policy;
    uint32_t mask;
    Leasehold__V1__SetPolicyRequest *request =
        lh_call_unpack(call, &leasehold__v1__set_policy_request__descriptor, data, size, v.arena);

    if (request != NULL && !lh_policy_from_request(&v, request, &policy, &mask)) {
        lh_call_refuse(call, &violations);
    } else if (request != NULL) {
        struct lh_store_call *store_call = lh_store_call_create(call, NULL, NULL);
        lh_store_call_check(store_call,
                            service->store->ops->set_policy(service->store, &policy, mask, on_set, store_call));
    }
    lh_arena_reset(&service->scratch);
}

static void on_get(void *arg, enum lh_status status, const struct lh_error *error,
                   const struct lh_policy_answer *answer)
{
    struct lh_store_call *store_call = arg;

    if (lh_store_call_is_answered(store_call, status, error)) {
        struct lh_arena *arena = &store_call->service->scratch;
        Leasehold__V1__GetPolicyResponse response;

        leasehold__v1__get_policy_response__init(&response);
        response.own = lh_policy_to_message(policy_at(answer, 0), arena);
        response.effective = lh_policy_to_message(policy_at(answer, 1), arena);
        response.n_source = lh_policy_sources(policy_at(answer, 1), arena, &response.source);
        lh_call_reply(store_call->call, &response.base, arena);
        lh_arena_reset(arena);
    }
    lh_store_call_destroy(store_call);
}

void lh_get_policy_on_message(struct lh_rpc_call *call, const void *data, size_t size)
{
    struct lh_service *service = lh_call_service(call);
    struct lh_violations violations = {0};
    struct lh_validator v = {.arena = &service->scratch, .violations = &violations};
    const char *ns = "";
    Leasehold__V1__GetPolicyRequest *request =
        lh_call_unpack(call, &leasehold__v1__get_policy_request__descriptor, data, size, v.arena);

    if (request != NULL && request->namespace_ != NULL &&
        !lh_validate_namespace(&v, request->namespace_->segments, request->namespace_->n_segments, true,
                               "namespace.segments", &ns)) {
        lh_call_refuse(call, &violations);
    } else if (request != NULL) {
        struct lh_store_call *store_call = lh_store_call_create(call, ns, NULL);
        lh_store_call_check(store_call,
                            service->store->ops->get_policy(service->store, store_call->ns, on_get, store_call));
    }
    lh_arena_reset(&service->scratch);
}

static void on_list(void *arg, enum lh_status status, const struct lh_error *error,
                    const struct lh_policy_answer *answer)
{
    struct lh_store_call *store_call = arg;

    if (lh_store_call_is_answered(store_call, status, error)) {
        struct lh_arena *arena = &store_call->service->scratch;
        Leasehold__V1__ListPoliciesResponse response;

        leasehold__v1__list_policies_response__init(&response);
        response.policies = lh_arena_alloc(arena, (answer->policy_count + 1) * sizeof(*response.policies));
        for (size_t i = 0; i < answer->policy_count; i++)
            response.policies[response.n_policies++] = lh_policy_to_message(&answer->policies[i], arena);
        if (answer->has_more && answer->policy_count > 0)
            response.next_page_token =
                lh_page_token_make(LH_PAGE_POLICIES, 0, answer->policies[answer->policy_count - 1].ns, "", arena);
        lh_call_reply(store_call->call, &response.base, arena);
        lh_arena_reset(arena);
    }
    lh_store_call_destroy(store_call);
}

void lh_list_policies_on_message(struct lh_rpc_call *call, const void *data, size_t size)
{
    struct lh_service *service = lh_call_service(call);
    struct lh_violations violations = {0};
    struct lh_validator v = {.arena = &service->scratch, .violations = &violations};
    const char *after = NULL, *ignored;
    int32_t page_size;
    bool is_valid;
    Leasehold__V1__ListPoliciesRequest *request =
        lh_call_unpack(call, &leasehold__v1__list_policies_request__descriptor, data, size, v.arena);

    if (request != NULL) {
        is_valid = lh_validate_page_size(&v, request->page_size, "page_size", &page_size);
        if (request->page_token[0] != '\0' &&
            !lh_page_token_parse(request->page_token, LH_PAGE_POLICIES, 0, v.arena, &after, &ignored)) {
            lh_violations_add(&violations, "page_token", "must be the next_page_token of the page before");
            is_valid = false;
        }
        if (is_valid) {
            struct lh_store_call *store_call = lh_store_call_create(call, NULL, NULL);
            lh_store_call_check(
                store_call, service->store->ops->list_policies(service->store, page_size, after, on_list, store_call));
        } else {
            lh_call_refuse(call, &violations);
        }
    }
    lh_arena_reset(&service->scratch);
}
