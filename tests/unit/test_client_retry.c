/* Retries as a caller of the library meets them: strategies, endpoints, circuits, limits. */
#include "client_fixture.h"

#include <stdio.h>
#include <stdlib.h>

static struct fake other; /* a second coordinator */

static void setup(void)
{
    client_setup();
    fake_init(&other, loop);
}

static void teardown(void)
{
    lh_client_destroy(client);
    client = NULL;
    fake_finish(&other);
    client_teardown();
}

static struct answer acquired(const struct lh_acquire_options *options)
{
    struct answer answer;

    acquire("a", options, &answer);
    WAIT_FOR(answer.done == 1);
    if (answer.lease != NULL)
        lh_lease_destroy(answer.lease);
    return answer;
}

/* What a strategy was asked. */
struct notes {
    unsigned asked;
    enum lh_retry_reason reason;
    uint32_t attempts, reasons;
    int64_t remaining_us;
    void *arg;
    uint64_t id;
    char verb[16];
    int64_t answer;
};

static int64_t take_notes(const struct lh_strategy *strategy, const struct lh_request *request,
                          enum lh_retry_reason reason)
{
    struct notes *notes = strategy->arg;

    notes->asked++;
    notes->reason = reason;
    notes->attempts = lh_request_attempts(request);
    notes->reasons = lh_request_reasons(request);
    notes->remaining_us = lh_request_remaining_us(request);
    notes->arg = lh_request_arg(request);
    notes->id = lh_request_id(request);
    snprintf(notes->verb, sizeof(notes->verb), "%s", lh_request_verb(request));
    ck_assert(lh_request_is_idempotent(request));
    return notes->answer;
}

START_TEST(held_is_an_outcome_unless_a_strategy_of_the_callers_own_says_otherwise)
{
    struct notes notes = {.answer = 1000};
    struct lh_strategy patient = {.decide = take_notes, .arg = &notes};
    struct answer answer;

    fake_next(&fake, FAKE_ACQUIRE, FAKE_FAIL, 1, LH_LEASE_HELD);
    answer = acquired(NULL);
    ck_assert_int_eq(answer.status, LH_LEASE_HELD);
    ck_assert_uint_eq(fake.calls[FAKE_ACQUIRE], 1);

    fake_next(&fake, FAKE_ACQUIRE, FAKE_FAIL, 3, LH_LEASE_HELD);
    answer = acquired(&(struct lh_acquire_options){.strategy = &patient, .strategy_arg = &notes});
    ck_assert_int_eq(answer.status, LH_OK);
    ck_assert_uint_eq(fake.calls[FAKE_ACQUIRE], 5);
    ck_assert_uint_eq(notes.asked, 3);
    ck_assert_int_eq(notes.reason, LH_RETRY_LEASE_HELD);
    ck_assert_uint_eq(notes.attempts, 3);
    ck_assert_uint_eq(notes.reasons, 1u << LH_RETRY_LEASE_HELD);
    ck_assert_int_gt(notes.remaining_us, 0);
    ck_assert_int_le(notes.remaining_us, 5 * LH_US_PER_S);
    ck_assert_ptr_eq(notes.arg, &notes);
    ck_assert_str_eq(notes.verb, "Acquire");
}
END_TEST

START_TEST(the_nearest_strategy_decides)
{
    struct notes notes[3] = {{.answer = LH_RETRY_REFUSE}, {.answer = LH_RETRY_REFUSE}, {.answer = LH_RETRY_REFUSE}};
    struct lh_strategy strategies[3];

    for (int i = 0; i < 3; i++)
        strategies[i] = (struct lh_strategy){.decide = take_notes, .arg = &notes[i]};
    fake_next(&fake, FAKE_ACQUIRE, FAKE_FAIL, 1000, LH_SCOPE_BUSY);
    client_again(&(struct lh_client_options){.flush_us = -1, .strategy = &strategies[0]});
    ck_assert_int_eq(acquired(NULL).status, LH_SCOPE_BUSY);
    ck_assert_uint_eq(notes[0].asked, 1);
    declared = lh_declare(client, "nearer", &(struct lh_declare_options){.strategy = &strategies[1]}, NULL);
    ck_assert_int_eq(acquired(NULL).status, LH_SCOPE_BUSY);
    ck_assert_uint_eq(notes[1].asked, 1);
    ck_assert_int_eq(acquired(&(struct lh_acquire_options){.strategy = &strategies[2]}).status, LH_SCOPE_BUSY);
    ck_assert_uint_eq(notes[2].asked, 1);
    ck_assert_uint_eq(notes[0].asked, 1);
    ck_assert_uint_eq(notes[1].asked, 1);
    ck_assert_uint_eq(stats().refusals, 3);
}
END_TEST

