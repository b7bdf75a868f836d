/* How calls end, and that their handlers hear of it exactly once. */
#include <stdlib.h>
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

static int32_t call_never(const char *const *extra)
{
    int32_t stream_id = raw_call(&raw, "/t.T/Never", extra);
    raw_message(&raw, stream_id, "wait", true);
    raw_flush(&raw);
    return stream_id;
}

static struct lh_rpc_server_stats stats_now(void)
{
    struct lh_rpc_server_stats stats;
    lh_rpc_server_stats(server, &stats);
    return stats;
}

START_TEST(cancelled_call_ends_once_as_cancelled)
{
    int32_t stream_id = call_never(NULL);

    RAW_WAIT(&raw, heard.messages == 1);
    raw_reset(&raw, stream_id);
    raw_flush(&raw);
    RAW_WAIT(&raw, ends_total() == 1);
    ck_assert_int_eq(heard.ends[LH_RPC_END_CANCELED], 1);
    ck_assert_uint_eq(stats_now().calls, 0);
}
END_TEST

static uint64_t late_id;
static int late_count;

static void on_late_cancel(void *arg, uint64_t call_id)
{
    late_id = call_id;
    late_count++;
}

START_TEST(cancel_that_crosses_the_answer_is_told_with_the_number_of_its_call)
{
    int32_t first, second;
    uint64_t id;

    raw_close(&raw);
    lh_rpc_server_destroy(server);
    server_options.on_late_cancel = on_late_cancel;
    server_start();
    raw_open(&raw);
    first = call_never(NULL);
    RAW_WAIT(&raw, heard.messages == 1);
    raw_reset(&raw, first); /* in time: that is an ordinary cancel */
    raw_flush(&raw);
    RAW_WAIT(&raw, heard.ends[LH_RPC_END_CANCELED] == 1);
    second = call_never(NULL);
    RAW_WAIT(&raw, heard.messages == 2);
    id = lh_rpc_call_id(heard.last);
    lh_rpc_call_reply(heard.last, "crossed", 7);
    raw_expect_echo(&raw, second, "crossed");
    ck_assert_int_eq(heard.ends[LH_RPC_END_FINISHED], 1);
    ck_assert_int_eq(late_count, 0);
    raw_reset(&raw, second);
    raw_flush(&raw);
    RAW_WAIT(&raw, late_count == 1);
    ck_assert_uint_eq(late_id, id);
    ck_assert_int_eq(ends_total(), 2);
}
END_TEST

START_TEST(closed_connection_ends_all_of_its_calls)
{
    for (int i = 0; i < 20; i++)
        call_never(NULL);
    RAW_WAIT(&raw, heard.messages == 20);
    raw_close(&raw);
    WAIT_FOR(ends_total() == 20);
    ck_assert_int_eq(heard.ends[LH_RPC_END_DISCONNECTED], 20);
    ck_assert_uint_eq(stats_now().connections, 0);
}
END_TEST

START_TEST(call_that_its_handler_never_saw_ends_in_silence)
{
    int32_t stream_id = raw_call(&raw, "/t.T/Never", NULL);

    raw_data(&raw, stream_id, "\0\0\0\0\5ha", 7, false);
    raw_flush(&raw);
    RAW_WAIT(&raw, stats_now().calls == 1);
    raw_reset(&raw, stream_id);
    raw_flush(&raw);
    RAW_WAIT(&raw, stats_now().calls == 0);
    ck_assert_int_eq(ends_total(), 0);
    ck_assert_uint_eq(stats_now().buffered_bytes, 0);
}
END_TEST

START_TEST(deadline_is_answered_by_the_server_itself)
{
    static const char *const soon[] = {"grpc-timeout", "20m", NULL};
    static const char *const now[] = {"grpc-timeout", "0n", NULL};
    int32_t first = call_never(soon), second;

    raw_wait_closed(&raw, first);
    ck_assert_int_eq(raw_answer(&raw, first)->grpc_status, LH_GRPC_DEADLINE_EXCEEDED);
    ck_assert_str_eq(raw_answer(&raw, first)->details, "VElNRURfT1VU"); /* TIMED_OUT */
    ck_assert_int_eq(heard.ends[LH_RPC_END_DEADLINE], 1);
    second = call_never(now);
    raw_wait_closed(&raw, second);
    ck_assert_int_eq(raw_answer(&raw, second)->grpc_status, LH_GRPC_DEADLINE_EXCEEDED);
    ck_assert_int_eq(heard.ends[LH_RPC_END_DEADLINE], heard.messages);
    ck_assert_int_eq(ends_total(), heard.messages);
}
END_TEST

