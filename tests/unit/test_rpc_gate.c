/* Resets of streams that were not opened, as grpc-core sends them, and headers in several frames. However the bytes are
   cut, nobody else may notice. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/headers.h"
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

/* Up to a megabyte, in a name or in a value. */
START_TEST(header_of_any_length_ends_its_call_alone)
{
    static const size_t sizes[] = {40000, 70000, 300000, 1000000};
    size_t size = sizes[_i / 2];
    char *text = lh_alloc_zero(size + 1, 1);
    const char *extra[] = {"x-other", "other", "x-long", text, "x-more", "more", NULL};
    int32_t stream_id;

    memset(text, _i / 2 % 2 == 0 ? '~' : 'e', size); /* 13 bits in Huffman's code, so it is sent as it is; 5 bits */
    if (_i % 2 == 1)
        extra[2] = text, extra[3] = "a long name";
    if (_i % 2 == 1)
        memset(text, 'e', size);
    stream_id = raw_call(&raw, "/t.T/Echo", extra);
    send_in_pieces(0);
    raw_wait_closed(&raw, stream_id);
    ck_assert_int_eq(raw_answer(&raw, stream_id)->grpc_status, LH_GRPC_RESOURCE_EXHAUSTED);
    ck_assert_str_eq(raw_answer(&raw, stream_id)->details, "TUVTU0FHRV9UT09fTEFSR0U"); /* MESSAGE_TOO_LARGE */
    for (int i = 0; i < 3; i++) {
        stream_id = echo();
        send_in_pieces(0);
        raw_expect_echo(&raw, stream_id, "still there");
    }
    ck_assert(!raw_answer(&raw, bystander)->is_closed);
    ck_assert_int_eq(raw.goaways, 0);
    free(text);
}
END_TEST

/* What the block says, as "name=value;" one after the other; "error" when it cannot be read. */
static void inflate(nghttp2_hd_inflater *inflater, const struct lh_buffer *block, char *text)
{
    const uint8_t *at = block->data;
    size_t left = block->size;
    int flags = 0;

    *text = '\0';
    while (left > 0 || (flags & NGHTTP2_HD_INFLATE_EMIT)) {
        nghttp2_nv field;
        ssize_t used;

        flags = 0;
        used = nghttp2_hd_inflate_hd2(inflater, &field, &flags, at, left, 1);
        if (used < 0) {
            strcpy(text, "error");
            return;
        }
        at += used;
        left -= (size_t)used;
        if (flags & NGHTTP2_HD_INFLATE_EMIT)
            text += sprintf(text, "%.10s=%.10s;", field.name, field.value);
        if (flags & NGHTTP2_HD_INFLATE_FINAL)
            break;
    }
    nghttp2_hd_inflate_end_headers(inflater);
}

static void append_string(struct lh_buffer *block, size_t size)
{
    unsigned char byte;
    size_t rest = size - 127;

    lh_buffer_append(block, "\x7f", 1);
    for (; rest >= 128; rest >>= 7) {
        byte = (unsigned char)(0x80 | (rest & 0x7f));
        lh_buffer_append(block, &byte, 1);
    }
    byte = (unsigned char)rest;
    lh_buffer_append(block, &byte, 1);
    memset(lh_buffer_reserve(block, size), 'v', size);
    block->size += size;
}

static const char *pass(struct rpc_header_block *block, nghttp2_hd_inflater *inflater, const struct lh_buffer *bytes,
                        size_t piece)
{
    static char text[256];

    lh_rpc_header_block_begin(block, 20000);
    for (size_t at = 0; at < bytes->size; at += piece)
        lh_rpc_header_block_pass(block, bytes->data + at, bytes->size - at < piece ? bytes->size - at : piece);
    inflate(inflater, &block->out, text);
    return text;
}

