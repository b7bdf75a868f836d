/* Every field of every request at its limit and one beyond: Acquire, and how violations are told. */
#include "test_service_validate.h"

#include <stdio.h>
#include <string.h>

#include "service/call_internal.h"
#include "service/words_internal.h"

typedef Leasehold__V1__AcquireRequest acquire_request;

struct lh_violations violations;

struct lh_validator *validator(void)
{
    static struct lh_validator v;
    memset(&violations, 0, sizeof(violations));
    v.arena = &test_arena;
    v.violations = &violations;
    return &v;
}

void expect_violation(const char *name, bool is_valid, const char *field)
{
    if (field == NULL) {
        ck_assert_msg(is_valid && violations.count == 0, "%s: %s %s", name, violations.list[0].field,
                      violations.list[0].limit);
        return;
    }
    ck_assert_msg(!is_valid && violations.count > 0, "%s was taken", name);
    ck_assert_msg(strcmp(violations.list[0].field, field) == 0, "%s: names %s", name, violations.list[0].field);
    ck_assert_msg(violations.list[0].limit[0] != '\0', "%s: says no limit", name);
}

static void set_segments(acquire_request *r, size_t count, const char *segment)
{
    r->scope->n_namespace_ = count;
    for (size_t i = 0; i < count; i++)
        r->scope->namespace_[i] = (char *)segment;
}

static void many_labels(acquire_request *r, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof(name), "name-%u", i);
        add_label(r, name, "");
    }
}

#define CHANGE(name, ...)                                                                                              \
    static void name(acquire_request *r)                                                                               \
    {                                                                                                                  \
        __VA_ARGS__;                                                                                                   \
    }

