/* The fields of lists and of administration at their limits and one beyond; policies and update masks. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "service/policy.h"
#include "test_service_validate.h"

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

START_TEST(set_policy_without_a_mask_sets_what_is_present)
{
    Leasehold__V1__SetPolicyRequest *request = new_set_policy();
    Google__Protobuf__Int64Value leases = GOOGLE__PROTOBUF__INT64_VALUE__INIT;
    Google__Protobuf__BoolValue frozen = GOOGLE__PROTOBUF__BOOL_VALUE__INIT;
    struct lh_policy result;
    uint32_t fields;

    expect_violation("nothing", lh_policy_from_request(validator(), request, &result, &fields), "update_mask");
    leases.value = 7;
    policy.max_leases = &leases;
    policy.frozen = &frozen;
    policy.grace = new_duration(0, 0);
    policy.expiry = LEASEHOLD__V1__POLICY__EXPIRY__EXPIRY_MANUAL;
    policy.reaper = LEASEHOLD__V1__POLICY__REAPER__REAPER_EXTERNAL;
    expect_violation("some", lh_policy_from_request(validator(), request, &result, &fields), NULL);
    ck_assert_uint_eq(fields, 1u << LH_POLICY_MAX_LEASES | 1u << LH_POLICY_FROZEN | 1u << LH_POLICY_GRACE |
                                  1u << LH_POLICY_EXPIRY | 1u << LH_POLICY_REAPER);
    ck_assert_uint_eq(result.set, fields);
    ck_assert_str_eq(result.ns, "");
    ck_assert_int_eq(result.values[LH_POLICY_MAX_LEASES].number, 7);
    ck_assert_int_eq(result.values[LH_POLICY_FROZEN].number, 0);
    ck_assert_str_eq(result.values[LH_POLICY_EXPIRY].text, "manual");
    ck_assert_str_eq(result.values[LH_POLICY_REAPER].text, "external");
}
END_TEST

START_TEST(masked_but_absent_is_inherited_again)
{
    Leasehold__V1__SetPolicyRequest *request = new_set_policy();
    struct lh_policy result;
    uint32_t fields;

    request->update_mask = &mask;
    mask.n_paths = 2;
    paths[0] = (char *)"grace";
    paths[1] = (char *)"max_hold";
    policy.max_hold = new_duration(60, 0);
    policy.min_duration = new_duration(-1, 0); /* not masked: not looked at */
    expect_violation("two", lh_policy_from_request(validator(), request, &result, &fields), NULL);
    ck_assert_uint_eq(fields, 1u << LH_POLICY_GRACE | 1u << LH_POLICY_MAX_HOLD);
    ck_assert_uint_eq(result.set, 1u << LH_POLICY_MAX_HOLD);
    ck_assert_int_eq(result.values[LH_POLICY_MAX_HOLD].number, 60 * LH_US_PER_S);
    paths[1] = (char *)"*";
    policy.min_duration = NULL;
    expect_violation("all", lh_policy_from_request(validator(), request, &result, &fields), NULL);
    ck_assert_uint_eq(fields, (1u << LH_POLICY_FIELD_COUNT) - 1);
    paths[1] = (char *)"namespace";
    expect_violation("namespace", lh_policy_from_request(validator(), request, &result, &fields), "update_mask");
    paths[1] = (char *)"no_such";
    expect_violation("no_such", lh_policy_from_request(validator(), request, &result, &fields), "update_mask");
}
END_TEST

static const struct {
    enum lh_policy_field field;
    int64_t least_us;
} policy_durations[] = {
    {LH_POLICY_MIN_DURATION, 100000}, {LH_POLICY_MAX_DURATION, 100000}, {LH_POLICY_GRACE, 0},
    {LH_POLICY_MAX_HOLD, 1},          {LH_POLICY_DEAD_AFTER, 1},        {LH_POLICY_HOOK_TIMEOUT, 1000},
    {LH_POLICY_FREE_RETENTION, 0},    {LH_POLICY_HISTORY_RETENTION, 0}, {LH_POLICY_AT_LEAST, 0},
};

