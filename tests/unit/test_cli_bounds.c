#include "test_cli.h"

#include <stdlib.h>
#include <string.h>

#include "base/bounds.h"
#include "base/clock.h"
#include "base/memory.h"
#include "cli/admin/admin_internal.h"
#include "cli/arguments.h"

/* `count` times `text`, in a buffer that the next call overwrites. */
static const char *times(size_t count, const char *text)
{
    static char buffer[20000];

    buffer[0] = '\0';
    for (size_t i = 0; i < count; i++)
        strcat(buffer, text);
    return buffer;
}

START_TEST(the_root_is_a_namespace_only_where_it_may_be)
{
    struct lh_error error = {0};
    struct lh_arena arena = {0};
    const Leasehold__V1__Namespace *ns;

    ck_assert_int_eq(lh_check_namespace_or_root("", &error), LH_OK);
    ck_assert_int_eq(lh_check_namespace_or_root(".", &error), LH_OK);
    ck_assert_int_eq(lh_check_namespace_or_root("..", &error), LH_INVALID_ARGUMENT);
    ck_assert_uint_eq(lh_take_namespace(".", &arena)->n_segments, 0);
    ns = lh_take_namespace("a.bc.d", &arena);
    ck_assert_uint_eq(ns->n_segments, 3);
    ck_assert_str_eq(ns->segments[1], "bc");
    lh_arena_finish(&arena);
}
END_TEST

START_TEST(durations_and_numbers_have_bounds)
{
    struct lh_error error = {0};
    int64_t value;

    ck_assert_int_eq(lh_check_duration("duration", "1m30s", LH_DURATION_MIN_US, &value, &error), LH_OK);
    ck_assert_int_eq(value, 90 * LH_US_PER_S);
    ck_assert_int_eq(lh_check_duration("duration", "100ms", LH_DURATION_MIN_US, &value, &error), LH_OK);
    ck_assert_int_eq(lh_check_duration("duration", "99ms", LH_DURATION_MIN_US, &value, &error), LH_INVALID_ARGUMENT);
    ck_assert_str_eq(error.message, "duration must be at least 100 ms, is 99 ms");
    ck_assert_int_eq(lh_check_duration("duration", "-1s", 0, &value, &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_check_duration("duration", "soon", 0, &value, &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_check_duration("duration", "", 0, &value, &error), LH_INVALID_ARGUMENT);

    ck_assert_int_eq(lh_check_number("max", "10", 1, 10, &value, &error), LH_OK);
    ck_assert_int_eq(value, 10);
    ck_assert_int_eq(lh_check_number("max", "11", 1, 10, &value, &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_check_number("max", "0", 1, 10, &value, &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_check_number("max", "1x", 1, 10, &value, &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_check_number("max", "", 1, 10, &value, &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_check_number("token", "99999999999999999999", 1, INT64_MAX, &value, &error),
                     LH_INVALID_ARGUMENT);
}
END_TEST

START_TEST(results_have_bounds)
{
    struct lh_error error = {0};

    ck_assert_int_eq(lh_check_result("{\"rows\": 12}", &error), LH_OK);
    ck_assert_int_eq(lh_check_result("null", &error), LH_OK);
    ck_assert_int_eq(lh_check_result("\"text\"", &error), LH_OK);
    ck_assert_int_eq(lh_check_result("123456789012345678901234567890", &error), LH_OK);
    ck_assert_int_eq(lh_check_result("text", &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_check_result("{\"a\": }", &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_check_result("\"\\u0000\"", &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_check_result("", &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_check_result(times(8193, "1"), &error), LH_INVALID_ARGUMENT);
    ck_assert_str_eq(error.field, "result");
}
END_TEST

/* --- the settings of policies --- */

static const struct {
    const char *name;
    const char *value;
    const char *text;
    const char *sql;
} settings[] = {
    {"grace", "1500ms", "1.5 s", "1500000"},
    {"max_duration", "1h", "60 min 0 s", "3600000000"},
    {"expiry", "manual", "manual", "manual"},
    {"reaper", "external", "external", "external"},
    {"frozen", "yes", "true", "true"},
    {"history", "off", "false", "false"},
    {"max_leases", "0", "0", "0"},
    {"max_reap_failures", "7", "7", "7"},
};

START_TEST(settings_go_from_words_to_messages_and_back)
{
    Leasehold__V1__Policy policy = LEASEHOLD__V1__POLICY__INIT;
    struct lh_arena arena = {0};
    struct lh_error error = {0};
    const ProtobufCFieldDescriptor *field = lh_policy_field(settings[_i].name, &error);
    char *text;

    ck_assert_ptr_nonnull(field);
    ck_assert(!lh_policy_has(&policy, field));
    ck_assert_ptr_null(lh_policy_text(&policy, field));
    ck_assert_ptr_null(lh_policy_value(&policy, field, &arena));
    ck_assert_int_eq(lh_policy_parse(&arena, &policy, field, settings[_i].value, &error), LH_OK);
    ck_assert(lh_policy_has(&policy, field));
    text = lh_policy_text(&policy, field);
    ck_assert_str_eq(text, settings[_i].text);
    free(text);
    ck_assert_str_eq(lh_policy_value(&policy, field, &arena), settings[_i].sql);
    lh_arena_finish(&arena);
}
END_TEST

static const char *const bad_settings[][2] = {
    {"grace", "long"}, {"grace", "-1s"},       {"expiry", "never"},  {"expiry", "unspecified"},
    {"frozen", "ice"}, {"max_leases", "many"}, {"max_leases", "-1"}, {"max_reap_failures", "99999999999"},
};

START_TEST(bad_settings_are_refused)
{
    Leasehold__V1__Policy policy = LEASEHOLD__V1__POLICY__INIT;
    struct lh_arena arena = {0};
    struct lh_error error = {0};
    const ProtobufCFieldDescriptor *field = lh_policy_field(bad_settings[_i][0], &error);

    ck_assert_int_eq(lh_policy_parse(&arena, &policy, field, bad_settings[_i][1], &error), LH_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(error.message, bad_settings[_i][0]));
    ck_assert(!lh_policy_has(&policy, field));
    lh_arena_finish(&arena);
}
END_TEST

START_TEST(an_unknown_setting_names_its_neighbour)
{
    struct lh_error error = {0};

    ck_assert_ptr_null(lh_policy_field("grase", &error));
    ck_assert_str_eq(error.message, "a policy has no setting 'grase'; did you mean grace?");
    ck_assert_ptr_null(lh_policy_field("namespace", &error));
}
END_TEST

TCase *test_cli_bounds(void)
{
    TCase *tests = tcase_create("bounds");
    tcase_add_test(tests, the_root_is_a_namespace_only_where_it_may_be);
    tcase_add_test(tests, durations_and_numbers_have_bounds);
    tcase_add_test(tests, results_have_bounds);
    tcase_add_loop_test(tests, settings_go_from_words_to_messages_and_back, 0, sizeof(settings) / sizeof(settings[0]));
    tcase_add_loop_test(tests, bad_settings_are_refused, 0, sizeof(bad_settings) / sizeof(bad_settings[0]));
    tcase_add_test(tests, an_unknown_setting_names_its_neighbour);
    return tests;
}