START_TEST(deadline_ends_a_call_whose_client_does_not_read)
{
    static const char *const soon[] = {"grpc-timeout", "100m", NULL};
    int32_t stream_id = raw_call(&raw, "/t.T/Stream", soon);

    raw_message(&raw, stream_id, "", true);
    raw.reads_not = true;
    raw_flush(&raw);
    RAW_WAIT(&raw, heard.ends[LH_RPC_END_DEADLINE] == 1);
    ck_assert_int_eq(ends_total(), 1);
}
END_TEST

START_TEST(handler_may_answer_another_call_of_the_same_connection)
{
    int32_t first = call_never(NULL), second;

    RAW_WAIT(&raw, heard.messages == 1);
    second = raw_call(&raw, "/t.T/Answer", NULL);
    raw_message(&raw, second, "both", true);
    raw_flush(&raw);
    raw_expect_echo(&raw, first, "answered");
    raw_expect_echo(&raw, second, "both");
    RAW_WAIT(&raw, heard.ends[LH_RPC_END_FINISHED] == 2);
}
END_TEST

START_TEST(error_is_one_frame_of_trailers_with_message_and_details)
{
    static const char *const fail[] = {"x-fail", "9", NULL};
    int32_t stream_id = raw_call(&raw, "/t.T/Echo", fail);
    struct raw_answer *answer = raw_answer(&raw, stream_id);

    raw_message(&raw, stream_id, "x", true);
    raw_flush(&raw);
    raw_wait_closed(&raw, stream_id);
    ck_assert_int_eq(answer->http_status, 200);
    ck_assert_int_eq(answer->grpc_status, 9);
    ck_assert_str_eq(answer->message, "%C3%B6%C3%B6");
    ck_assert_str_eq(answer->details, "ZGV0YWlscw");
    ck_assert_uint_eq(answer->data.size, 0);
    RAW_WAIT(&raw, heard.ends[LH_RPC_END_FINISHED] == 1);
    ck_assert_int_eq(ends_total(), 1);
}
END_TEST

START_TEST(trailers_stay_under_their_bound_by_leaving_out_details_then_words)
{
    static const char *const sizes[] = {"1000", "1900", "1960", "2000", "5000", "20000", "100000"};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const char *const fail[] = {"x-fail", "8", "x-words", sizes[i], NULL};
        int32_t stream_id = raw_call(&raw, "/t.T/Echo", fail);
        struct raw_answer *answer = raw_answer(&raw, stream_id);
        struct lh_buffer message = {0};

        raw_message(&raw, stream_id, "x", true);
        raw_flush(&raw);
        raw_wait_closed(&raw, stream_id);
        ck_assert_int_eq(answer->grpc_status, 8);
        ck_assert_uint_lt(answer->trailer_bytes, 6 * 1024);
        ck_assert_uint_gt(answer->trailer_bytes, 2500);
        lh_grpc_percent_decode(&message, answer->message, strlen(answer->message));
        ck_assert_uint_eq(message.size % 2, 0); /* no character was cut in two */
        lh_buffer_finish(&message);
    }
}
END_TEST

START_TEST(answer_before_the_end_of_the_request_stops_the_client)
{
    int32_t stream_id = raw_call(&raw, "/t.T/Early", NULL);

    raw_flush(&raw);
    RAW_WAIT(&raw, heard.ends[LH_RPC_END_FINISHED] == 1);
    RAW_WAIT(&raw, raw_answer(&raw, stream_id)->is_closed);
    ck_assert_int_eq(raw_answer(&raw, stream_id)->grpc_status, LH_GRPC_NOT_FOUND);
    ck_assert_uint_eq(raw_answer(&raw, stream_id)->error, NGHTTP2_NO_ERROR);
    ck_assert_int_eq(heard.starts, 1);
}
END_TEST

START_TEST(bidi_echoes_message_by_message_and_finishes_at_the_half_close)
{
    int32_t stream_id = raw_call(&raw, "/t.T/Bidi", NULL);
    struct raw_answer *answer = raw_answer(&raw, stream_id);

    raw_message(&raw, stream_id, "one", false);
    raw_flush(&raw);
    RAW_WAIT(&raw, answer->data.size == 8);
    raw_message(&raw, stream_id, "two", false);
    raw_data(&raw, stream_id, "\0\0", 2, false);
    raw_flush(&raw);
    RAW_WAIT(&raw, answer->data.size == 16);
    raw_data(&raw, stream_id, "\0\0\0", 3, true);
    raw_flush(&raw);
    raw_wait_closed(&raw, stream_id);
    ck_assert_int_eq(answer->grpc_status, 0);
    ck_assert_str_eq(answer->message, "done");
    ck_assert_uint_eq(answer->data.size, 21);
    ck_assert_int_eq(heard.starts, 1);
    ck_assert_int_eq(heard.messages, 3);
    ck_assert_int_eq(heard.half_closes, 1);
}
END_TEST

