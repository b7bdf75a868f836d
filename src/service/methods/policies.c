/* AdminService: SetPolicy, GetPolicy, ListPolicies. */
#include "service/call_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "service/words_internal.h"
#include "json/policy_setting.h"

/* --- SetPolicy --- */

/* The bounds that are not those of every setting: 0 or more, durations of at most 100 years. */
static const struct bounds {
    const char *name;
    int64_t least; /* in microseconds for durations, as `most` */
    int64_t most;
} bounds[] = {
    {"min_duration", LH_DURATION_MIN_US, LH_DURATION_MAX_US},
    {"max_duration", LH_DURATION_MIN_US, LH_DURATION_MAX_US},
    {"max_hold", 1, LH_DURATION_MAX_US},
    {"dead_after", 1, LH_DURATION_MAX_US},
    {"hook_timeout", 1000, LH_DURATION_MAX_US},
    {"at_least", 0, LH_AT_LEAST_MAX_US},
    {"max_reap_failures", 1, INT64_MAX},
    {"capacity", 1, LH_UNITS_MAX},
    {"max_priority", 0, LH_PRIORITY_MAX},
    {"ageing", 1000, LH_AT_LEAST_MAX_US},
};

static struct bounds bounds_of(const ProtobufCFieldDescriptor *setting)
{
    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++)
        if (strcmp(bounds[i].name, setting->name) == 0)
            return bounds[i];
    return (struct bounds){.most =
                               lh_policy_setting_kind(setting) == LH_SETTING_DURATION ? LH_DURATION_MAX_US : INT64_MAX};
}

static bool check_setting(struct lh_validator *v, const Leasehold__V1__Policy *policy,
                          const ProtobufCFieldDescriptor *setting)
{
    struct bounds bound = bounds_of(setting);
    char path[LH_VIOLATION_FIELD_BYTES];
    int64_t number;

    snprintf(path, sizeof(path), "policy.%s", setting->name);
    if (lh_policy_setting_kind(setting) == LH_SETTING_DURATION)
        return lh_validate_duration(
            v, *(Google__Protobuf__Duration *const *)(const void *)((const char *)policy + setting->offset),
            bound.least, bound.most, path, &number);
    number = lh_policy_number(policy, setting);
    if (number > bound.most)
        return lh_violations_add(v->violations, path, "must be at most %lld, is %lld", (long long)bound.most,
                                 (long long)number);
    if (number < bound.least)
        return lh_violations_add(v->violations, path, "must be at least %lld, is %lld", (long long)bound.least,
                                 (long long)number);
    return true;
}

/* Which settings are to be changed, a bit for each. */
static bool add_path(struct lh_validator *v, const char *path, const ProtobufCFieldDescriptor *const *settings,
                     size_t count, uint32_t *mask)
{
    bool is_every = strcmp(path, "*") == 0, is_known = is_every;

    for (size_t i = 0; i < count; i++) {
        if (is_every || strcmp(path, settings[i]->name) == 0) {
            *mask |= UINT32_C(1) << i;
            is_known = true;
        }
    }
    return is_known || lh_violations_add(v->violations, "update_mask",
                                         "must name settings of leasehold.v1.Policy; \"%.*s\" is none",
                                         (int)lh_utf8_cut(path, strlen(path), 63), path);
}

static bool read_mask(struct lh_validator *v, const Leasehold__V1__SetPolicyRequest *request,
                      const ProtobufCFieldDescriptor *const *settings, size_t count, uint32_t *mask)
{
    const Google__Protobuf__FieldMask *update = request->update_mask;
    bool is_valid = true;

    *mask = 0;
    for (size_t i = 0; update != NULL && i < update->n_paths; i++)
        is_valid &= add_path(v, update->paths[i], settings, count, mask);
    if (update == NULL || update->n_paths == 0)
        for (size_t i = 0; i < count; i++)
            if (lh_policy_has(request->policy, settings[i]))
                *mask |= UINT32_C(1) << i;
    if (is_valid && *mask == 0)
        is_valid = lh_violations_add(v->violations, "update_mask", "must name a setting, or policy must have one");
    return is_valid;
}

