/* Bytes that are no gRPC, clients that flood, vanish or keep silent: none of it may harm the others. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test_rpc.h"

#define FUZZ_ROUNDS 400

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

/* The connection that was there before still works. */
static void expect_unharmed(void)
{
    int32_t stream_id = raw_call(&raw, "/t.T/Echo", NULL);
    raw_message(&raw, stream_id, "unharmed", true);
    raw_flush(&raw);
    raw_expect_echo(&raw, stream_id, "unharmed");
}

static size_t connections(void)
{
    struct lh_rpc_server_stats stats;
    lh_rpc_server_stats(server, &stats);
    return stats.connections;
}

static void send_bytes(int fd, const void *bytes, size_t size)
{
    const char *from = bytes;
    while (size > 0) {
        ssize_t sent = send(fd, from, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0) {
            from += sent;
            size -= (size_t)sent;
        } else if (sent < 0 && errno != EAGAIN) {
            return;
        }
        lh_loop_run_once(loop, 0);
    }
}

START_TEST(http1_is_closed)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    int fd = raw_connect();

    expect_unharmed();
    send_bytes(fd, request, strlen(request));
    WAIT_FOR(connections() == 1);
    close(fd);
    expect_unharmed();
}
END_TEST

START_TEST(half_open_connection_is_closed_in_time)
{
    int silent, partial;

    raw_close(&raw);
    lh_rpc_server_destroy(server);
    server_options.handshake_timeout_us = 30 * LH_US_PER_MS;
    server_start();
    silent = raw_connect();
    partial = raw_connect();
    send_bytes(partial, "PRI * HTTP/2.0\r\n\r\nSM", 20);
    raw_open(&raw);
    expect_unharmed();
    WAIT_FOR(connections() == 1);
    close(silent);
    close(partial);
    expect_unharmed();
}
END_TEST

static struct lh_rpc_server_stats server_stats(void)
{
    struct lh_rpc_server_stats stats;
    lh_rpc_server_stats(server, &stats);
    return stats;
}

/* Not a byte comes on this connection before it is closed. */
static void expect_closed(int fd)
{
    unsigned char bytes[256];
    ssize_t got = -1;

    for (int i = 0; i < 10000 && got < 0 && (i == 0 || errno == EAGAIN); i++) {
        virtual_clock_turn(loop);
        got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    }
    ck_assert(got == 0 || (got < 0 && errno == ECONNRESET));
}

START_TEST(connections_beyond_the_limit_are_closed_and_counted)
{
    struct lh_rpc_server_stats stats;
    int fds[5];

    raw_close(&raw);
    lh_rpc_server_destroy(server);
    server_options.max_connections = 3;
    server_start();
    raw_open(&raw);
    expect_unharmed();
    for (int i = 0; i < 5; i++)
        fds[i] = raw_connect();
    do {
        virtual_clock_turn(loop);
        lh_rpc_server_stats(server, &stats);
    } while (stats.refusals[LH_RPC_BOUND_CONNECTIONS] < 3);
    ck_assert_uint_eq(stats.connections, 3);
    ck_assert_uint_eq(stats.refusals[LH_RPC_BOUND_CONNECTIONS], 3);
    expect_closed(fds[4]);
    for (int i = 0; i < 5; i++)
        close(fds[i]);
    expect_unharmed();
}
END_TEST

START_TEST(streams_beyond_the_limit_are_refused_and_counted)
{
    int32_t streams[5];

    raw_close(&raw);
    lh_rpc_server_destroy(server);
    server_options.max_streams = 3;
    server_start();
    raw_open(&raw);
    /* Before the server's settings have come, the client does not know the limit. */
    for (int i = 0; i < 5; i++) {
        streams[i] = raw_call(&raw, "/t.T/Never", NULL);
        raw_message(&raw, streams[i], "x", true);
    }
    raw_flush(&raw);
    WAIT_FOR(server_stats().refusals[LH_RPC_BOUND_STREAMS] == 2);
    RAW_WAIT(&raw, heard.messages == 3);
    ck_assert_uint_eq(server_stats().calls, 3);
    lh_rpc_call_reply(heard.last, "served", 6);
    raw_expect_echo(&raw, streams[2], "served");
}
END_TEST

