/* Resets of streams that were not opened, as grpc-core sends them. However the bytes are cut, nobody else may notice.
 */
#include <string.h>

#include "test_rpc.h"

#define CUTS 15 /* pieces of 1 to 14 bytes, longer than a reset; 0: all at once */
#define FRAME_HEADER_BYTES 9

static struct raw raw;
static int32_t bystander; /* a call that waits */

static void setup(void)
{
    rpc_setup();
    raw_open(&raw);
    bystander = raw_call(&raw, "/t.T/Never", NULL);
    raw_message(&raw, bystander, "wait", true);
    raw_collect(&raw);
}

static void teardown(void)
{
    raw_close(&raw);
    rpc_teardown();
}

static void send_in_pieces(int piece)
{
    raw_collect(&raw);
    while (raw.out.size > 0 && !raw.is_gone) {
        raw_write(&raw, piece == 0 || raw.out.size < (size_t)piece ? raw.out.size : (size_t)piece);
        raw_pump(&raw);
    }
}

/* Not through the session, which would not send it. */
static void reset_early(int32_t stream_id)
{
    const unsigned char frame[] = {
        0, 0, 4, NGHTTP2_RST_STREAM, 0, 0, 0, (unsigned char)(stream_id >> 8), (unsigned char)stream_id,
        0, 0, 0, NGHTTP2_CANCEL};
    raw_collect(&raw);
    lh_buffer_append(&raw.out, frame, sizeof(frame));
}

/* What the client numbered, and cancelled before it was written. */
static int32_t skip_stream(void)
{
    int32_t stream_id = (int32_t)nghttp2_session_get_next_stream_id(raw.session);
    nghttp2_session_set_next_stream_id(raw.session, stream_id + 2);
    return stream_id;
}

static int32_t echo(void)
{
    int32_t stream_id = raw_call(&raw, "/t.T/Echo", NULL);
    raw_message(&raw, stream_id, "still there", true);
    raw_collect(&raw);
    return stream_id;
}

/* Of so many calls that were opened only the bystander is left, and those that were not answered were not heard of. */
static void expect_unharmed(int piece, uint64_t calls, int messages)
{
    struct lh_rpc_server_stats stats;
    int32_t stream_id = echo();

    send_in_pieces(piece);
    raw_expect_echo(&raw, stream_id, "still there");
    ck_assert(!raw.is_gone && raw.goaways == 0);
    lh_rpc_server_stats(server, &stats);
    ck_assert_uint_eq(stats.calls_total, calls);
    ck_assert_uint_eq(stats.calls, 1);
    ck_assert_int_eq(heard.messages, messages);
    ck_assert_int_eq(heard.ends[LH_RPC_END_CANCELED], 0);
    ck_assert(!raw_answer(&raw, bystander)->is_closed);
}

START_TEST(a_reset_of_a_stream_that_is_never_opened_ends_nothing)
{
    int32_t before, between;

    reset_early(skip_stream());
    before = echo();
    reset_early(skip_stream());
    reset_early(skip_stream());
    between = echo();
    send_in_pieces(_i);
    raw_expect_echo(&raw, before, "still there");
    raw_expect_echo(&raw, between, "still there");
    expect_unharmed(_i, 4, 4);
}
END_TEST

START_TEST(a_stream_that_is_opened_behind_its_reset_is_cancelled)
{
    int32_t stream_id = (int32_t)nghttp2_session_get_next_stream_id(raw.session);

    reset_early(stream_id);
    reset_early(stream_id);
    ck_assert_int_eq(raw_call(&raw, "/t.T/Never", NULL), stream_id);
    raw_message(&raw, stream_id, "too late", true);
    expect_unharmed(_i, 3, 2);
}
END_TEST

/* The headers that come last in `out` go into two frames. */
static void split_headers(size_t at)
{
    struct lh_buffer whole = raw.out;
    size_t size = (size_t)whole.data[at + 1] << 8 | whole.data[at + 2], first = size / 2;
    unsigned char header[FRAME_HEADER_BYTES];

    ck_assert_int_eq(whole.data[at + 3], NGHTTP2_HEADERS);
    memset(&raw.out, 0, sizeof(raw.out));
    lh_buffer_append(&raw.out, whole.data, at);
    memcpy(header, whole.data + at, sizeof(header));
    header[1] = (unsigned char)(first >> 8);
    header[2] = (unsigned char)first;
    header[4] &= (unsigned char)~NGHTTP2_FLAG_END_HEADERS;
    lh_buffer_append(&raw.out, header, sizeof(header));
    lh_buffer_append(&raw.out, whole.data + at + sizeof(header), first);
    header[1] = (unsigned char)((size - first) >> 8);
    header[2] = (unsigned char)(size - first);
    header[3] = NGHTTP2_CONTINUATION;
    header[4] = NGHTTP2_FLAG_END_HEADERS;
    lh_buffer_append(&raw.out, header, sizeof(header));
    lh_buffer_append(&raw.out, whole.data + at + sizeof(header) + first, size - first);
    lh_buffer_finish(&whole);
}

START_TEST(headers_in_several_frames_are_opened_by_the_last)
{
    int32_t stream_id = (int32_t)nghttp2_session_get_next_stream_id(raw.session);
    size_t at;

    reset_early(stream_id);
    at = raw.out.size;
    raw_call(&raw, "/t.T/Never", NULL);
    raw_collect(&raw);
    split_headers(at);
    expect_unharmed(_i, 3, 2);
}
END_TEST

START_TEST(however_many_there_are)
{
    for (int i = 0; i < 1000; i++)
        reset_early(skip_stream());
    expect_unharmed(0, 2, 2);
}
END_TEST

START_TEST(a_reset_of_an_open_stream_is_told_at_once)
{
    raw_reset(&raw, bystander);
    send_in_pieces(_i);
    WAIT_FOR(heard.ends[LH_RPC_END_CANCELED] == 1);
}
END_TEST

TCase *early_reset_tests(void)
{
    TCase *tests = tcase_create("early resets");

    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, a_reset_of_a_stream_that_is_never_opened_ends_nothing, 0, CUTS);
    tcase_add_loop_test(tests, a_stream_that_is_opened_behind_its_reset_is_cancelled, 0, CUTS);
    tcase_add_loop_test(tests, headers_in_several_frames_are_opened_by_the_last, 0, CUTS);
    tcase_add_test(tests, however_many_there_are);
    tcase_add_loop_test(tests, a_reset_of_an_open_stream_is_told_at_once, 0, CUTS);
    return tests;
}
