/* What a client may send, and what is said to what it may not. */
#include <string.h>

#include "test_rpc.h"

static struct raw raw;

static void setup(void)
{
    rpc_setup();
    raw_open(&raw);
}

static void teardown(void)
{
    raw_close(&raw);
    rpc_teardown();
}

static void expect_status(int32_t stream_id, int code, const char *details)
{
    struct raw_answer *answer = raw_answer(&raw, stream_id);

    raw_wait_closed(&raw, stream_id);
    ck_assert_int_eq(answer->http_status, 200);
    ck_assert_msg(answer->grpc_status == code, "%d: %s", answer->grpc_status, answer->message);
    ck_assert_str_eq(answer->details, details);
}

START_TEST(call_is_answered_wherever_the_connection_cuts_its_bytes)
{
    size_t size = 0;

    raw_close(&raw);
    for (size_t cut = 0; cut == 0 || cut <= size; cut++) {
        int32_t stream_id;
        raw_open(&raw);
        stream_id = raw_call(&raw, "/t.T/Echo", NULL);
        raw_message(&raw, stream_id, "hello", true);
        size = raw.out.size;
        raw_write(&raw, cut);
        raw_pump(&raw);
        raw_pump(&raw);
        raw_write(&raw, raw.out.size);
        raw_expect_echo(&raw, stream_id, "hello");
        raw_close(&raw);
    }
    WAIT_FOR(ends_total() == heard.messages);
    ck_assert_int_eq(heard.ends[LH_RPC_END_FINISHED], heard.messages);
}
END_TEST

START_TEST(call_is_answered_byte_by_byte)
{
    int32_t stream_id = raw_call(&raw, "/t.T/Echo", NULL);

    raw_message(&raw, stream_id, "slowly", true);
    while (raw.out.size > 0) {
        raw_write(&raw, 1);
        raw_pump(&raw);
    }
    raw_expect_echo(&raw, stream_id, "slowly");
}
END_TEST

START_TEST(message_may_be_cut_into_data_frames_anywhere)
{
    static const char bytes[] = "\0\0\0\0\5hello";
    const size_t size = 10;

    for (size_t first = 0; first <= size; first++) {
        for (size_t second = first; second <= size; second++) {
            int32_t stream_id;
            raw_close(&raw);
            raw_open(&raw);
            stream_id = raw_call(&raw, "/t.T/Echo", NULL);
            raw_data(&raw, stream_id, bytes, first, false);
            raw_flush(&raw);
            if (second % 2 == 0) /* sometimes in one read, sometimes in several */
                raw_pump(&raw);
            raw_data(&raw, stream_id, bytes + first, second - first, false);
            raw_data(&raw, stream_id, bytes + second, size - second, false);
            raw_flush(&raw);
            if (first % 2 == 0)
                raw_pump(&raw);
            raw_data(&raw, stream_id, "", 0, true);
            raw_flush(&raw);
            raw_expect_echo(&raw, stream_id, "hello");
        }
    }
}
END_TEST

START_TEST(unary_message_is_not_handed_over_before_the_end_of_its_half)
{
    static char long_text[2000]; /* what is read after the first message covers the place where that was read */
    int32_t first = raw_call(&raw, "/t.T/Echo", NULL), second;

    memset(long_text, 'z', sizeof(long_text) - 1);
    raw_message(&raw, first, "waits", false);
    raw_flush(&raw);
    raw_pump(&raw);
    second = raw_call(&raw, "/t.T/Echo", NULL);
    raw_message(&raw, second, long_text, true);
    raw_flush(&raw);
    raw_expect_echo(&raw, second, long_text);
    ck_assert_int_eq(heard.messages, 1);
    raw_data(&raw, first, "", 0, true);
    raw_flush(&raw);
    raw_expect_echo(&raw, first, "waits");
}
END_TEST

START_TEST(second_message_of_a_unary_call_is_refused)
{
    int32_t stream_id = raw_call(&raw, "/t.T/Echo", NULL);

    raw_message(&raw, stream_id, "one", false);
    raw_message(&raw, stream_id, "two", true);
    raw_flush(&raw);
    expect_status(stream_id, LH_GRPC_UNIMPLEMENTED, "VU5JTVBMRU1FTlRFRA");
    ck_assert_int_eq(heard.messages, 0);
    ck_assert_int_eq(ends_total(), 0);
}
END_TEST