START_TEST(what_is_final_asks_no_strategy)
{
    static const enum lh_status final[] = {LH_NAMESPACE_FROZEN, LH_HOOK_REJECTED,    LH_LEASE_ENDED,
                                           LH_QUOTA_EXCEEDED,   LH_ACCESS_DENIED,    LH_UNAUTHENTICATED,
                                           LH_WAIT_TIMEOUT,     LH_INVALID_ARGUMENT, LH_INTERNAL};
    struct notes notes = {.answer = 0};
    struct lh_strategy eager = {.decide = take_notes, .arg = &notes};

    for (size_t i = 0; i < sizeof(final) / sizeof(final[0]); i++) {
        fake_next(&fake, FAKE_ACQUIRE, FAKE_FAIL, 1, final[i]);
        ck_assert_int_eq(acquired(&(struct lh_acquire_options){.strategy = &eager}).status, final[i]);
    }
    ck_assert_uint_eq(notes.asked, 0);
}
END_TEST

START_TEST(a_server_that_shuts_down_is_left_for_the_next_one)
{
    char targets[80];

    snprintf(targets, sizeof(targets), "%s, %s", fake.target, other.target);
    client_again(&(struct lh_client_options){.flush_us = -1, .endpoints = targets});
    fake_next(&fake, FAKE_ACQUIRE, FAKE_FAIL, 1000, LH_SHUTTING_DOWN);
    ck_assert_int_eq(acquired(NULL).status, LH_OK);
    ck_assert_uint_eq(fake.calls[FAKE_ACQUIRE], 1);
    ck_assert_uint_eq(other.calls[FAKE_ACQUIRE], 1);
    ck_assert_int_eq(acquired(NULL).status, LH_OK); /* and stays left */
    ck_assert_uint_eq(fake.calls[FAKE_ACQUIRE], 1);
}
END_TEST

START_TEST(a_wait_that_goes_on_stays_at_its_server)
{
    struct lh_acquire_options options = {.wait_us = 60 * LH_US_PER_S};
    char targets[80];

    snprintf(targets, sizeof(targets), "%s,%s", fake.target, other.target);
    client_again(&(struct lh_client_options){.flush_us = -1, .endpoints = targets});
    fake_next(&fake, FAKE_ACQUIRE, FAKE_FAIL, 4, LH_BLOCKING_TIMEOUT);
    ck_assert_int_eq(acquired(&options).status, LH_OK);
    ck_assert_uint_eq(fake.calls[FAKE_ACQUIRE], 5);
    ck_assert_uint_eq(other.calls[FAKE_ACQUIRE], 0);
    ck_assert_int_lt(fake.wait_us, 60 * LH_US_PER_S - 100 * LH_US_PER_MS); /* 1 + 10 + 50 + 100 ms have gone */
}
END_TEST

START_TEST(a_strategy_that_never_answers_ends_with_the_request)
{
    struct notes notes = {.answer = LH_RETRY_DEFER};
    struct lh_strategy silent = {.decide = take_notes, .arg = &notes};
    struct lh_acquire_options options = {.strategy = &silent, .timeout_us = 100 * LH_US_PER_MS};

    fake_next(&fake, FAKE_ACQUIRE, FAKE_FAIL, 1, LH_OVERLOADED);
    ck_assert_int_eq(acquired(&options).status, LH_TIMED_OUT);
    ck_assert_uint_eq(fake.calls[FAKE_ACQUIRE], 1);
    lh_retry_decide(client, notes.id, 0); /* too late, and for nobody */
    lh_retry_decide(client, 999999, 0);
    ck_assert_int_eq(acquired(NULL).status, LH_OK);
    ck_assert_uint_eq(fake.calls[FAKE_ACQUIRE], 2);
}
END_TEST

START_TEST(a_request_that_waits_for_its_strategy_can_be_cancelled)
{
    struct notes notes = {.answer = LH_RETRY_DEFER};
    struct lh_strategy silent = {.decide = take_notes, .arg = &notes};
    struct answer answer;

    fake_next(&fake, FAKE_ACQUIRE, FAKE_FAIL, 1, LH_OVERLOADED);
    acquire("a", &(struct lh_acquire_options){.strategy = &silent}, &answer);
    WAIT_FOR(notes.asked == 1);
    lh_cancel(answer.request);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_CANCELED);
    lh_retry_decide(client, notes.id, 0);
    lh_loop_run_once(loop, 0);
    ck_assert_uint_eq(fake.calls[FAKE_ACQUIRE], 1);
}
END_TEST

