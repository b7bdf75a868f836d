/* Who decides about a retry, what it is told, and decisions that come later. */
#include <string.h>

#include "test_retry.h"

/* --- who decides --- */

START_TEST(a_request_has_its_own_strategy_or_the_clients)
{
    struct lh_request request;

    retrier.strategy = strategies[FAIL_FAST];
    begin(&request, true, LH_US_PER_S);
    ck_assert_int_eq(failed_for(&request, LH_RETRY_UNKNOWN), RETRY_REFUSED);
    begin(&request, true, LH_US_PER_S);
    request.retry.strategy = strategies[CALCULATED];
    ck_assert_int_eq(failed_for(&request, LH_RETRY_UNKNOWN), RETRY_LATER);
    ck_assert_int_eq(wait_for_timer(&request), 3 * MS);
    failed_for(&request, LH_RETRY_UNKNOWN);
    ck_assert_int_eq(wait_for_timer(&request), 6 * MS);
    begin(&request, true, LH_US_PER_S);
    request.retry.strategy.decide = lh_best_effort;
    failed_for(&request, LH_RETRY_UNKNOWN);
    ck_assert_int_eq(wait_for_timer(&request), 1 * MS);
}
END_TEST

static int64_t look(const struct lh_strategy *strategy, const struct lh_request *request, enum lh_retry_reason reason)
{
    ck_assert_ptr_eq(strategy->arg, &retrier);
    ck_assert_str_eq(lh_request_verb(request), "Acquire");
    ck_assert_uint_gt(lh_request_id(request), 0);
    ck_assert_uint_eq(lh_request_attempts(request), 2);
    ck_assert_uint_eq(lh_request_failures(request), 2);
    ck_assert_uint_eq(lh_request_reasons(request), 1u << LH_RETRY_OVERLOADED | 1u << LH_RETRY_RETRY_INFO);
    ck_assert_int_eq(lh_request_remaining_us(request), LH_US_PER_S - 1 * MS);
    ck_assert_int_eq(lh_request_retry_after_us(request), 9 * MS);
    ck_assert_ptr_eq(lh_request_arg(request), &clock_us);
    ck_assert(lh_request_is_idempotent(request));
    return 2 * MS;
}

START_TEST(a_strategy_sees_the_requests_history_and_the_servers_wish_does_not_override_it)
{
    struct lh_request request;

    begin(&request, true, LH_US_PER_S);
    request.retry.arg = &clock_us;
    failed_for(&request, LH_RETRY_OVERLOADED);
    wait_for_timer(&request);
    request.retry.strategy = (struct lh_strategy){.decide = look, .arg = &retrier};
    lh_retry_consider(&request.retry, &(struct retry_failure){.reason = LH_RETRY_RETRY_INFO, .retry_after_us = 9 * MS});
    ck_assert_int_eq(wait_for_timer(&request), 2 * MS);
}
END_TEST

START_TEST(every_retry_and_every_refusal_is_logged_with_its_reasons)
{
    struct lh_request request;

    begin(&request, true, LH_US_PER_S);
    failed_for(&request, LH_RETRY_OVERLOADED);
    ck_assert_uint_eq(log_lines, 1);
    ck_assert(strstr(log_text, "Acquire of db/7 is tried again in 1.000 ms") != NULL);
    ck_assert(strstr(log_text, "attempts=1 reason=OVERLOADED reasons=OVERLOADED: no luck") != NULL);
    wait_for_timer(&request);
    request.retry.strategy = strategies[FAIL_FAST];
    failed_for(&request, LH_RETRY_SCOPE_BUSY);
    ck_assert_uint_eq(log_lines, 2);
    ck_assert(strstr(log_text, "the strategy refused") != NULL);
    ck_assert(strstr(log_text, "attempts=2 reason=SCOPE_BUSY reasons=OVERLOADED,SCOPE_BUSY: no luck") != NULL);
    ck_assert_uint_eq(retrier.retries, 1);
    ck_assert_uint_eq(retrier.refusals, 1);
}
END_TEST

START_TEST(a_set_of_all_reasons_can_be_written)
{
    char text[RETRY_REASONS_TEXT_BYTES];

    lh_retry_reasons_format(0, text);
    ck_assert_str_eq(text, "none");
    lh_retry_reasons_format((1u << LH_RETRY_REASON_COUNT) - 1, text);
    for (unsigned reason = 0; reason < LH_RETRY_REASON_COUNT; reason++)
        ck_assert(strstr(text, lh_retry_reason_name((enum lh_retry_reason)reason)) != NULL);
}
END_TEST

