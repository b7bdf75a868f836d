/* What one client may cost: each bound is reached, and the client beside it does not notice. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test_rpc.h"

#define MIB ((size_t)1024 * 1024)

static struct raw neighbour;
static struct raw raw;

static void setup(void)
{
    rpc_setup();
    raw_open(&neighbour);
    raw_open(&raw);
}

static void teardown(void)
{
    raw_close(&raw);
    raw_close(&neighbour);
    rpc_teardown();
}

static void expect_echo(struct raw *from)
{
    int32_t stream_id = raw_call(from, "/t.T/Echo", NULL);
    raw_message(from, stream_id, "served", true);
    raw_flush(from);
    raw_expect_echo(from, stream_id, "served");
}

/* With other options. */
static void restart(void)
{
    raw_close(&raw);
    raw_close(&neighbour);
    lh_rpc_server_destroy(server);
    server_start();
    raw_open(&neighbour);
    raw_open(&raw);
    expect_echo(&neighbour); /* and they know the server's settings */
    expect_echo(&raw);
}

static struct lh_rpc_server_stats stats(void)
{
    struct lh_rpc_server_stats now;
    lh_rpc_server_stats(server, &now);
    return now;
}

static void put_frame(uint8_t type, uint8_t flags, int32_t stream_id, const void *payload, size_t size)
{
    unsigned char head[9] = {
        (unsigned char)(size >> 16), (unsigned char)(size >> 8), (unsigned char)size, type, flags, 0, 0, 0, 0};

    head[6] = (unsigned char)(stream_id >> 16);
    head[7] = (unsigned char)(stream_id >> 8);
    head[8] = (unsigned char)stream_id;
    raw_collect(&raw);
    lh_buffer_append(&raw.out, head, sizeof(head));
    lh_buffer_append(&raw.out, payload, size);
}

/* --- memory --- */

static void begin_request(struct raw *from, int32_t stream_id, size_t size)
{
    static char bytes[10000];
    const unsigned char prefix[] = {0, 0, 0x3f, 0xff, 0xff};

    raw_data(from, stream_id, prefix, sizeof(prefix), false);
    for (size_t at = 0; at < size; at += sizeof(bytes))
        raw_data(from, stream_id, bytes, sizeof(bytes), false);
    raw_flush(from);
}

START_TEST(unfinished_requests_of_one_connection_refuse_no_request_of_another)
{
    static char large[3 * 1024 * 1024 + 1];
    int32_t stream_id;

    restart();
    for (int i = 0; i < 20; i++)
        begin_request(&raw, raw_call(&raw, "/t.T/Echo", NULL), MIB);
    WAIT_FOR(stats().refusals[LH_RPC_BOUND_CONNECTION_MEMORY] > 0);
    memset(large, 'x', sizeof(large) - 1);
    stream_id = raw_call(&neighbour, "/t.T/Echo", NULL);
    raw_flush(&neighbour);
    raw_message(&neighbour, stream_id, large, true);
    raw_flush(&neighbour);
    raw_wait_closed(&neighbour, stream_id);
    ck_assert_int_eq(raw_answer(&neighbour, stream_id)->grpc_status, 0);
    ck_assert_uint_lt(stats().memory, 16 * MIB);
}
END_TEST

/* A kilobyte of HPACK for each is enough: 16 KiB of headers, all the same. */
START_TEST(metadata_count_as_their_connections)
{
    static char value[4000];
    const char *extra[] = {"x-a", value, "x-b", value, "x-c", value, NULL};
    size_t calls;

    memset(value, 'v', sizeof(value) - 1);
    server_options.connection_memory = 4 * MIB;
    restart();
    for (calls = 0; calls < 300; calls++) {
        int32_t stream_id = raw_call(&raw, "/t.T/Never", extra);
        raw_message(&raw, stream_id, "x", true);
        raw_flush(&raw);
    }
    WAIT_FOR(stats().refusals[LH_RPC_BOUND_CONNECTION_MEMORY] > 0);
    ck_assert_int_lt(heard.messages, 200);
    ck_assert_uint_lt(stats().memory, 5 * MIB);
    expect_echo(&neighbour);
    raw_close(&raw);
    WAIT_FOR(stats().calls == 0);
    ck_assert_uint_eq(stats().buffered_bytes, 0);
}
END_TEST

