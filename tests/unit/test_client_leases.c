#include "client_fixture.h"

#include <stdio.h>
#include <stdlib.h>

/* Promise 3: the deadline counts from when the request was sent. */
START_TEST(a_deadline_is_sent_plus_waited_plus_remaining)
{
    int64_t before_us = lh_clock_us();
    struct lh_lease *lease;
    struct answer answer;

    fake.waited_us = 2 * LH_US_PER_S;
    fake.remaining_us = 20 * LH_US_PER_S;
    fake_next(&fake, FAKE_ACQUIRE, FAKE_KEEP, 1, LH_OK);
    acquire("a", NULL, &answer);
    WAIT_FOR(fake.kept_count == 1);
    virtual_clock_pass(3 * LH_US_PER_S);
    fake_let_go(&fake);
    WAIT_FOR(answer.done == 1);
    lease = answer.lease;
    ck_assert_int_ge(lh_lease_deadline_us(lease), before_us + 22 * LH_US_PER_S);
    ck_assert_int_lt(lh_lease_deadline_us(lease), before_us + 23 * LH_US_PER_S);
    ck_assert(lh_lease_is_held(lease));
    ck_assert_int_eq(lh_lease_token(lease), 1);
    lh_lease_destroy(lease);
}
END_TEST

START_TEST(only_the_newest_renewal_counts)
{
    struct lh_lease *lease = held("a");
    int64_t now_us = lh_clock_us();

    lh_lease_renewed(lease, now_us, 10 * LH_US_PER_S, false);
    ck_assert_int_eq(lh_lease_deadline_us(lease), now_us + 10 * LH_US_PER_S);
    lh_lease_renewed(lease, now_us - 1, 50 * LH_US_PER_S, false); /* does not lengthen */
    lh_lease_renewed(lease, now_us - 2, 5 * LH_US_PER_S, false);  /* nor shorten */
    lh_lease_renewed(lease, now_us, 50 * LH_US_PER_S, false);     /* the same one again */
    ck_assert_int_eq(lh_lease_deadline_us(lease), now_us + 10 * LH_US_PER_S);
    lh_lease_renewed(lease, now_us + 1, 8 * LH_US_PER_S, false); /* a newer one does both */
    ck_assert_int_eq(lh_lease_deadline_us(lease), now_us + 1 + 8 * LH_US_PER_S);
    lh_lease_renewed(lease, now_us + 2, INT64_MAX, false);
    ck_assert_int_eq(lh_lease_deadline_us(lease), INT64_MAX);
    lh_lease_destroy(lease);
}
END_TEST

/* Promise 3, as after a suspend: the clock has gone on, and no timer ran. Exclusive leases, and shared ones. */
START_TEST(whoever_looks_after_the_deadline_finds_it_lost_first)
{
    struct lh_lease *lease, *other;

    fake.mode = _i == 0 ? LEASEHOLD__V1__MODE__MODE_EXCLUSIVE : LEASEHOLD__V1__MODE__MODE_SHARED;
    fake.units = _i;
    lease = held("a");
    ck_assert_int_eq(lh_lease_units(lease), _i);
    lh_leases_expire(client, lh_lease_deadline_us(lease) - declared->options.margin_us - 1);
    ck_assert_uint_eq(loss.count, 0);
    lh_leases_expire(client, lh_lease_deadline_us(lease));
    ck_assert_uint_eq(loss.count, 1);
    ck_assert_int_eq(loss.reason, LH_LOST_EXPIRED);
    ck_assert(loss.was_cancelled);
    ck_assert(!lh_lease_is_held(lease));
    lh_lease_renewed(lease, lh_clock_us(), 30 * LH_US_PER_S, false); /* it never revives */
    ck_assert(!lh_lease_is_held(lease));
    other = held("b");
    lh_leases_expire(client, lh_lease_deadline_us(other) - 1);
    ck_assert_uint_eq(loss.count, 2);
    ck_assert_int_eq(loss.reason, LH_LOST_UNREACHABLE);
    ck_assert_uint_eq(stats().lost, 2);
    lh_lease_destroy(lease);
    lh_lease_destroy(other);
}
END_TEST