START_TEST(paused_call_stops_its_client_by_flow_control_and_goes_on)
{
    enum { MESSAGES = 200 }; /* within the window that the client was given */
    static char bytes[1005] = "\0\0\0\3\350";
    int32_t stream_id, other;
    struct lh_rpc_call *call;

    other = raw_call(&raw, "/t.T/Echo", NULL);
    raw_message(&raw, other, "the settings are known", true);
    raw_flush(&raw);
    raw_expect_echo(&raw, other, "the settings are known");
    heard = (struct heard){.is_pausing = true};
    stream_id = raw_call(&raw, "/t.T/Bidi", NULL);
    for (int i = 0; i < MESSAGES; i++)
        raw_data(&raw, stream_id, bytes, sizeof(bytes), i == MESSAGES - 1);
    other = raw_call(&raw, "/t.T/Echo", NULL);
    raw_message(&raw, other, "not held up", true);
    raw_flush(&raw);
    raw_expect_echo(&raw, other, "not held up");
    ck_assert_int_eq(heard.messages, 2); /* one of each */
    ck_assert_uint_ge(stats_now().buffered_bytes, (MESSAGES - 1) * sizeof(bytes));
    call = heard.last;
    /* One more for each resume, never from inside of it. */
    for (int i = 0; i < 10; i++) {
        lh_rpc_call_resume(call);
        ck_assert_int_eq(heard.messages, 2 + i);
        RAW_WAIT(&raw, heard.messages == 3 + i);
    }
    ck_assert_int_eq(heard.half_closes, 0);
    heard.is_pausing = false;
    lh_rpc_call_resume(call);
    RAW_WAIT(&raw, heard.half_closes == 1);
    ck_assert_int_eq(heard.messages, MESSAGES + 1);
    raw_wait_closed(&raw, stream_id);
    ck_assert_uint_eq(raw_answer(&raw, stream_id)->data.size, MESSAGES * sizeof(bytes));
    ck_assert_uint_eq(stats_now().buffered_bytes, 0);
}
END_TEST

START_TEST(stream_is_bounded_and_goes_on_when_its_client_reads)
{
    int32_t stream_id = raw_call(&raw, "/t.T/Stream", NULL);
    struct raw_answer *answer = raw_answer(&raw, stream_id);
    int writables;

    raw_message(&raw, stream_id, "", true);
    raw.reads_not = true;
    raw_flush(&raw);
    RAW_WAIT(&raw, heard.messages == 1);
    /* The client's window is 64 KiB: after it the handler is not asked for more. */
    do {
        writables = heard.writables;
        for (int i = 0; i < 20; i++)
            virtual_clock_turn(loop);
    } while (heard.writables > writables);
    ck_assert_uint_le(lh_rpc_call_unsent(heard.last), server_options.stream_mark_bytes + 1005);
    raw.reads_not = false;
    RAW_WAIT(&raw, answer->data.size > 1000000);
    ck_assert_int_gt(heard.writables, writables);
    raw_reset(&raw, stream_id);
    raw_flush(&raw);
    RAW_WAIT(&raw, heard.ends[LH_RPC_END_CANCELED] == 1);
}
END_TEST

START_TEST(sender_that_ignores_the_mark_is_refused_at_the_limit)
{
    static char big[1 << 20];
    int32_t stream_id;
    int sent = 0;
    enum lh_status status;

    raw_close(&raw);
    lh_rpc_server_destroy(server);
    server_options.connection_memory = 64 * 1024 * 1024; /* the other bound */
    server_start();
    raw_open(&raw);
    stream_id = call_never(NULL);
    RAW_WAIT(&raw, heard.messages == 1);
    while ((status = lh_rpc_call_send(heard.last, big, sizeof(big))) == LH_OK)
        sent++;
    ck_assert_int_eq(status, LH_OVERLOADED);
    ck_assert_int_ge(sent, 8);
    ck_assert_int_le(sent, 9);
    lh_rpc_call_finish(heard.last, LH_GRPC_ABORTED, "lagged", NULL, 0);
    raw_wait_closed(&raw, stream_id);
    ck_assert_uint_eq(raw_answer(&raw, stream_id)->data.size, (size_t)sent * (sizeof(big) + 5));
    ck_assert_int_eq(raw_answer(&raw, stream_id)->grpc_status, LH_GRPC_ABORTED);
    ck_assert_uint_eq(stats_now().refusals[LH_RPC_BOUND_OUTPUT], 1);
}
END_TEST

