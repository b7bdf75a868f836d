/* How long each delay is, to the microsecond, and what a timeout or the server's blocking limit makes of it. */
#include <string.h>

#include "test_retry.h"

START_TEST(best_effort_doubles_from_1_to_500_ms_and_never_overflows)
{
    static const int64_t first_ms[] = {1, 2, 4, 8, 16, 32, 64, 128, 256};
    struct lh_request request;

    begin(&request, true, LH_FOREVER);
    for (unsigned attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
        int64_t expected_ms = attempt < 9 ? first_ms[attempt] : 500;
        ck_assert_int_eq(failed_for(&request, LH_RETRY_DATABASE_UNAVAILABLE), RETRY_LATER);
        ck_assert_int_eq(wait_for_timer(&request), expected_ms * MS);
        ck_assert_int_eq(request.verdict, RETRY_AGAIN);
        ck_assert_uint_eq(lh_request_attempts(&request), attempt + 1);
    }
    ck_assert_int_eq(lh_best_effort_backoff_us(NULL, 70), 500 * MS);
    ck_assert_int_eq(lh_best_effort_backoff_us(NULL, 0), 1 * MS);
    ck_assert_int_eq(lh_best_effort_backoff_us(NULL, UINT32_MAX), 500 * MS);
}
END_TEST

START_TEST(what_is_always_retried_uses_the_controlled_backoff)
{
    static const int64_t first_ms[] = {1, 10, 50, 100, 500, 1000};
    struct lh_request request;

    begin(&request, false, LH_FOREVER);
    request.retry.strategy = strategies[FAIL_FAST];
    for (unsigned attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
        ck_assert_int_eq(failed_for(&request, LH_RETRY_SHUTTING_DOWN), RETRY_LATER);
        ck_assert_int_eq(wait_for_timer(&request), (attempt < 6 ? first_ms[attempt] : 1000) * MS);
        ck_assert_int_eq(request.verdict, RETRY_AGAIN);
    }
    ck_assert_int_eq(lh_controlled_backoff_us(NULL, 70), 1000 * MS);
    ck_assert_int_eq(lh_controlled_backoff_us(NULL, UINT32_MAX), 1000 * MS);
}
END_TEST

START_TEST(counters_that_are_full_stay_full)
{
    struct lh_request request;

    begin(&request, true, LH_FOREVER);
    request.retry.attempts = request.retry.failures = request.retry.controlled = UINT32_MAX;
    ck_assert_int_eq(failed_for(&request, LH_RETRY_OVERLOADED), RETRY_LATER);
    ck_assert_int_eq(wait_for_timer(&request), 500 * MS);
    ck_assert_int_eq(failed_for(&request, LH_RETRY_SHUTTING_DOWN), RETRY_LATER);
    ck_assert_int_eq(wait_for_timer(&request), 1000 * MS);
    ck_assert_uint_eq(lh_request_attempts(&request), UINT32_MAX);
}
END_TEST

START_TEST(a_delay_is_cut_to_what_is_left_and_then_nothing_is_sent)
{
    struct lh_request request;
    int64_t spent_us = 0;

    begin(&request, true, 100 * MS);
    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(failed_for(&request, LH_RETRY_SCOPE_BUSY), RETRY_LATER);
        spent_us += wait_for_timer(&request);
        ck_assert_int_eq(request.verdict, RETRY_AGAIN);
    }
    ck_assert_int_eq(spent_us, 63 * MS);
    ck_assert_int_eq(failed_for(&request, LH_RETRY_SCOPE_BUSY), RETRY_LATER); /* 64 ms would be next */
    ck_assert_int_eq(wait_for_timer(&request), 37 * MS);
    ck_assert_int_eq(request.verdict, RETRY_TIMED_OUT);
    ck_assert_uint_eq(request.verdicts, 7);
    ck_assert_int_eq(clock_us, START_US + 100 * MS);
    ck_assert(strstr(log_text, "fails at its timeout, in 37.000 ms") != NULL);
    ck_assert_int_eq(failed_for(&request, LH_RETRY_SCOPE_BUSY), RETRY_EXPIRED);
}
END_TEST

START_TEST(what_is_always_retried_is_cut_too)
{
    struct lh_request request;

    begin(&request, true, 1000 * MS);
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(failed_for(&request, LH_RETRY_SHUTTING_DOWN), RETRY_LATER);
        wait_for_timer(&request);
        ck_assert_int_eq(request.verdict, RETRY_AGAIN);
    }
    ck_assert_int_eq(clock_us, START_US + 661 * MS);
    ck_assert_int_eq(failed_for(&request, LH_RETRY_SHUTTING_DOWN), RETRY_LATER);
    ck_assert_int_eq(wait_for_timer(&request), 339 * MS);
    ck_assert_int_eq(request.verdict, RETRY_TIMED_OUT);
    ck_assert_int_eq(clock_us, START_US + 1000 * MS);
}
END_TEST

START_TEST(a_delay_that_ends_with_the_timeout_sends_nothing_and_one_ms_less_does)
{
    struct lh_request request;

    begin(&request, true, 1 * MS);
    ck_assert_int_eq(failed_for(&request, LH_RETRY_UNKNOWN), RETRY_LATER);
    ck_assert_int_eq(wait_for_timer(&request), 1 * MS);
    ck_assert_int_eq(request.verdict, RETRY_TIMED_OUT);
    begin(&request, true, 1 * MS + 1);
    ck_assert_int_eq(failed_for(&request, LH_RETRY_UNKNOWN), RETRY_LATER);
    ck_assert_int_eq(wait_for_timer(&request), 1 * MS);
    ck_assert_int_eq(request.verdict, RETRY_AGAIN);
}
END_TEST