START_TEST(a_final_deadline_tells_that_the_policy_ends_the_lease)
{
    struct lh_lease *lease = held("a"), *other;

    lh_lease_renewed(lease, lh_clock_us(), 30 * LH_US_PER_S, true);
    lh_leases_expire(client, lh_lease_deadline_us(lease) - declared->options.margin_us);
    ck_assert_int_eq(loss.reason, LH_LOST_MAX_HOLD);
    ck_assert_str_eq(lh_lost_reason_name(loss.reason), "max_hold");
    other = held("b");
    lh_lease_renewed(other, lh_clock_us() + 1, 31 * LH_US_PER_S, true);
    lh_lease_renewed(other, lh_clock_us() + 2, 30 * LH_US_PER_S, false); /* the policy was changed again */
    lh_leases_expire(client, lh_lease_deadline_us(other));
    ck_assert_int_eq(loss.reason, LH_LOST_EXPIRED);
    lh_lease_destroy(lease);
    lh_lease_destroy(other);
}
END_TEST

START_TEST(lost_is_believed_at_once_and_told_once)
{
    struct lh_lease *lease;

    client_declare(300 * LH_US_PER_MS, 0);
    lease = held("a");
    fake.heartbeat = LEASEHOLD__V1__OUTCOME__OUTCOME_LOST;
    fake.end_reason = LEASEHOLD__V1__END_REASON__END_REASON_FORCED;
    WAIT_FOR(loss.count > 0);
    ck_assert_int_eq(loss.reason, LH_LOST_FORCED);
    ck_assert_int_eq(lh_lease_lost_reason(lease), LH_LOST_FORCED);
    ck_assert(loss.was_cancelled);
    ck_assert_uint_eq(stats().leases, 0);
    lh_lease_lose(lease, LH_LOST_EXPIRED, "again");
    ck_assert_uint_eq(loss.count, 1);
    ck_assert_int_eq(lh_lease_lost_reason(lease), LH_LOST_FORCED);
    lh_lease_destroy(lease);
}
END_TEST

START_TEST(a_loss_has_words_where_the_server_gives_none)
{
    static const struct {
        Leasehold__V1__EndReason reason;
        const char *words;
    } cases[] = {
        {LEASEHOLD__V1__END_REASON__END_REASON_UNKNOWN, "nor how it ended"},
        {LEASEHOLD__V1__END_REASON__END_REASON_EXPIRED, "it expired"},
        {LEASEHOLD__V1__END_REASON__END_REASON_FORCED, "an administrator"},
        {LEASEHOLD__V1__END_REASON__END_REASON_RELEASED, "it was released"},
    };
    struct lh_lease *lease;
    struct answer answer;

    client_declare(30 * LH_US_PER_S, 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fake.end_reason = cases[i].reason;
        fake.heartbeat = LEASEHOLD__V1__OUTCOME__OUTCOME_LOST;
        lease = held("a");
        answer.done = 0;
        ck_assert_int_eq(lh_heartbeat_async(lease, NULL, on_done, &answer, NULL, NULL), LH_OK);
        WAIT_FOR(answer.done == 1);
        ck_assert_int_eq(answer.status, LH_LOST);
        ck_assert_ptr_nonnull(strstr(answer.error.message, cases[i].words));
        ck_assert_uint_eq(loss.count, i + 1);
        ck_assert_ptr_nonnull(strstr(loss.words, cases[i].words));
        lh_lease_destroy(lease);
    }
    fake.release = LEASEHOLD__V1__OUTCOME__OUTCOME_LOST;
    lease = held("b");
    release(lease, &answer);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_LOST);
    ck_assert_ptr_nonnull(strstr(answer.error.message, "it was released"));
    lh_lease_destroy(lease);
}
END_TEST

