#include "client_fixture.h"

#include <stdio.h>
#include <stdlib.h>

#define MANY 12000

static struct lh_lease *leases[MANY];

static void on_one(void *arg, enum lh_status status, struct lh_lease *lease, const struct lh_error *error)
{
    struct lh_lease **place = arg;
    ck_assert_int_eq(status, LH_OK);
    *place = lease;
}

static void hold_many(size_t count, const char *padding)
{
    char key[512];

    for (size_t i = 0; i < count; i++) {
        leases[i] = NULL;
        snprintf(key, sizeof(key), "%s%zu", padding, i);
        ck_assert_int_eq(lh_acquire_async(declared, key, NULL, on_one, &leases[i], NULL, NULL), LH_OK);
        if (i % 256 == 255)
            WAIT_FOR(leases[i] != NULL);
    }
    WAIT_FOR(stats().leases == count);
}

static void destroy_many(size_t count)
{
    for (size_t i = 0; i < count; i++)
        lh_lease_destroy(leases[i]);
}

START_TEST(a_set_goes_out_whole_one_request_at_a_time)
{
    struct lh_lease *other;

    hold_many(300, "k");
    fake_next(&fake, FAKE_RELEASE, FAKE_KEEP, 1, LH_OK);
    ck_assert_int_eq(lh_try_release(leases[0], NULL), LH_OK);
    WAIT_FOR(fake.kept_count == 1);
    for (size_t i = 1; i < 300; i++) { /* never waits, though the server hangs */
        ck_assert_int_eq(lh_try_release(leases[i], NULL), LH_OK);
        ck_assert_int_eq(lh_try_release(leases[i], NULL), LH_LOST);
        ck_assert(!lh_lease_is_held(leases[i]));
    }
    ck_assert_uint_eq(stats().releases, 300);
    other = held("other"); /* the loop turned, and could have sent more */
    ck_assert_uint_eq(fake.calls[FAKE_RELEASE], 1);
    fake_let_go(&fake);
    WAIT_FOR(stats().releases == 0);
    ck_assert_uint_eq(fake.calls[FAKE_RELEASE], 2);
    ck_assert_uint_eq(fake.items[FAKE_RELEASE], 299);
    ck_assert_uint_eq(fake.most_in_flight, 1);
    ck_assert_uint_eq(stats().leases, 1);
    lh_lease_destroy(other);
    destroy_many(300);
}
END_TEST

START_TEST(messages_stay_below_the_servers_limits)
{
    char padding[401];

    memset(padding, 'p', 400);
    padding[400] = '\0';
    client_declare(15 * LH_US_PER_S, 0); /* longer than the slowest machine takes to acquire them */
    hold_many(MANY, padding);            /* 5 MB of keys */
    WAIT_FOR(stats().renewals >= MANY);
    for (size_t i = 0; i < MANY; i++)
        ck_assert_int_eq(lh_try_release(leases[i], NULL), LH_OK);
    WAIT_FOR(stats().releases == 0);
    ck_assert_uint_eq(fake.most_in_flight, 1);
    ck_assert_uint_le(fake.largest_bytes, 4 * 1024 * 1024);
    ck_assert_uint_gt(fake.largest_bytes, 3 * 1024 * 1024);
    ck_assert_uint_eq(loss.count, 0);
    destroy_many(MANY);
}
END_TEST

START_TEST(the_set_has_a_limit)
{
    client_again(&(struct lh_client_options){.max_releases = 2, .flush_us = -1});
    hold_many(4, "k");
    fake_next(&fake, FAKE_RELEASE, FAKE_KEEP, 1, LH_OK);
    ck_assert_int_eq(lh_try_release(leases[0], NULL), LH_OK);
    ck_assert_int_eq(lh_try_release(leases[1], NULL), LH_OK);
    ck_assert_int_eq(lh_try_release(leases[2], NULL), LH_OVERLOADED);
    ck_assert_int_eq(lh_try_release(leases[2], NULL), LH_LOST);
    WAIT_FOR(stats().leases == 1); /* it is renewed no more than the others */
    ck_assert_uint_eq(stats().left_to_expire, 1);
    WAIT_FOR(fake.kept_count == 1);
    fake_let_go(&fake);
    WAIT_FOR(stats().releases == 0);
    ck_assert_int_eq(lh_try_release(leases[3], NULL), LH_OK);
    WAIT_FOR(stats().releases == 0);
    destroy_many(4);
}
END_TEST

