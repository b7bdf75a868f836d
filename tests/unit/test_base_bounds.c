/* The bounds of base/bounds.h: the cases of tests/lib/bounds.json, which tests/sql/test_bounds.sql has too, and those of C alone. */
#include "test_base.h"

#include <jansson.h>
#include <string.h>

#include "base/bounds.h"
#include "base/memory.h"
#include "base/uuid.h"

enum { NAMESPACE = -1, DURATION = -2, AT_LEAST = -3, UNITS = -4 }; /* the others are enum lh_bounded_text */

static const struct {
    const char *name;
    int kind;
} kinds[] = {
    {"namespace", NAMESPACE},
    {"key", LH_TEXT_KEY},
    {"owner", LH_TEXT_OWNER},
    {"label_name", LH_TEXT_LABEL_NAME},
    {"label_value", LH_TEXT_LABEL_VALUE},
    {"reason", LH_TEXT_REASON},
    {"duration", DURATION},
    {"at_least", AT_LEAST},
    {"units", UNITS},
};

static enum lh_status check(const char *name, char *text, struct lh_error *error)
{
    char *segments[LH_NAMESPACE_MAX_SEGMENTS];
    size_t count;

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kinds[i].name, name) != 0)
            continue;
        switch (kinds[i].kind) {
        case NAMESPACE:
            return lh_bounds_namespace(text, segments, &count, error);
        case DURATION:
            return lh_bounds_duration(name, atoll(text), LH_DURATION_MIN_US, LH_DURATION_MAX_US, error);
        case AT_LEAST:
            return lh_bounds_duration(name, atoll(text), 0, LH_AT_LEAST_MAX_US, error);
        case UNITS:
            return lh_bounds_units((int32_t)atoll(text), error);
        default:
            return lh_bounds_text(name, (enum lh_bounded_text)kinds[i].kind, text, error);
        }
    }
    ck_abort_msg("no kind %s", name);
}

START_TEST(values_are_judged_as_the_table_says)
{
    json_t *cases = json_load_file(LEASEHOLD_BOUNDS, 0, NULL), *each;
    size_t i;

    ck_assert_uint_gt(json_array_size(cases), 40);
    json_array_foreach(cases, i, each)
    {
        const char *kind = json_string_value(json_object_get(each, "kind"));
        const char *words = json_string_value(json_object_get(each, "words"));
        const char *value = json_string_value(json_object_get(each, "value"));
        int times = (int)json_integer_value(json_object_get(each, "times"));
        char *text = lh_alloc_zero((size_t)times * strlen(value) + 1, 1);
        struct lh_error error = {0};
        for (int n = 0; n < times; n++)
            strcat(text, value);
        if (words == NULL) {
            ck_assert_msg(check(kind, text, &error) == LH_OK, "%s %s: %s", kind, text, error.message);
        } else {
            ck_assert_msg(check(kind, text, &error) == LH_INVALID_ARGUMENT, "%s %s", kind, text);
            ck_assert_str_eq(error.message, words);
            ck_assert_str_eq(error.field, kind);
            ck_assert_ptr_nonnull(strstr(words, error.bound));
        }
        free(text);
    }
    json_decref(cases);
}
END_TEST