START_TEST(told_to_retry_is_no_loss)
{
    struct lh_lease *lease;

    client_declare(900 * LH_US_PER_MS, 0);
    fake.remaining_us = 900 * LH_US_PER_MS;
    lease = held("a");
    fake.heartbeat = LEASEHOLD__V1__OUTCOME__OUTCOME_RETRY;
    WAIT_FOR(fake.calls[FAKE_HEARTBEAT] >= 3);
    fake.heartbeat = LEASEHOLD__V1__OUTCOME__OUTCOME_OK;
    WAIT_FOR(stats().renewals >= 2);
    ck_assert_uint_eq(loss.count, 0);
    lh_lease_destroy(lease);
}
END_TEST

START_TEST(an_answer_that_got_lost_is_asked_for_again_under_the_same_lease_key)
{
    struct answer answer;
    char first[64];

    fake_next(&fake, FAKE_ACQUIRE, FAKE_VANISH, 1, LH_OK);
    acquire("a", NULL, &answer);
    WAIT_FOR(fake.calls[FAKE_ACQUIRE] == 1);
    memcpy(first, fake.lease_key, sizeof(first));
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_OK);
    ck_assert_uint_eq(fake.calls[FAKE_ACQUIRE], 2);
    ck_assert_str_eq(fake.lease_key, first);
    lh_lease_destroy(answer.lease);
}
END_TEST

START_TEST(what_the_server_took_back_is_asked_for_anew)
{
    struct answer answer;
    char key[37];

    fake_next(&fake, FAKE_ACQUIRE, FAKE_UNDO, 1, LH_OK);
    acquire("a", NULL, &answer);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_OK);
    ck_assert_uint_eq(fake.calls[FAKE_ACQUIRE], 3); /* lost; LEASE_ENDED; a new lease key */
    lh_lease_key(answer.lease, key);
    ck_assert_str_ne(key, fake.ended_key);
    lh_lease_destroy(answer.lease);
    /* A lease key of the caller's own is never exchanged. */
    fake_next(&fake, FAKE_ACQUIRE, FAKE_UNDO, 1, LH_OK);
    acquire("b", &(struct lh_acquire_options){.lease_key = "8f14e45f-ceea-467f-9b2c-111111111111"}, &answer);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_LEASE_ENDED);
}
END_TEST

START_TEST(an_acquire_that_fails_in_doubt_is_given_back)
{
    struct answer answer;

    fake_next(&fake, FAKE_ACQUIRE, FAKE_VANISH, 1, LH_OK);
    acquire("a", NULL, &answer);
    WAIT_FOR(fake.calls[FAKE_ACQUIRE] == 1);
    fake_next(&fake, FAKE_ACQUIRE, FAKE_FAIL, 1, LH_NAMESPACE_FROZEN);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_NAMESPACE_FROZEN);
    ck_assert_ptr_null(answer.lease);
    WAIT_FOR(fake.calls[FAKE_RELEASE] == 1);
}
END_TEST

START_TEST(an_acquire_that_may_still_be_on_its_way_is_given_back_until_its_lease_would_end)
{
    struct answer answer;

    fake.release = LEASEHOLD__V1__OUTCOME__OUTCOME_LOST;
    fake.end_reason = LEASEHOLD__V1__END_REASON__END_REASON_UNKNOWN;
    fake_next(&fake, FAKE_ACQUIRE, FAKE_KEEP, 1000, LH_OK);
    acquire("a", &(struct lh_acquire_options){.timeout_us = LH_SECOND}, &answer);
    WAIT_FOR(answer.done == 1);
    WAIT_FOR(fake.calls[FAKE_RELEASE] == 1);
    fake_next(&fake, FAKE_ACQUIRE, FAKE_ANSWER, 1, LH_OK);
    acquire("a", NULL, &answer); /* waits for no more of them */
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_OK);
    ck_assert_uint_eq(fake.calls[FAKE_RELEASE], 1);
    WAIT_FOR(fake.calls[FAKE_RELEASE] == 3);
    fake.release = LEASEHOLD__V1__OUTCOME__OUTCOME_OK;
    WAIT_FOR(fake.calls[FAKE_RELEASE] == 4);
    for (int64_t end_us = lh_clock_us() + 20 * LH_US_PER_S; lh_clock_us() < end_us;)
        virtual_clock_turn(loop);
    ck_assert_uint_eq(fake.calls[FAKE_RELEASE], 4);
    lh_lease_destroy(answer.lease);
}
END_TEST

