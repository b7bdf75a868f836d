/* Circuit breakers. */
#include "client/endpoints.h"
#include "test_retry.h"

static void fail_calls(struct breaker *breaker, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        uint64_t ticket = lh_breaker_admit(breaker, clock_us);
        ck_assert_uint_ne(ticket, BREAKER_OPEN);
        lh_breaker_settle(breaker, ticket, BREAKER_FAILED, clock_us);
    }
}

START_TEST(so_many_failures_in_a_row_open_the_circuit_until_a_probe_succeeds)
{
    struct breaker breaker;
    uint64_t probe;

    lh_breaker_init(&breaker, "a:1", 5, LH_US_PER_S);
    fail_calls(&breaker, 4);
    lh_breaker_settle(&breaker, lh_breaker_admit(&breaker, clock_us), BREAKER_SUCCEEDED, clock_us);
    fail_calls(&breaker, 5);
    ck_assert_int_eq(breaker.state, BREAKER_IS_OPEN);
    ck_assert_uint_eq(lh_breaker_admit(&breaker, clock_us), BREAKER_OPEN);
    clock_us += LH_US_PER_S - 1;
    ck_assert_uint_eq(lh_breaker_admit(&breaker, clock_us), BREAKER_OPEN);
    clock_us += 1;
    ck_assert(!lh_breaker_is_open(&breaker, clock_us));
    probe = lh_breaker_admit(&breaker, clock_us);
    ck_assert_uint_ne(probe, BREAKER_OPEN);
    ck_assert_uint_eq(lh_breaker_admit(&breaker, clock_us), BREAKER_OPEN); /* one at a time */
    lh_breaker_settle(&breaker, probe, BREAKER_FAILED, clock_us);
    ck_assert_uint_eq(lh_breaker_admit(&breaker, clock_us), BREAKER_OPEN);
    clock_us += LH_US_PER_S;
    probe = lh_breaker_admit(&breaker, clock_us);
    ck_assert_uint_ne(probe, BREAKER_OPEN);
    lh_breaker_settle(&breaker, probe, BREAKER_SUCCEEDED, clock_us);
    ck_assert_int_eq(breaker.state, BREAKER_CLOSED);
    ck_assert_uint_ne(lh_breaker_admit(&breaker, clock_us), BREAKER_OPEN);
    ck_assert_uint_eq(breaker.opened, 2);
    fail_calls(&breaker, 4); /* the count began anew */
    ck_assert_int_eq(breaker.state, BREAKER_CLOSED);
}
END_TEST

START_TEST(calls_that_fail_together_count_once)
{
    struct breaker breaker;
    uint64_t tickets[100];

    lh_breaker_init(&breaker, "a:1", 2, LH_US_PER_S);
    for (int i = 0; i < 100; i++)
        tickets[i] = lh_breaker_admit(&breaker, clock_us);
    for (int i = 0; i < 100; i++)
        lh_breaker_settle(&breaker, tickets[i], BREAKER_FAILED, clock_us);
    ck_assert_int_eq(breaker.state, BREAKER_CLOSED);
    ck_assert_uint_eq(breaker.failures, 1);
    fail_calls(&breaker, 1);
    ck_assert_int_eq(breaker.state, BREAKER_IS_OPEN);
}
END_TEST

START_TEST(old_news_neither_closes_nor_reopens_a_circuit)
{
    struct breaker breaker;
    uint64_t old, probe;

    lh_breaker_init(&breaker, "a:1", 1, LH_US_PER_S);
    old = lh_breaker_admit(&breaker, clock_us);
    fail_calls(&breaker, 1);
    lh_breaker_settle(&breaker, old, BREAKER_SUCCEEDED, clock_us);
    ck_assert_int_eq(breaker.state, BREAKER_IS_OPEN);
    clock_us += LH_US_PER_S;
    probe = lh_breaker_admit(&breaker, clock_us);
    lh_breaker_settle(&breaker, old, BREAKER_FAILED, clock_us);
    ck_assert_int_eq(breaker.state, BREAKER_HALF_OPEN);
    lh_breaker_settle(&breaker, probe, BREAKER_SUCCEEDED, clock_us);
    lh_breaker_settle(&breaker, old, BREAKER_FAILED, clock_us);
    ck_assert_int_eq(breaker.state, BREAKER_CLOSED);
    ck_assert_uint_eq(breaker.failures, 0);
}
END_TEST

