/* Bytes before they are unpacked: what is found, how it is named, and that no bytes at all do harm. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "service/edge/wire.h"
#include "test_service.h"

struct findings {
    size_t count;
    char field[LH_WIRE_PATH_BYTES]; /* of the last one */
    char text[160];
    int64_t item;
    bool is_fatal;
};

static void on_finding(void *arg, const struct lh_wire_finding *finding)
{
    struct findings *findings = arg;

    findings->count++;
    snprintf(findings->field, sizeof(findings->field), "%s", finding->field);
    snprintf(findings->text, sizeof(findings->text), "%s", finding->text);
    findings->item = finding->item;
    findings->is_fatal = finding->is_fatal;
}

static bool check_bytes(const ProtobufCMessageDescriptor *type, const void *data, size_t size,
                        struct findings *findings)
{
    memset(findings, 0, sizeof(*findings));
    return lh_wire_check(type, data, size, on_finding, findings);
}

#define ACQUIRE &leasehold__v1__acquire_request__descriptor
#define HEARTBEAT &leasehold__v1__heartbeat_request__descriptor

START_TEST(request_that_is_right_has_no_findings)
{
    Leasehold__V1__AcquireRequest *request = new_acquire_request();
    struct findings findings;
    struct packed packed;

    add_label(request, "zone", "Zürich");
    packed = to_bytes(&request->base);
    ck_assert(check_bytes(ACQUIRE, packed.data, packed.size, &findings));
    ck_assert_uint_eq(findings.count, 0);
    ck_assert_ptr_nonnull(lh_wire_unpack(ACQUIRE, packed.data, packed.size, &test_arena));
}
END_TEST

/* Replace `from` within the packed request by `to` of the same size, for what no encoder would write. */
static void expect_finding(Leasehold__V1__AcquireRequest *request, const char *from, const char *to, const char *field,
                           const char *words)
{
    struct packed packed = to_bytes(&request->base);
    char *at = memmem(packed.data, packed.size, from, strlen(from));
    struct findings findings;

    ck_assert_ptr_nonnull(at);
    memcpy(at, to, strlen(from));
    ck_assert(check_bytes(ACQUIRE, packed.data, packed.size, &findings));
    ck_assert_uint_eq(findings.count, 1);
    ck_assert_str_eq(findings.field, field);
    ck_assert_ptr_nonnull(strstr(findings.text, words));
    ck_assert(!findings.is_fatal);
}

START_TEST(strings_with_nul_are_named)
{
    Leasehold__V1__AcquireRequest *request = new_acquire_request();
    add_label(request, "first", "value");
    add_label(request, "second", "wert");
    expect_finding(request, "invoice-42",
                   "invoice\0"
                   "42",
                   "scope.key", "NUL");
    expect_finding(request, "payments", "payment\0", "scope.namespace[0]", "NUL");
    expect_finding(request, "worker-3", "\0orker-3", "owner", "NUL");
    expect_finding(request, LEASE_KEY, "0f8fad5b\0d9cb-469f-a165-70867728950e", "lease_key", "NUL");
    expect_finding(request, "second", "se\0ond", "labels[1].key", "NUL");
    expect_finding(request, "wert", "wer\0", "labels[1].value", "NUL");
}
END_TEST

START_TEST(strings_that_are_no_utf8_are_named)
{
    Leasehold__V1__AcquireRequest *request = new_acquire_request();
    add_label(request, "name", "value");
    expect_finding(request, "invoice-42", "invoice\xc3(42", "scope.key", "UTF-8");
    expect_finding(request, "payments", "payme\xed\xa0\x80", "scope.namespace[0]", "UTF-8");
    expect_finding(request, "worker-3", "worker-\xff", "owner", "UTF-8");
    expect_finding(request, "name",
                   "n\xc0\x80"
                   "e",
                   "labels[0].key", "UTF-8");
    expect_finding(request, "value", "valu\x80", "labels[0].value", "UTF-8");
}
END_TEST

START_TEST(finding_in_a_batch_names_its_item)
{
    Leasehold__V1__LeaseRef *refs[3] = {new_lease_ref("a", LEASE_KEY), new_lease_ref("bad", LEASE_KEY),
                                        new_lease_ref("c", LEASE_KEY)};
    Leasehold__V1__HeartbeatRequest request;
    struct findings findings;
    struct packed packed;

    leasehold__v1__heartbeat_request__init(&request);
    request.leases = refs;
    request.n_leases = 3;
    packed = to_bytes(&request.base);
    memcpy(memmem(packed.data, packed.size, "bad", 3), "b\0d", 3);
    ck_assert(check_bytes(HEARTBEAT, packed.data, packed.size, &findings));
    ck_assert_uint_eq(findings.count, 1);
    ck_assert_str_eq(findings.field, "leases[1].scope.key");
    ck_assert_int_eq(findings.item, 1);
}
END_TEST