START_TEST(policy_durations_have_these_bounds)
{
    enum lh_policy_field field = policy_durations[_i].field;
    int64_t least_us = policy_durations[_i].least_us;
    Leasehold__V1__SetPolicyRequest *request = new_set_policy();
    Google__Protobuf__Duration **durations[LH_POLICY_FIELD_COUNT] = {
        [LH_POLICY_MIN_DURATION] = &policy.min_duration,
        [LH_POLICY_MAX_DURATION] = &policy.max_duration,
        [LH_POLICY_GRACE] = &policy.grace,
        [LH_POLICY_MAX_HOLD] = &policy.max_hold,
        [LH_POLICY_DEAD_AFTER] = &policy.dead_after,
        [LH_POLICY_HOOK_TIMEOUT] = &policy.hook_timeout,
        [LH_POLICY_FREE_RETENTION] = &policy.free_retention,
        [LH_POLICY_HISTORY_RETENTION] = &policy.history_retention,
        [LH_POLICY_AT_LEAST] = &policy.at_least,
    };
    struct lh_policy result;
    uint32_t fields;
    char path[64];

    snprintf(path, sizeof(path), "policy.%s", lh_policy_field_name(field));
    *durations[field] = new_duration(0, (int32_t)(least_us * 1000));
    expect_violation(path, lh_policy_from_request(validator(), request, &result, &fields), NULL);
    ck_assert_int_eq(result.values[field].number, least_us);
    *durations[field] = new_duration(0, (int32_t)(least_us * 1000) - 1);
    expect_violation(path, lh_policy_from_request(validator(), request, &result, &fields), path);
}
END_TEST

START_TEST(policy_at_least_is_a_day_at_most)
{
    Leasehold__V1__SetPolicyRequest *request = new_set_policy();
    struct lh_policy result;
    uint32_t fields;

    policy.at_least = new_duration(86400, 0);
    expect_violation("a day", lh_policy_from_request(validator(), request, &result, &fields), NULL);
    policy.at_least = new_duration(86400, 1000);
    expect_violation("more", lh_policy_from_request(validator(), request, &result, &fields), "policy.at_least");
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
    struct lh_policy result;
    uint32_t fields;

    policy.capacity = &capacity;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        capacity.value = cases[i].value;
        expect_violation("capacity", lh_policy_from_request(validator(), request, &result, &fields), cases[i].field);
    }
}
END_TEST

START_TEST(policy_counts_have_these_bounds)
{
    Leasehold__V1__SetPolicyRequest *request = new_set_policy();
    Google__Protobuf__Int64Value count = GOOGLE__PROTOBUF__INT64_VALUE__INIT;
    Google__Protobuf__Int32Value failures = GOOGLE__PROTOBUF__INT32_VALUE__INIT;
    struct lh_policy result;
    uint32_t fields;

    policy.max_waiters = &count;
    expect_violation("0", lh_policy_from_request(validator(), request, &result, &fields), NULL);
    count.value = -1;
    expect_violation("-1", lh_policy_from_request(validator(), request, &result, &fields), "policy.max_waiters");
    count.value = 1;
    policy.max_reap_failures = &failures;
    expect_violation("0 failures", lh_policy_from_request(validator(), request, &result, &fields),
                     "policy.max_reap_failures");
    failures.value = 1;
    policy.min_duration = new_duration(10, 0);
    policy.max_duration = new_duration(9, 0);
    expect_violation("max below min", lh_policy_from_request(validator(), request, &result, &fields),
                     "policy.max_duration");
    policy.max_duration = new_duration(10, 0);
    expect_violation("max is min", lh_policy_from_request(validator(), request, &result, &fields), NULL);
    request->policy = NULL;
    expect_violation("no policy", lh_policy_from_request(validator(), request, &result, &fields), "policy");
}
END_TEST

START_TEST(policy_goes_out_as_it_is_set)
{
    struct lh_policy known = {.ns = "payments.invoices"};
    Leasehold__V1__GetPolicyResponse__SourceEntry **sources;
    Leasehold__V1__Policy *message;

    known.set = 1u << LH_POLICY_GRACE | 1u << LH_POLICY_EXPIRY | 1u << LH_POLICY_HISTORY | 1u << LH_POLICY_MAX_LEASES |
                1u << LH_POLICY_MAX_REAP_FAILURES;
    known.values[LH_POLICY_GRACE].number = 1500000;
    known.values[LH_POLICY_EXPIRY].text = "reap";
    known.values[LH_POLICY_HISTORY].number = 1;
    known.values[LH_POLICY_MAX_LEASES].number = INT64_C(5000000000);
    known.values[LH_POLICY_MAX_REAP_FAILURES].number = 20;
    known.sources[LH_POLICY_GRACE] = "payments";
    known.sources[LH_POLICY_EXPIRY] = "";
    message = lh_policy_to_message(&known, &test_arena);
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
    ck_assert_uint_eq(lh_policy_sources(&known, &test_arena, &sources), 2);
    ck_assert_str_eq(sources[0]->key, "grace");
    ck_assert_str_eq(sources[0]->value, "payments");
    ck_assert_str_eq(sources[1]->value, "");
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
