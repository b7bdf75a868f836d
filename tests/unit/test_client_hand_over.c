/* Requests to hand over: how a holder hears of them and refuses, and what an acquire asks. */
#include <stdio.h>

#include "client_fixture.h"

static struct {
    unsigned count;
    struct lh_lease *lease;
    char asked_by[32], principal[32], reason[32];
    int64_t answer_in_us;
    bool releases;
} heard;

static void on_asked(void *arg, struct lh_lease *lease, const struct lh_hand_over_request *asked)
{
    heard.count++;
    heard.lease = lease;
    heard.answer_in_us = asked->answer_in_us;
    snprintf(heard.asked_by, sizeof(heard.asked_by), "%s", asked->asked_by);
    snprintf(heard.principal, sizeof(heard.principal), "%s", asked->principal);
    snprintf(heard.reason, sizeof(heard.reason), "%s", asked->reason);
    if (heard.releases) {
        ck_assert_int_eq(lh_try_release(lease, NULL), LH_OK);
        lh_lease_destroy(lease);
    }
}

static void setup(void)
{
    struct lh_declare_options options = {.duration_us = 30 * LH_US_PER_S, .on_asked = on_asked};

    client_setup();
    memset(&heard, 0, sizeof(heard));
    fake.hand_over_reason = "the preferred one is here";
    declared = lh_declare(client, "test.client", &options, NULL);
    ck_assert_ptr_nonnull(declared);
}

static void renewed(uint64_t more)
{
    uint64_t until = stats().renewals + more;
    WAIT_FOR(stats().renewals >= until);
}

static void renew(struct lh_lease *lease)
{
    struct answer answer = {0};

    ck_assert_int_eq(lh_heartbeat_async(lease, NULL, on_done, &answer, &answer.request, NULL), LH_OK);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_OK);
}

START_TEST(a_holder_hears_of_each_request_once)
{
    struct lh_lease *lease = held("a");

    renewed(2);
    ck_assert_uint_eq(heard.count, 0);
    fake.hand_over_at_s = 100;
    renewed(3);
    ck_assert_uint_eq(heard.count, 1);
    ck_assert_ptr_eq(heard.lease, lease);
    ck_assert_str_eq(heard.asked_by, "worker-2");
    ck_assert_str_eq(heard.principal, "dns:worker-2");
    ck_assert_str_eq(heard.reason, "the preferred one is here");
    ck_assert_int_eq(heard.answer_in_us, 20 * LH_US_PER_S);
    ck_assert(lh_lease_is_held(lease));
    fake.hand_over_at_s = 0; /* refused */
    renewed(1);
    fake.hand_over_at_s = 131; /* asked again */
    fake.hand_over_reason = "please";
    renewed(2);
    ck_assert_uint_eq(heard.count, 2);
    ck_assert_str_eq(heard.reason, "please");
    lh_lease_destroy(lease);
}
END_TEST

START_TEST(each_of_two_leases_hears_of_its_own)
{
    struct lh_lease *first = held("a"), *second = held("b");

    fake.hand_over_at_s = 100;
    renewed(4);
    ck_assert_uint_eq(heard.count, 2);
    lh_lease_destroy(first);
    lh_lease_destroy(second);
}
END_TEST

START_TEST(a_heartbeat_by_hand_tells_it_too)
{
    struct lh_lease *lease = held("a");

    fake.hand_over_at_s = 100;
    renew(lease);
    ck_assert_uint_eq(heard.count, 1);
    renew(lease);
    renewed(1);
    ck_assert_uint_eq(heard.count, 1);
    lh_lease_destroy(lease);
}
END_TEST

START_TEST(an_answer_that_was_overtaken_tells_no_older_request)
{
    struct lh_lease *lease = held("a");
    struct answer late = {0};

    fake_next(&fake, FAKE_HEARTBEAT, FAKE_KEEP, 1, LH_OK);
    ck_assert_int_eq(lh_heartbeat_async(lease, NULL, on_done, &late, &late.request, NULL), LH_OK);
    WAIT_FOR(fake.kept_count == 1);
    fake.hand_over_at_s = 131;
    renew(lease);
    ck_assert_uint_eq(heard.count, 1);
    fake.hand_over_at_s = 100;
    fake_let_go(&fake);
    WAIT_FOR(late.done == 1);
    ck_assert_uint_eq(heard.count, 1);
    lh_lease_destroy(lease);
}
END_TEST

