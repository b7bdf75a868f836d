/* What a request's headers must be; nghttp2 does not look, so each rule is one of the server's own. */
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

static void expect_unharmed(void)
{
    int32_t stream_id = raw_call(&raw, "/t.T/Echo", NULL);
    raw_message(&raw, stream_id, "unharmed", true);
    raw_flush(&raw);
    raw_expect_echo(&raw, stream_id, "unharmed");
    ck_assert_int_eq(raw.goaways, 0);
}

#define GOOD "POST", ":scheme", "http", ":path", "/t.T/Echo"
#define FIELDS_MAX 24

/* Fields as they are, names and values by turns; nghttp2's client does not look at them. */
static int32_t submit(const char *const *texts)
{
    nghttp2_nv fields[FIELDS_MAX];
    size_t count = 0;
    int32_t stream_id;

    for (; texts[0] != NULL; texts += 2, count++)
        fields[count] = (nghttp2_nv){(uint8_t *)(uintptr_t)texts[0], (uint8_t *)(uintptr_t)texts[1], strlen(texts[0]),
                                     strlen(texts[1]), NGHTTP2_NV_FLAG_NO_COPY_NAME};
    stream_id = nghttp2_submit_headers(raw.session, NGHTTP2_FLAG_NONE, -1, NULL, fields, count, NULL);
    ck_assert_int_gt(stream_id, 0);
    raw_forget(&raw, stream_id);
    return stream_id;
}

#define TYPE "content-type", "application/grpc"

static const char *const malformed[][FIELDS_MAX] = {
    {":method", GOOD, ":status", "200", TYPE},
    {":method", GOOD, ":nonsense", "x", TYPE},
    {":method", GOOD, ":method", "POST", TYPE},
    {":method", GOOD, ":authority", "a", ":authority", "b", TYPE},
    {":method", GOOD, TYPE, ":authority", "late"},
    {":scheme", "http", ":path", "/t.T/Echo", TYPE},
    {":method", "POST", ":path", "/t.T/Echo", TYPE},
    {":method", "POST", ":scheme", "http", TYPE},
    {":method", "POST", ":scheme", "http", ":path", "", TYPE},
    {":method", "POST", ":scheme", "http", ":path", "t.T/Echo", TYPE},
    {":method", "PO ST", ":scheme", "http", ":path", "/t.T/Echo", TYPE},
    {":method", "POST", ":scheme", "ht tp", ":path", "/t.T/Echo", TYPE},
    {":method", GOOD, TYPE, "connection", "close"},
    {":method", GOOD, TYPE, "keep-alive", "1"},
    {":method", GOOD, TYPE, "proxy-connection", "close"},
    {":method", GOOD, TYPE, "transfer-encoding", "chunked"},
    {":method", GOOD, TYPE, "upgrade", "h2c"},
    {":method", GOOD, TYPE, "te", "gzip"},
    {":method", GOOD, TYPE, "X-Upper", "1"},
    {":method", GOOD, TYPE, "content-length", "x"},
    {":method", GOOD, TYPE, "content-length", "-1"},
    {":method", GOOD, TYPE, "content-length", "6", "content-length", "6"},
    {":method", GOOD, TYPE, "content-length", "7"},
    {":method", GOOD, TYPE, "content-length", "5"},
    {":method", GOOD, TYPE, "authorization", "Bearer "},
    {":method", GOOD, TYPE, "authorization", "Bearer\x01"},
    {":method", GOOD, TYPE, "authorization", "Bearer a", "authorization", "Bearer b"},
};

START_TEST(malformed_request_is_reset_and_nothing_else)
{
    int32_t stream_id = submit(malformed[_i]);

    raw_message(&raw, stream_id, "x", true);
    raw_flush(&raw);
    raw_wait_closed(&raw, stream_id);
    ck_assert_uint_eq(raw_answer(&raw, stream_id)->error, NGHTTP2_PROTOCOL_ERROR);
    ck_assert_int_eq(raw_answer(&raw, stream_id)->grpc_status, -1);
    ck_assert_int_eq(heard.messages, 0);
    expect_unharmed();
}
END_TEST

