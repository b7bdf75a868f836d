/* Calls that live long: their alarms, and the PINGs that ask whether the peer is alive. */
#include "test_rpc.h"

#define OFTEN_US (5 * LH_US_PER_MS)

static struct raw raw;

static void restart(void)
{
    raw_close(&raw);
    lh_rpc_server_destroy(server);
    server_start();
    raw_open(&raw);
}

/* Without the keepalive's own PINGs, however slow this machine is. */
static void setup(void)
{
    rpc_setup();
    raw_open(&raw);
    server_options.keepalive_us = 0;
    server_options.late_answer_us = 3600 * LH_US_PER_S;
    restart();
}

static void teardown(void)
{
    raw_close(&raw);
    rpc_teardown();
}

static struct lh_rpc_call *open_call(int32_t *stream_id)
{
    int before = heard.messages;

    *stream_id = raw_call(&raw, "/t.T/Bidi", NULL);
    raw_message(&raw, *stream_id, "hello", false);
    raw_flush(&raw);
    RAW_WAIT(&raw, heard.messages > before);
    return heard.last;
}

/* Let so much time pass for the server, which is long enough for whatever was to come. */
static void pass(struct lh_rpc_call *call, int64_t time_us)
{
    int before = heard.alarms;

    lh_rpc_call_set_alarm(call, lh_clock_us() + time_us);
    RAW_WAIT(&raw, heard.alarms > before);
}

START_TEST(alarm_rings_once_for_each_time_it_is_set)
{
    int32_t stream_id;
    struct lh_rpc_call *call = open_call(&stream_id);

    lh_rpc_call_set_alarm(call, 0); /* passed: at once, but not in here */
    ck_assert_int_eq(heard.alarms, 0);
    RAW_WAIT(&raw, heard.alarms == 1);
    lh_rpc_call_set_alarm(call, lh_clock_us() + LH_US_PER_S * 3600);
    pass(call, OFTEN_US); /* replaces it */
    ck_assert_int_eq(heard.alarms, 2);
}
END_TEST

START_TEST(alarm_of_a_call_that_is_over_does_not_ring)
{
    int32_t first_id, second_id;
    struct lh_rpc_call *first = open_call(&first_id), *second = open_call(&second_id);

    lh_rpc_call_set_alarm(first, lh_clock_us() + OFTEN_US);
    raw_reset(&raw, first_id);
    raw_flush(&raw);
    RAW_WAIT(&raw, heard.ends[LH_RPC_END_CANCELED] == 1);
    pass(second, OFTEN_US * 4);
    ck_assert_int_eq(heard.alarms, 1);
    lh_rpc_call_set_alarm(second, lh_clock_us() + OFTEN_US);
    lh_rpc_call_finish(second, LH_GRPC_OK, NULL, NULL, 0);
    lh_rpc_call_set_alarm(second, 0);
    raw_wait_closed(&raw, second_id);
    ck_assert_int_eq(heard.alarms, 1);
}
END_TEST

START_TEST(peer_that_is_asked_answers_for_all_calls_that_ask_meanwhile)
{
    int32_t ids[3];
    struct lh_rpc_call *first = open_call(&ids[0]), *second = open_call(&ids[1]);

    open_call(&ids[2]); /* it does not ask */
    lh_rpc_call_ask_peer(first);
    lh_rpc_call_ask_peer(second);
    lh_rpc_call_ask_peer(first);
    ck_assert_int_eq(heard.alive, 0);
    RAW_WAIT(&raw, heard.alive == 2);
    ck_assert_int_eq(raw.pings, 1);
    lh_rpc_call_ask_peer(first); /* a question of its own */
    RAW_WAIT(&raw, heard.alive == 3);
    ck_assert_int_eq(raw.pings, 2);
    pass(first, OFTEN_US);
    ck_assert_int_eq(heard.alive, 3);
}
END_TEST