START_TEST(unary_call_without_a_message_or_with_half_of_one_is_refused)
{
    int32_t empty = raw_call(&raw, "/t.T/Echo", NULL), half;

    raw_data(&raw, empty, "", 0, true);
    half = raw_call(&raw, "/t.T/Echo", NULL);
    raw_data(&raw, half, "\0\0\0\0\5he", 7, true);
    raw_flush(&raw);
    expect_status(empty, LH_GRPC_UNIMPLEMENTED, "VU5JTVBMRU1FTlRFRA");
    expect_status(half, LH_GRPC_INVALID_ARGUMENT, "SU5WQUxJRF9BUkdVTUVOVA");
    ck_assert_int_eq(heard.messages, 0);
}
END_TEST

START_TEST(compressed_message_is_refused_and_told_what_is_taken)
{
    static const char *const gzip[] = {"grpc-encoding", "gzip", NULL};
    int32_t plain = raw_call(&raw, "/t.T/Echo", gzip), packed;

    raw_message(&raw, plain, "flag 0", true);
    packed = raw_call(&raw, "/t.T/Echo", gzip);
    raw_data(&raw, packed, "\1\0\0\0\1x", 6, true);
    raw_flush(&raw);
    raw_expect_echo(&raw, plain, "flag 0");
    expect_status(packed, LH_GRPC_UNIMPLEMENTED, "VU5JTVBMRU1FTlRFRA");
    ck_assert_str_eq(raw_answer(&raw, packed)->encodings, "identity");
}
END_TEST

START_TEST(message_that_is_too_long_is_refused_at_its_prefix_and_the_stream_reset_without_error)
{
    int32_t stream_id = raw_call(&raw, "/t.T/Echo", NULL), next;

    raw_data(&raw, stream_id, "\0\0\x40\0\1", 5, false); /* 4 MiB + 1 */
    raw_flush(&raw);
    expect_status(stream_id, LH_GRPC_RESOURCE_EXHAUSTED, "TUVTU0FHRV9UT09fTEFSR0U");
    RAW_WAIT(&raw, raw_answer(&raw, stream_id)->error == NGHTTP2_NO_ERROR);
    /* What was on its way does no harm. */
    raw_data(&raw, stream_id, "more of it", 10, true);
    next = raw_call(&raw, "/t.T/Echo", NULL);
    raw_message(&raw, next, "next", true);
    raw_flush(&raw);
    raw_expect_echo(&raw, next, "next");
}
END_TEST

START_TEST(requests_that_are_not_grpc_are_told_so_in_http)
{
    int32_t get = raw_request(&raw, "GET", "/t.T/Echo", "application/grpc", NULL);
    int32_t json = raw_request(&raw, "POST", "/t.T/Echo", "application/json", NULL);
    int32_t bare = raw_request(&raw, "POST", "/t.T/Echo", NULL, NULL);
    int32_t web = raw_request(&raw, "POST", "/t.T/Echo", "application/grpc-web", NULL);
    int32_t proto = raw_request(&raw, "POST", "/t.T/Echo", "application/grpc+proto", NULL);

    raw_message(&raw, proto, "fine", true);
    raw_flush(&raw);
    raw_expect_echo(&raw, proto, "fine");
    raw_wait_closed(&raw, get);
    ck_assert_int_eq(raw_answer(&raw, get)->http_status, 405);
    raw_wait_closed(&raw, web);
    ck_assert_int_eq(raw_answer(&raw, json)->http_status, 415);
    ck_assert_int_eq(raw_answer(&raw, bare)->http_status, 415);
    ck_assert_int_eq(raw_answer(&raw, web)->http_status, 415);
}
END_TEST

