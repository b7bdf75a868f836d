#include "test_cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "google/rpc/error_details.pb-c.h"
#include "leasehold/v1/leasehold.pb-c.h"
#include "json/print.h"

/* Compact, keys sorted. */
static char *dumped(const ProtobufCMessage *message, enum lh_json_fields fields)
{
    json_t *json = lh_json_from_message(message, fields);
    char *text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
    json_decref(json);
    return text;
}

static const struct {
    int64_t seconds;
    int32_t nanos;
    const char *text;
} durations[] = {
    {0, 0, "0s"},
    {30, 0, "30s"},
    {1, 500000000, "1.500s"},
    {0, 1000, "0.000001s"},
    {0, 1, "0.000000001s"},
    {-1, -500000000, "-1.500s"},
    {0, -20000000, "-0.020s"},
    {315576000000, 0, "315576000000s"},
    {INT64_MIN, 0, "-9223372036854775808s"},
};

START_TEST(durations_have_as_many_digits_as_they_need)
{
    char text[LH_JSON_TIME_BYTES];
    lh_json_duration(durations[_i].seconds, durations[_i].nanos, text);
    ck_assert_str_eq(text, durations[_i].text);
}
END_TEST

static const struct {
    int64_t seconds;
    int32_t nanos;
    const char *text;
} timestamps[] = {
    {0, 0, "1970-01-01T00:00:00Z"},
    {1795213737, 123456000, "2026-11-20T22:28:57.123456Z"},
    {1795213737, 500000000, "2026-11-20T22:28:57.500Z"},
    {-1, 999999999, "1969-12-31T23:59:59.999999999Z"},
    {253402300799, 0, "9999-12-31T23:59:59Z"},
};

START_TEST(timestamps_are_rfc_3339_in_utc)
{
    char text[LH_JSON_TIME_BYTES];
    lh_json_timestamp(timestamps[_i].seconds, timestamps[_i].nanos, text);
    ck_assert_str_eq(text, timestamps[_i].text);
}
END_TEST

START_TEST(numbers_enums_and_maps_have_their_forms)
{
    Leasehold__V1__Lease lease = LEASEHOLD__V1__LEASE__INIT;
    Leasehold__V1__Lease__LabelsEntry label = LEASEHOLD__V1__LEASE__LABELS_ENTRY__INIT, *labels[] = {&label};
    Leasehold__V1__Scope scope = LEASEHOLD__V1__SCOPE__INIT;
    char first[] = "payments", second[] = "invoices", key[] = "it's \"42\"\n", *segments[] = {first, second};
    char name[] = "team", value[] = "";
    char *text;

    scope.namespace_ = segments;
    scope.n_namespace_ = 2;
    scope.key = key;
    label.key = name;
    label.value = value;
    lease.scope = &scope;
    lease.token = INT64_MAX;
    lease.labels = labels;
    lease.n_labels = 1;
    lease.liveness = LEASEHOLD__V1__LIVENESS__LIVENESS_SUSPECTED_DEAD;
    text = dumped(&lease.base, LH_JSON_SET_FIELDS);
    ck_assert_str_eq(text, "{\"labels\":{\"team\":\"\"},\"liveness\":\"LIVENESS_SUSPECTED_DEAD\","
                           "\"scope\":{\"key\":\"it's \\\"42\\\"\\n\",\"namespace\":[\"payments\",\"invoices\"]},"
                           "\"token\":\"9223372036854775807\"}");
    free(text);
    lease.liveness = (Leasehold__V1__Liveness)77;
    lease.scope = NULL;
    lease.n_labels = 0;
    text = dumped(&lease.base, LH_JSON_SET_FIELDS);
    ck_assert_str_eq(text, "{\"liveness\":77,\"token\":\"9223372036854775807\"}");
    free(text);
}
END_TEST

START_TEST(a_script_finds_every_field_but_absent_messages)
{
    Leasehold__V1__ListLeasesResponse list = LEASEHOLD__V1__LIST_LEASES_RESPONSE__INIT;
    Leasehold__V1__HeartbeatResult result = LEASEHOLD__V1__HEARTBEAT_RESULT__INIT;
    char *text = dumped(&list.base, LH_JSON_ALL_FIELDS);

    ck_assert_str_eq(text, "{\"leases\":[],\"next_page_token\":\"\",\"partial\":false}");
    free(text);
    text = dumped(&list.base, LH_JSON_SET_FIELDS);
    ck_assert_str_eq(text, "{}");
    free(text);
    text = dumped(&result.base, LH_JSON_ALL_FIELDS);
    ck_assert_str_eq(text, "{\"deadline_is_final\":false,\"end_reason\":\"END_REASON_UNSPECIFIED\",\"has_slots\":false,"
                           "\"heartbeats\":\"0\",\"lease_key\":\"\","
                           "\"message\":\"\",\"outcome\":\"OUTCOME_UNSPECIFIED\",\"token\":\"0\",\"units\":0}");
    free(text);
}
END_TEST