START_TEST(a_release_that_fails_is_tried_again_until_its_deadline)
{
    client_declare(400 * LH_US_PER_MS, 0);
    fake.remaining_us = 400 * LH_US_PER_MS;
    hold_many(3, "k");
    fake.release = LEASEHOLD__V1__OUTCOME__OUTCOME_RETRY;
    ck_assert_int_eq(lh_try_release(leases[0], NULL), LH_OK);
    WAIT_FOR(fake.calls[FAKE_RELEASE] >= 3);
    WAIT_FOR(stats().releases == 0);
    ck_assert_uint_eq(stats().left_to_expire, 1);
    ck_assert_uint_le(fake.calls[FAKE_RELEASE], 6); /* 50 ms, 100 ms, 200 ms in between */
    fake_next(&fake, FAKE_RELEASE, FAKE_VANISH, 1, LH_OK);
    fake.release = LEASEHOLD__V1__OUTCOME__OUTCOME_LOST;
    ck_assert_int_eq(lh_try_release(leases[1], NULL), LH_OK);
    WAIT_FOR(stats().releases == 0);
    ck_assert_uint_eq(stats().left_to_expire, 1);
    fake.release = LEASEHOLD__V1__OUTCOME__OUTCOME_REJECTED;
    ck_assert_int_eq(lh_try_release(leases[2], NULL), LH_OK);
    WAIT_FOR(stats().releases == 0);
    ck_assert_uint_eq(stats().left_to_expire, 2);
    destroy_many(3);
}
END_TEST

START_TEST(an_acquire_goes_after_the_release_of_its_scope)
{
    struct answer same, other, impatient;

    hold_many(1, "k");
    fake_next(&fake, FAKE_RELEASE, FAKE_KEEP, 1, LH_OK);
    ck_assert_int_eq(lh_try_release(leases[0], NULL), LH_OK);
    acquire("k0", NULL, &same);
    acquire("k1", NULL, &other);
    acquire("k0", &(struct lh_acquire_options){.timeout_us = 20 * LH_US_PER_MS}, &impatient);
    WAIT_FOR(other.done == 1 && impatient.done == 1 && fake.kept_count == 1);
    ck_assert_int_eq(impatient.status, LH_TIMED_OUT);
    ck_assert_uint_eq(same.done, 0);
    ck_assert_uint_eq(fake.calls[FAKE_ACQUIRE], 2);
    fake_let_go(&fake);
    WAIT_FOR(same.done == 1);
    ck_assert_int_eq(same.status, LH_OK);
    lh_lease_destroy(same.lease);
    lh_lease_destroy(other.lease);
    destroy_many(1);
}
END_TEST

START_TEST(a_release_knows_its_own_work)
{
    struct lh_lease *lease = held("a");
    struct answer answer;

    fake.release = LEASEHOLD__V1__OUTCOME__OUTCOME_LOST;
    fake.end_reason = LEASEHOLD__V1__END_REASON__END_REASON_RELEASED;
    fake_next(&fake, FAKE_RELEASE, FAKE_VANISH, 1, LH_OK);
    release(lease, &answer);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_OK); /* it was this request that released it */
    ck_assert_int_eq(lh_release_async(lease, NULL, on_done, &answer, NULL, &answer.error), LH_LOST);
    lh_lease_destroy(lease);
    lease = held("b");
    release(lease, &answer);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_LOST); /* somebody else did */
    lh_lease_destroy(lease);
    lease = held("c");
    fake.end_reason = LEASEHOLD__V1__END_REASON__END_REASON_EXPIRED;
    fake_next(&fake, FAKE_RELEASE, FAKE_VANISH, 1, LH_OK);
    release(lease, &answer);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_LOST);
    lh_lease_destroy(lease);
    lease = held("d");
    fake.end_reason = LEASEHOLD__V1__END_REASON__END_REASON_FAILED;
    fake_next(&fake, FAKE_RELEASE, FAKE_VANISH, 1, LH_OK);
    release(lease, &answer);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_LOST); /* this request had no failure to tell of */
    lh_lease_destroy(lease);
    lease = held("e");
    unsigned calls = fake.calls[FAKE_RELEASE];
    fake.release = LEASEHOLD__V1__OUTCOME__OUTCOME_RETRY;
    release(lease, &answer);
    WAIT_FOR(fake.calls[FAKE_RELEASE] > calls);
    fake.release = LEASEHOLD__V1__OUTCOME__OUTCOME_LOST;
    fake.end_reason = LEASEHOLD__V1__END_REASON__END_REASON_RELEASED;
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_OK); /* a server that lost its database's answer says RETRY */
    lh_lease_destroy(lease);
}
END_TEST