static bool read_settings(struct lh_validator *v, const Leasehold__V1__SetPolicyRequest *request,
                          struct lh_policy_change *change)
{
    const ProtobufCFieldDescriptor *settings[LH_POLICY_SETTINGS_MAX];
    size_t count = lh_policy_settings(settings);
    const char **names = lh_arena_alloc(v->arena, count * sizeof(*names));
    const char **values = lh_arena_alloc(v->arena, count * sizeof(*values));
    const char *least = NULL, *most = NULL;
    char words[LH_BOUND_WORDS_BYTES];
    uint32_t mask;
    bool is_valid = read_mask(v, request, settings, count, &mask);

    *change = (struct lh_policy_change){.ns = change->ns, .names = names, .values = values};
    for (size_t i = 0; i < count; i++) {
        const ProtobufCFieldDescriptor *setting = settings[i];
        if ((mask >> i & 1) == 0)
            continue;
        if (lh_policy_has(request->policy, setting))
            is_valid &= check_setting(v, request->policy, setting);
        names[change->count] = setting->name;
        values[change->count] = lh_policy_value(request->policy, setting, v->arena);
        if (strcmp(setting->name, "min_duration") == 0)
            least = values[change->count];
        if (strcmp(setting->name, "max_duration") == 0)
            most = values[change->count];
        change->count++;
    }
    if (is_valid && least != NULL && most != NULL &&
        !lh_bound_duration(strtoll(most, NULL, 10), strtoll(least, NULL, 10), INT64_MAX, words))
        is_valid =
            lh_violations_add(v->violations, "policy.max_duration", "%s: it must not be below min_duration", words);
    return is_valid;
}

bool lh_policy_from_request(struct lh_validator *v, const Leasehold__V1__SetPolicyRequest *request,
                            struct lh_policy_change *change)
{
    const Leasehold__V1__Namespace *ns;
    bool is_valid;

    change->ns = "";
    if (request->policy == NULL)
        return lh_violations_add(v->violations, "policy", "must be given");
    ns = request->policy->namespace_;
    is_valid = ns == NULL ||
               lh_validate_namespace(v, ns->segments, ns->n_segments, true, "policy.namespace.segments", &change->ns);
    return read_settings(v, request, change) && is_valid;
}

static void on_set(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_rows *rows)
{
    struct lh_store_call *store_call = arg;

    if (lh_store_call_is_answered(store_call, status, error)) {
        struct lh_arena *arena = &store_call->service->scratch;
        Leasehold__V1__SetPolicyResponse response = LEASEHOLD__V1__SET_POLICY_RESPONSE__INIT;

        if (rows->row_count > 0)
            response.effective = lh_row_message(&leasehold__v1__policy__descriptor, rows, rows->row_count - 1, arena);
        lh_store_call_reply(store_call, &response.base);
    }
    lh_store_call_destroy(store_call);
}

void lh_set_policy_on_request(struct lh_asked *asked, const void *request)
{
    struct lh_policy_change change;

    if (lh_asked_check(asked, lh_policy_from_request(&asked->v, request, &change) &&
                                  lh_validate_place(&asked->v, change.ns, false, "policy.namespace.segments")) &&
        lh_permit(asked->call, LH_RIGHT_ADMIN, change.ns)) {
        struct lh_requester by = lh_call_requester(asked->call);
        lh_store_call_administer(
            lh_store_call_create(asked->call, NULL, NULL),
            &(struct lh_admin_request){.verb = LH_ADMIN_SET_POLICY, .by = &by, .ns = change.ns, .change = &change},
            on_set);
    }
}

/* --- GetPolicy --- */

static void on_get(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_rows *rows)
{
    struct lh_store_call *store_call = arg;

    if (lh_store_call_is_answered(store_call, status, error)) {
        Leasehold__V1__GetPolicyResponse response;

        lh_policy_from_rows(&response, rows, &store_call->service->scratch);
        lh_store_call_reply(store_call, &response.base);
    }
    lh_store_call_destroy(store_call);
}