/* Answers that the client's window does not let through. */
START_TEST(answers_that_are_not_read_are_refused_in_time)
{
    static char large[200001];
    nghttp2_settings_entry closed = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0};

    server_options.connection_memory = 4 * MIB;
    restart();
    memset(large, 'x', sizeof(large) - 1);
    nghttp2_submit_settings(raw.session, NGHTTP2_FLAG_NONE, &closed, 1);
    raw_flush(&raw);
    for (int i = 0; i < 40; i++) {
        int32_t stream_id = raw_call(&raw, "/t.T/Echo", NULL);
        raw_message(&raw, stream_id, large, true);
        raw_flush(&raw);
        ck_assert(!raw.is_gone);
    }
    RAW_WAIT(&raw, stats().refusals[LH_RPC_BOUND_CONNECTION_MEMORY] > 0 && stats().calls_total >= 40);
    ck_assert_uint_lt(stats().memory, 4 * MIB);
    expect_echo(&neighbour);
}
END_TEST

START_TEST(the_connection_that_keeps_the_most_is_reset_when_all_keep_too_much)
{
    struct raw other;

    server_options.memory = 5 * MIB;
    restart();
    raw_open(&other);
    expect_echo(&other);
    begin_request(&other, raw_call(&other, "/t.T/Echo", NULL), MIB + MIB / 2);
    WAIT_FOR(stats().memory > MIB);
    begin_request(&raw, raw_call(&raw, "/t.T/Echo", NULL), 3 * MIB);
    RAW_WAIT(&raw, raw.is_gone);
    ck_assert_uint_eq(stats().refusals[LH_RPC_BOUND_MEMORY], 1);
    ck_assert_uint_eq(stats().sent_away[LH_RPC_AWAY_MEMORY], 1);
    ck_assert_uint_eq(stats().connections, 2);
    ck_assert(!other.is_gone);
    expect_echo(&neighbour);
    raw_close(&other);
}
END_TEST

START_TEST(new_calls_are_refused_at_three_quarters_of_the_memory)
{
    int32_t stream_id;

    server_options.memory = 5 * MIB;
    restart();
    begin_request(&raw, raw_call(&raw, "/t.T/Echo", NULL), 3 * MIB);
    WAIT_FOR(stats().memory > 4 * MIB);
    stream_id = raw_call(&neighbour, "/t.T/Echo", NULL);
    raw_message(&neighbour, stream_id, "x", true);
    raw_flush(&neighbour);
    raw_wait_closed(&neighbour, stream_id);
    ck_assert_int_eq(raw_answer(&neighbour, stream_id)->grpc_status, LH_GRPC_RESOURCE_EXHAUSTED);
    stream_id = raw_call(&neighbour, "/t.T/First", NULL);
    raw_message(&neighbour, stream_id, "a renewal", true);
    raw_flush(&neighbour);
    raw_expect_echo(&neighbour, stream_id, "a renewal");
}
END_TEST

/* --- time --- */

START_TEST(request_that_is_never_complete_ends_in_time)
{
    int32_t unary, begun, silent;

    server_options.request_timeout_us = 50 * LH_US_PER_MS;
    restart();
    unary = raw_call(&raw, "/t.T/Echo", NULL);
    begun = raw_call(&raw, "/t.T/Bidi", NULL);
    raw_data(&raw, begun, "\0\0\0\0\5abc", 8, false);
    silent = raw_call(&raw, "/t.T/Bidi", NULL); /* it may be silent for as long as it likes */
    raw_flush(&raw);
    raw_wait_closed(&raw, unary);
    raw_wait_closed(&raw, begun);
    ck_assert_int_eq(raw_answer(&raw, unary)->grpc_status, LH_GRPC_DEADLINE_EXCEEDED);
    ck_assert_str_eq(raw_answer(&raw, unary)->details, "VElNRURfT1VU"); /* TIMED_OUT */
    ck_assert_int_eq(raw_answer(&raw, begun)->grpc_status, LH_GRPC_DEADLINE_EXCEEDED);
    ck_assert_uint_eq(stats().refusals[LH_RPC_BOUND_REQUEST_TIME], 2);
    raw_message(&raw, silent, "still there", true);
    raw_flush(&raw);
    raw_expect_echo(&raw, silent, "still there");
}
END_TEST

