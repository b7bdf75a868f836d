/* AdminService: SetPolicy, GetPolicy, ListPolicies. */
#include <stdio.h>
#include <stdlib.h>

#include "service/call.h"
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
        lh_store_call_reply(store_call, &response.base);
    }
    lh_store_call_destroy(store_call);
}

void lh_set_policy_on_message(struct lh_rpc_call *call, const void *data, size_t size)
{
    struct lh_asked asked;
    struct lh_policy policy;
    uint32_t mask;
    Leasehold__V1__SetPolicyRequest *request =
        lh_asked_begin(&asked, call, &leasehold__v1__set_policy_request__descriptor, data, size);

    if (request != NULL &&
        lh_asked_check(&asked, lh_policy_from_request(&asked.v, request, &policy, &mask) &&
                                   lh_validate_place(&asked.v, policy.ns, false, "policy.namespace.segments")) &&
        lh_permit(call, LH_RIGHT_ADMIN, policy.ns)) {
        struct lh_requester requester = lh_call_requester(call);
        struct lh_store *store = asked.service->store;
        struct lh_store_call *store_call = lh_store_call_create(call, NULL, NULL);
        if (store_call != NULL)
            lh_store_call_check(store_call,
                                store->ops->set_policy(store, &policy, mask, &requester, on_set, store_call));
    }
    lh_asked_end(&asked);
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
        lh_store_call_reply(store_call, &response.base);
    }
    lh_store_call_destroy(store_call);
}

void lh_get_policy_on_message(struct lh_rpc_call *call, const void *data, size_t size)
{
    struct lh_asked asked;
    const char *ns = "";
    Leasehold__V1__GetPolicyRequest *request =
        lh_asked_begin(&asked, call, &leasehold__v1__get_policy_request__descriptor, data, size);

    if (request != NULL &&
        lh_asked_check(&asked,
                       request->namespace_ == NULL ||
                           (lh_validate_namespace(&asked.v, request->namespace_->segments,
                                                  request->namespace_->n_segments, true, "namespace.segments", &ns) &&
                            lh_validate_place(&asked.v, ns, false, "namespace.segments"))) &&
        lh_permit(call, LH_RIGHT_READ, ns)) {
        struct lh_store *store = asked.service->store;
        struct lh_store_call *store_call = lh_store_call_create(call, ns, NULL);
        if (store_call != NULL)
            lh_store_call_check(store_call, store->ops->get_policy(store, store_call->ns, on_get, store_call));
    }
    lh_asked_end(&asked);
}

/* --- ListPolicies: pages of what the caller may read; what it may not read is passed over --- */

#define SCANNED_AT_ONCE 1000

struct policy_list {
    struct lh_store_call *store_call;
    struct lh_access_caller who;
    int32_t left; /* of the page */
    struct lh_buffer packed;
    char last[LH_NAMESPACE_MAX_BYTES + 1]; /* on the page */
};

static void free_list(struct policy_list *list)
{
    lh_access_leave(&list->who);
    lh_buffer_finish(&list->packed);
    free(list);
}

static void finish(struct policy_list *list, bool has_more)
{
    struct lh_store_call *store_call = list->store_call;
    Leasehold__V1__ListPoliciesResponse response;

    leasehold__v1__list_policies_response__init(&response);
    if (has_more)
        response.next_page_token =
            lh_page_token_make(LH_PAGE_POLICIES, 0, list->last, "", &store_call->service->scratch);
    lh_store_call_append(list->store_call, &list->packed, &response.base);
    lh_rpc_call_reply(store_call->call, list->packed.data, list->packed.size);
    lh_store_call_destroy(store_call);
    free_list(list);
}

/* False: the page is full, and there is more that the caller may read. */
static bool take(struct policy_list *list, const struct lh_policy_answer *answer)
{
    for (size_t i = 0; i < answer->policy_count; i++) {
        const struct lh_policy *policy = &answer->policies[i];
        Leasehold__V1__ListPoliciesResponse response;
        Leasehold__V1__Policy *message;

        if (!lh_access_may(&list->who, LH_RIGHT_READ, policy->ns))
            continue;
        if (list->left == 0)
            return false;
        list->left--;
        snprintf(list->last, sizeof(list->last), "%s", policy->ns);
        message = lh_policy_to_message(policy, &list->store_call->service->scratch);
        leasehold__v1__list_policies_response__init(&response);
        response.n_policies = 1;
        response.policies = &message;
        lh_store_call_append(list->store_call, &list->packed, &response.base);
    }
    return true;
}

static bool sees_all(const struct policy_list *list)
{
    return lh_access_may(&list->who, LH_RIGHT_READ, "");
}

static void ask(struct policy_list *list, const char *after);

static void on_list(void *arg, enum lh_status status, const struct lh_error *error,
                    const struct lh_policy_answer *answer)
{
    struct policy_list *list = arg;

    if (!lh_store_call_is_answered(list->store_call, status, error)) {
        lh_store_call_destroy(list->store_call);
        free_list(list);
    } else if (!take(list, answer) || (answer->has_more && list->left == 0 && sees_all(list))) {
        finish(list, true);
    } else if (answer->has_more && answer->stop_ns != NULL) {
        ask(list, answer->stop_ns);
    } else if (answer->has_more && answer->policy_count > 0) {
        ask(list, answer->policies[answer->policy_count - 1].ns);
    } else {
        finish(list, false);
    }
}

static void ask(struct policy_list *list, const char *after)
{
    struct lh_store_call *store_call = list->store_call;
    struct lh_store *store = store_call->service->store;
    enum lh_status status =
        store->ops->list_policies(store, sees_all(list) ? list->left : SCANNED_AT_ONCE, after, on_list, list);

    if (status != LH_OK)
        free_list(list);
    lh_store_call_check(store_call, status);
}

static void begin_list(struct lh_rpc_call *call, struct lh_access_caller *who, int32_t page_size, const char *after)
{
    struct lh_store_call *store_call;
    struct policy_list *list;

    if (!lh_permit_any(call, who, LH_RIGHT_READ, "", true))
        return;
    store_call = lh_store_call_create(call, NULL, NULL);
    if (store_call == NULL)
        return;
    list = lh_alloc_zero(1, sizeof(*list));
    list->store_call = store_call;
    list->who = lh_access_copy(who);
    list->left = page_size;
    ask(list, after);
}

void lh_list_policies_on_message(struct lh_rpc_call *call, const void *data, size_t size)
{
    struct lh_asked asked;
    const char *after = NULL, *ignored;
    struct lh_access_caller who;
    int32_t page_size;
    bool is_valid;
    Leasehold__V1__ListPoliciesRequest *request =
        lh_asked_begin(&asked, call, &leasehold__v1__list_policies_request__descriptor, data, size);

    if (request != NULL) {
        is_valid = lh_validate_page_size(&asked.v, request->page_size, "page_size", &page_size);
        if (request->page_token[0] != '\0' &&
            !lh_page_token_parse(request->page_token, LH_PAGE_POLICIES, 0, asked.v.arena, &after, &ignored))
            is_valid =
                lh_violations_add(&asked.violations, "page_token", "must be the next_page_token of the page before");
        if (lh_asked_check(&asked, is_valid) && lh_permit_enter(call, &who)) {
            begin_list(call, &who, page_size, after);
            lh_access_leave(&who);
        }
    }
    lh_asked_end(&asked);
}