/* What the peer sends by itself may have been on its way for long. */
START_TEST(only_the_answer_to_the_question_counts)
{
    static const uint8_t other[8] = "another";
    int32_t stream_id;
    struct lh_rpc_call *call = open_call(&stream_id);

    raw.reads_not = true;
    lh_rpc_call_ask_peer(call);
    raw_message(&raw, stream_id, "hello", false);
    nghttp2_submit_ping(raw.session, NGHTTP2_FLAG_ACK, other);
    raw_flush(&raw);
    WAIT_FOR(heard.messages == 2);
    pass(call, OFTEN_US);
    ck_assert_int_eq(heard.alive, 0);
    raw.reads_not = false;
    RAW_WAIT(&raw, heard.alive == 1);
}
END_TEST

START_TEST(peer_whose_answer_comes_late_is_asked_once_more)
{
    int32_t stream_id;
    struct lh_rpc_call *call;

    server_options.late_answer_us = -1; /* every answer is late */
    restart();
    call = open_call(&stream_id);
    for (int i = 1; i <= 3; i++) {
        lh_rpc_call_ask_peer(call);
        RAW_WAIT(&raw, heard.alive == i);
        ck_assert_int_eq(raw.pings, 2 * i);
    }
}
END_TEST

START_TEST(call_that_is_over_does_not_hear_the_answer)
{
    int32_t first_id, second_id;
    struct lh_rpc_call *first = open_call(&first_id), *second = open_call(&second_id);

    raw.reads_not = true;
    lh_rpc_call_ask_peer(first);
    lh_rpc_call_ask_peer(second);
    raw_reset(&raw, first_id);
    raw_flush(&raw);
    WAIT_FOR(heard.ends[LH_RPC_END_CANCELED] == 1);
    lh_rpc_call_finish(second, LH_GRPC_OK, NULL, NULL, 0);
    lh_rpc_call_ask_peer(second);
    raw.reads_not = false;
    raw_wait_closed(&raw, second_id);
    RAW_WAIT(&raw, raw.pings == 1);
    pass(open_call(&first_id), OFTEN_US);
    ck_assert_int_eq(heard.alive, 0);
}
END_TEST

/* Of a budget of 100 frames, and nothing else is sent to it. */
START_TEST(answers_cost_the_peer_nothing)
{
    int32_t stream_id;
    struct lh_rpc_call *call;

    server_options.control_burst = 100;
    server_options.control_rate = 0;
    restart();
    call = open_call(&stream_id);
    for (int i = 0; i < 500; i++) {
        lh_rpc_call_ask_peer(call);
        RAW_WAIT(&raw, heard.alive > i);
    }
    ck_assert_int_eq(raw.goaways, 0);
}
END_TEST

START_TEST(peer_that_closes_is_not_lost_and_one_that_falls_silent_is)
{
    int32_t stream_id;

    open_call(&stream_id);
    raw_close(&raw);
    WAIT_FOR(heard.ends[LH_RPC_END_DISCONNECTED] == 1);
    ck_assert_int_eq(heard.lost, 0);

    lh_rpc_server_destroy(server);
    server_options.keepalive_us = server_options.keepalive_timeout_us = 30 * LH_US_PER_MS;
    server_start();
    raw_open(&raw);
    open_call(&stream_id);
    raw.reads_not = true;
    WAIT_FOR(heard.ends[LH_RPC_END_DISCONNECTED] == 2);
    ck_assert_int_eq(heard.lost, 1);
}
END_TEST

TCase *alarm_tests(void)
{
    TCase *tests = tcase_create("alarm");

    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, alarm_rings_once_for_each_time_it_is_set);
    tcase_add_test(tests, alarm_of_a_call_that_is_over_does_not_ring);
    tcase_add_test(tests, peer_that_is_asked_answers_for_all_calls_that_ask_meanwhile);
    tcase_add_test(tests, only_the_answer_to_the_question_counts);
    tcase_add_test(tests, peer_whose_answer_comes_late_is_asked_once_more);
    tcase_add_test(tests, call_that_is_over_does_not_hear_the_answer);
    tcase_add_test(tests, answers_cost_the_peer_nothing);
    tcase_add_test(tests, peer_that_closes_is_not_lost_and_one_that_falls_silent_is);
    return tests;
}
