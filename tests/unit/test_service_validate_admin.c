/* The fields of lists and of administration at their limits and one beyond; policies and update masks. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "service/call_internal.h"
#include "test_service_validate.h"
#include "json/policy_setting.h"

START_TEST(list_has_these_bounds)
{
    Leasehold__V1__ListLeasesRequest request;
    struct lh_list_request list = {0};

    leasehold__v1__list_leases_request__init(&request);
    expect_violation("empty", lh_validate_list(validator(), &request, &list), NULL);
    ck_assert_int_eq(list.page_size, 100);
    ck_assert_str_eq(list.ns, "");
    request.page_size = 1000;
    expect_violation("1000", lh_validate_list(validator(), &request, &list), NULL);
    request.page_size = 1001;
    expect_violation("1001", lh_validate_list(validator(), &request, &list), "page_size");
    request.page_size = -1;
    expect_violation("-1", lh_validate_list(validator(), &request, &list), "page_size");
    request.page_size = 1;
    request.owner = repeated("o", 256);
    expect_violation("owner", lh_validate_list(validator(), &request, &list), "owner");
    request.owner = (char *)"";
    request.n_namespace_ = 1;
    request.namespace_ = (char *[]){(char *)"a.b"};
    expect_violation("dotted", lh_validate_list(validator(), &request, &list), "namespace[0]");
}
END_TEST

START_TEST(reap_has_these_bounds)
{
    Leasehold__V1__ReapRequest request;
    Leasehold__V1__Namespace empty, *many[LH_REAP_NAMESPACES_MAX + 1];
    struct lh_reap_arguments arguments;

    leasehold__v1__reap_request__init(&request);
    leasehold__v1__namespace__init(&empty);
    for (size_t i = 0; i <= LH_REAP_NAMESPACES_MAX; i++)
        many[i] = &empty;
    expect_violation("none", lh_validate_reap(validator(), &request, &arguments), NULL);
    ck_assert_int_eq(arguments.max, 1000);
    ck_assert_uint_eq(arguments.namespace_count, 0);
    request.max = 10000;
    expect_violation("10000", lh_validate_reap(validator(), &request, &arguments), NULL);
    request.max = 10001;
    expect_violation("10001", lh_validate_reap(validator(), &request, &arguments), "max");
    request.max = -1;
    expect_violation("-1", lh_validate_reap(validator(), &request, &arguments), "max");
    request.max = 1;
    request.namespaces = many;
    request.n_namespaces = 1;
    expect_violation("no segments", lh_validate_reap(validator(), &request, &arguments), "namespaces[0].segments");
    empty.n_segments = 1;
    empty.segments = (char *[]){(char *)"payments"};
    request.n_namespaces = LH_REAP_NAMESPACES_MAX;
    expect_violation("many", lh_validate_reap(validator(), &request, &arguments), NULL);
    ck_assert_str_eq(arguments.namespaces[LH_REAP_NAMESPACES_MAX - 1], "payments");
    request.n_namespaces++;
    expect_violation("too many", lh_validate_reap(validator(), &request, &arguments), "namespaces");
    ck_assert_ptr_null(arguments.key);
    request.key = (char *)"k";
    request.n_namespaces = 2;
    expect_violation("a key of two", lh_validate_reap(validator(), &request, &arguments), "key");
    request.n_namespaces = 0;
    expect_violation("a key of all", lh_validate_reap(validator(), &request, &arguments), "key");
    request.n_namespaces = 1;
    expect_violation("a key", lh_validate_reap(validator(), &request, &arguments), NULL);
    ck_assert_str_eq(arguments.key, "k");
    request.include_children = true;
    expect_violation("a key of children", lh_validate_reap(validator(), &request, &arguments), "key");
    request.include_children = false;
    request.key = (char *)"a\nb";
    expect_violation("no key", lh_validate_reap(validator(), &request, &arguments), "key");
}
END_TEST

START_TEST(force_release_needs_a_reason)
{
    Leasehold__V1__ForceReleaseRequest request;

    leasehold__v1__force_release_request__init(&request);
    expect_violation("none", lh_validate_force(validator(), &request), "reason");
    request.reason = (char *)" \n";
    expect_violation("blank", lh_validate_force(validator(), &request), "reason");
    request.reason = repeated("r", 8192);
    expect_violation("8192", lh_validate_force(validator(), &request), NULL);
    request.reason = repeated("r", 8193);
    expect_violation("8193", lh_validate_force(validator(), &request), "reason");
    request.reason = (char *)"host is gone";
    request.token = -1;
    expect_violation("token", lh_validate_force(validator(), &request), "token");
}
END_TEST

/* --- policies --- */

static Leasehold__V1__Policy policy;
static Google__Protobuf__FieldMask mask;
static char *paths[4];

static Leasehold__V1__SetPolicyRequest *new_set_policy(void)
{
    static Leasehold__V1__SetPolicyRequest request;
    leasehold__v1__set_policy_request__init(&request);
    leasehold__v1__policy__init(&policy);
    google__protobuf__field_mask__init(&mask);
    mask.paths = paths;
    request.policy = &policy;
    return &request;
}