START_TEST(unknown_enum_values_are_named)
{
    /* policy (1) { expiry (7) = 9 } */
    static const uint8_t bytes[] = {0x0a, 0x02, 0x38, 0x09};
    /* the same with -1, in ten bytes */
    static const uint8_t negative[] = {0x0a, 0x0b, 0x38, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01};
    struct findings findings;

    ck_assert(check_bytes(&leasehold__v1__set_policy_request__descriptor, bytes, sizeof(bytes), &findings));
    ck_assert_str_eq(findings.field, "policy.expiry");
    ck_assert(check_bytes(&leasehold__v1__set_policy_request__descriptor, negative, sizeof(negative), &findings));
    ck_assert_str_eq(findings.field, "policy.expiry");
}
END_TEST

START_TEST(fields_of_a_newer_client_are_passed_over)
{
    /* 100: a varint, 101: 64 bits, 102: bytes, 103: 32 bits */
    static const uint8_t bytes[] = {0xa0, 0x06, 0x07, 0xa9, 0x06, 1,    2,    3,    4, 5, 6, 7,
                                    8,    0xb2, 0x06, 0x02, 0xff, 0x00, 0xbd, 0x06, 1, 2, 3, 4};
    struct findings findings;

    ck_assert(check_bytes(ACQUIRE, bytes, sizeof(bytes), &findings));
    ck_assert_uint_eq(findings.count, 0);
    ck_assert_ptr_nonnull(lh_wire_unpack(ACQUIRE, bytes, sizeof(bytes), &test_arena));
}
END_TEST

static const struct {
    const char *name;
    uint8_t bytes[16];
    size_t size;
} broken[] = {
    {"tag cut off", {0x8a}, 1},
    {"length cut off", {0x0a}, 1},
    {"length beyond the end", {0x0a, 0x05, 0x01}, 3},
    {"length near 2^64", {0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, 11},
    {"varint of eleven bytes", {0x20, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01}, 12},
    {"field number zero", {0x00, 0x00}, 2},
    {"group", {0x0b, 0x0c}, 2},
    {"wire type 6", {0x0e, 0x00}, 2},
    {"string as a varint", {0x28, 0x01}, 2},
    {"bool as bytes", {0x22, 0x01, 0x00}, 3},
    {"message cut inside", {0x0a, 0x03, 0x12, 0x05, 'a'}, 5},
    {"64 bits cut off", {0xa9, 0x06, 1, 2, 3}, 5},
};

START_TEST(bytes_that_are_no_message_are_refused)
{
    struct findings findings;
    bool is_taken = check_bytes(ACQUIRE, broken[_i].bytes, broken[_i].size, &findings);

    ck_assert_msg(!is_taken, "%s", broken[_i].name);
    ck_assert_uint_eq(findings.count, 1);
    ck_assert(findings.is_fatal);
}
END_TEST

START_TEST(message_field_that_comes_twice_is_refused)
{
    /* scope {} scope {} */
    static const uint8_t bytes[] = {0x0a, 0x00, 0x0a, 0x00};
    struct findings findings;

    ck_assert(!check_bytes(ACQUIRE, bytes, sizeof(bytes), &findings));
    ck_assert_str_eq(findings.field, "scope");
}
END_TEST

START_TEST(ten_thousand_items_are_taken_and_one_more_is_not)
{
    size_t limit = LH_WIRE_REPEATED_MAX;
    uint8_t *bytes = calloc(limit + 1, 2);
    struct findings findings;

    for (size_t i = 0; i <= limit; i++)
        bytes[2 * i] = 0x0a;
    ck_assert(check_bytes(HEARTBEAT, bytes, limit * 2, &findings));
    ck_assert_uint_eq(findings.count, 0);
    ck_assert(!check_bytes(HEARTBEAT, bytes, (limit + 1) * 2, &findings));
    ck_assert(findings.is_fatal);
    ck_assert_str_eq(findings.field, "leases[10000]");
    free(bytes);
}
END_TEST

START_TEST(many_fields_are_refused_before_they_cost_memory)
{
    size_t count = LH_WIRE_FIELDS_MAX + 1;
    uint8_t *bytes = calloc(count, 2);
    struct findings findings;

    for (size_t i = 0; i < count; i++) /* wait_forever, again and again */
        bytes[2 * i] = 0x20;
    ck_assert(check_bytes(ACQUIRE, bytes, (count - 1) * 2, &findings));
    ck_assert(!check_bytes(ACQUIRE, bytes, count * 2, &findings));
    free(bytes);
}
END_TEST

START_TEST(findings_are_bounded)
{
    /* 5000 labels whose names are not UTF-8: each is an item of the request's own repeated field, told once. Outside of
       items: 5000 namespace segments of one scope. */
    size_t count = 5000;
    uint8_t *bytes = calloc(count, 3);
    struct findings findings;
    uint8_t header[4] = {0x0a, 0x98, 0x75, 0}; /* scope, 15000 bytes */
    uint8_t *message = malloc(3 + count * 3);

    for (size_t i = 0; i < count; i++)
        memcpy(bytes + 3 * i, "\x0a\x01\xff", 3);
    memcpy(message, header, 3);
    memcpy(message + 3, bytes, count * 3);
    ck_assert(check_bytes(ACQUIRE, message, 3 + count * 3, &findings));
    ck_assert_uint_eq(findings.count, 16);
    free(message);
    free(bytes);
}
END_TEST

static uint64_t random_state;

static uint32_t next_random(void)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33);
}