CHANGE(nothing, (void)r)
CHANGE(no_scope, r->scope = NULL)
CHANGE(no_segments, set_segments(r, 0, ""))
CHANGE(segments_16, set_segments(r, 16, "a"))
CHANGE(segments_17, set_segments(r, 17, "a"))
CHANGE(segment_empty, set_segments(r, 1, ""))
CHANGE(segment_63, set_segments(r, 1, repeated("s", 63)))
CHANGE(segment_64, set_segments(r, 1, repeated("s", 64)))
CHANGE(segment_63_in_umlauts, set_segments(r, 1, repeated("ü", 31)))
CHANGE(segment_64_in_umlauts, set_segments(r, 1, repeated("ü", 32)))
CHANGE(segment_dotted, set_segments(r, 1, "a.b"))
CHANGE(segment_with_tab, set_segments(r, 1, "a\tb"))
CHANGE(segment_with_c1, set_segments(r, 1, "a\xc2\x85"))
CHANGE(namespace_255, set_segments(r, 4, repeated("n", 63)))
CHANGE(namespace_256, set_segments(r, 5, repeated("n", 51)); r->scope->namespace_[0] = repeated("n", 48))
CHANGE(key_empty, r->scope->key = (char *)"")
CHANGE(key_1024, r->scope->key = repeated("k", 1024))
CHANGE(key_1025, r->scope->key = repeated("k", 1025))
CHANGE(key_with_newline, r->scope->key = (char *)"a\nb")
CHANGE(key_with_delete, r->scope->key = (char *)"a\x7f")
CHANGE(key_with_dot_and_slash, r->scope->key = (char *)"a.b/c")
CHANGE(no_duration, r->duration = NULL)
CHANGE(duration_zero, r->duration = new_duration(0, 0))
CHANGE(duration_below_a_microsecond, r->duration = new_duration(0, 999))
CHANGE(duration_a_microsecond, r->duration = new_duration(0, 1000))
CHANGE(duration_negative, r->duration = new_duration(-1, 0))
CHANGE(duration_slightly_negative, r->duration = new_duration(0, -1))
CHANGE(duration_100_years, r->duration = new_duration(INT64_C(100) * 365 * 86400, 0))
CHANGE(duration_over_100_years, r->duration = new_duration(INT64_C(100) * 365 * 86400, 1000))
CHANGE(duration_signs_differ, r->duration = new_duration(1, -1))
CHANGE(duration_nanos_of_a_second, r->duration = new_duration(1, 1000000000))
CHANGE(duration_nanos_of_a_second_less, r->duration = new_duration(1, -1000000000))
CHANGE(duration_of_int64, r->duration = new_duration(INT64_MAX, 0))
CHANGE(duration_of_least_int64, r->duration = new_duration(INT64_MIN, INT32_MIN))
CHANGE(wait_zero, r->wait = new_duration(0, 0))
CHANGE(wait_5, r->wait = new_duration(5, 0))
CHANGE(wait_negative, r->wait = new_duration(0, -1))
CHANGE(wait_over_100_years, r->wait = new_duration(INT64_C(100) * 365 * 86400, 1000))
CHANGE(wait_forever, r->wait_forever = 1)
CHANGE(wait_forever_and_zero, r->wait_forever = 1; r->wait = new_duration(0, 0))
CHANGE(wait_and_forever, r->wait_forever = 1; r->wait = new_duration(5, 0))
CHANGE(while_alive, r->wait_while_alive = 1)
CHANGE(while_alive_and_wait, r->wait_while_alive = 1; r->wait = new_duration(5, 0))
CHANGE(while_alive_and_forever, r->wait_while_alive = 1; r->wait_forever = 1)
CHANGE(at_least_zero, r->at_least = new_duration(0, 0))
CHANGE(at_least_a_day, r->at_least = new_duration(86400, 0))
CHANGE(at_least_over_a_day, r->at_least = new_duration(86400, 1000))
CHANGE(at_least_negative, r->at_least = new_duration(0, -1))
CHANGE(exclusive, r->mode = LEASEHOLD__V1__MODE__MODE_EXCLUSIVE)
CHANGE(exclusive_of_units, r->units = 1)
CHANGE(shared, r->mode = LEASEHOLD__V1__MODE__MODE_SHARED)
CHANGE(shared_of_a_million, shared(r); r->units = 1000000)
CHANGE(shared_of_more, shared(r); r->units = 1000001)
CHANGE(shared_of_less, shared(r); r->units = -1)
CHANGE(the_highest_priority, r->priority = 1000)
CHANGE(a_higher_priority, r->priority = 1001)
CHANGE(a_lower_priority, r->priority = -1)
CHANGE(shared_at_least, shared(r); r->at_least = new_duration(0, 0))
CHANGE(owner_empty, r->owner = (char *)"")
CHANGE(owner_255, r->owner = repeated("o", 255))
CHANGE(owner_256, r->owner = repeated("o", 256))
CHANGE(lease_key_empty, r->lease_key = (char *)"")
CHANGE(lease_key_upper_case, r->lease_key = (char *)"0F8FAD5B-D9CB-469F-A165-70867728950E")
CHANGE(lease_key_short, r->lease_key = (char *)"0f8fad5b-d9cb-469f-a165-70867728950")
CHANGE(lease_key_long, r->lease_key = (char *)LEASE_KEY "0")
CHANGE(lease_key_in_braces, r->lease_key = (char *)"{" LEASE_KEY "}")
CHANGE(lease_key_zero, r->lease_key = (char *)"00000000-0000-0000-0000-000000000000")
CHANGE(labels_16, many_labels(r, 16))
CHANGE(labels_17, many_labels(r, 17))
CHANGE(label_name_empty, add_label(r, "", "v"))
CHANGE(label_name_63, add_label(r, repeated("l", 63), "v"))
CHANGE(label_name_64, add_label(r, repeated("l", 64), "v"))
CHANGE(label_value_255, add_label(r, "l", repeated("v", 255)))
CHANGE(label_value_256, add_label(r, "l", repeated("v", 256)))
CHANGE(label_twice, add_label(r, "l", "1"); add_label(r, "m", "2"); add_label(r, "l", "3"))