/* --- decisions that come later --- */

/* It has failed, and its strategy has not answered yet. */
static void begin_deferred(struct lh_request *request, int64_t timeout_us)
{
    begin(request, true, timeout_us);
    request->retry.strategy = strategies[NEVER_ANSWERS];
    ck_assert_int_eq(failed_for(request, LH_RETRY_UNKNOWN), RETRY_LATER);
}

START_TEST(a_decision_may_come_later)
{
    struct lh_request request;

    begin_deferred(&request, LH_US_PER_S);
    clock_us += 30 * MS;
    ck_assert(lh_retrier_decide(&retrier, lh_request_id(&request), 5 * MS));
    ck_assert_uint_eq(request.verdicts, 0);
    ck_assert(!lh_retrier_decide(&retrier, lh_request_id(&request), 6 * MS));
    ck_assert_int_eq(wait_for_timer(&request), 5 * MS);
    ck_assert_int_eq(request.verdict, RETRY_AGAIN);
    ck_assert(!lh_retrier_decide(&retrier, lh_request_id(&request), 5 * MS));
    ck_assert_int_eq(request.armed_at_us, LH_FOREVER);
}
END_TEST

START_TEST(a_late_decision_is_cut_to_what_is_left_then)
{
    struct lh_request request;

    begin_deferred(&request, 50 * MS);
    clock_us += 30 * MS;
    ck_assert(lh_retrier_decide(&retrier, lh_request_id(&request), 21 * MS));
    ck_assert_int_eq(wait_for_timer(&request), 20 * MS);
    ck_assert_int_eq(request.verdict, RETRY_TIMED_OUT);
}
END_TEST

START_TEST(a_late_no_is_told_later)
{
    struct lh_request request;

    begin_deferred(&request, LH_US_PER_S);
    ck_assert(!lh_retrier_decide(&retrier, lh_request_id(&request), LH_RETRY_DEFER));
    ck_assert(lh_retrier_decide(&retrier, lh_request_id(&request), LH_RETRY_REFUSE));
    ck_assert_uint_eq(request.verdicts, 0);
    ck_assert_int_eq(wait_for_timer(&request), 0);
    ck_assert_int_eq(request.verdict, RETRY_DECLINED);
}
END_TEST

START_TEST(a_strategy_that_never_answers_ends_at_the_timeout)
{
    struct lh_request request;

    begin_deferred(&request, 77 * MS);
    ck_assert_int_eq(wait_for_timer(&request), 77 * MS);
    ck_assert_int_eq(request.verdict, RETRY_TIMED_OUT);
    ck_assert(strstr(log_text, "before its strategy answered") != NULL);
    ck_assert(!lh_retrier_decide(&retrier, lh_request_id(&request), 1 * MS)); /* the request may be gone by now */
    ck_assert_uint_eq(retrier.count, 0);
}
END_TEST

static int64_t answer_ahead(const struct lh_strategy *strategy, const struct lh_request *request,
                            enum lh_retry_reason reason)
{
    ck_assert(lh_retrier_decide(&retrier, lh_request_id(request), 4 * MS));
    ck_assert(!lh_retrier_decide(&retrier, lh_request_id(request), 5 * MS));
    return LH_RETRY_DEFER;
}

START_TEST(the_later_decision_may_come_from_inside_of_the_strategy)
{
    struct lh_request request;

    begin(&request, true, LH_US_PER_S);
    request.retry.strategy.decide = answer_ahead;
    ck_assert_int_eq(failed_for(&request, LH_RETRY_UNKNOWN), RETRY_LATER);
    ck_assert_int_eq(wait_for_timer(&request), 4 * MS);
    ck_assert_int_eq(request.verdict, RETRY_AGAIN);
}
END_TEST

START_TEST(a_request_without_a_timeout_waits_for_its_strategy_without_a_timer)
{
    struct lh_request request;

    begin_deferred(&request, LH_FOREVER);
    ck_assert_int_eq(request.armed_at_us, LH_FOREVER);
    ck_assert_uint_eq(retrier.count, 1);
    lh_retry_stop(&request.retry);
    ck_assert_uint_eq(retrier.count, 0);
}
END_TEST