START_TEST(text_that_is_no_utf8_is_refused)
{
    char ns[] = "a.b\xff", *segments[LH_NAMESPACE_MAX_SEGMENTS];
    struct lh_error error = {0};
    size_t count;

    ck_assert_int_eq(lh_bounds_namespace(ns, segments, &count, &error), LH_INVALID_ARGUMENT);
    ck_assert_str_eq(error.message, "segment 2 of namespace must be UTF-8");
    ck_assert_int_eq(lh_bounds_key("\xc3", &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_bounds_key(NULL, &error), LH_INVALID_ARGUMENT);
}
END_TEST

START_TEST(lease_keys_are_uuids)
{
    struct lh_error error = {0};
    struct lh_uuid uuid;

    ck_assert_int_eq(lh_bounds_lease_key("6F2c1f0e-5d0b-4b57-9a35-0c8f6c2e7a11", &uuid, &error), LH_OK);
    ck_assert_int_eq(lh_bounds_lease_key("6f2c1f0e5d0b4b579a350c8f6c2e7a11", &uuid, &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_bounds_lease_key("", &uuid, &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_bounds_lease_key("00000000-0000-0000-0000-000000000000", &uuid, &error), LH_INVALID_ARGUMENT);
    ck_assert_str_eq(error.field, "lease_key");
}
END_TEST

START_TEST(labels_are_name_and_value)
{
    struct lh_error error = {0};
    char longest[64 + 2] = "";
    size_t name_size;

    ck_assert_int_eq(lh_bounds_label("team=red=green", &name_size, &error), LH_OK);
    ck_assert_uint_eq(name_size, 4);
    ck_assert_int_eq(lh_bounds_label("team=", &name_size, &error), LH_OK);
    ck_assert_int_eq(lh_bounds_label("team", &name_size, &error), LH_INVALID_ARGUMENT);
    ck_assert_str_eq(error.message, "labels must be name=value, 'team' has no '='");
    ck_assert_int_eq(lh_bounds_label("=red", &name_size, &error), LH_INVALID_ARGUMENT);
    ck_assert_str_eq(error.field, "labels");
    memset(longest, 'n', 64);
    longest[64] = '=';
    ck_assert_int_eq(lh_bounds_label(longest, &name_size, &error), LH_INVALID_ARGUMENT);
    ck_assert_str_eq(error.message, "the name of a label must be 1 to 63 bytes, has 64");
    ck_assert_int_eq(lh_bounds_label(longest + 1, &name_size, &error), LH_OK);
}
END_TEST

START_TEST(units_and_minimum_holds_fit_the_mode)
{
    struct lh_error error = {0};

    ck_assert_int_eq(lh_bounds_mode(0, 0, LH_AT_LEAST_MAX_US, &error), LH_OK);
    ck_assert_int_eq(lh_bounds_mode(0, 0, -1, &error), LH_OK);
    ck_assert_int_eq(lh_bounds_mode(1, LH_UNITS_MAX, 0, &error), LH_OK);
    ck_assert_int_eq(lh_bounds_mode(0, 0, LH_AT_LEAST_MAX_US + 1, &error), LH_INVALID_ARGUMENT);
    ck_assert_str_eq(error.message, "at_least must be at most 1 day, is 86400000001 us");
    ck_assert_int_eq(lh_bounds_mode(0, 0, -2, &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_bounds_mode(0, 1, 0, &error), LH_INVALID_ARGUMENT);
    ck_assert_str_eq(error.message,
                     "units must be 0 for an exclusive lease, is 1: units are of shared ones (mode LH_SHARED)");
    ck_assert_int_eq(lh_bounds_mode(1, 1, -1, &error), LH_INVALID_ARGUMENT);
    ck_assert_str_eq(error.field, "at_least");
    ck_assert_int_eq(lh_bounds_mode(1, LH_UNITS_MAX + 1, 0, &error), LH_INVALID_ARGUMENT);
    ck_assert_str_eq(error.bound, "must be 0 (which is 1) to 1000000, is 1000001");
    ck_assert_int_eq(lh_bounds_mode(2, 0, 0, &error), LH_INVALID_ARGUMENT);
    ck_assert_str_eq(error.field, "mode");
}
END_TEST

TCase *test_base_bounds(void)
{
    TCase *tests = tcase_create("bounds");

    tcase_add_test(tests, values_are_judged_as_the_table_says);
    tcase_add_test(tests, text_that_is_no_utf8_is_refused);
    tcase_add_test(tests, lease_keys_are_uuids);
    tcase_add_test(tests, labels_are_name_and_value);
    tcase_add_test(tests, units_and_minimum_holds_fit_the_mode);
    return tests;
}