static const struct {
    const char *name;
    void (*change)(acquire_request *request);
    const char *field; /* that is violated, NULL: none */
} acquire_cases[] = {
#define TAKEN(change)                                                                                                  \
    {                                                                                                                  \
#change, change, NULL                                                                                          \
    }
#define REFUSED(change, field)                                                                                         \
    {                                                                                                                  \
#change, change, field                                                                                         \
    }
    TAKEN(nothing),
    REFUSED(no_scope, "scope"),
    REFUSED(no_segments, "scope.namespace"),
    TAKEN(segments_16),
    REFUSED(segments_17, "scope.namespace"),
    REFUSED(segment_empty, "scope.namespace[0]"),
    TAKEN(segment_63),
    REFUSED(segment_64, "scope.namespace[0]"),
    TAKEN(segment_63_in_umlauts),
    REFUSED(segment_64_in_umlauts, "scope.namespace[0]"),
    REFUSED(segment_dotted, "scope.namespace[0]"),
    REFUSED(segment_with_tab, "scope.namespace[0]"),
    REFUSED(segment_with_c1, "scope.namespace[0]"),
    TAKEN(namespace_255),
    REFUSED(namespace_256, "scope.namespace"),
    REFUSED(key_empty, "scope.key"),
    TAKEN(key_1024),
    REFUSED(key_1025, "scope.key"),
    REFUSED(key_with_newline, "scope.key"),
    REFUSED(key_with_delete, "scope.key"),
    TAKEN(key_with_dot_and_slash),
    REFUSED(no_duration, "duration"),
    REFUSED(duration_zero, "duration"),
    REFUSED(duration_below_a_microsecond, "duration"),
    TAKEN(duration_a_microsecond),
    REFUSED(duration_negative, "duration"),
    REFUSED(duration_slightly_negative, "duration"),
    TAKEN(duration_100_years),
    REFUSED(duration_over_100_years, "duration"),
    REFUSED(duration_signs_differ, "duration"),
    REFUSED(duration_nanos_of_a_second, "duration"),
    REFUSED(duration_nanos_of_a_second_less, "duration"),
    REFUSED(duration_of_int64, "duration"),
    REFUSED(duration_of_least_int64, "duration"),
    TAKEN(wait_zero),
    TAKEN(wait_5),
    REFUSED(wait_negative, "wait"),
    REFUSED(wait_over_100_years, "wait"),
    TAKEN(wait_forever),
    TAKEN(wait_forever_and_zero),
    REFUSED(wait_and_forever, "wait"),
    TAKEN(while_alive),
    TAKEN(while_alive_and_wait),
    REFUSED(while_alive_and_forever, "wait_while_alive"),
    TAKEN(at_least_zero),
    TAKEN(at_least_a_day),
    REFUSED(at_least_over_a_day, "at_least"),
    REFUSED(at_least_negative, "at_least"),
    TAKEN(exclusive),
    REFUSED(exclusive_of_units, "units"),
    TAKEN(shared),
    TAKEN(shared_of_a_million),
    REFUSED(shared_of_more, "units"),
    TAKEN(the_highest_priority),
    REFUSED(shared_of_less, "units"),
    REFUSED(a_higher_priority, "priority"),
    REFUSED(a_lower_priority, "priority"),
    REFUSED(shared_at_least, "at_least"),
    TAKEN(owner_empty),
    TAKEN(owner_255),
    REFUSED(owner_256, "owner"),
    TAKEN(lease_key_empty),
    TAKEN(lease_key_upper_case),
    REFUSED(lease_key_short, "lease_key"),
    REFUSED(lease_key_long, "lease_key"),
    REFUSED(lease_key_in_braces, "lease_key"),
    REFUSED(lease_key_zero, "lease_key"),
    TAKEN(labels_16),
    REFUSED(labels_17, "labels"),
    REFUSED(label_name_empty, "labels[0].key"),
    TAKEN(label_name_63),
    REFUSED(label_name_64, "labels[0].key"),
    TAKEN(label_value_255),
    REFUSED(label_value_256, "labels[0].value"),
    REFUSED(label_twice, "labels[2].key"),
};

START_TEST(acquire_fields_have_these_bounds)
{
    Leasehold__V1__AcquireRequest *request = new_acquire_request();
    struct lh_acquire acquire = {0};

    acquire_cases[_i].change(request);
    expect_violation(acquire_cases[_i].name, lh_validate_acquire(validator(), request, &acquire),
                     acquire_cases[_i].field);
}
END_TEST

START_TEST(acquire_becomes_what_the_coordinator_takes)
{
    Leasehold__V1__AcquireRequest *request = new_acquire_request();
    struct lh_acquire acquire = {0};
    char lease_key[LH_UUID_TEXT_BYTES];

    request->scope->namespace_[request->scope->n_namespace_++] = (char *)"invoices";
    request->duration = new_duration(1, 500000000);
    request->wait = new_duration(0, 250000000);
    request->wait_while_alive = 1;
    add_label(request, "na\"me", "back\\slash, \x01 and ü");
    ck_assert(lh_validate_acquire(validator(), request, &acquire));
    ck_assert_str_eq(acquire.ns, "payments.invoices");
    ck_assert_str_eq(acquire.key, "invoice-42");
    ck_assert_str_eq(acquire.terms.owner, "worker-3");
    ck_assert_int_eq(acquire.terms.duration_us, 1500000);
    ck_assert_int_eq(acquire.wait, LH_WAIT_WHILE_ALIVE);
    ck_assert_int_eq(acquire.wait_us, 250000);
    ck_assert_int_eq(acquire.at_least_us, LH_AT_LEAST_POLICY);
    request->at_least = new_duration(50, 0);
    ck_assert(lh_validate_acquire(validator(), request, &acquire));
    ck_assert_int_eq(acquire.at_least_us, 50000000);
    lh_uuid_format(&acquire.lease_key, lease_key);
    ck_assert_str_eq(lease_key, LEASE_KEY);
    ck_assert_str_eq(acquire.terms.labels, "{\"na\\\"me\":\"back\\\\slash, \\u0001 and ü\"}");
}
END_TEST