START_TEST(wrappers_masks_and_oneofs_have_their_forms)
{
    Google__Protobuf__BoolValue no = GOOGLE__PROTOBUF__BOOL_VALUE__INIT;
    Google__Protobuf__Int64Value many = GOOGLE__PROTOBUF__INT64_VALUE__INIT;
    Google__Protobuf__Int32Value some = GOOGLE__PROTOBUF__INT32_VALUE__INIT;
    Google__Protobuf__FieldMask mask = GOOGLE__PROTOBUF__FIELD_MASK__INIT;
    Leasehold__V1__Policy policy = LEASEHOLD__V1__POLICY__INIT;
    Leasehold__V1__SetPolicyRequest request = LEASEHOLD__V1__SET_POLICY_REQUEST__INIT;
    Leasehold__V1__ReleaseItem item = LEASEHOLD__V1__RELEASE_ITEM__INIT;
    char first[] = "max_leases", second[] = "frozen", *paths[] = {first, second}, empty[] = "";
    char *text;

    many.value = -5;
    some.value = 7;
    policy.frozen = &no;
    policy.max_leases = &many;
    policy.max_reap_failures = &some;
    mask.paths = paths;
    mask.n_paths = 2;
    request.policy = &policy;
    request.update_mask = &mask;
    text = dumped(&request.base, LH_JSON_SET_FIELDS);
    ck_assert_str_eq(text, "{\"policy\":{\"frozen\":false,\"max_leases\":\"-5\",\"max_reap_failures\":7},"
                           "\"update_mask\":\"maxLeases,frozen\"}");
    free(text);

    item.result_case = LEASEHOLD__V1__RELEASE_ITEM__RESULT_FAILURE;
    item.failure = empty;
    text = dumped(&item.base, LH_JSON_ALL_FIELDS);
    ck_assert_str_eq(text, "{\"failure\":\"\"}");
    free(text);
}
END_TEST

START_TEST(a_broken_string_is_printed_all_the_same)
{
    Leasehold__V1__Lease lease = LEASEHOLD__V1__LEASE__INIT;
    char owner[] = "a\xff\xfe", *text;

    lease.owner = owner;
    text = dumped(&lease.base, LH_JSON_SET_FIELDS);
    ck_assert_str_eq(text, "{\"owner\":\"a??\"}");
    free(text);
}
END_TEST

TCase *test_cli_json(void)
{
    TCase *tests = tcase_create("json");
    tcase_add_loop_test(tests, durations_have_as_many_digits_as_they_need, 0, sizeof(durations) / sizeof(durations[0]));
    tcase_add_loop_test(tests, timestamps_are_rfc_3339_in_utc, 0, sizeof(timestamps) / sizeof(timestamps[0]));
    tcase_add_test(tests, numbers_enums_and_maps_have_their_forms);
    tcase_add_test(tests, a_script_finds_every_field_but_absent_messages);
    tcase_add_test(tests, wrappers_masks_and_oneofs_have_their_forms);
    tcase_add_test(tests, a_broken_string_is_printed_all_the_same);
    return tests;
}

int print_message_as_json(const char *name)
{
    static const ProtobufCMessageDescriptor *const known[] = {
        &leasehold__v1__lease__descriptor,
        &leasehold__v1__get_policy_response__descriptor,
        &leasehold__v1__set_policy_request__descriptor,
        &leasehold__v1__acquire_event__descriptor,
        &leasehold__v1__reap_response__descriptor,
        &google__rpc__error_info__descriptor,
    };
    unsigned char packed[65536];
    size_t size = fread(packed, 1, sizeof(packed), stdin);
    ProtobufCMessage *message = NULL;
    json_t *json;

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(known[i]->name, name) == 0)
            message = protobuf_c_message_unpack(known[i], NULL, size, packed);
    if (message == NULL)
        return EXIT_FAILURE;
    for (enum lh_json_fields fields = LH_JSON_SET_FIELDS; fields <= LH_JSON_ALL_FIELDS; fields++) {
        json = lh_json_from_message(message, fields);
        json_dumpf(json, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(json);
    }
    protobuf_c_message_free_unpacked(message, NULL);
    return EXIT_SUCCESS;
}