START_TEST(a_lease_key_of_the_callers_own_is_not_given_back)
{
    struct lh_acquire_options options = {.lease_key = "8f14e45f-ceea-467f-9b2c-111111111111", .timeout_us = LH_SECOND};
    struct answer answer;

    fake.release = LEASEHOLD__V1__OUTCOME__OUTCOME_LOST;
    fake.end_reason = LEASEHOLD__V1__END_REASON__END_REASON_UNKNOWN;
    fake_next(&fake, FAKE_ACQUIRE, FAKE_KEEP, 1000, LH_OK);
    acquire("a", &options, &answer);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_ne(answer.status, LH_OK);
    fake_next(&fake, FAKE_ACQUIRE, FAKE_ANSWER, 1, LH_OK);
    acquire("a", &options, &answer);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_OK);
    for (int64_t end_us = lh_clock_us() + 20 * LH_US_PER_S; lh_clock_us() < end_us;)
        virtual_clock_turn(loop);
    ck_assert_uint_eq(fake.calls[FAKE_RELEASE], 0);
    ck_assert(lh_lease_is_held(answer.lease));
    lh_lease_destroy(answer.lease);
}
END_TEST

START_TEST(a_wait_goes_on_after_the_servers_limit_with_what_is_left_of_it)
{
    struct lh_acquire_options options = {.wait_us = 60 * LH_US_PER_S};
    struct answer answer;

    fake_next(&fake, FAKE_ACQUIRE, FAKE_FAIL, 3, LH_BLOCKING_TIMEOUT);
    acquire("a", &options, &answer);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_OK);
    ck_assert_uint_eq(fake.calls[FAKE_ACQUIRE], 4);
    ck_assert_int_lt(fake.wait_us, 60 * LH_US_PER_S);
    ck_assert_int_gt(fake.wait_us, 50 * LH_US_PER_S);
    ck_assert_int_gt(fake.timeout_us, 60 * LH_US_PER_S);
    lh_lease_destroy(answer.lease);
}
END_TEST

/* It follows a release, as it would a processor. */
static int64_t late_wait_us(int64_t wait_us)
{
    struct lh_lease *before = held("late");
    struct lh_acquire_options options = {.wait_us = wait_us};
    struct answer answer;
    int64_t until_us;

    fake_next(&fake, FAKE_RELEASE, FAKE_KEEP, 1, LH_OK);
    ck_assert_int_eq(lh_try_release(before, NULL), LH_OK);
    WAIT_FOR(fake.kept_count == 1);
    acquire("late", &options, &answer);
    until_us = lh_clock_us() + 50 * LH_US_PER_MS;
    WAIT_FOR(lh_clock_us() > until_us);
    fake_let_go(&fake);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_OK);
    lh_lease_destroy(before);
    lh_lease_destroy(answer.lease);
    return fake.wait_us;
}

START_TEST(a_first_try_has_the_whole_wait_though_it_begins_late)
{
    int64_t wait_us = 0;

    for (int i = 0; i < 10 && wait_us != 60 * LH_US_PER_S; i++) /* a second may pass on a busy machine */
        wait_us = late_wait_us(60 * LH_US_PER_S);
    ck_assert_int_eq(wait_us, 60 * LH_US_PER_S);
}
END_TEST