START_TEST(absent_lease_key_is_made_anew_each_time)
{
    Leasehold__V1__AcquireRequest *request = new_acquire_request();
    struct lh_acquire first = {0}, second = {0};

    request->lease_key = (char *)"";
    ck_assert(lh_validate_acquire(validator(), request, &first));
    ck_assert(lh_validate_acquire(validator(), request, &second));
    ck_assert(!lh_uuid_is_zero(&first.lease_key));
    ck_assert(!lh_uuid_equal(&first.lease_key, &second.lease_key));
}
END_TEST

START_TEST(every_violation_of_a_request_is_told)
{
    Leasehold__V1__AcquireRequest *request = new_acquire_request();
    struct lh_acquire acquire = {0};
    char sentence[512];

    request->scope->key = (char *)"";
    request->duration = NULL;
    request->owner = repeated("o", 300);
    request->lease_key = (char *)"x";
    ck_assert(!lh_validate_acquire(validator(), request, &acquire));
    ck_assert_uint_eq(violations.count, 4);
    lh_violations_sentence(&violations, sentence, sizeof(sentence));
    ck_assert_ptr_nonnull(strstr(sentence, "scope.key must be 1 to 1024 bytes, has 0; duration must be given"));
    ck_assert_ptr_nonnull(strstr(sentence, "owner must be at most 255 bytes, has 300"));
}
END_TEST

START_TEST(labels_survive_the_way_through_json)
{
    Leasehold__V1__AcquireRequest *request = new_acquire_request();
    Leasehold__V1__Lease__LabelsEntry **labels;
    const char *json;

    add_label(request, "zone", "eu \"west\"\n\\");
    add_label(request, "ünï", "😀");
    json = lh_json_from_labels(request->labels, request->n_labels, &test_arena);
    ck_assert_uint_eq(lh_json_to_labels(json, &test_arena, &labels), 2);
    for (size_t i = 0; i < 2; i++) {
        size_t at = strcmp(labels[i]->key, "zone") == 0 ? 0 : 1;
        ck_assert_str_eq(labels[i]->key, request->labels[at]->key);
        ck_assert_str_eq(labels[i]->value, request->labels[at]->value);
    }
    ck_assert_uint_eq(lh_json_to_labels("not json", &test_arena, &labels), 0);
}
END_TEST

START_TEST(fields_are_named_by_where_they_are)
{
    char path[LH_VIOLATION_FIELD_BYTES], longer[LH_VIOLATION_FIELD_BYTES];

    ck_assert_str_eq(lh_field_member(path, "lease", "scope"), "lease.scope");
    ck_assert_str_eq(lh_field_nth(path, "leases", 0), "leases[0]");
    ck_assert_str_eq(lh_field_nth(path, "leases", 10000), "leases[10000]");
    ck_assert_str_eq(lh_field_nth(path, "", SIZE_MAX), "[18446744073709551615]");
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    ck_assert_str_eq(lh_field_member(path, longer, "cut"), longer);
    ck_assert_str_eq(lh_field_nth(path, longer, 3), longer);
    ck_assert_str_eq(lh_field_member(path, longer + 2, "cut") + sizeof(longer) - 3, ".c");
}
END_TEST

TCase *tcase_validate_acquire(void)
{
    TCase *tcase = tcase_create("validate acquire");

    tcase_add_checked_fixture(tcase, NULL, test_arena_reset);
    tcase_add_loop_test(tcase, acquire_fields_have_these_bounds, 0, sizeof(acquire_cases) / sizeof(acquire_cases[0]));
    tcase_add_test(tcase, acquire_becomes_what_the_coordinator_takes);
    tcase_add_test(tcase, absent_lease_key_is_made_anew_each_time);
    tcase_add_test(tcase, fields_are_named_by_where_they_are);
    tcase_add_test(tcase, every_violation_of_a_request_is_told);
    tcase_add_test(tcase, labels_survive_the_way_through_json);
    return tcase;
}

Suite *validate_suite(void)
{
    Suite *suite = suite_create("service validate");

    suite_add_tcase(suite, tcase_validate_acquire());
    suite_add_tcase(suite, tcase_validate_release());
    suite_add_tcase(suite, tcase_validate_admin());
    suite_add_tcase(suite, tcase_validate_schedule());
    return suite;
}