/* Of a setting that is to be changed. */
static const char *value_of(const struct lh_policy_change *change, const char *name)
{
    for (size_t i = 0; i < change->count; i++)
        if (strcmp(change->names[i], name) == 0)
            return change->values[i];
    ck_abort_msg("%s stays as it is", name);
}

START_TEST(set_policy_without_a_mask_sets_what_is_present)
{
    Leasehold__V1__SetPolicyRequest *request = new_set_policy();
    Google__Protobuf__Int64Value leases = GOOGLE__PROTOBUF__INT64_VALUE__INIT;
    Google__Protobuf__BoolValue frozen = GOOGLE__PROTOBUF__BOOL_VALUE__INIT;
    struct lh_policy_change result;

    expect_violation("nothing", lh_policy_from_request(validator(), request, &result), "update_mask");
    leases.value = 7;
    policy.max_leases = &leases;
    policy.frozen = &frozen;
    policy.grace = new_duration(0, 0);
    policy.expiry = LEASEHOLD__V1__POLICY__EXPIRY__EXPIRY_MANUAL;
    policy.reaper = LEASEHOLD__V1__POLICY__REAPER__REAPER_EXTERNAL;
    expect_violation("some", lh_policy_from_request(validator(), request, &result), NULL);
    ck_assert_uint_eq(result.count, 5);
    ck_assert_str_eq(result.ns, "");
    ck_assert_str_eq(value_of(&result, "max_leases"), "7");
    ck_assert_str_eq(value_of(&result, "frozen"), "false");
    ck_assert_str_eq(value_of(&result, "grace"), "0");
    ck_assert_str_eq(value_of(&result, "expiry"), "manual");
    ck_assert_str_eq(value_of(&result, "reaper"), "external");
}
END_TEST

START_TEST(masked_but_absent_is_inherited_again)
{
    Leasehold__V1__SetPolicyRequest *request = new_set_policy();
    struct lh_policy_change result;

    request->update_mask = &mask;
    mask.n_paths = 2;
    paths[0] = (char *)"grace";
    paths[1] = (char *)"max_hold";
    policy.max_hold = new_duration(60, 0);
    policy.min_duration = new_duration(-1, 0); /* not masked: not looked at */
    expect_violation("two", lh_policy_from_request(validator(), request, &result), NULL);
    ck_assert_uint_eq(result.count, 2);
    ck_assert_ptr_null(value_of(&result, "grace"));
    ck_assert_str_eq(value_of(&result, "max_hold"), "60000000");
    paths[1] = (char *)"*";
    policy.min_duration = NULL;
    expect_violation("all", lh_policy_from_request(validator(), request, &result), NULL);
    ck_assert_uint_eq(result.count, leasehold__v1__policy__descriptor.n_fields - 1); /* all but the namespace */
    paths[1] = (char *)"namespace";
    expect_violation("namespace", lh_policy_from_request(validator(), request, &result), "update_mask");
    paths[1] = (char *)"no_such";
    expect_violation("no_such", lh_policy_from_request(validator(), request, &result), "update_mask");
}
END_TEST

static const struct {
    const char *name;
    int64_t least_us;
} policy_durations[] = {
    {"min_duration", 100000}, {"max_duration", 100000}, {"grace", 0},
    {"max_hold", 1},          {"dead_after", 1},        {"hook_timeout", 1000},
    {"free_retention", 0},    {"history_retention", 0}, {"at_least", 0},
};

START_TEST(policy_durations_have_these_bounds)
{
    const ProtobufCFieldDescriptor *setting = lh_policy_setting(policy_durations[_i].name);
    int64_t least_us = policy_durations[_i].least_us;
    Leasehold__V1__SetPolicyRequest *request = new_set_policy();
    Google__Protobuf__Duration **duration = (void *)((char *)&policy + setting->offset);
    struct lh_policy_change result;
    char path[64], text[24];

    snprintf(path, sizeof(path), "policy.%s", setting->name);
    snprintf(text, sizeof(text), "%lld", (long long)least_us);
    *duration = new_duration(0, (int32_t)(least_us * 1000));
    expect_violation(path, lh_policy_from_request(validator(), request, &result), NULL);
    ck_assert_str_eq(value_of(&result, setting->name), text);
    *duration = new_duration(0, (int32_t)(least_us * 1000) - 1);
    expect_violation(path, lh_policy_from_request(validator(), request, &result), path);
}
END_TEST

START_TEST(policy_at_least_is_a_day_at_most)
{
    Leasehold__V1__SetPolicyRequest *request = new_set_policy();
    struct lh_policy_change result;

    policy.at_least = new_duration(86400, 0);
    expect_violation("a day", lh_policy_from_request(validator(), request, &result), NULL);
    policy.at_least = new_duration(86400, 1000);
    expect_violation("more", lh_policy_from_request(validator(), request, &result), "policy.at_least");
}
END_TEST

