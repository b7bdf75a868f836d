/* The fields of a schedule and of a claim at their limits and one beyond, and what they become for the store. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "service/call_internal.h"
#include "test_service_validate.h"
#include "json/row_message.h"

static Leasehold__V1__Namespace name;
static Leasehold__V1__Schedule schedule;
static struct lh_schedule_settings settings;

static void begin(void)
{
    static char *segments[] = {(char *)"reports", (char *)"nightly"};

    leasehold__v1__namespace__init(&name);
    name.segments = segments;
    name.n_segments = 2;
    leasehold__v1__schedule__init(&schedule);
    schedule.namespace_ = &name;
    schedule.expression = (char *)"@daily";
}

static bool check(void)
{
    settings = (struct lh_schedule_settings){0};
    return lh_schedule_from_request(validator(), &schedule, &settings);
}

static const char *setting(const char *of)
{
    for (size_t i = 0; i < settings.change.count; i++)
        if (strcmp(settings.change.names[i], of) == 0)
            return settings.change.values[i];
    return NULL;
}

START_TEST(a_schedule_needs_a_name_and_an_expression)
{
    expect_violation("none", lh_schedule_from_request(validator(), NULL, &settings), "schedule");
    expect_violation("least", check(), NULL);
    ck_assert_str_eq(settings.change.ns, "reports.nightly");
    ck_assert_str_eq(setting("expression"), "@daily");
    ck_assert_str_eq(setting("time_zone"), "UTC");
    ck_assert_str_eq(setting("catch_up"), "last");
    ck_assert_str_eq(setting("catch_up_max"), "100");
    ck_assert_str_eq(setting("overlap"), "1");
    ck_assert_str_eq(setting("attempts"), "3");
    ck_assert_ptr_null(setting("backoff"));
    ck_assert_ptr_null(setting("tick_deadline"));
    schedule.expression = repeated("x", 256);
    expect_violation("256", check(), NULL);
    schedule.expression = repeated("x", 257);
    expect_violation("257", check(), "schedule.expression");
    schedule.expression = (char *)"a\nb";
    expect_violation("control", check(), "schedule.expression");
    schedule.expression = (char *)"@daily";
    schedule.time_zone = repeated("z", 64);
    expect_violation("zone", check(), "schedule.time_zone");
    schedule.namespace_ = NULL;
    expect_violation("no name", check(), "schedule.namespace");
}
END_TEST

static const struct {
    const char *field;
    size_t offset;
    int64_t least_us;
    int64_t most_us;
} durations[] = {
    {"schedule.tick_deadline", offsetof(Leasehold__V1__Schedule, tick_deadline), LH_US_PER_S,
     INT64_C(366) * 86400 * LH_US_PER_S},
    {"schedule.jitter", offsetof(Leasehold__V1__Schedule, jitter), 0, INT64_C(86400) * LH_US_PER_S},
    {"schedule.backoff", offsetof(Leasehold__V1__Schedule, backoff), 0, INT64_C(86400) * LH_US_PER_S},
};

START_TEST(durations_of_a_schedule_have_these_bounds)
{
    Google__Protobuf__Duration **field = (void *)((char *)&schedule + durations[_i].offset);

    *field = lh_message_duration(durations[_i].least_us, &test_arena);
    expect_violation("least", check(), NULL);
    *field = lh_message_duration(durations[_i].most_us, &test_arena);
    expect_violation("most", check(), NULL);
    ck_assert_int_eq(strtoll(setting(durations[_i].field + strlen("schedule.")), NULL, 10), durations[_i].most_us);
    *field = lh_message_duration(durations[_i].least_us - 1, &test_arena);
    expect_violation("less", check(), durations[_i].field);
    *field = lh_message_duration(durations[_i].most_us + 1, &test_arena);
    expect_violation("more", check(), durations[_i].field);
}
END_TEST

static const struct {
    const char *field;
    size_t offset;
} counts[] = {
    {"schedule.catch_up_max", offsetof(Leasehold__V1__Schedule, catch_up_max)},
    {"schedule.overlap", offsetof(Leasehold__V1__Schedule, overlap)},
    {"schedule.attempts", offsetof(Leasehold__V1__Schedule, attempts)},
};

START_TEST(counts_of_a_schedule_are_1_to_1000)
{
    int32_t *field = (void *)((char *)&schedule + counts[_i].offset);

    *field = 1000;
    expect_violation("1000", check(), NULL);
    ck_assert_str_eq(setting(counts[_i].field + strlen("schedule.")), "1000");
    *field = 1001;
    expect_violation("1001", check(), counts[_i].field);
    *field = -1;
    expect_violation("-1", check(), counts[_i].field);
}
END_TEST

START_TEST(a_schedule_ends_after_its_start)
{
    schedule.starts_at = lh_message_timestamp(INT64_C(1800000000000000), &test_arena);
    schedule.ends_at = lh_message_timestamp(INT64_C(1800000000000001), &test_arena);
    expect_violation("after", check(), NULL);
    ck_assert_str_eq(setting("starts_at"), "1800000000000000");
    ck_assert_str_eq(setting("ends_at"), "1800000000000001");
    schedule.ends_at = schedule.starts_at;
    expect_violation("same", check(), "schedule.ends_at");
    schedule.ends_at = lh_message_timestamp(INT64_C(1900000000000000), &test_arena);
    schedule.ends_at->nanos = 1000000000;
    expect_violation("nanos", check(), "schedule.ends_at");
    schedule.ends_at->nanos = 0;
    schedule.ends_at->seconds = INT64_C(253402300800);
    expect_violation("the year 10000", check(), "schedule.ends_at");
}
END_TEST

START_TEST(catch_up_is_one_of_three)
{
    static const char *const words[] = {"last", "none", "last", "all"};

    for (int i = 0; i < 4; i++) {
        schedule.catch_up = (Leasehold__V1__CatchUp)i;
        expect_violation(words[i], check(), NULL);
        ck_assert_str_eq(setting("catch_up"), words[i]);
    }
    schedule.catch_up = (Leasehold__V1__CatchUp)4;
    expect_violation("4", check(), "schedule.catch_up");
    schedule.catch_up = (Leasehold__V1__CatchUp)-1;
    expect_violation("-1", check(), "schedule.catch_up");
}
END_TEST

START_TEST(a_claim_is_checked_as_an_acquire)
{
    Leasehold__V1__ClaimTickRequest request = LEASEHOLD__V1__CLAIM_TICK_REQUEST__INIT;
    struct lh_acquire acquire = {0};

    expect_violation("no name", lh_validate_claim(validator(), &request, &acquire), "namespace");
    request.namespace_ = &name;
    expect_violation("least", lh_validate_claim(validator(), &request, &acquire), NULL);
    ck_assert_str_eq(acquire.ns, "reports.nightly");
    ck_assert_int_eq(acquire.wait_us, 0);
    ck_assert_int_eq(acquire.terms.duration_us, 0);
    ck_assert_str_eq(acquire.terms.labels, "{}");
    ck_assert(!lh_uuid_is_zero(&acquire.lease_key));
    request.duration = lh_message_duration(0, &test_arena);
    expect_violation("no time", lh_validate_claim(validator(), &request, &acquire), "duration");
    request.duration = lh_message_duration(LH_US_PER_S, &test_arena);
    request.wait = lh_message_duration(-1, &test_arena);
    expect_violation("wait", lh_validate_claim(validator(), &request, &acquire), "wait");
    request.wait = lh_message_duration(LH_US_PER_S, &test_arena);
    request.lease_key = (char *)"00000000-0000-0000-0000-000000000000";
    expect_violation("key", lh_validate_claim(validator(), &request, &acquire), "lease_key");
    request.lease_key = (char *)"6f2c1f0e-5d0b-4b57-9a35-0c8f6c2e7a11";
    request.owner = repeated("o", 256);
    expect_violation("owner", lh_validate_claim(validator(), &request, &acquire), "owner");
    request.owner = repeated("o", 255);
    expect_violation("good", lh_validate_claim(validator(), &request, &acquire), NULL);
    ck_assert_int_eq(acquire.wait_us, LH_US_PER_S);
    ck_assert_int_eq(acquire.terms.duration_us, LH_US_PER_S);
}
END_TEST

TCase *tcase_validate_schedule(void)
{
    TCase *tcase = tcase_create("validate schedule");

    tcase_add_checked_fixture(tcase, begin, test_arena_reset);
    tcase_add_test(tcase, a_schedule_needs_a_name_and_an_expression);
    tcase_add_loop_test(tcase, durations_of_a_schedule_have_these_bounds, 0, sizeof(durations) / sizeof(durations[0]));
    tcase_add_loop_test(tcase, counts_of_a_schedule_are_1_to_1000, 0, sizeof(counts) / sizeof(counts[0]));
    tcase_add_test(tcase, a_schedule_ends_after_its_start);
    tcase_add_test(tcase, catch_up_is_one_of_three);
    tcase_add_test(tcase, a_claim_is_checked_as_an_acquire);
    return tcase;
}