START_TEST(unknown_method_is_unimplemented)
{
    int32_t stream_id = raw_call(&raw, "/t.T/Nothing", NULL);

    raw_flush(&raw);
    expect_status(stream_id, LH_GRPC_UNIMPLEMENTED, "VU5JTVBMRU1FTlRFRA");
    ck_assert_str_eq(raw_answer(&raw, stream_id)->message, "there is no method /t.T/Nothing");
}
END_TEST

START_TEST(headers_are_counted_and_too_many_are_refused)
{
    static char value[4000];
    const char *const fits[] = {"a", value, "b", value, "c", value, NULL};
    const char *const beyond[] = {"a", value, "b", value, "c", value, "d", value, "e", value, NULL};
    int32_t good, bad;

    memset(value, 'v', sizeof(value) - 1);
    good = raw_call(&raw, "/t.T/Echo", fits);
    raw_message(&raw, good, "fits", true);
    bad = raw_call(&raw, "/t.T/Echo", beyond);
    raw_message(&raw, bad, "beyond", true);
    raw_flush(&raw);
    raw_expect_echo(&raw, good, "fits");
    expect_status(bad, LH_GRPC_RESOURCE_EXHAUSTED, "TUVTU0FHRV9UT09fTEFSR0U");
}
END_TEST

START_TEST(timeout_that_cannot_be_read_is_refused)
{
    static const char *const bad[] = {"grpc-timeout", "5 seconds", NULL};
    int32_t stream_id = raw_call(&raw, "/t.T/Echo", bad);

    raw_message(&raw, stream_id, "x", true);
    raw_flush(&raw);
    expect_status(stream_id, LH_GRPC_INVALID_ARGUMENT, "SU5WQUxJRF9BUkdVTUVOVA");
}
END_TEST

START_TEST(unfinished_requests_of_one_connection_are_bounded)
{
    static char half[200000];
    struct lh_rpc_server_stats stats;
    int32_t refused = 0;

    lh_rpc_server_destroy(server);
    server_options.connection_memory = 2 * 1024 * 1024;
    server_start();
    raw_close(&raw);
    raw_open(&raw);
    memcpy(half, "\0\0\x3f\xff\xff", 5);
    for (int i = 0; i < 10; i++) {
        int32_t stream_id = raw_call(&raw, "/t.T/Echo", NULL);
        for (size_t at = 0; at < sizeof(half); at += 10000)
            raw_data(&raw, stream_id, half + at, 10000, false);
        raw_flush(&raw);
        raw_pump(&raw);
        refused = stream_id;
    }
    RAW_WAIT(&raw, raw_answer(&raw, refused)->is_closed);
    expect_status(refused, LH_GRPC_RESOURCE_EXHAUSTED, "T1ZFUkxPQURFRA");
    raw_close(&raw);
    do
        virtual_clock_turn(loop);
    while (lh_rpc_server_stats(server, &stats), stats.connections > 0);
    ck_assert_uint_eq(stats.buffered_bytes, 0);
    ck_assert_uint_eq(stats.calls, 0);
}
END_TEST

TCase *input_tests(void)
{
    TCase *tests = tcase_create("input");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, call_is_answered_wherever_the_connection_cuts_its_bytes);
    tcase_add_test(tests, call_is_answered_byte_by_byte);
    tcase_add_test(tests, message_may_be_cut_into_data_frames_anywhere);
    tcase_add_test(tests, unary_message_is_not_handed_over_before_the_end_of_its_half);
    tcase_add_test(tests, second_message_of_a_unary_call_is_refused);
    tcase_add_test(tests, unary_call_without_a_message_or_with_half_of_one_is_refused);
    tcase_add_test(tests, compressed_message_is_refused_and_told_what_is_taken);
    tcase_add_test(tests, message_that_is_too_long_is_refused_at_its_prefix_and_the_stream_reset_without_error);
    tcase_add_test(tests, requests_that_are_not_grpc_are_told_so_in_http);
    tcase_add_test(tests, unknown_method_is_unimplemented);
    tcase_add_test(tests, headers_are_counted_and_too_many_are_refused);
    tcase_add_test(tests, timeout_that_cannot_be_read_is_refused);
    tcase_add_test(tests, unfinished_requests_of_one_connection_are_bounded);
    return tests;
}