void lh_get_policy_on_request(struct lh_asked *asked, const void *message)
{
    const Leasehold__V1__GetPolicyRequest *request = message;
    const Leasehold__V1__Namespace *of = request->namespace_;
    const char *ns = "";

    if (lh_asked_check(asked, of == NULL || (lh_validate_namespace(&asked->v, of->segments, of->n_segments, true,
                                                                   "namespace.segments", &ns) &&
                                             lh_validate_place(&asked->v, ns, false, "namespace.segments"))) &&
        lh_permit(asked->call, LH_RIGHT_READ, ns))
        lh_store_call_administer(lh_store_call_create(asked->call, ns, NULL),
                                 &(struct lh_admin_request){.verb = LH_ADMIN_GET_POLICY, .ns = ns}, on_get);
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
    Leasehold__V1__ListPoliciesResponse response = LEASEHOLD__V1__LIST_POLICIES_RESPONSE__INIT;

    if (has_more)
        response.next_page_token =
            lh_page_token_make(LH_PAGE_POLICIES, 0, list->last, "", &store_call->service->scratch);
    lh_store_call_append(list->store_call, &list->packed, &response.base);
    lh_rpc_call_reply(store_call->call, list->packed.data, list->packed.size);
    lh_store_call_destroy(store_call);
    free_list(list);
}

/* False: the page is full, and there is more that the caller may read. */
static bool take(struct policy_list *list, const struct lh_rows *rows)
{
    for (size_t i = 0; i < rows->row_count; i++) {
        const char *ns = lh_rows_cell(rows, i, "namespace");
        Leasehold__V1__ListPoliciesResponse response = LEASEHOLD__V1__LIST_POLICIES_RESPONSE__INIT;
        Leasehold__V1__Policy *message;

        if (!lh_access_may(&list->who, LH_RIGHT_READ, ns))
            continue;
        if (list->left == 0)
            return false;
        list->left--;
        snprintf(list->last, sizeof(list->last), "%s", ns);
        message = lh_row_message(&leasehold__v1__policy__descriptor, rows, i, &list->store_call->service->scratch);
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

static void on_list(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_rows *rows)
{
    struct policy_list *list = arg;

    if (!lh_store_call_is_answered(list->store_call, status, error)) {
        lh_store_call_destroy(list->store_call);
        free_list(list);
    } else if (!take(list, rows) || (rows->has_more && list->left == 0 && sees_all(list))) {
        finish(list, true);
    } else if (rows->has_more && rows->stop[0] != NULL) {
        ask(list, rows->stop[0]);
    } else if (rows->has_more && rows->row_count > 0) {
        ask(list, lh_rows_cell(rows, rows->row_count - 1, "namespace"));
    } else {
        finish(list, false);
    }
}

static void ask(struct policy_list *list, const char *after)
{
    struct lh_store_call *store_call = list->store_call;
    struct lh_store *store = store_call->service->store;
    struct lh_list_page page = {LH_LIST_POLICIES, sees_all(list) ? list->left : SCANNED_AT_ONCE, {after, NULL}};
    enum lh_status status = store->ops->list_rows(store, &page, on_list, list);

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

void lh_list_policies_on_request(struct lh_asked *asked, const void *message)
{
    const Leasehold__V1__ListPoliciesRequest *request = message;
    const char *after = NULL, *ignored;
    struct lh_access_caller who;
    int32_t page_size;
    bool is_valid = lh_validate_page_size(&asked->v, request->page_size, "page_size", &page_size);

    if (request->page_token[0] != '\0' &&
        !lh_page_token_parse(request->page_token, LH_PAGE_POLICIES, 0, asked->v.arena, &after, &ignored))
        is_valid =
            lh_violations_add(&asked->violations, "page_token", "must be the next_page_token of the page before");
    if (lh_asked_check(asked, is_valid) && lh_permit_enter(asked->call, &who)) {
        begin_list(asked->call, &who, page_size, after);
        lh_access_leave(&who);
    }
}