static int64_t absurd(void *arg, uint32_t failures)
{
    return LH_FOREVER;
}

START_TEST(an_absurd_delay_is_cut_and_does_not_wrap_around)
{
    struct lh_request request;

    begin(&request, true, 250 * MS);
    request.retry.strategy.backoff = absurd;
    ck_assert_int_eq(failed_for(&request, LH_RETRY_UNKNOWN), RETRY_LATER);
    ck_assert_int_eq(wait_for_timer(&request), 250 * MS);
    ck_assert_int_eq(request.verdict, RETRY_TIMED_OUT);
    begin(&request, true, LH_FOREVER);
    request.retry.strategy.backoff = absurd;
    ck_assert_int_eq(failed_for(&request, LH_RETRY_UNKNOWN), RETRY_LATER);
    ck_assert_int_gt(request.armed_at_us, clock_us);
    lh_retry_stop(&request.retry);
}
END_TEST

START_TEST(a_timer_that_fires_early_is_set_again)
{
    struct lh_request request;
    int64_t at_us;

    begin(&request, true, LH_US_PER_S);
    failed_for(&request, LH_RETRY_UNKNOWN);
    at_us = request.armed_at_us;
    clock_us = at_us - 1;
    request.armed_at_us = LH_FOREVER;
    lh_retry_on_due(&request.retry);
    ck_assert_uint_eq(request.verdicts, 0);
    ck_assert_int_eq(request.armed_at_us, at_us);
    wait_for_timer(&request);
    ck_assert_uint_eq(request.verdicts, 1);
    lh_retry_on_due(&request.retry);
    ck_assert_uint_eq(request.verdicts, 1);
}
END_TEST

/* --- the server's blocking limit --- */

START_TEST(after_a_server_that_did_block_it_goes_on_at_once)
{
    struct lh_request request;

    begin(&request, true, LH_FOREVER);
    for (int i = 0; i < 5; i++) {
        failed_for(&request, LH_RETRY_DATABASE_UNAVAILABLE);
        wait_for_timer(&request);
    }
    ck_assert_uint_eq(lh_request_failures(&request), 5);
    ck_assert_int_eq(fail_blocked(&request, LH_US_PER_S), RETRY_LATER);
    ck_assert_uint_eq(request.verdicts, 5); /* at once is later, too */
    ck_assert_int_eq(wait_for_timer(&request), 0);
    ck_assert_int_eq(request.verdict, RETRY_AGAIN);
    ck_assert(lh_retry_reason_keeps_endpoint(request.retry.last_reason));
    ck_assert_uint_eq(lh_request_failures(&request), 0);
    ck_assert_uint_eq(lh_request_attempts(&request), 6);
    /* The count of failures begins anew. */
    failed_for(&request, LH_RETRY_DATABASE_UNAVAILABLE);
    ck_assert_int_eq(wait_for_timer(&request), 1 * MS);
}
END_TEST

START_TEST(a_server_that_did_not_block_is_asked_by_controlled_backoff)
{
    static const int64_t first_ms[] = {1, 10, 50, 100, 500, 1000, 1000};
    struct lh_request request;

    begin(&request, true, LH_FOREVER);
    for (unsigned i = 0; i < 7; i++) {
        ck_assert_int_eq(fail_blocked(&request, LH_US_PER_S - 1), RETRY_LATER);
        ck_assert_int_eq(wait_for_timer(&request), first_ms[i] * MS);
    }
    fail_blocked(&request, 20 * LH_US_PER_S);
    ck_assert_int_eq(wait_for_timer(&request), 0);
    fail_blocked(&request, 0);
    ck_assert_int_eq(wait_for_timer(&request), 1 * MS);
}
END_TEST

START_TEST(no_time_is_left_after_the_block)
{
    struct lh_request request;

    begin(&request, true, 20 * LH_US_PER_S);
    clock_us += 20 * LH_US_PER_S;
    ck_assert_int_eq(fail_blocked(&request, 20 * LH_US_PER_S), RETRY_EXPIRED);
    ck_assert_uint_eq(retrier.count, 0);
}
END_TEST

TCase *tcase_retry_delays(void)
{
    TCase *tcase = tcase_create("delays");

    tcase_add_checked_fixture(tcase, retry_setup, retry_teardown);
    tcase_add_test(tcase, best_effort_doubles_from_1_to_500_ms_and_never_overflows);
    tcase_add_test(tcase, what_is_always_retried_uses_the_controlled_backoff);
    tcase_add_test(tcase, counters_that_are_full_stay_full);
    tcase_add_test(tcase, a_delay_is_cut_to_what_is_left_and_then_nothing_is_sent);
    tcase_add_test(tcase, what_is_always_retried_is_cut_too);
    tcase_add_test(tcase, a_delay_that_ends_with_the_timeout_sends_nothing_and_one_ms_less_does);
    tcase_add_test(tcase, an_absurd_delay_is_cut_and_does_not_wrap_around);
    tcase_add_test(tcase, a_timer_that_fires_early_is_set_again);
    tcase_add_test(tcase, after_a_server_that_did_block_it_goes_on_at_once);
    tcase_add_test(tcase, a_server_that_did_not_block_is_asked_by_controlled_backoff);
    tcase_add_test(tcase, no_time_is_left_after_the_block);
    return tcase;
}