START_TEST(many_deferred_decisions_are_each_their_own)
{
    enum { COUNT = 1000 };
    static struct lh_request requests[COUNT];

    for (unsigned i = 0; i < COUNT; i++)
        begin_deferred(&requests[i], LH_US_PER_S);
    for (unsigned i = COUNT; i-- > 0;)
        ck_assert(lh_retrier_decide(&retrier, lh_request_id(&requests[i]), (int64_t)(i + 1)));
    for (unsigned i = 0; i < COUNT; i++)
        ck_assert_int_eq(requests[i].armed_at_us, clock_us + (int64_t)(i + 1));
    for (unsigned i = 0; i < COUNT; i++)
        lh_retry_stop(&requests[i].retry);
    ck_assert_uint_eq(retrier.count, 0);
}
END_TEST

START_TEST(who_was_stopped_hears_nothing_any_more)
{
    struct lh_request request;

    begin(&request, true, LH_US_PER_S);
    lh_retry_stop(&request.retry);
    failed_for(&request, LH_RETRY_UNKNOWN);
    lh_retry_stop(&request.retry);
    lh_retry_stop(&request.retry);
    ck_assert_int_eq(request.armed_at_us, LH_FOREVER);
    lh_retry_on_due(&request.retry);
    ck_assert_uint_eq(request.verdicts, 0);
    ck_assert_uint_eq(retrier.count, 0);
    /* And it may be used again. */
    failed_for(&request, LH_RETRY_UNKNOWN);
    wait_for_timer(&request);
    ck_assert_uint_eq(request.verdicts, 1);
}
END_TEST

START_TEST(so_many_requests_wait_and_no_more)
{
    struct lh_request requests[4];

    retrier.limit = 2;
    for (int i = 0; i < 4; i++)
        begin(&requests[i], true, LH_FOREVER);
    ck_assert_int_eq(failed_for(&requests[0], LH_RETRY_UNKNOWN), RETRY_LATER);
    requests[1].retry.strategy = strategies[NEVER_ANSWERS];
    ck_assert_int_eq(failed_for(&requests[1], LH_RETRY_UNKNOWN), RETRY_LATER);
    ck_assert_int_eq(failed_for(&requests[2], LH_RETRY_UNKNOWN), RETRY_LIMITED);
    ck_assert_int_eq(failed_for(&requests[2], LH_RETRY_SHUTTING_DOWN), RETRY_LIMITED);
    ck_assert(strstr(log_text, "too many requests wait") != NULL);
    /* A wait that only goes on does not wait in here. */
    ck_assert_int_eq(fail_blocked(&requests[3], 20 * LH_US_PER_S), RETRY_LATER);
    wait_for_timer(&requests[3]);
    wait_for_timer(&requests[0]);
    ck_assert_int_eq(failed_for(&requests[2], LH_RETRY_UNKNOWN), RETRY_LATER);
    lh_retry_stop(&requests[1].retry);
    lh_retry_stop(&requests[2].retry);
}
END_TEST

TCase *tcase_retry_decisions(void)
{
    TCase *tcase = tcase_create("decisions");

    tcase_add_checked_fixture(tcase, retry_setup, retry_teardown);
    tcase_add_test(tcase, a_request_has_its_own_strategy_or_the_clients);
    tcase_add_test(tcase, a_strategy_sees_the_requests_history_and_the_servers_wish_does_not_override_it);
    tcase_add_test(tcase, every_retry_and_every_refusal_is_logged_with_its_reasons);
    tcase_add_test(tcase, a_set_of_all_reasons_can_be_written);
    tcase_add_test(tcase, a_decision_may_come_later);
    tcase_add_test(tcase, a_late_decision_is_cut_to_what_is_left_then);
    tcase_add_test(tcase, a_late_no_is_told_later);
    tcase_add_test(tcase, a_strategy_that_never_answers_ends_at_the_timeout);
    tcase_add_test(tcase, the_later_decision_may_come_from_inside_of_the_strategy);
    tcase_add_test(tcase, a_request_without_a_timeout_waits_for_its_strategy_without_a_timer);
    tcase_add_test(tcase, many_deferred_decisions_are_each_their_own);
    tcase_add_test(tcase, who_was_stopped_hears_nothing_any_more);
    tcase_add_test(tcase, so_many_requests_wait_and_no_more);
    return tcase;
}
