/* Every field of every request at its limit and one beyond; policies and update masks; results as JSON. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "service/json.h"
#include "service/policy.h"
#include "service/validate.h"
#include "test_service.h"

typedef Leasehold__V1__AcquireRequest acquire_request;

static struct lh_violations violations;

static struct lh_validator *validator(void)
{
    static struct lh_validator v;
    memset(&violations, 0, sizeof(violations));
    v.arena = &test_arena;
    v.violations = &violations;
    return &v;
}

static void expect_violation(const char *name, bool is_valid, const char *field)
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

/* --- Acquire --- */

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
    ck_assert_str_eq(acquire.owner, "worker-3");
    ck_assert_int_eq(acquire.duration_us, 1500000);
    ck_assert_int_eq(acquire.wait, LH_WAIT_WHILE_ALIVE);
    ck_assert_int_eq(acquire.wait_us, 250000);
    lh_uuid_format(&acquire.lease_key, lease_key);
    ck_assert_str_eq(lease_key, LEASE_KEY);
    ck_assert_str_eq(acquire.labels, "{\"na\\\"me\":\"back\\\\slash, \\u0001 and ü\"}");
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

/* --- Release --- */

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
    struct lh_release_item item = {0};
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
    struct lh_release_item item = {0};

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

/* --- lists, reap, force-release --- */

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
    {LH_POLICY_FREE_RETENTION, 0},    {LH_POLICY_HISTORY_RETENTION, 0},
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

Suite *validate_suite(void)
{
    Suite *suite = suite_create("service validate");
    TCase *tcase = tcase_create("validate");

    tcase_add_checked_fixture(tcase, NULL, test_arena_reset);
    tcase_add_loop_test(tcase, acquire_fields_have_these_bounds, 0, sizeof(acquire_cases) / sizeof(acquire_cases[0]));
    tcase_add_test(tcase, acquire_becomes_what_the_coordinator_takes);
    tcase_add_test(tcase, absent_lease_key_is_made_anew_each_time);
    tcase_add_test(tcase, fields_are_named_by_where_they_are);
    tcase_add_test(tcase, every_violation_of_a_request_is_told);
    tcase_add_test(tcase, labels_survive_the_way_through_json);
    tcase_add_loop_test(tcase, result_is_json_that_postgresql_takes, 0, sizeof(json_cases) / sizeof(json_cases[0]));
    tcase_add_test(tcase, results_and_errors_have_8_kib);
    tcase_add_test(tcase, lease_ref_names_what_is_missing);
    tcase_add_test(tcase, list_has_these_bounds);
    tcase_add_test(tcase, reap_has_these_bounds);
    tcase_add_test(tcase, force_release_needs_a_reason);
    tcase_add_test(tcase, set_policy_without_a_mask_sets_what_is_present);
    tcase_add_test(tcase, masked_but_absent_is_inherited_again);
    tcase_add_loop_test(tcase, policy_durations_have_these_bounds, 0,
                        sizeof(policy_durations) / sizeof(policy_durations[0]));
    tcase_add_test(tcase, policy_counts_have_these_bounds);
    tcase_add_test(tcase, policy_goes_out_as_it_is_set);
    suite_add_tcase(suite, tcase);
    return suite;
}