/* Entry 62 is there before; what is larger than the table empties it, if it was to be put there. */
START_TEST(table_of_headers_is_what_it_would_have_been)
{
    static const char first[] = "\x40\1a\1b", again[] = "\xbe";
    struct lh_buffer begin = {0}, large = {0}, end = {0};
    struct rpc_header_block block = {0};
    nghttp2_hd_inflater *inflater;
    size_t piece = (size_t[]){1, 7, 1000, 1000000}[_i / 4];
    bool is_indexed = _i % 2 == 0, is_name = _i / 2 % 2 == 0;

    nghttp2_hd_inflate_new(&inflater);
    lh_buffer_append(&begin, first, sizeof(first) - 1);
    lh_buffer_append(&large, "\xbe", 1);
    lh_buffer_append(&large, is_indexed ? "\x40" : "\x10", 1);
    append_string(&large, is_name ? 100000 : 200);
    append_string(&large, is_name ? 200 : 100000);
    lh_buffer_append(&end, again, sizeof(again) - 1);
    ck_assert_str_eq(pass(&block, inflater, &begin, piece), "a=b;");
    ck_assert_str_eq(pass(&block, inflater, &large, piece),
                     is_name ? "a=b;xxxxxxxxxx=vvvvvvvvvv;" : "a=b;vvvvvvvvvv=xxxxxxxxxx;");
    ck_assert_str_eq(pass(&block, inflater, &end, piece), is_indexed ? "error" : "a=b;");
    nghttp2_hd_inflate_del(inflater);
    lh_rpc_header_block_finish(&block);
    lh_buffer_finish(&begin);
    lh_buffer_finish(&large);
    lh_buffer_finish(&end);
}
END_TEST

/* Headers in frames of so many bytes. */
START_TEST(headers_in_many_frames_are_whole_wherever_they_are_cut)
{
    static const size_t cuts[] = {1, 2, 5, 9, 40, 100};
    const char *extra[] = {"x-fail", "5", "x-words", "40", NULL};
    size_t cut = cuts[_i / 2], before;
    struct lh_buffer block = {0};
    int32_t stream_id;

    raw_collect(&raw);
    before = raw.out.size;
    stream_id = raw_call(&raw, "/t.T/Echo", extra);
    lh_buffer_append(&block, raw.out.data + before + FRAME_HEADER_BYTES, raw.out.size - before - FRAME_HEADER_BYTES);
    raw.out.size = before;
    for (size_t at = 0, step; at < block.size; at += step) {
        step = block.size - at < cut ? block.size - at : cut;
        unsigned char header[FRAME_HEADER_BYTES] = {0,
                                                    0,
                                                    (unsigned char)step,
                                                    at == 0 ? NGHTTP2_HEADERS : NGHTTP2_CONTINUATION,
                                                    at + step == block.size ? NGHTTP2_FLAG_END_HEADERS : 0,
                                                    0,
                                                    0,
                                                    0,
                                                    (unsigned char)stream_id};
        lh_buffer_append(&raw.out, header, sizeof(header));
        lh_buffer_append(&raw.out, block.data + at, step);
    }
    lh_buffer_finish(&block);
    raw_message(&raw, stream_id, "x", true);
    send_in_pieces(_i % 2 == 0 ? 0 : 3);
    raw_wait_closed(&raw, stream_id);
    ck_assert_int_eq(raw_answer(&raw, stream_id)->grpc_status, 5);
    stream_id = echo();
    send_in_pieces(0);
    raw_expect_echo(&raw, stream_id, "still there");
    ck_assert_int_eq(raw.goaways, 0);
}
END_TEST

TCase *gate_tests(void)
{
    TCase *tests = tcase_create("gate");

    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, a_reset_of_a_stream_that_is_never_opened_ends_nothing, 0, CUTS);
    tcase_add_loop_test(tests, a_stream_that_is_opened_behind_its_reset_is_cancelled, 0, CUTS);
    tcase_add_loop_test(tests, headers_in_several_frames_are_opened_by_the_last, 0, CUTS);
    tcase_add_test(tests, however_many_there_are);
    tcase_add_loop_test(tests, a_reset_of_an_open_stream_is_told_at_once, 0, CUTS);
    tcase_add_loop_test(tests, header_of_any_length_ends_its_call_alone, 0, 8);
    tcase_add_loop_test(tests, table_of_headers_is_what_it_would_have_been, 0, 16);
    tcase_add_loop_test(tests, headers_in_many_frames_are_whole_wherever_they_are_cut, 0, 12);
    return tests;
}