static const ProtobufCMessageDescriptor *const fuzzed_types[] = {
    &leasehold__v1__acquire_request__descriptor,       &leasehold__v1__heartbeat_request__descriptor,
    &leasehold__v1__release_request__descriptor,       &leasehold__v1__set_policy_request__descriptor,
    &leasehold__v1__list_leases_request__descriptor,   &leasehold__v1__reap_request__descriptor,
    &leasehold__v1__force_release_request__descriptor, &grpc__reflection__v1__server_reflection_request__descriptor,
    &leasehold__v1__lease_event__descriptor,
};

/* Each string that the message has, wherever it lies. */
static void check_strings(const ProtobufCMessage *message)
{
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        const char *member = (const char *)message + field->offset;
        size_t count = field->label == PROTOBUF_C_LABEL_REPEATED
                           ? *(const size_t *)(const void *)((const char *)message + field->quantifier_offset)
                           : 1;
        void *const *values = field->label == PROTOBUF_C_LABEL_REPEATED ? *(void *const *const *)(const void *)member
                                                                        : (void *const *)(const void *)member;
        if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0 &&
            *(const int *)(const void *)((const char *)message + field->quantifier_offset) != (int)field->id)
            continue;
        for (size_t j = 0; j < count; j++) {
            if (field->type == PROTOBUF_C_TYPE_STRING)
                ck_assert(values[j] == NULL || lh_utf8_is_valid(values[j], strlen(values[j])));
            else if (field->type == PROTOBUF_C_TYPE_MESSAGE && values[j] != NULL)
                check_strings(values[j]);
        }
    }
}

/* Random bytes, and messages with some bytes changed: what passes without a finding unpacks, and has good strings. */
START_TEST(no_bytes_do_harm)
{
    uint64_t seed = (uint64_t)time(NULL) ^ (uint64_t)clock();
    unsigned passed = 0;

    random_state = seed;
    printf("fuzzing wire checks with seed %llu\n", (unsigned long long)seed);
    for (unsigned round = 0; round < 30000; round++) {
        const ProtobufCMessageDescriptor *type =
            fuzzed_types[next_random() % (sizeof(fuzzed_types) / sizeof(fuzzed_types[0]))];
        struct findings findings;
        uint8_t *bytes;
        size_t size;

        if (round % 2 == 0) {
            Leasehold__V1__AcquireRequest *request = new_acquire_request();
            struct packed packed;
            add_label(request, "name", "value");
            packed = to_bytes(&request->base);
            type = ACQUIRE;
            size = packed.size;
            bytes = malloc(size);
            memcpy(bytes, packed.data, size);
            for (unsigned i = next_random() % 4; i > 0; i--)
                bytes[next_random() % size] = (uint8_t)next_random();
        } else {
            size = next_random() % 40;
            bytes = malloc(size + 1);
            for (size_t i = 0; i < size; i++)
                bytes[i] = (uint8_t)(next_random() % 3 == 0 ? next_random() : next_random() % 0x30);
        }
        if (check_bytes(type, bytes, size, &findings) && findings.count == 0) {
            ProtobufCMessage *message = lh_wire_unpack(type, bytes, size, &test_arena);
            ck_assert_msg(message != NULL, "seed %llu round %u", (unsigned long long)seed, round);
            check_strings(message);
            passed++;
        }
        free(bytes);
        test_arena_reset();
    }
    ck_assert_uint_gt(passed, 1000);
}
END_TEST

Suite *wire_suite(void)
{
    Suite *suite = suite_create("service wire");
    TCase *tcase = tcase_create("wire");

    tcase_add_checked_fixture(tcase, NULL, test_arena_reset);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, request_that_is_right_has_no_findings);
    tcase_add_test(tcase, strings_with_nul_are_named);
    tcase_add_test(tcase, strings_that_are_no_utf8_are_named);
    tcase_add_test(tcase, finding_in_a_batch_names_its_item);
    tcase_add_test(tcase, unknown_enum_values_are_named);
    tcase_add_test(tcase, fields_of_a_newer_client_are_passed_over);
    tcase_add_loop_test(tcase, bytes_that_are_no_message_are_refused, 0, sizeof(broken) / sizeof(broken[0]));
    tcase_add_test(tcase, message_field_that_comes_twice_is_refused);
    tcase_add_test(tcase, ten_thousand_items_are_taken_and_one_more_is_not);
    tcase_add_test(tcase, many_fields_are_refused_before_they_cost_memory);
    tcase_add_test(tcase, findings_are_bounded);
    tcase_add_test(tcase, no_bytes_do_harm);
    suite_add_tcase(suite, tcase);
    return suite;
}