START_TEST(answer_that_is_not_read_is_reset_in_time)
{
    nghttp2_settings_entry closed = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0};
    int32_t stream_id;

    server_options.stall_timeout_us = 50 * LH_US_PER_MS;
    restart();
    nghttp2_submit_settings(raw.session, NGHTTP2_FLAG_NONE, &closed, 1);
    raw_flush(&raw);
    stream_id = raw_call(&raw, "/t.T/Echo", NULL);
    raw_message(&raw, stream_id, "nobody reads this", true);
    raw_flush(&raw);
    raw_wait_closed(&raw, stream_id);
    ck_assert_uint_eq(raw_answer(&raw, stream_id)->error, NGHTTP2_CANCEL);
    ck_assert_uint_eq(stats().refusals[LH_RPC_BOUND_STALL_TIME], 1);
    ck_assert(!raw.is_gone);
}
END_TEST

START_TEST(headers_that_are_never_complete_end_their_connection_in_time)
{
    server_options.request_timeout_us = 50 * LH_US_PER_MS;
    restart();
    put_frame(NGHTTP2_HEADERS, NGHTTP2_FLAG_END_STREAM, 3, "\x83", 1);
    raw_write(&raw, raw.out.size);
    RAW_WAIT(&raw, raw.is_gone);
    ck_assert_uint_eq(stats().sent_away[LH_RPC_AWAY_SLOW], 1);
    expect_echo(&neighbour);
}
END_TEST

/* --- budgets --- */

static void expect_calm(enum lh_rpc_bound bound)
{
    raw_write(&raw, raw.out.size);
    RAW_WAIT(&raw, raw.goaways > 0);
    ck_assert_uint_eq(raw.goaway_error, NGHTTP2_ENHANCE_YOUR_CALM);
    ck_assert_uint_eq(stats().refusals[bound], 1);
    ck_assert_uint_eq(stats().sent_away[LH_RPC_AWAY_FLOODING], 1);
    WAIT_FOR(stats().calls == 0);
    expect_echo(&neighbour);
}

static void send_budget_and_one(uint8_t type, uint8_t flags, int32_t stream_id, const void *payload, size_t size)
{
    server_options.control_burst = 500;
    server_options.control_rate = 0;
    restart();
    ck_assert_int_eq(raw_call(&raw, "/t.T/Never", NULL), 3);
    for (unsigned i = 0; i <= server_options.control_burst; i++)
        put_frame(type, flags, stream_id, payload, size);
    expect_calm(LH_RPC_BOUND_CONTROL_FRAMES);
}

START_TEST(pings_have_a_budget)
{
    send_budget_and_one(NGHTTP2_PING, 0, 0, "12345678", 8);
}
END_TEST

START_TEST(window_updates_have_a_budget)
{
    send_budget_and_one(NGHTTP2_WINDOW_UPDATE, 0, _i * 3, "\0\0\0\1", 4);
}
END_TEST

START_TEST(settings_have_a_budget)
{
    send_budget_and_one(NGHTTP2_SETTINGS, 0, 0, "\0\4\0\0\1\0", 6);
}
END_TEST

START_TEST(data_without_data_have_a_budget)
{
    send_budget_and_one(NGHTTP2_DATA, 0, 3, "", 0);
}
END_TEST

START_TEST(frames_that_nobody_knows_have_a_budget)
{
    send_budget_and_one(0x77, 0, 0, "", 0);
}
END_TEST

