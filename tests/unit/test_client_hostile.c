/* Answers that no server of ours gives. */
#include <check.h>
#include <stdint.h>
#include <stdio.h>

#include "client/acquire_internal.h"
#include "client/reply.h"
#include "client_fixture.h"
#include "google/rpc/error_details.pb-c.h"
#include "google/rpc/status.pb-c.h"

static struct lh_reply reply;

/* An error with this detail. */
static void fail_with(const char *type_url, const ProtobufCMessage *detail)
{
    Google__Rpc__Status status = GOOGLE__RPC__STATUS__INIT;
    Google__Protobuf__Any any = GOOGLE__PROTOBUF__ANY__INIT, *anys = &any;
    uint8_t packed[512], value[256];
    struct lh_rpc_result result = {
        .code = LH_GRPC_ABORTED, .delivery = LH_RPC_ANSWERED, .message = "words", .details = packed};

    any.type_url = (char *)(uintptr_t)type_url;
    any.value.data = value;
    any.value.len = protobuf_c_message_pack(detail, value);
    status.details = &anys;
    status.n_details = 1;
    result.details_size = google__rpc__status__pack(&status, packed);
    lh_reply_fill(&reply, &result, &leasehold__v1__acquire_response__descriptor);
}

START_TEST(error_for_the_reason_ok_is_an_error)
{
    Google__Rpc__ErrorInfo info = GOOGLE__RPC__ERROR_INFO__INIT;

    info.domain = (char *)(uintptr_t) "leasehold";
    info.reason = (char *)(uintptr_t) "OK";
    fail_with("type.googleapis.com/google.rpc.ErrorInfo", &info.base);
    ck_assert(!reply.has_reason);
    lh_reply_finish(&reply);
    info.reason = (char *)(uintptr_t) "LEASE_HELD";
    fail_with("type.googleapis.com/google.rpc.ErrorInfo", &info.base);
    ck_assert(reply.has_reason);
    ck_assert_int_eq(reply.reason, LH_LEASE_HELD);
    lh_reply_finish(&reply);
}
END_TEST

START_TEST(delay_that_no_server_means_is_none)
{
    static const int64_t delays_s[] = {INT64_MIN, INT64_MIN / 1000000, -1, 3600, INT64_MAX / 1000000, INT64_MAX};
    Google__Protobuf__Duration delay = GOOGLE__PROTOBUF__DURATION__INIT;
    Google__Rpc__RetryInfo info = GOOGLE__RPC__RETRY_INFO__INIT;

    for (size_t i = 0; i < sizeof(delays_s) / sizeof(delays_s[0]); i++) {
        delay.seconds = delays_s[i];
        info.retry_delay = &delay;
        fail_with("type.googleapis.com/google.rpc.RetryInfo", &info.base);
        ck_assert_int_eq(reply.retry_after_us, 0);
        lh_reply_finish(&reply);
    }
    delay.seconds = 3;
    fail_with("type.googleapis.com/google.rpc.RetryInfo", &info.base);
    ck_assert_int_eq(reply.retry_after_us, 3000000);
    lh_reply_finish(&reply);
}
END_TEST

static struct lh_obstacle told;

static void on_waiting(void *arg, const struct lh_obstacle *obstacle)
{
    told = *obstacle;
}

/* Each difference is beyond 64 bits of microseconds, or the time is. */
START_TEST(times_that_no_database_has_do_not_overflow)
{
    static const int64_t times_s[] = {INT64_MIN, INT64_MAX, 9223372036853, -9223372036853};
    Leasehold__V1__Contention contention = LEASEHOLD__V1__CONTENTION__INIT;
    Leasehold__V1__Lease holder = LEASEHOLD__V1__LEASE__INIT;
    Google__Protobuf__Timestamp deadline = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    Google__Protobuf__Timestamp acquired_at = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    struct acquire_op op = {.options.on_waiting = on_waiting};

    contention.holder = &holder;
    holder.deadline = &deadline;
    holder.acquired_at = holder.heartbeat_at = &acquired_at;
    for (size_t i = 0; i < 4; i++) {
        deadline.seconds = times_s[i];
        acquired_at.seconds = times_s[(i + 1) % 4];
        lh_acquire_tell(&op, &contention);
    }
    deadline.seconds = -9223372036853;
    acquired_at.seconds = 9223372036853;
    lh_acquire_tell(&op, &contention);
    ck_assert_int_eq(told.held_us, 0);
    deadline.seconds = 5;
    acquired_at.seconds = 3;
    lh_acquire_tell(&op, &contention);
    ck_assert_int_eq(told.held_us, 2000000);
}
END_TEST

START_TEST(duration_beyond_its_bounds_is_none)
{
    Google__Protobuf__Duration duration = GOOGLE__PROTOBUF__DURATION__INIT;

    duration.seconds = 9223372036853;
    duration.nanos = INT32_MAX;
    ck_assert_int_eq(lh_unpack_duration_us(&duration), 0);
    duration.seconds = -9223372036853;
    duration.nanos = INT32_MIN;
    ck_assert_int_eq(lh_unpack_duration_us(&duration), 0);
}
END_TEST

START_TEST(answer_that_cannot_be_read_leaves_in_doubt_what_the_server_did)
{
    struct lh_rpc_result result = {
        .code = LH_GRPC_OK, .delivery = LH_RPC_ANSWERED, .reply = (const unsigned char *)"\xff", .reply_size = 1};

    lh_reply_fill(&reply, &result, &leasehold__v1__acquire_response__descriptor);
    ck_assert_int_eq(reply.code, LH_GRPC_INTERNAL);
    ck_assert_int_eq(reply.delivery, LH_RPC_IN_FLIGHT);
    lh_reply_finish(&reply);
}
END_TEST