START_TEST(idle_connection_is_sent_away)
{
    virtual_clock_begin();
    raw_close(&raw);
    lh_rpc_server_destroy(server);
    server_options.idle_timeout_us = 30 * LH_US_PER_MS;
    server_start();
    raw_open(&raw);
    raw_flush(&raw);
    RAW_WAIT(&raw, raw.goaways >= 1);
    RAW_WAIT(&raw, raw.is_gone);
    ck_assert_uint_eq(server_stats().sent_away[LH_RPC_AWAY_IDLE], 1);
}
END_TEST

START_TEST(call_that_crosses_the_farewell_of_an_idle_connection_is_answered)
{
    int32_t stream_id;

    raw_close(&raw);
    lh_rpc_server_destroy(server);
    server_options.idle_timeout_us = 30 * LH_US_PER_MS;
    server_options.drain_notice_us = 5 * LH_US_PER_S;
    server_start();
    raw_open(&raw);
    raw_flush(&raw);
    raw.reads_not = true;
    WAIT_FOR(server_stats().sent_away[LH_RPC_AWAY_IDLE] == 1);
    stream_id = raw_call(&raw, "/t.T/Echo", NULL);
    raw_message(&raw, stream_id, "in time", true);
    raw_flush(&raw);
    raw.reads_not = false;
    raw_expect_echo(&raw, stream_id, "in time");
}
END_TEST

START_TEST(client_that_takes_nothing_is_cut_off)
{
    virtual_clock_begin();
    raw_close(&raw);
    lh_rpc_server_destroy(server);
    server_options.stall_timeout_us = LH_US_PER_S;
    server_start();
    raw_open(&raw);
    nghttp2_session_set_local_window_size(raw.session, NGHTTP2_FLAG_NONE, 0, 1 << 30);
    raw_flush(&raw);
    raw.reads_not = true;
    for (int i = 0; i < 30; i++) {
        int32_t stream_id = raw_call(&raw, "/t.T/Stream", NULL);
        nghttp2_submit_window_update(raw.session, NGHTTP2_FLAG_NONE, stream_id, 1 << 30);
        raw_message(&raw, stream_id, "", true);
    }
    raw_flush(&raw);
    WAIT_FOR(heard.messages == 30 && ends_total() == 30);
    ck_assert_int_eq(heard.ends[LH_RPC_END_DISCONNECTED], 30);
}
END_TEST

/* nghttp2 would close at 1000; clients' deadlines come in thousands. How many are too many: test_rpc_bounds.c. */
START_TEST(honest_resets_are_not_punished)
{
    struct lh_rpc_server_stats stats;
    struct raw other;

    raw_open(&other);
    raw_flush(&other);
    for (int i = 0; i < 5000; i++) {
        int32_t stream_id = raw_call(&other, "/t.T/Never", NULL);
        raw_message(&other, stream_id, "wait", i % 2);
        raw_reset(&other, stream_id);
        if (i % 50 == 0) {
            raw_flush(&other);
            raw_pump(&other);
        }
        ck_assert(!other.is_gone);
    }
    raw_flush(&other);
    do
        raw_pump(&other);
    while (lh_rpc_server_stats(server, &stats), stats.calls_total < 5000 || stats.calls > 0);
    ck_assert_uint_eq(stats.connections, 2);
    ck_assert_int_eq(heard.messages, 2500);
    ck_assert_int_eq(heard.ends[LH_RPC_END_CANCELED], 2500);
    raw_close(&other);
}
END_TEST