START_TEST(so_many_requests_are_in_retry_and_no_more)
{
    struct notes notes = {.answer = LH_RETRY_DEFER};
    struct lh_strategy silent = {.decide = take_notes, .arg = &notes};
    struct answer answers[3];

    client_again(&(struct lh_client_options){.flush_us = -1, .strategy = &silent, .max_retrying = 2});
    fake_next(&fake, FAKE_ACQUIRE, FAKE_FAIL, 3, LH_OVERLOADED);
    for (int i = 0; i < 3; i++)
        acquire("a", NULL, &answers[i]);
    WAIT_FOR(answers[0].done + answers[1].done + answers[2].done == 1);
    ck_assert_uint_eq(notes.asked, 2);
    for (int i = 0; i < 3; i++) {
        if (answers[i].done == 1)
            ck_assert_int_eq(answers[i].status, LH_OVERLOADED);
    }
    lh_client_destroy(client);
    client = NULL;
    ck_assert_uint_eq(answers[0].done + answers[1].done + answers[2].done, 3);
}
END_TEST

START_TEST(an_endpoint_that_is_not_there_is_tried_again_and_found_when_it_comes)
{
    struct lh_acquire_options options = {.timeout_us = 15 * LH_US_PER_S};
    struct answer answer;

    fake_next(&fake, FAKE_ACQUIRE, FAKE_ANSWER, 0, LH_OK);
    lh_rpc_server_destroy(fake.server);
    fake.server = NULL;
    client_again(&(struct lh_client_options){.flush_us = -1, .breaker_open_us = 200 * LH_US_PER_MS});
    acquire("a", &options, &answer);
    WAIT_FOR(client->endpoints.items[0].breaker.state != BREAKER_CLOSED);
    ck_assert_uint_eq(answer.done, 0);
    /* Others hear of it at once that nobody can be asked, where they do not want to wait. */
    ck_assert_int_eq(acquired(&(struct lh_acquire_options){
                                  .strategy = &(struct lh_strategy){.decide = take_notes,
                                                                    .arg = &(struct notes){.answer = LH_RETRY_REFUSE}}})
                         .status,
                     LH_UNAVAILABLE);
    fake_listen_again(&fake);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_OK);
    ck_assert_int_eq(client->endpoints.items[0].breaker.state, BREAKER_CLOSED);
    lh_lease_destroy(answer.lease);
}
END_TEST

START_TEST(time_that_is_over_is_said_with_what_went_wrong_last)
{
    struct answer answer;

    fake_next(&fake, FAKE_ACQUIRE, FAKE_FAIL, 1000000, LH_DATABASE_UNAVAILABLE);
    answer = acquired(&(struct lh_acquire_options){.timeout_us = 200 * LH_US_PER_MS});
    ck_assert_int_eq(answer.status, LH_TIMED_OUT);
    ck_assert_ptr_nonnull(strstr(answer.error.message, "as planned"));
    /* At 0, 1, 3, 7, 15, 31, 63, 127 ms, and not at 200: as many of them as the machine had time for. */
    ck_assert_uint_le(fake.calls[FAKE_ACQUIRE], 8);
}
END_TEST

TCase *tcase_client_retry(void)
{
    TCase *tcase = tcase_create("retry");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, held_is_an_outcome_unless_a_strategy_of_the_callers_own_says_otherwise);
    tcase_add_test(tcase, the_nearest_strategy_decides);
    tcase_add_test(tcase, what_is_final_asks_no_strategy);
    tcase_add_test(tcase, a_server_that_shuts_down_is_left_for_the_next_one);
    tcase_add_test(tcase, a_wait_that_goes_on_stays_at_its_server);
    tcase_add_test(tcase, a_strategy_that_never_answers_ends_with_the_request);
    tcase_add_test(tcase, a_request_that_waits_for_its_strategy_can_be_cancelled);
    tcase_add_test(tcase, so_many_requests_are_in_retry_and_no_more);
    tcase_add_test(tcase, an_endpoint_that_is_not_there_is_tried_again_and_found_when_it_comes);
    tcase_add_test(tcase, time_that_is_over_is_said_with_what_went_wrong_last);
    return tcase;
}
