/* Calls that live long: their alarms, and the PINGs that tell whether the peer is still there. */
#include "test_rpc.h"

#define OFTEN_US (5 * LH_US_PER_MS)

static struct raw raw;

/* Without the keepalive's own PINGs. */
static void setup(void)
{
    rpc_setup();
    lh_rpc_server_destroy(server);
    server_options.keepalive_us = 0;
    server_start();
    raw_open(&raw);
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

START_TEST(peer_that_is_listened_to_is_asked_whenever_it_is_silent)
{
    int32_t stream_id;
    struct lh_rpc_call *call = open_call(&stream_id);
    int64_t before_us = lh_rpc_call_heard_us(call);

    lh_rpc_call_listen(call, OFTEN_US);
    RAW_WAIT(&raw, raw.pings >= 10);
    ck_assert_int_gt(lh_rpc_call_heard_us(call), before_us);
    lh_rpc_call_listen(call, 0);
    pass(call, OFTEN_US); /* what is on its way */
    int pings = raw.pings;
    pass(call, OFTEN_US * 10);
    ck_assert_int_eq(raw.pings, pings);
}
END_TEST

START_TEST(peer_that_does_not_answer_gets_one_ping_and_no_more)
{
    int32_t stream_id;
    struct lh_rpc_call *call = open_call(&stream_id);

    lh_rpc_call_listen(call, OFTEN_US);
    RAW_WAIT(&raw, raw.pings >= 1);
    raw.reads_not = true;
    pass(call, OFTEN_US); /* an answer that was on its way */
    int64_t heard_us = lh_rpc_call_heard_us(call);
    pass(call, OFTEN_US * 20);
    ck_assert_int_eq(lh_rpc_call_heard_us(call), heard_us);
    int pings = raw.pings;
    raw.reads_not = false;
    raw_pump(&raw);
    ck_assert_int_le(raw.pings, pings + 1);
    RAW_WAIT(&raw, raw.pings >= pings + 3); /* it goes on with the first answer */
}
END_TEST

START_TEST(most_impatient_call_of_a_connection_decides)
{
    int32_t patient_id, impatient_id;
    struct lh_rpc_call *patient = open_call(&patient_id), *impatient = open_call(&impatient_id);

    lh_rpc_call_listen(patient, 3600 * LH_US_PER_S);
    lh_rpc_call_listen(impatient, OFTEN_US);
    RAW_WAIT(&raw, raw.pings >= 3);
    raw_reset(&raw, impatient_id);
    raw_flush(&raw);
    RAW_WAIT(&raw, heard.ends[LH_RPC_END_CANCELED] == 1);
    pass(patient, OFTEN_US);
    int pings = raw.pings;
    pass(patient, OFTEN_US * 10);
    ck_assert_int_eq(raw.pings, pings);
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
    tcase_add_test(tests, peer_that_is_listened_to_is_asked_whenever_it_is_silent);
    tcase_add_test(tests, peer_that_does_not_answer_gets_one_ping_and_no_more);
    tcase_add_test(tests, most_impatient_call_of_a_connection_decides);
    tcase_add_test(tests, peer_that_closes_is_not_lost_and_one_that_falls_silent_is);
    return tests;
}