START_TEST(pings_are_answered_by_the_thousand)
{
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 3000; i++) {
            nghttp2_submit_ping(raw.session, NGHTTP2_FLAG_NONE, NULL);
            raw_collect(&raw);
        }
        raw_flush(&raw);
        RAW_WAIT(&raw, raw.pongs == (round + 1) * 3000);
    }
    expect_unharmed();
}
END_TEST

/* `timeout_us` for the answer: long where the client answers, for it may not be run at once. */
static void restart_with_keepalive(int64_t keepalive_us, int64_t timeout_us)
{
    raw_close(&raw);
    lh_rpc_server_destroy(server);
    server_options.keepalive_us = keepalive_us;
    server_options.keepalive_timeout_us = timeout_us;
    server_options.handshake_timeout_us = LH_US_PER_S;
    server_start();
    raw_open(&raw);
}

START_TEST(client_that_answers_no_ping_is_gone)
{
    int32_t stream_id;

    restart_with_keepalive(30 * LH_US_PER_MS, 30 * LH_US_PER_MS);
    stream_id = raw_call(&raw, "/t.T/Never", NULL);
    raw_message(&raw, stream_id, "x", true);
    raw_flush(&raw);
    raw.reads_not = true; /* as a machine without power */
    WAIT_FOR(heard.ends[LH_RPC_END_DISCONNECTED] == 1);
    ck_assert_uint_eq(server_stats().sent_away[LH_RPC_AWAY_SILENT], 1);
}
END_TEST

START_TEST(client_without_calls_that_answers_no_ping_is_gone)
{
    virtual_clock_begin();
    restart_with_keepalive(30 * LH_US_PER_MS, 30 * LH_US_PER_MS);
    raw_flush(&raw);
    WAIT_FOR(server_stats().connections == 1);
    raw.reads_not = true;
    WAIT_FOR(server_stats().sent_away[LH_RPC_AWAY_SILENT] == 1);
    /* A client that only slept finds why, and that nothing was lost. */
    raw.reads_not = false;
    RAW_WAIT(&raw, raw.goaways == 1);
    WAIT_FOR(server_stats().connections == 0);
}
END_TEST

/* The limits count from the preface, not from the first look for one. */
START_TEST(client_that_falls_silent_at_once_is_not_given_the_time_for_its_preface)
{
    raw_close(&raw);
    lh_rpc_server_destroy(server);
    server_options.keepalive_us = server_options.keepalive_timeout_us = 20 * LH_US_PER_MS;
    server_options.handshake_timeout_us = 3600 * LH_US_PER_S;
    server_start();
    raw_open(&raw);
    raw_flush(&raw);
    WAIT_FOR(server_stats().connections == 1);
    raw.reads_not = true;
    WAIT_FOR(server_stats().sent_away[LH_RPC_AWAY_SILENT] == 1);
}
END_TEST

START_TEST(answered_pings_do_not_make_an_idle_connection_busy)
{
    server_options.idle_timeout_us = 100 * LH_US_PER_MS;
    restart_with_keepalive(5 * LH_US_PER_MS, 500 * LH_US_PER_MS);
    raw_flush(&raw);
    RAW_WAIT(&raw, raw.goaways >= 1);
    ck_assert_int_ge(raw.pings, 1);
}
END_TEST

START_TEST(client_that_answers_pings_stays_however_long_it_waits)
{
    int32_t stream_id;

    virtual_clock_begin();
    restart_with_keepalive(5 * LH_US_PER_MS, 500 * LH_US_PER_MS);
    stream_id = raw_call(&raw, "/t.T/Never", NULL);
    raw_message(&raw, stream_id, "x", true);
    raw_flush(&raw);
    RAW_WAIT(&raw, raw.pings >= 3); /* the time for a handshake has passed by then */
    ck_assert_int_eq(ends_total(), 0);
    lh_rpc_call_reply(heard.last, "at last", 7);
    raw_expect_echo(&raw, stream_id, "at last");
}
END_TEST

