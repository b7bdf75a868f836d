/* grpc-timeout, grpc-message, base64. */
#include <string.h>

#include "base/base64.h"
#include "rpc/grpc.h"
#include "test_rpc.h"

static void expect_timeout(const char *text, int64_t wanted_us)
{
    int64_t us = -1;
    ck_assert_msg(lh_grpc_timeout_parse(text, strlen(text), &us), "refused: %s", text);
    ck_assert_int_eq(us, wanted_us);
}

START_TEST(timeouts_are_read_in_every_unit)
{
    expect_timeout("1H", 3600 * LH_US_PER_S);
    expect_timeout("2M", 120 * LH_US_PER_S);
    expect_timeout("3S", 3 * LH_US_PER_S);
    expect_timeout("4m", 4000);
    expect_timeout("5u", 5);
    expect_timeout("1n", 1);
    expect_timeout("1000n", 1);
    expect_timeout("1001n", 2);
    expect_timeout("0S", 0);
    expect_timeout("00000001S", LH_US_PER_S);
    expect_timeout("99999999H", INT64_C(99999999) * 3600 * LH_US_PER_S);
}
END_TEST

START_TEST(timeouts_that_are_none_are_refused)
{
    static const char *const bad[] = {"",    "S",   "1",   "123456789S", "1s",  "-1S",
                                      "+1S", " 1S", "1 S", "1.5S",       "1SS", "H1"};
    int64_t us;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(!lh_grpc_timeout_parse(bad[i], strlen(bad[i]), &us), "taken: %s", bad[i]);
}
END_TEST

START_TEST(timeouts_written_are_read_back_never_shorter)
{
    static const int64_t some[] = {
        0, 1, 99999999, 100000000, 123456789012, LH_US_PER_S, 86400000001, INT64_C(99999999) * 3600 * LH_US_PER_S};
    char text[LH_GRPC_TIMEOUT_TEXT_BYTES];
    int64_t us;

    for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++) {
        lh_grpc_timeout_format(some[i], text);
        ck_assert_msg(lh_grpc_timeout_parse(text, strlen(text), &us), "unreadable: %s", text);
        ck_assert_int_ge(us, some[i]);
        ck_assert_int_le(us - some[i], some[i] / 1000);
    }
    lh_grpc_timeout_format(-5, text);
    ck_assert_str_eq(text, "0u");
    lh_grpc_timeout_format(INT64_MAX, text);
    ck_assert_str_eq(text, "99999999H");
}
END_TEST

static void expect_percent(const char *text, const char *wanted)
{
    struct lh_buffer encoded = {0}, decoded = {0};

    lh_grpc_percent_encode(&encoded, text, strlen(text));
    ck_assert_uint_eq(encoded.size, strlen(wanted));
    ck_assert_mem_eq(encoded.data, wanted, encoded.size);
    lh_grpc_percent_decode(&decoded, (const char *)encoded.data, encoded.size);
    ck_assert_uint_eq(decoded.size, strlen(text));
    ck_assert_mem_eq(decoded.data, text, decoded.size);
    lh_buffer_finish(&encoded);
    lh_buffer_finish(&decoded);
}

START_TEST(messages_are_percent_encoded_outside_of_printable_ascii)
{
    struct lh_buffer decoded = {0};

    expect_percent("plain ~ words", "plain ~ words");
    expect_percent("100%", "100%25");
    expect_percent("a\nb\x7f", "a%0Ab%7F");
    expect_percent("größer", "gr%C3%B6%C3%9Fer");
    lh_grpc_percent_decode(&decoded, "%4a%zz%4%", 9);
    ck_assert_uint_eq(decoded.size, 7);
    ck_assert_mem_eq(decoded.data, "J%zz%4%", 7);
    lh_buffer_finish(&decoded);
}
END_TEST

static void expect_base64(const char *data, const char *bare, const char *padded)
{
    struct lh_buffer out = {0};

    lh_base64_encode(&out, data, strlen(data));
    ck_assert_uint_eq(out.size, strlen(bare));
    ck_assert_mem_eq(out.data, bare, out.size);
    out.size = 0;
    ck_assert(lh_base64_decode(&out, bare, strlen(bare)));
    ck_assert_uint_eq(out.size, strlen(data));
    ck_assert_mem_eq(out.data, data, out.size);
    out.size = 0;
    ck_assert(lh_base64_decode(&out, padded, strlen(padded)));
    ck_assert_uint_eq(out.size, strlen(data));
    ck_assert_mem_eq(out.data, data, out.size);
    lh_buffer_finish(&out);
}

START_TEST(base64_is_read_with_and_without_padding)
{
    static const char *const bad[] = {"A", "AAAAA", "A===", "AA=A", "A*AA", "AA A", "====", "=", "-_AA"};
    struct lh_buffer out = {0};
    unsigned char all[256];

    expect_base64("f", "Zg", "Zg==");
    expect_base64("fo", "Zm8", "Zm8=");
    expect_base64("foo", "Zm9v", "Zm9v");
    expect_base64("foobar?>", "Zm9vYmFyPz4", "Zm9vYmFyPz4=");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_msg(!lh_base64_decode(&out, bad[i], strlen(bad[i])), "taken: %s", bad[i]);
        ck_assert_uint_eq(out.size, 0);
    }
    for (size_t i = 0; i < 256; i++)
        all[i] = (unsigned char)(255 - i);
    for (size_t size = 0; size <= 256; size++) {
        struct lh_buffer back = {0};
        out.size = 0;
        lh_base64_encode(&out, all, size);
        ck_assert(lh_base64_decode(&back, (const char *)out.data, out.size));
        ck_assert_uint_eq(back.size, size);
        ck_assert(size == 0 || memcmp(back.data, all, size) == 0);
        lh_buffer_finish(&back);
    }
    lh_buffer_finish(&out);
}
END_TEST

START_TEST(codes_have_their_names)
{
    ck_assert_str_eq(lh_grpc_code_name(0), "OK");
    ck_assert_str_eq(lh_grpc_code_name(LH_GRPC_DEADLINE_EXCEEDED), "DEADLINE_EXCEEDED");
    ck_assert_str_eq(lh_grpc_code_name(16), "UNAUTHENTICATED");
    ck_assert_str_eq(lh_grpc_code_name(17), "UNKNOWN");
    ck_assert_str_eq(lh_grpc_code_name(-1), "UNKNOWN");
}
END_TEST

TCase *text_tests(void)
{
    TCase *tests = tcase_create("text");
    tcase_add_test(tests, timeouts_are_read_in_every_unit);
    tcase_add_test(tests, timeouts_that_are_none_are_refused);
    tcase_add_test(tests, timeouts_written_are_read_back_never_shorter);
    tcase_add_test(tests, messages_are_percent_encoded_outside_of_printable_ascii);
    tcase_add_test(tests, base64_is_read_with_and_without_padding);
    tcase_add_test(tests, codes_have_their_names);
    return tests;
}