START_TEST(a_lease_that_is_released_hears_of_nothing)
{
    struct lh_lease *lease = held("a");
    struct answer renewal = {0};

    fake.hand_over_at_s = 100;
    fake_next(&fake, FAKE_HEARTBEAT, FAKE_KEEP, 1, LH_OK);
    ck_assert_int_eq(lh_heartbeat_async(lease, NULL, on_done, &renewal, &renewal.request, NULL), LH_OK);
    WAIT_FOR(fake.kept_count == 1);
    ck_assert_int_eq(lh_try_release(lease, NULL), LH_OK);
    fake_let_go(&fake);
    WAIT_FOR(renewal.done == 1);
    ck_assert_uint_eq(heard.count, 0);
    lh_lease_destroy(lease);
}
END_TEST

START_TEST(the_callback_may_release_and_destroy)
{
    held("a");
    heard.releases = true;
    fake.hand_over_at_s = 100;
    WAIT_FOR(heard.count == 1);
    WAIT_FOR(stats().leases == 0 && stats().releases == 0);
    ck_assert_uint_eq(fake.calls[FAKE_RELEASE], 1);
}
END_TEST

static void refuse(struct lh_lease *lease, const char *reason, struct answer *answer)
{
    *answer = (struct answer){0};
    ck_assert_int_eq(lh_lease_refuse_hand_over_async(lease, reason, NULL, on_done, answer, &answer->request, NULL),
                     LH_OK);
    WAIT_FOR(answer->done == 1);
}

START_TEST(a_refusal_is_sent_with_its_words_and_repeated_after_a_lost_answer)
{
    struct lh_lease *lease = held("a");
    struct answer answer;
    char key[37];

    fake_next(&fake, FAKE_REFUSE, FAKE_VANISH, 1, LH_OK);
    refuse(lease, "in the middle of it", &answer);
    ck_assert_msg(answer.status == LH_OK, "%s", answer.error.message);
    ck_assert_uint_eq(fake.calls[FAKE_REFUSE], 2);
    ck_assert_str_eq(fake.refusal, "in the middle of it");
    lh_lease_key(lease, key);
    ck_assert_str_eq(fake.lease_key, key);
    ck_assert(lh_lease_is_held(lease));
    lh_lease_destroy(lease);
}
END_TEST

START_TEST(a_refusal_of_nothing_is_an_error_and_of_an_ended_lease_a_loss)
{
    struct lh_lease *lease = held("a");
    struct answer answer;

    fake_next(&fake, FAKE_REFUSE, FAKE_FAIL, 1, LH_NOT_ASKED);
    refuse(lease, "no", &answer);
    ck_assert_int_eq(answer.status, LH_NOT_ASKED);
    ck_assert(lh_lease_is_held(lease));
    fake_next(&fake, FAKE_REFUSE, FAKE_FAIL, 1, LH_NOT_HELD);
    refuse(lease, "no", &answer);
    ck_assert_int_eq(answer.status, LH_LOST);
    ck_assert(!lh_lease_is_held(lease));
    refuse(lease, "no", &answer); /* not even sent */
    ck_assert_int_eq(answer.status, LH_LOST);
    ck_assert_uint_eq(fake.calls[FAKE_REFUSE], 2);
    lh_lease_destroy(lease);
}
END_TEST

START_TEST(a_refusal_is_checked_before_it_is_sent)
{
    struct lh_lease *lease = held("a");
    struct answer answer;
    struct lh_error error;
    char words[1026];

    memset(words, 'w', 1025);
    words[1025] = '\0';
    ck_assert_int_eq(lh_lease_refuse_hand_over_async(lease, words, NULL, on_done, &answer, NULL, &error),
                     LH_INVALID_ARGUMENT);
    ck_assert_str_eq(error.field, "reason");
    ck_assert_str_eq(error.message, "reason must be 1 to 1024 bytes, has 1025");
    ck_assert_int_eq(lh_lease_refuse_hand_over_async(lease, "", NULL, on_done, &answer, NULL, &error),
                     LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_lease_refuse_hand_over_async(lease, NULL, NULL, on_done, &answer, NULL, &error),
                     LH_INVALID_ARGUMENT);
    ck_assert_str_eq(error.field, "reason");
    ck_assert_int_eq(lh_lease_refuse_hand_over(lease, "no", NULL, &error), LH_WOULD_BLOCK);
    ck_assert_uint_eq(fake.calls[FAKE_REFUSE], 0);
    lh_lease_destroy(lease);
}
END_TEST