static void name_another_lease(void)
{
    snprintf(fake.other_key, sizeof(fake.other_key), "%s", "6f1ed002-ab5f-4cbc-9c4a-3b1e0a2f9b10");
}

START_TEST(answer_with_another_lease_key_grants_nothing_and_what_was_granted_is_given_back)
{
    struct answer answer;

    name_another_lease();
    acquire("a", NULL, &answer);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_INTERNAL);
    ck_assert_ptr_null(answer.lease);
    fake.other_key[0] = '\0';
    WAIT_FOR(fake.calls[FAKE_RELEASE] == 1);
}
END_TEST

START_TEST(renewal_that_is_answered_for_another_lease_renews_nothing)
{
    struct lh_lease *lease;

    client_declare(LH_US_PER_S, 0);
    lease = held("a");
    name_another_lease();
    WAIT_FOR(loss.count == 1);
    ck_assert(!lh_lease_is_held(lease));
    lh_lease_destroy(lease);
}
END_TEST

START_TEST(answer_for_another_lease_is_none_to_a_heartbeat_and_to_a_release)
{
    struct lh_lease *lease = held("a");
    struct answer answer = {0};

    name_another_lease();
    ck_assert_int_eq(lh_heartbeat_async(lease, NULL, on_done, &answer, NULL, NULL), LH_OK);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_INTERNAL);
    release(lease, &answer);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_INTERNAL);
    lh_lease_destroy(lease);
}
END_TEST

START_TEST(set_of_releases_that_is_answered_for_other_leases_is_sent_again)
{
    struct lh_lease *lease = held("a");

    name_another_lease();
    lh_lease_destroy(lease);
    WAIT_FOR(fake.calls[FAKE_RELEASE] == 1);
    fake.other_key[0] = '\0';
    WAIT_FOR(fake.calls[FAKE_RELEASE] == 2 && stats().releases == 0);
}
END_TEST

/* Else the lease would never be renewed, for its last renewal would lie ahead. */
START_TEST(grant_that_claims_to_be_later_than_its_answer_is_a_lease_like_any_other)
{
    struct lh_lease *lease;

    fake.waited_us = 1000 * 86400 * LH_US_PER_S;
    lease = held("a");
    ck_assert_int_le(lh_lease_remaining_us(lease), 30 * LH_US_PER_S);
    WAIT_FOR(stats().renewals >= 1);
    lh_lease_destroy(lease);
}
END_TEST

START_TEST(lease_is_believed_no_longer_than_it_was_asked_for)
{
    struct lh_lease *lease;

    fake.remaining_us = 1000 * 86400 * LH_US_PER_S;
    lease = held("a");
    ck_assert_int_le(lh_lease_remaining_us(lease), 30 * LH_US_PER_S);
    WAIT_FOR(stats().renewals >= 1);
    ck_assert_int_le(lh_lease_remaining_us(lease), 30 * LH_US_PER_S);
    lh_lease_destroy(lease);
}
END_TEST

START_TEST(grant_with_times_long_before_it_is_over)
{
    struct answer answer;

    fake.waited_us = fake.remaining_us = -9223372036853 * LH_US_PER_S;
    acquire("a", NULL, &answer);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_LOST);
    ck_assert_ptr_null(answer.lease);
}
END_TEST

START_TEST(what_a_proxy_that_lost_the_server_may_have_passed_on_is_given_back)
{
    struct answer answer;

    fake_next(&fake, FAKE_ACQUIRE, FAKE_FAIL, 1000, LH_OK);
    acquire("a", &(struct lh_acquire_options){.timeout_us = LH_SECOND}, &answer);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_ne(answer.status, LH_OK);
    ck_assert_uint_gt(fake.calls[FAKE_ACQUIRE], 1);
    WAIT_FOR(fake.calls[FAKE_RELEASE] == 1);
}
END_TEST

TCase *tcase_client_hostile(void)
{
    TCase *tcase = tcase_create("client_hostile");

    tcase_add_checked_fixture(tcase, client_setup, client_teardown);
    tcase_add_test(tcase, duration_beyond_its_bounds_is_none);
    tcase_add_test(tcase, answer_that_cannot_be_read_leaves_in_doubt_what_the_server_did);
    tcase_add_test(tcase, answer_with_another_lease_key_grants_nothing_and_what_was_granted_is_given_back);
    tcase_add_test(tcase, renewal_that_is_answered_for_another_lease_renews_nothing);
    tcase_add_test(tcase, answer_for_another_lease_is_none_to_a_heartbeat_and_to_a_release);
    tcase_add_test(tcase, set_of_releases_that_is_answered_for_other_leases_is_sent_again);
    tcase_add_test(tcase, grant_that_claims_to_be_later_than_its_answer_is_a_lease_like_any_other);
    tcase_add_test(tcase, lease_is_believed_no_longer_than_it_was_asked_for);
    tcase_add_test(tcase, grant_with_times_long_before_it_is_over);

    tcase_add_test(tcase, error_for_the_reason_ok_is_an_error);
    tcase_add_test(tcase, delay_that_no_server_means_is_none);
    tcase_add_test(tcase, times_that_no_database_has_do_not_overflow);
    tcase_add_test(tcase, what_a_proxy_that_lost_the_server_may_have_passed_on_is_given_back);
    return tcase;
}