START_TEST(a_call_carries_the_time_of_its_context_and_ends_with_it)
{
    struct lh_context *context = lh_context_create(NULL, lh_clock_us() + 2 * LH_US_PER_S);
    struct lh_acquire_options options = {.context = context, .wait_us = 60 * LH_US_PER_S};
    struct answer answer;

    fake_next(&fake, FAKE_ACQUIRE, FAKE_KEEP, 1, LH_OK);
    acquire("a", &options, &answer);
    WAIT_FOR(fake.calls[FAKE_ACQUIRE] == 1);
    ck_assert_int_le(fake.timeout_us, 2 * LH_US_PER_S);
    lh_context_cancel(context, "enough");
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_CANCELED);
    WAIT_FOR(fake.kept_count == 0); /* the server heard of it */
    acquire("a", &options, &answer);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_CANCELED);
    ck_assert_uint_eq(fake.calls[FAKE_ACQUIRE], 1);
    lh_context_destroy(context);
}
END_TEST

START_TEST(a_wait_under_a_lease_outlasts_it_as_long_as_that_is_renewed)
{
    struct lh_acquire_options options = {.wait_us = 60 * LH_US_PER_S};
    struct lh_lease *lease;
    struct answer answer, short_one;

    client_declare(400 * LH_US_PER_MS, 0);
    fake.remaining_us = 400 * LH_US_PER_MS;
    lease = held("a");
    options.context = lh_lease_context(lease);
    fake_next(&fake, FAKE_ACQUIRE, FAKE_KEEP, 1, LH_OK);
    acquire("b", &options, &answer);
    WAIT_FOR(fake.kept_count == 1);
    ck_assert_int_gt(fake.timeout_us, 60 * LH_US_PER_S);
    WAIT_FOR(stats().renewals >= 5);
    ck_assert_uint_eq(answer.done, 0);
    acquire("c", &(struct lh_acquire_options){.context = options.context}, &short_one);
    WAIT_FOR(short_one.done == 1);
    ck_assert_int_le(fake.timeout_us, 400 * LH_US_PER_MS);
    fake.heartbeat = LEASEHOLD__V1__OUTCOME__OUTCOME_LOST;
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_CANCELED);
    ck_assert_uint_eq(fake.calls[FAKE_ACQUIRE], 3);
    lh_lease_destroy(lease);
    lh_lease_destroy(short_one.lease);
}
END_TEST

START_TEST(cancelling_is_answered_once_whatever_comes_first)
{
    struct answer answer;

    acquire("a", NULL, &answer);
    lh_cancel(answer.request); /* before anything was sent */
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_CANCELED);
    fake_next(&fake, FAKE_ACQUIRE, FAKE_KEEP, 1, LH_OK);
    acquire("a", NULL, &answer);
    WAIT_FOR(fake.kept_count == 1);
    lh_cancel(answer.request);
    lh_cancel(answer.request);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_CANCELED);
    ck_assert_uint_eq(stats().requests, 0);
}
END_TEST

START_TEST(what_a_cancel_crosses_is_given_back)
{
    struct lh_acquire_options own = {.lease_key = "8f14e45f-ceea-467f-9b2c-333333333333"};
    struct answer answer;

    acquire("a", NULL, &answer);
    lh_cancel(answer.request); /* before anything was sent */
    WAIT_FOR(answer.done == 1);
    fake_next(&fake, FAKE_ACQUIRE, FAKE_KEEP, 2, LH_OK);
    acquire("a", &own, &answer);
    WAIT_FOR(fake.kept_count == 1);
    lh_cancel(answer.request); /* another process may have the lease under this key */
    WAIT_FOR(answer.done == 1);
    acquire("b", NULL, &answer);
    WAIT_FOR(fake.kept_count == 1 && fake.calls[FAKE_ACQUIRE] == 2);
    lh_cancel(answer.request);
    WAIT_FOR(answer.done == 1 && fake.calls[FAKE_RELEASE] > 0);
    ck_assert_uint_eq(fake.calls[FAKE_RELEASE], 1);
    ck_assert_uint_eq(fake.items[FAKE_RELEASE], 1);
}
END_TEST