START_TEST(policy_capacity_is_1_to_a_million)
{
    static const struct {
        int32_t value;
        const char *field;
    } cases[] = {{0, "policy.capacity"}, {1, NULL}, {1000000, NULL}, {1000001, "policy.capacity"}};
    Leasehold__V1__SetPolicyRequest *request = new_set_policy();
    Google__Protobuf__Int32Value capacity = GOOGLE__PROTOBUF__INT32_VALUE__INIT;
    struct lh_policy_change result;

    policy.capacity = &capacity;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        capacity.value = cases[i].value;
        expect_violation("capacity", lh_policy_from_request(validator(), request, &result), cases[i].field);
    }
}
END_TEST

START_TEST(policy_counts_have_these_bounds)
{
    Leasehold__V1__SetPolicyRequest *request = new_set_policy();
    Google__Protobuf__Int64Value count = GOOGLE__PROTOBUF__INT64_VALUE__INIT;
    Google__Protobuf__Int32Value failures = GOOGLE__PROTOBUF__INT32_VALUE__INIT;
    struct lh_policy_change result;

    policy.max_waiters = &count;
    expect_violation("0", lh_policy_from_request(validator(), request, &result), NULL);
    count.value = -1;
    expect_violation("-1", lh_policy_from_request(validator(), request, &result), "policy.max_waiters");
    count.value = 1;
    policy.max_reap_failures = &failures;
    expect_violation("0 failures", lh_policy_from_request(validator(), request, &result), "policy.max_reap_failures");
    failures.value = 1;
    policy.min_duration = new_duration(10, 0);
    policy.max_duration = new_duration(9, 0);
    expect_violation("max below min", lh_policy_from_request(validator(), request, &result), "policy.max_duration");
    policy.max_duration = new_duration(10, 0);
    expect_violation("max is min", lh_policy_from_request(validator(), request, &result), NULL);
    request->policy = NULL;
    expect_violation("no policy", lh_policy_from_request(validator(), request, &result), "policy");
}
END_TEST

START_TEST(policy_goes_out_as_it_is_set)
{
    static const char *const columns[] = {"namespace",  "grace_us",          "expiry", "history",
                                          "max_leases", "max_reap_failures", "frozen", "source_lines"};
    static const char *const cells[] = {
        "payments.invoices", NULL,      NULL,   NULL,   NULL,         NULL, NULL, NULL, /* its own */
        "payments.invoices", "1500000", "reap", "true", "5000000000", "20", NULL, "payments\n\n\n\n\n"};
    struct lh_rows rows = {.columns = columns, .column_count = 8, .cells = cells, .row_count = 2};
    Leasehold__V1__GetPolicyResponse answer;
    const Leasehold__V1__Policy *message;

    lh_policy_from_rows(&answer, &rows, &test_arena);
    message = answer.effective;
    ck_assert_ptr_null(answer.own->grace);
    ck_assert_uint_eq(message->namespace_->n_segments, 2);
    ck_assert_str_eq(message->namespace_->segments[1], "invoices");
    ck_assert_int_eq(message->grace->seconds, 1);
    ck_assert_int_eq(message->grace->nanos, 500000000);
    ck_assert_int_eq(message->expiry, LEASEHOLD__V1__POLICY__EXPIRY__EXPIRY_REAP);
    ck_assert_int_eq(message->reaper, LEASEHOLD__V1__POLICY__REAPER__REAPER_UNSPECIFIED);
    ck_assert(message->history->value);
    ck_assert_int_eq(message->max_leases->value, INT64_C(5000000000));
    ck_assert_int_eq(message->max_reap_failures->value, 20);
    ck_assert_ptr_null(message->frozen);
    ck_assert_ptr_null(message->max_hold);
    ck_assert_uint_eq(answer.n_source, 6);
    ck_assert_str_eq(answer.source[0]->key, "grace");
    ck_assert_str_eq(answer.source[0]->value, "payments");
    ck_assert_str_eq(answer.source[1]->key, "expiry");
    ck_assert_str_eq(answer.source[1]->value, "");
}
END_TEST

TCase *tcase_validate_admin(void)
{
    TCase *tcase = tcase_create("validate admin");

    tcase_add_checked_fixture(tcase, NULL, test_arena_reset);
    tcase_add_test(tcase, list_has_these_bounds);
    tcase_add_test(tcase, reap_has_these_bounds);
    tcase_add_test(tcase, force_release_needs_a_reason);
    tcase_add_test(tcase, set_policy_without_a_mask_sets_what_is_present);
    tcase_add_test(tcase, masked_but_absent_is_inherited_again);
    tcase_add_loop_test(tcase, policy_durations_have_these_bounds, 0,
                        sizeof(policy_durations) / sizeof(policy_durations[0]));
    tcase_add_test(tcase, policy_at_least_is_a_day_at_most);
    tcase_add_test(tcase, policy_capacity_is_1_to_a_million);
    tcase_add_test(tcase, policy_counts_have_these_bounds);
    tcase_add_test(tcase, policy_goes_out_as_it_is_set);
    return tcase;
}