static const struct lh_rpc_method_stats *stats_of_never(void)
{
    size_t index = (size_t)(lh_rpc_call_method(heard.last) - test_methods);
    return lh_rpc_server_method_stats(server, index);
}

START_TEST(outcomes_are_counted_by_method_and_reason)
{
    static const char *const soon[] = {"grpc-timeout", "20m", NULL};
    const struct lh_rpc_method_stats *stats;
    int32_t stream_id = call_never(NULL);
    uint64_t timed = 0;

    RAW_WAIT(&raw, heard.messages == 1);
    stats = stats_of_never();
    lh_rpc_call_set_reason(heard.last, LH_LEASE_HELD);
    lh_rpc_call_finish(heard.last, LH_GRPC_ABORTED, "held", NULL, 0);
    raw_wait_closed(&raw, stream_id);
    stream_id = call_never(NULL);
    RAW_WAIT(&raw, heard.messages == 2);
    lh_rpc_call_finish(heard.last, LH_GRPC_ABORTED, "without a reason", NULL, 0);
    raw_wait_closed(&raw, stream_id);
    stream_id = call_never(NULL);
    RAW_WAIT(&raw, heard.messages == 3);
    lh_rpc_call_reply(heard.last, "", 0);
    raw_wait_closed(&raw, stream_id);
    stream_id = call_never(NULL);
    RAW_WAIT(&raw, heard.messages == 4);
    raw_reset(&raw, stream_id);
    raw_flush(&raw);
    RAW_WAIT(&raw, heard.ends[LH_RPC_END_CANCELED] == 1);
    raw_wait_closed(&raw, call_never(soon));
    ck_assert_uint_eq(stats->outcomes[LH_STATUS_COUNT + LH_GRPC_DEADLINE_EXCEEDED], 1);
    ck_assert_uint_eq(stats->outcomes[LH_LEASE_HELD], 1);
    ck_assert_uint_eq(stats->outcomes[LH_STATUS_COUNT + LH_GRPC_ABORTED], 1);
    ck_assert_uint_eq(stats->outcomes[LH_OK], 1);
    ck_assert_uint_eq(stats->outcomes[LH_CANCELED], 1);
    for (size_t i = 0; i <= lh_latency_bounds.count; i++)
        timed += stats->duration_us.counts[i];
    ck_assert_uint_eq(timed, 5);
}
END_TEST

static bool is_idle, is_final;

static void on_idle(void *arg)
{
    is_idle = true;
}

static void on_final(void *arg)
{
    ck_assert(!is_idle && !is_final);
    is_final = true;
}

START_TEST(drain_lets_calls_end_and_takes_no_connection)
{
    int32_t open = call_never(NULL), late;

    virtual_clock_begin();
    RAW_WAIT(&raw, heard.messages == 1);
    late = raw_call(&raw, "/t.T/Echo", NULL);
    lh_rpc_server_drain(server, on_final, on_idle, NULL);
    ck_assert(!is_idle);
    ck_assert_int_eq(rpc_port(server), 0);
    RAW_WAIT(&raw, raw.goaways == 1);
    ck_assert(!is_final);
    /* On its way before the client heard the last word. */
    raw_message(&raw, late, "still taken", true);
    raw_flush(&raw);
    raw_expect_echo(&raw, late, "still taken");
    RAW_WAIT(&raw, raw.goaways == 2);
    ck_assert(is_final && !is_idle);
    lh_rpc_call_reply(heard.last, "late", 4);
    raw_expect_echo(&raw, open, "late");
    RAW_WAIT(&raw, raw.is_gone);
    raw_close(&raw);
    WAIT_FOR(is_idle);
    ck_assert_int_eq(heard.ends[LH_RPC_END_FINISHED], 2);
    ck_assert_int_eq(ends_total(), 2);
}
END_TEST

START_TEST(drain_cuts_what_does_not_end_in_time)
{
    raw_close(&raw);
    lh_rpc_server_destroy(server);
    server_options.drain_notice_us = 10 * LH_US_PER_MS;
    server_options.drain_limit_us = 50 * LH_US_PER_MS;
    server_start();
    raw_open(&raw);
    call_never(NULL);
    RAW_WAIT(&raw, heard.messages == 1);
    lh_rpc_server_drain(server, on_final, on_idle, NULL);
    RAW_WAIT(&raw, is_idle);
    ck_assert_int_eq(heard.ends[LH_RPC_END_DISCONNECTED], 1);
}
END_TEST