static void on_closed(void *arg)
{
    ++*(unsigned *)arg;
}

START_TEST(what_is_in_doubt_ends_with_the_client)
{
    struct answer waiting;
    unsigned closed = 0;

    client_again(&(struct lh_client_options){0});
    fake.release = LEASEHOLD__V1__OUTCOME__OUTCOME_LOST;
    fake.end_reason = LEASEHOLD__V1__END_REASON__END_REASON_UNKNOWN;
    fake_next(&fake, FAKE_ACQUIRE, FAKE_KEEP, 1, LH_OK);
    acquire("w", NULL, &waiting);
    WAIT_FOR(fake.kept_count == 1);
    lh_client_close(client, on_closed, &closed);
    WAIT_FOR(closed > 0);
    ck_assert_uint_eq(fake.calls[FAKE_RELEASE], 1);
    for (int64_t end_us = lh_clock_us() + 20 * LH_US_PER_S; lh_clock_us() < end_us;)
        virtual_clock_turn(loop);
    ck_assert_uint_eq(fake.calls[FAKE_RELEASE], 1);
}
END_TEST

START_TEST(closing_answers_everybody_and_flushes_the_set)
{
    struct answer waiting;
    unsigned closed = 0;

    client_again(&(struct lh_client_options){0});
    hold_many(5, "k");
    fake_next(&fake, FAKE_ACQUIRE, FAKE_KEEP, 1, LH_OK);
    acquire("w", NULL, &waiting);
    WAIT_FOR(fake.kept_count == 1);
    for (size_t i = 0; i < 4; i++)
        ck_assert_int_eq(lh_try_release(leases[i], NULL), LH_OK);
    lh_client_close(client, on_closed, &closed);
    lh_client_close(client, on_closed, &closed);
    ck_assert_uint_eq(closed, 0);
    WAIT_FOR(closed > 0);
    ck_assert_uint_eq(closed, 1);
    ck_assert_int_eq(waiting.status, LH_CANCELED);
    ck_assert_uint_eq(stats().releases, 0);
    ck_assert_uint_eq(stats().left_to_expire, 0);
    ck_assert_uint_eq(stats().leases, 0);
    ck_assert_uint_eq(loss.count, 0);
    /* Use after close. */
    ck_assert_int_eq(lh_try_release(leases[4], NULL), LH_CLOSED);
    ck_assert_int_eq(lh_release_async(leases[4], NULL, on_done, &waiting, NULL, NULL), LH_CLOSED);
    ck_assert_int_eq(lh_heartbeat_async(leases[4], NULL, on_done, &waiting, NULL, NULL), LH_CLOSED);
    ck_assert_int_eq(lh_acquire_async(declared, "x", NULL, NULL, NULL, NULL, NULL), LH_INVALID_ARGUMENT);
    ck_assert_ptr_null(lh_declare(client, "x", NULL, &waiting.error));
    ck_assert_int_eq(waiting.error.status, LH_CLOSED);
    destroy_many(5);
}
END_TEST

TCase *tcase_client_releases(void)
{
    TCase *tcase = tcase_create("releases");

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, client_setup, client_teardown);
    tcase_add_test(tcase, a_set_goes_out_whole_one_request_at_a_time);
    tcase_add_test(tcase, messages_stay_below_the_servers_limits);
    tcase_add_test(tcase, the_set_has_a_limit);
    tcase_add_test(tcase, a_release_that_fails_is_tried_again_until_its_deadline);
    tcase_add_test(tcase, an_acquire_goes_after_the_release_of_its_scope);
    tcase_add_test(tcase, a_release_knows_its_own_work);
    tcase_add_test(tcase, what_is_in_doubt_ends_with_the_client);
    tcase_add_test(tcase, closing_answers_everybody_and_flushes_the_set);
    return tcase;
}