/* Visiting all streams is what makes them dear. */
START_TEST(settings_cost_more_with_more_streams)
{
    virtual_clock_begin();
    server_options.control_burst = 500;
    server_options.control_rate = 0;
    restart();
    for (int i = 0; i < 800; i++)
        raw_call(&raw, "/t.T/Never", NULL);
    raw_flush(&raw);
    WAIT_FOR(stats().calls == 800);
    for (int i = 0; i < 5; i++) /* of 110 each */
        put_frame(NGHTTP2_SETTINGS, 0, 0, "\0\4\0\0\1\0", 6);
    expect_calm(LH_RPC_BOUND_CONTROL_FRAMES);
}
END_TEST

/* Go and Python send a PING with nearly everything that they receive. */
START_TEST(who_is_sent_much_may_send_many_pings)
{
    server_options.control_burst = 100;
    server_options.control_rate = 0;
    restart();
    for (int i = 0; i < 500; i++) {
        nghttp2_submit_ping(raw.session, NGHTTP2_FLAG_NONE, NULL);
        expect_echo(&raw);
    }
    ck_assert_int_eq(raw.goaways, 0);
}
END_TEST

static void reset_calls(int count)
{
    for (int i = 0; i < count; i++) {
        int32_t stream_id = raw_call(&raw, "/t.T/Never", NULL);
        raw_message(&raw, stream_id, "x", true);
        raw_reset(&raw, stream_id);
    }
}

START_TEST(resets_have_a_budget)
{
    server_options.reset_burst = 300;
    server_options.reset_rate = 0;
    restart();
    reset_calls(300);
    raw_flush(&raw);
    WAIT_FOR(stats().calls_total == 302);
    expect_echo(&raw);
    reset_calls(1);
    expect_calm(LH_RPC_BOUND_RESETS);
}
END_TEST

START_TEST(budget_of_resets_grows_again)
{
    virtual_clock_begin();
    server_options.reset_burst = 100;
    server_options.reset_rate = 1000;
    restart();
    for (int round = 0; round < 5; round++) {
        int64_t full_us;
        reset_calls(100);
        expect_echo(&raw); /* the server has read them all */
        full_us = lh_clock_us() + 100 * LH_US_PER_MS;
        WAIT_FOR(lh_clock_us() >= full_us);
    }
    ck_assert_int_eq(raw.goaways, 0);
}
END_TEST

START_TEST(resets_of_streams_that_were_never_opened_have_the_same_budget)
{
    server_options.reset_burst = 300;
    server_options.reset_rate = 0;
    restart();
    for (int i = 0; i <= 300; i++)
        put_frame(NGHTTP2_RST_STREAM, 0, 2 * i + 101, "\0\0\0\10", 4);
    expect_calm(LH_RPC_BOUND_RESETS);
}
END_TEST

START_TEST(continuations_of_one_block_have_a_bound)
{
    virtual_clock_begin();
    put_frame(NGHTTP2_HEADERS, NGHTTP2_FLAG_END_STREAM, 1, "\x83", 1);
    for (int i = 0; i <= LH_RPC_CONTINUATIONS_MAX; i++)
        put_frame(NGHTTP2_CONTINUATION, 0, 1, "", 0);
    expect_calm(LH_RPC_BOUND_CONTINUATIONS);
}
END_TEST

/* --- turns --- */

START_TEST(one_connection_opens_so_many_streams_in_a_turn)
{
    enum { CALLS = 10 * LH_RPC_STREAMS_PER_TURN };
    uint64_t before;

    restart();
    before = stats().calls_total;
    for (int i = 0; i < CALLS; i++) {
        int32_t stream_id = raw_call(&raw, "/t.T/Echo", NULL);
        raw_message(&raw, stream_id, "x", true);
    }
    raw_collect(&raw);
    ck_assert_int_eq(send(raw.fd, raw.out.data, raw.out.size, MSG_NOSIGNAL), (ssize_t)raw.out.size);
    raw.out.size = 0;
    for (uint64_t last = 0, calls = 0; calls < CALLS; last = calls) {
        virtual_clock_turn(loop);
        calls = stats().calls_total - before;
        ck_assert_uint_le(calls - last, LH_RPC_STREAMS_PER_TURN);
        if (calls > 0 && calls < CALLS)
            ck_assert_uint_gt(calls, last); /* and never waits for more to come */
    }
    ck_assert_uint_ge(stats().refusals[LH_RPC_BOUND_TURN], 9);
    RAW_WAIT(&raw, heard.messages == CALLS + 2 && stats().calls == 0);
}
END_TEST