START_TEST(an_acquire_asks_only_while_it_waits)
{
    struct lh_acquire_options options = {.ask_hand_over = true, .wait_us = LH_SECOND};
    struct answer answer;

    acquire("a", &options, &answer);
    WAIT_FOR(answer.done == 1);
    ck_assert(fake.has_ask_hand_over);
    lh_lease_destroy(answer.lease);
    options.ask_hand_over = false;
    acquire("b", &options, &answer);
    WAIT_FOR(answer.done == 1);
    ck_assert(!fake.has_ask_hand_over);
    lh_lease_destroy(answer.lease);
    options = (struct lh_acquire_options){.ask_hand_over = true, .wait_while_alive = true};
    acquire("c", &options, &answer);
    WAIT_FOR(answer.done == 1);
    ck_assert(fake.has_ask_hand_over);
    lh_lease_destroy(answer.lease);
}
END_TEST

static void not_called(void *arg, enum lh_status status, struct lh_lease *lease, const struct lh_error *error)
{
    ck_abort_msg("called after a refusal");
}

static void not_called_for_all(void *arg, enum lh_status status, struct lh_lease *const *leases,
                               const struct lh_error *error)
{
    ck_abort_msg("called after a refusal");
}

START_TEST(asking_without_a_wait_or_for_several_scopes_is_refused)
{
    struct lh_acquire_options options = {.ask_hand_over = true};
    struct lh_acquire_scope scope = {.declared = declared, .key = "a"};
    struct lh_error error;

    ck_assert_int_eq(lh_acquire_async(declared, "a", &options, not_called, NULL, NULL, &error), LH_INVALID_ARGUMENT);
    ck_assert_str_eq(error.field, "ask_hand_over");
    ck_assert_str_eq(error.message, "ask_hand_over is for requests that wait; wait_us is 0");
    options.wait_us = LH_FOREVER;
    ck_assert_int_eq(lh_acquire_all_async(&scope, 1, &options, not_called_for_all, NULL, NULL, &error),
                     LH_INVALID_ARGUMENT);
    ck_assert_str_eq(error.field, "ask_hand_over");
}
END_TEST

START_TEST(the_last_attempt_of_a_wait_asks_nobody)
{
    struct lh_acquire_options options = {.ask_hand_over = true, .wait_us = 2 * LH_US_PER_S};
    struct answer answer;

    fake_next(&fake, FAKE_ACQUIRE, FAKE_KEEP, 1, LH_OK);
    acquire("a", &options, &answer);
    WAIT_FOR(fake.kept_count == 1);
    virtual_clock_pass(3 * LH_US_PER_S);
    fake_break(&fake);
    WAIT_FOR(answer.done == 1);
    ck_assert_uint_eq(fake.calls[FAKE_ACQUIRE], 2);
    ck_assert_int_eq(fake.wait_us, 0);
    ck_assert(!fake.has_ask_hand_over);
    lh_lease_destroy(answer.lease);
}
END_TEST

TCase *tcase_client_hand_over(void)
{
    TCase *tcase = tcase_create("hand_over");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, client_teardown);
    tcase_add_test(tcase, a_holder_hears_of_each_request_once);
    tcase_add_test(tcase, each_of_two_leases_hears_of_its_own);
    tcase_add_test(tcase, a_heartbeat_by_hand_tells_it_too);
    tcase_add_test(tcase, an_answer_that_was_overtaken_tells_no_older_request);
    tcase_add_test(tcase, a_lease_that_is_released_hears_of_nothing);
    tcase_add_test(tcase, the_callback_may_release_and_destroy);
    tcase_add_test(tcase, a_refusal_is_sent_with_its_words_and_repeated_after_a_lost_answer);
    tcase_add_test(tcase, a_refusal_of_nothing_is_an_error_and_of_an_ended_lease_a_loss);
    tcase_add_test(tcase, a_refusal_is_checked_before_it_is_sent);
    tcase_add_test(tcase, an_acquire_asks_only_while_it_waits);
    tcase_add_test(tcase, asking_without_a_wait_or_for_several_scopes_is_refused);
    tcase_add_test(tcase, the_last_attempt_of_a_wait_asks_nobody);
    return tcase;
}
