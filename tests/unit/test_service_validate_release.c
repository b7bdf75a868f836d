/* The fields of Release at their limits and one beyond; results as JSON. */
#include "test_service_validate.h"

static const struct {
    const char *json;
    bool is_taken;
} json_cases[] = {
    {"{}", true},
    {" {\"a\": [1, 2.5e3, null, true]} ", true},
    {"null", true},
    {"\"text\"", true},
    {"12345678901234567890123456789012345678901234567890", true},
    {"1e400", true}, /* beyond a double, within numeric */
    {"\"\\ud83d\\ude00\"", true},
    {"{\"a\":1,\"a\":2}", true},
    {"[1e5000, 2]", true},
    {"{", false},
    {"{} {}", false},
    {"{a:1}", false},
    {"{'a':1}", false},
    {"[1,]", false},
    {"01", false},
    {"NaN", false},
    {"\"a\\u0000b\"", false},
    {"{\"\\u0000\":1}", false},
    {"\"\\ud83d\"", false},
    {"\"tab\there\"", false},
    {"plain words", false},
    {" ", false},
};

START_TEST(result_is_json_that_postgresql_takes)
{
    Leasehold__V1__ReleaseItem request;
    struct lh_holder_item item = {0};
    bool is_valid;

    leasehold__v1__release_item__init(&request);
    request.lease = new_lease_ref("invoice-42", LEASE_KEY);
    request.result_case = LEASEHOLD__V1__RELEASE_ITEM__RESULT_SUCCESS;
    request.success = (char *)json_cases[_i].json;
    is_valid = lh_validate_release_item(validator(), &request, "items[3]", &item);
    expect_violation(json_cases[_i].json, is_valid, json_cases[_i].is_taken ? NULL : "items[3].success");
    if (is_valid)
        ck_assert_str_eq(item.value, json_cases[_i].json);
}
END_TEST

START_TEST(results_and_errors_have_8_kib)
{
    Leasehold__V1__ReleaseItem request;
    struct lh_holder_item item = {0};

    leasehold__v1__release_item__init(&request);
    request.lease = new_lease_ref("invoice-42", LEASE_KEY);
    request.result_case = LEASEHOLD__V1__RELEASE_ITEM__RESULT_FAILURE;
    request.failure = repeated("e", 8192);
    expect_violation("8192", lh_validate_release_item(validator(), &request, "items[0]", &item), NULL);
    ck_assert(item.is_failure);
    request.failure = repeated("e", 8193);
    expect_violation("8193", lh_validate_release_item(validator(), &request, "items[0]", &item), "items[0].failure");
    request.result_case = LEASEHOLD__V1__RELEASE_ITEM__RESULT_SUCCESS;
    request.success = repeated("1", 8192);
    expect_violation("8192", lh_validate_release_item(validator(), &request, "items[0]", &item), NULL);
    ck_assert(!item.is_failure);
    request.success = repeated("1", 8193);
    expect_violation("8193", lh_validate_release_item(validator(), &request, "items[0]", &item), "items[0].success");
    request.success = (char *)"";
    expect_violation("empty", lh_validate_release_item(validator(), &request, "items[0]", &item), NULL);
    ck_assert_ptr_null(item.value);
    request.result_case = LEASEHOLD__V1__RELEASE_ITEM__RESULT__NOT_SET;
    expect_violation("none", lh_validate_release_item(validator(), &request, "items[0]", &item), NULL);
    ck_assert_ptr_null(item.value);
}
END_TEST
START_TEST(lease_ref_names_what_is_missing)
{
    Leasehold__V1__LeaseRef *ref = new_lease_ref("k", LEASE_KEY);
    struct lh_uuid lease_key;
    const char *ns, *key;

    expect_violation("whole", lh_validate_lease_ref(validator(), ref, "leases[7]", &ns, &key, &lease_key), NULL);
    expect_violation("null", lh_validate_lease_ref(validator(), NULL, "leases[7]", &ns, &key, &lease_key), "leases[7]");
    ref->lease_key = (char *)"";
    expect_violation("no lease key", lh_validate_lease_ref(validator(), ref, "leases[7]", &ns, &key, &lease_key),
                     "leases[7].lease_key");
    ref->scope = NULL;
    expect_violation("no scope", lh_validate_lease_ref(validator(), ref, "leases[7]", &ns, &key, &lease_key),
                     "leases[7].scope");
}
END_TEST

TCase *tcase_validate_release(void)
{
    TCase *tcase = tcase_create("validate release");

    tcase_add_checked_fixture(tcase, NULL, test_arena_reset);
    tcase_add_loop_test(tcase, result_is_json_that_postgresql_takes, 0, sizeof(json_cases) / sizeof(json_cases[0]));
    tcase_add_test(tcase, results_and_errors_have_8_kib);
    tcase_add_test(tcase, lease_ref_names_what_is_missing);
    return tcase;
}