static void fuzz_bytes(unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)rand();
}

/* A valid beginning of a connection with calls, in which some bytes were changed. */
static struct lh_buffer spoiled_calls(void)
{
    struct raw template;
    struct lh_buffer bytes = {0};
    static const char *const paths[] = {"/t.T/Echo", "/t.T/Bidi", "/t.T/Stream", "/t.T/Never", "/t.T/Early"};

    raw_open(&template);
    for (int i = 0; i < 5; i++) {
        int32_t stream_id = raw_call(&template, paths[rand() % 5], NULL);
        raw_message(&template, stream_id, "payload", rand() % 2);
        if (rand() % 4 == 0)
            raw_data(&template, stream_id, "\0\0\0\0\1x", 6, rand() % 2);
    }
    lh_buffer_append(&bytes, template.out.data, template.out.size);
    raw_close(&template);
    for (int spoils = rand() % 6; spoils > 0; spoils--)
        bytes.data[24 + (size_t)rand() % (bytes.size - 24)] = (unsigned char)rand();
    return bytes;
}

START_TEST(rubbish_harms_nobody)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    unsigned seed = getenv("RPC_FUZZ_SEED") != NULL ? (unsigned)atoi(getenv("RPC_FUZZ_SEED")) : (unsigned)lh_clock_us();

    printf("seed %u\n", seed);
    fflush(stdout);
    srand(seed);
    for (int round = 0; round < FUZZ_ROUNDS; round++) {
        unsigned char bytes[512];
        size_t size = (size_t)rand() % sizeof(bytes);
        int fd = raw_connect();

        fuzz_bytes(bytes, sizeof(bytes));
        if (round % 4 == 0) {
            send_bytes(fd, bytes, size);
        } else if (round % 4 == 1) {
            send_bytes(fd, preface, strlen(preface));
            send_bytes(fd, bytes, size);
        } else {
            struct lh_buffer calls = spoiled_calls();
            size_t cut = (size_t)rand() % calls.size;
            send_bytes(fd, calls.data, cut);
            if (rand() % 4 != 0)
                send_bytes(fd, calls.data + cut, calls.size - cut);
            lh_buffer_finish(&calls);
        }
        lh_loop_run_once(loop, 0);
        close(fd);
        if (round % 20 == 0 && round / 20 < RAW_STREAMS_MAX - 2)
            expect_unharmed();
    }
    WAIT_FOR(connections() == 1);
    ck_assert_int_eq(heard.ends[LH_RPC_END_SHUTDOWN], 0);
    expect_unharmed();
}
END_TEST

TCase *hostile_tests(void)
{
    TCase *tests = tcase_create("hostile");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, http1_is_closed);
    tcase_add_test(tests, half_open_connection_is_closed_in_time);
    tcase_add_test(tests, connections_beyond_the_limit_are_closed_and_counted);
    tcase_add_test(tests, streams_beyond_the_limit_are_refused_and_counted);
    tcase_add_test(tests, idle_connection_is_sent_away);
    tcase_add_test(tests, call_that_crosses_the_farewell_of_an_idle_connection_is_answered);
    tcase_add_test(tests, client_that_takes_nothing_is_cut_off);
    tcase_add_test(tests, honest_resets_are_not_punished);
    tcase_add_test(tests, pings_are_answered_by_the_thousand);
    tcase_add_test(tests, client_that_answers_no_ping_is_gone);
    tcase_add_test(tests, client_without_calls_that_answers_no_ping_is_gone);
    tcase_add_test(tests, client_that_falls_silent_at_once_is_not_given_the_time_for_its_preface);
    tcase_add_test(tests, answered_pings_do_not_make_an_idle_connection_busy);
    tcase_add_test(tests, client_that_answers_pings_stays_however_long_it_waits);
    tcase_add_test(tests, rubbish_harms_nobody);
    return tests;
}