START_TEST(the_same_lease_key_is_the_same_lease)
{
    struct lh_acquire_options options = {.lease_key = "8f14e45f-ceea-467f-9b2c-222222222222"};
    struct answer first, second;

    acquire("a", &options, &first);
    WAIT_FOR(first.done == 1);
    acquire("a", &options, &second);
    WAIT_FOR(second.done == 1);
    ck_assert_ptr_eq(first.lease, second.lease);
    ck_assert_uint_eq(stats().leases, 1);
    ck_assert_int_eq(lh_try_release(first.lease, NULL), LH_OK);
    ck_assert_int_eq(lh_try_release(second.lease, NULL), LH_LOST);
    lh_lease_destroy(first.lease);
    lh_lease_destroy(second.lease);
}
END_TEST

START_TEST(a_lease_that_is_over_when_it_comes_is_given_back)
{
    struct answer answer;

    fake.remaining_us = 2 * LH_US_PER_S; /* of 30, with a margin of 3 */
    acquire("a", NULL, &answer);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_LOST);
    ck_assert_ptr_null(answer.lease);
    WAIT_FOR(fake.calls[FAKE_RELEASE] == 1);
    ck_assert_uint_eq(loss.count, 0);
}
END_TEST

START_TEST(a_lease_takes_less_than_a_kibibyte)
{
    /* Beside itself: its place in the table, in the heap, and in a batch; what malloc adds; a key of 100 bytes. */
    ck_assert_uint_lt(sizeof(struct lh_lease) + sizeof(struct lease_grant) + 4 * sizeof(void *) + 2 * 16 + 100, 512);
}
END_TEST

TCase *tcase_client_leases(void)
{
    TCase *tcase = tcase_create("leases");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, client_setup, client_teardown);
    tcase_add_test(tcase, a_deadline_is_sent_plus_waited_plus_remaining);
    tcase_add_test(tcase, only_the_newest_renewal_counts);
    tcase_add_loop_test(tcase, whoever_looks_after_the_deadline_finds_it_lost_first, 0, 2);
    tcase_add_test(tcase, a_final_deadline_tells_that_the_policy_ends_the_lease);
    tcase_add_test(tcase, lost_is_believed_at_once_and_told_once);
    tcase_add_test(tcase, a_loss_has_words_where_the_server_gives_none);
    tcase_add_test(tcase, told_to_retry_is_no_loss);
    tcase_add_test(tcase, an_answer_that_got_lost_is_asked_for_again_under_the_same_lease_key);
    tcase_add_test(tcase, what_the_server_took_back_is_asked_for_anew);
    tcase_add_test(tcase, an_acquire_that_fails_in_doubt_is_given_back);
    tcase_add_test(tcase, an_acquire_that_may_still_be_on_its_way_is_given_back_until_its_lease_would_end);
    tcase_add_test(tcase, a_lease_key_of_the_callers_own_is_not_given_back);
    tcase_add_test(tcase, a_wait_goes_on_after_the_servers_limit_with_what_is_left_of_it);
    tcase_add_test(tcase, a_first_try_has_the_whole_wait_though_it_begins_late);
    tcase_add_test(tcase, a_call_carries_the_time_of_its_context_and_ends_with_it);
    tcase_add_test(tcase, a_wait_under_a_lease_outlasts_it_as_long_as_that_is_renewed);
    tcase_add_test(tcase, cancelling_is_answered_once_whatever_comes_first);
    tcase_add_test(tcase, what_a_cancel_crosses_is_given_back);
    tcase_add_test(tcase, the_same_lease_key_is_the_same_lease);
    tcase_add_test(tcase, a_lease_that_is_over_when_it_comes_is_given_back);
    tcase_add_test(tcase, a_lease_takes_less_than_a_kibibyte);
    return tcase;
}