START_TEST(a_probe_that_waits_or_is_cancelled_does_not_keep_the_circuit_open)
{
    struct breaker breaker;
    uint64_t slow, second, third;

    lh_breaker_init(&breaker, "a:1", 1, LH_US_PER_S);
    fail_calls(&breaker, 1);
    clock_us += LH_US_PER_S;
    slow = lh_breaker_admit(&breaker, clock_us);
    ck_assert_uint_ne(slow, BREAKER_OPEN);
    clock_us += LH_US_PER_S;
    second = lh_breaker_admit(&breaker, clock_us); /* the next one, though the first says nothing yet */
    ck_assert_uint_ne(second, BREAKER_OPEN);
    lh_breaker_settle(&breaker, second, BREAKER_SAID_NOTHING, clock_us);
    ck_assert_int_ne(breaker.state, BREAKER_CLOSED);
    third = lh_breaker_admit(&breaker, clock_us);
    ck_assert_uint_ne(third, BREAKER_OPEN);
    lh_breaker_settle(&breaker, third, BREAKER_SUCCEEDED, clock_us);
    ck_assert_int_eq(breaker.state, BREAKER_CLOSED);
    lh_breaker_settle(&breaker, slow, BREAKER_SUCCEEDED, clock_us);
    ck_assert_int_eq(breaker.state, BREAKER_CLOSED);
}
END_TEST

START_TEST(an_answer_of_any_kind_speaks_for_the_endpoint)
{
    ck_assert_int_eq(lh_breaker_result_of(LH_RPC_ANSWERED, LH_GRPC_INTERNAL), BREAKER_SUCCEEDED);
    ck_assert_int_eq(lh_breaker_result_of(LH_RPC_ANSWERED, LH_GRPC_OK), BREAKER_SUCCEEDED);
    ck_assert_int_eq(lh_breaker_result_of(LH_RPC_NOT_SENT, LH_GRPC_UNAVAILABLE), BREAKER_FAILED);
    ck_assert_int_eq(lh_breaker_result_of(LH_RPC_IN_FLIGHT, LH_GRPC_UNAVAILABLE), BREAKER_FAILED);
    ck_assert_int_eq(lh_breaker_result_of(LH_RPC_IN_FLIGHT, LH_GRPC_INTERNAL), BREAKER_FAILED);
    ck_assert_int_eq(lh_breaker_result_of(LH_RPC_IN_FLIGHT, LH_GRPC_DEADLINE_EXCEEDED), BREAKER_SAID_NOTHING);
    ck_assert_int_eq(lh_breaker_result_of(LH_RPC_NOT_SENT, LH_GRPC_CANCELLED), BREAKER_SAID_NOTHING);
}
END_TEST

TCase *tcase_retry_breakers(void)
{
    TCase *tcase = tcase_create("breakers");

    tcase_add_checked_fixture(tcase, retry_setup, retry_teardown);
    tcase_add_test(tcase, so_many_failures_in_a_row_open_the_circuit_until_a_probe_succeeds);
    tcase_add_test(tcase, calls_that_fail_together_count_once);
    tcase_add_test(tcase, old_news_neither_closes_nor_reopens_a_circuit);
    tcase_add_test(tcase, a_probe_that_waits_or_is_cancelled_does_not_keep_the_circuit_open);
    tcase_add_test(tcase, an_answer_of_any_kind_speaks_for_the_endpoint);
    return tcase;
}