static const char *const sound[][FIELDS_MAX] = {
    {":method", GOOD, ":authority", "/run/leasehold.sock", TYPE}, /* grpc-java over a unix socket */
    {":method", GOOD, ":authority", "%2Frun%2Fleasehold.sock", TYPE},
    {":method", GOOD, ":authority", "", TYPE},
    {":method", GOOD, TYPE},
    {":method", GOOD, TYPE, "te", "trailers"},
    {":method", GOOD, TYPE, "te", "Trailers"},
    {":method", GOOD, TYPE, "host", "localhost"},
    {":method", GOOD, TYPE, "content-length", "6"},
    {":method", GOOD, TYPE, "x-empty", ""},
    {":method", GOOD, TYPE, "x-bad-value", "\001"}, /* passed over */
    {":method", GOOD, TYPE, "x bad name", "1"},     /* the same */
};

START_TEST(sound_request_is_answered)
{
    int32_t stream_id = submit(sound[_i]);

    raw_message(&raw, stream_id, "x", true);
    raw_flush(&raw);
    raw_expect_echo(&raw, stream_id, "x");
    expect_unharmed();
}
END_TEST

static void send_trailers(int32_t stream_id, const char *name, uint8_t flags)
{
    nghttp2_nv field = {(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t) "1", strlen(name), 1, 0};

    nghttp2_submit_headers(raw.session, flags, stream_id, NULL, &field, 1, NULL);
    raw_flush(&raw);
}

START_TEST(trailers_end_a_request)
{
    int32_t stream_id = raw_call(&raw, "/t.T/Echo", NULL);

    raw_message(&raw, stream_id, "with trailers", false);
    send_trailers(stream_id, "x-trailer", NGHTTP2_FLAG_END_STREAM);
    raw_expect_echo(&raw, stream_id, "with trailers");
    expect_unharmed();
}
END_TEST

START_TEST(trailers_that_do_not_end_it_or_have_pseudo_headers_are_malformed)
{
    int32_t stream_id = raw_call(&raw, "/t.T/Echo", NULL);

    raw_message(&raw, stream_id, "x", false);
    send_trailers(stream_id, _i == 0 ? "x-trailer" : ":path", _i == 0 ? NGHTTP2_FLAG_NONE : NGHTTP2_FLAG_END_STREAM);
    raw_wait_closed(&raw, stream_id);
    ck_assert_uint_eq(raw_answer(&raw, stream_id)->error, NGHTTP2_PROTOCOL_ERROR);
    ck_assert_int_eq(heard.messages, 0);
    expect_unharmed();
}
END_TEST

START_TEST(stream_whose_body_is_not_as_long_as_was_said_is_reset)
{
    static const char *const length[] = {"content-length", "8", NULL};
    int32_t stream_id = raw_call(&raw, "/t.T/Bidi", length);

    raw_message(&raw, stream_id, "x", true);
    raw_flush(&raw);
    raw_wait_closed(&raw, stream_id);
    ck_assert_uint_eq(raw_answer(&raw, stream_id)->error, NGHTTP2_PROTOCOL_ERROR);
    ck_assert_int_eq(heard.ends[LH_RPC_END_REFUSED], 1);
    expect_unharmed();
}
END_TEST

/* Else a megabyte of HPACK, a field of 4 KB in each byte, would be looked at to its end. */
START_TEST(fields_that_are_passed_over_count_too)
{
    static char large[20001]; /* more than max_header_bytes */
    const char *texts[] = {":method", GOOD, TYPE, "x bad name", large, NULL};
    int32_t stream_id;

    memset(large, 'x', sizeof(large) - 1);
    large[sizeof(large) - 1] = '\0';
    stream_id = submit(texts);
    raw_message(&raw, stream_id, "x", true);
    raw_flush(&raw);
    raw_wait_closed(&raw, stream_id);
    ck_assert_int_eq(raw_answer(&raw, stream_id)->grpc_status, LH_GRPC_RESOURCE_EXHAUSTED);
    expect_unharmed();
}
END_TEST

TCase *header_tests(void)
{
    TCase *tests = tcase_create("headers");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, malformed_request_is_reset_and_nothing_else, 0,
                        sizeof(malformed) / sizeof(malformed[0]));
    tcase_add_loop_test(tests, sound_request_is_answered, 0, sizeof(sound) / sizeof(sound[0]));
    tcase_add_test(tests, trailers_end_a_request);
    tcase_add_loop_test(tests, trailers_that_do_not_end_it_or_have_pseudo_headers_are_malformed, 0, 2);
    tcase_add_test(tests, stream_whose_body_is_not_as_long_as_was_said_is_reset);
    tcase_add_test(tests, fields_that_are_passed_over_count_too);
    return tests;
}