START_TEST(drain_of_an_idle_server_ends_at_once_but_later)
{
    raw_close(&raw);
    WAIT_FOR(stats_now().connections == 0);
    lh_rpc_server_drain(server, on_final, on_idle, NULL);
    ck_assert(!is_final && !is_idle);
    WAIT_FOR(is_idle);
    ck_assert(is_final);
}
END_TEST

START_TEST(destroy_ends_open_calls)
{
    call_never(NULL);
    call_never(NULL);
    RAW_WAIT(&raw, heard.messages == 2);
    lh_rpc_server_destroy(server);
    ck_assert_int_eq(heard.ends[LH_RPC_END_SHUTDOWN], 2);
    ck_assert_int_eq(ends_total(), 2);
    server_start();
}
END_TEST

START_TEST(getters_tell_of_peer_metadata_and_times)
{
    static const char *const extra[] = {"x-one", "1", "authorization", "bearer", "x-one", "2", "grpc-timeout",
                                        "10S",   NULL};
    int64_t before_us = lh_clock_us();

    call_never(extra);
    RAW_WAIT(&raw, heard.messages == 1);
    ck_assert_str_eq(lh_rpc_call_metadata(heard.last, "x-one"), "1");
    ck_assert_str_eq(lh_rpc_call_metadata(heard.last, "authorization"), "bearer");
    ck_assert_ptr_null(lh_rpc_call_metadata(heard.last, "x-two"));
    ck_assert_ptr_null(lh_rpc_call_metadata(heard.last, "grpc-timeout"));
    ck_assert_int_ge(heard.last->deadline_us, before_us + 10 * LH_US_PER_S);
    ck_assert_str_eq(lh_rpc_call_method(heard.last)->path, "/t.T/Never");
}
END_TEST

START_TEST(a_principal_that_a_call_has_proved_is_for_that_call_alone)
{
    int32_t first = call_never(NULL);

    RAW_WAIT(&raw, heard.messages == 1);
    ck_assert_str_eq(lh_rpc_call_principal(heard.last), "anonymous");
    ck_assert_int_eq(strncmp(lh_rpc_call_peer(heard.last), "127.0.0.1:", 10), 0);
    lh_rpc_call_set_principal(heard.last, "token:ci");
    lh_rpc_call_set_principal(heard.last, "token:deploy");
    ck_assert_str_eq(lh_rpc_call_principal(heard.last), "token:deploy");
    raw_reset(&raw, first);
    raw_flush(&raw);
    RAW_WAIT(&raw, ends_total() == 1);
    call_never(NULL);
    RAW_WAIT(&raw, heard.messages == 2);
    ck_assert_str_eq(lh_rpc_call_principal(heard.last), "anonymous");
}
END_TEST

TCase *call_tests(void)
{
    TCase *tests = tcase_create("call");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, cancelled_call_ends_once_as_cancelled);
    tcase_add_test(tests, cancel_that_crosses_the_answer_is_told_with_the_number_of_its_call);
    tcase_add_test(tests, closed_connection_ends_all_of_its_calls);
    tcase_add_test(tests, call_that_its_handler_never_saw_ends_in_silence);
    tcase_add_test(tests, deadline_is_answered_by_the_server_itself);
    tcase_add_test(tests, deadline_ends_a_call_whose_client_does_not_read);
    tcase_add_test(tests, handler_may_answer_another_call_of_the_same_connection);
    tcase_add_test(tests, error_is_one_frame_of_trailers_with_message_and_details);
    tcase_add_test(tests, trailers_stay_under_their_bound_by_leaving_out_details_then_words);
    tcase_add_test(tests, answer_before_the_end_of_the_request_stops_the_client);
    tcase_add_test(tests, bidi_echoes_message_by_message_and_finishes_at_the_half_close);
    tcase_add_test(tests, paused_call_stops_its_client_by_flow_control_and_goes_on);
    tcase_add_test(tests, stream_is_bounded_and_goes_on_when_its_client_reads);
    tcase_add_test(tests, sender_that_ignores_the_mark_is_refused_at_the_limit);
    tcase_add_test(tests, outcomes_are_counted_by_method_and_reason);
    tcase_add_test(tests, drain_lets_calls_end_and_takes_no_connection);
    tcase_add_test(tests, drain_cuts_what_does_not_end_in_time);
    tcase_add_test(tests, drain_of_an_idle_server_ends_at_once_but_later);
    tcase_add_test(tests, destroy_ends_open_calls);
    tcase_add_test(tests, getters_tell_of_peer_metadata_and_times);
    tcase_add_test(tests, a_principal_that_a_call_has_proved_is_for_that_call_alone);
    return tests;
}
