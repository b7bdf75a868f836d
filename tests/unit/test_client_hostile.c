/* Answers that no server of ours gives. */
#include <check.h>
#include <stdint.h>

#include "client/acquire_internal.h"
#include "client/reply.h"
#include "google/rpc/error_details.pb-c.h"
#include "google/rpc/status.pb-c.h"
#include "test_client.h"

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

TCase *tcase_client_hostile(void)
{
    TCase *tcase = tcase_create("client_hostile");

    tcase_add_test(tcase, error_for_the_reason_ok_is_an_error);
    tcase_add_test(tcase, delay_that_no_server_means_is_none);
    tcase_add_test(tcase, times_that_no_database_has_do_not_overflow);
    tcase_add_test(tcase, answer_that_cannot_be_read_leaves_in_doubt_what_the_server_did);
    return tcase;
}