/* --- connections --- */

START_TEST(one_address_has_so_many_unfinished_handshakes)
{
    enum { MOST = 5 };
    int silent[MOST], one_more;
    char byte;

    server_options.max_handshakes = MOST;
    restart();
    for (int i = 0; i < MOST; i++)
        silent[i] = raw_connect();
    WAIT_FOR(stats().handshakes == MOST);
    one_more = raw_connect();
    WAIT_FOR(stats().refusals[LH_RPC_BOUND_HANDSHAKES] == 1);
    ck_assert_int_le(recv(one_more, &byte, 1, 0), 0);
    close(one_more);
    expect_echo(&neighbour);
    /* One that finishes makes room. */
    close(silent[0]);
    WAIT_FOR(stats().handshakes == MOST - 1);
    raw_close(&raw);
    raw_open(&raw);
    expect_echo(&raw);
    for (int i = 1; i < MOST; i++)
        close(silent[i]);
    WAIT_FOR(stats().handshakes == 0);
}
END_TEST

/* They come all at once after a restart. Their prefaces are there already, only nobody has read them yet. */
START_TEST(clients_that_come_together_are_not_taken_for_silent)
{
    enum { CLIENTS = 60 };
    struct raw *clients = lh_alloc_zero(CLIENTS, sizeof(*clients));

    server_options.max_handshakes = 4;
    restart();
    for (int i = 0; i < CLIENTS; i++) {
        raw_open(&clients[i]);
        ck_assert_int_eq(send(clients[i].fd, clients[i].out.data, clients[i].out.size, 0),
                         (ssize_t)clients[i].out.size);
        clients[i].out.size = 0;
    }
    WAIT_FOR(stats().connections_total >= CLIENTS);
    for (int i = 0; i < CLIENTS; i++) {
        expect_echo(&clients[i]);
        raw_close(&clients[i]);
    }
    ck_assert_uint_eq(stats().refusals[LH_RPC_BOUND_HANDSHAKES], 0);
    free(clients);
}
END_TEST

TCase *bounds_tests(void)
{
    TCase *tests = tcase_create("bounds");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, unfinished_requests_of_one_connection_refuse_no_request_of_another);
    tcase_add_test(tests, metadata_count_as_their_connections);
    tcase_add_test(tests, answers_that_are_not_read_are_refused_in_time);
    tcase_add_test(tests, the_connection_that_keeps_the_most_is_reset_when_all_keep_too_much);
    tcase_add_test(tests, new_calls_are_refused_at_three_quarters_of_the_memory);
    tcase_add_test(tests, request_that_is_never_complete_ends_in_time);
    tcase_add_test(tests, answer_that_is_not_read_is_reset_in_time);
    tcase_add_test(tests, headers_that_are_never_complete_end_their_connection_in_time);
    tcase_add_test(tests, pings_have_a_budget);
    tcase_add_loop_test(tests, window_updates_have_a_budget, 0, 2);
    tcase_add_test(tests, settings_have_a_budget);
    tcase_add_test(tests, data_without_data_have_a_budget);
    tcase_add_test(tests, frames_that_nobody_knows_have_a_budget);
    tcase_add_test(tests, settings_cost_more_with_more_streams);
    tcase_add_test(tests, who_is_sent_much_may_send_many_pings);
    tcase_add_test(tests, resets_have_a_budget);
    tcase_add_test(tests, budget_of_resets_grows_again);
    tcase_add_test(tests, resets_of_streams_that_were_never_opened_have_the_same_budget);
    tcase_add_test(tests, continuations_of_one_block_have_a_bound);
    tcase_add_test(tests, one_connection_opens_so_many_streams_in_a_turn);
    tcase_add_test(tests, one_address_has_so_many_unfinished_handshakes);
    tcase_add_test(tests, clients_that_come_together_are_not_taken_for_silent);
    return tests;
}
