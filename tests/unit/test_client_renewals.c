#include "client_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

START_TEST(renewals_go_over_one_stream_in_one_batch)
{
    struct lh_lease *leases[50];
    char key[8];

    client_declare(300 * LH_US_PER_MS, 0);
    fake.remaining_us = 300 * LH_US_PER_MS;
    for (int i = 0; i < 50; i++) {
        snprintf(key, sizeof(key), "%d", i);
        leases[i] = held(key);
    }
    WAIT_FOR(fake.calls[FAKE_KEEP_ALIVE] >= 5);
    ck_assert_uint_eq(fake.calls[FAKE_HEARTBEAT], 0);
    ck_assert_uint_eq(fake.items[FAKE_KEEP_ALIVE], 50);
    ck_assert_uint_eq(loss.count, 0);
    for (int i = 0; i < 50; i++)
        lh_lease_destroy(leases[i]);
}
END_TEST

/* It is due before the other one of its declaration, which was granted before it. A short lease sets the pace. */
START_TEST(a_grant_that_was_told_late_is_renewed_at_once)
{
    struct lh_lease *brief, *first, *late;
    int64_t told_us;

    client_declare(300 * LH_US_PER_MS, 0);
    fake.remaining_us = 300 * LH_US_PER_MS;
    brief = held("brief");
    client_declare(600 * LH_US_PER_S, 0);
    fake.remaining_us = 600 * LH_US_PER_S;
    first = held("a");
    fake.remaining_us = 100 * LH_US_PER_S;
    late = held("b");
    told_us = lh_lease_deadline_us(late);
    WAIT_FOR(lh_lease_deadline_us(late) > told_us);
    lh_lease_destroy(brief);
    lh_lease_destroy(first);
    lh_lease_destroy(late);
}
END_TEST

START_TEST(without_a_stream_renewals_go_by_calls)
{
    struct lh_lease *lease;

    client_declare(300 * LH_US_PER_MS, 0);
    fake.remaining_us = 300 * LH_US_PER_MS;
    fake_next(&fake, FAKE_KEEP_ALIVE, FAKE_FAIL, 1000, LH_UNIMPLEMENTED);
    lease = held("a");
    WAIT_FOR(fake.calls[FAKE_HEARTBEAT] >= 5);
    ck_assert_uint_eq(fake.calls[FAKE_KEEP_ALIVE], 1); /* asked once */
    ck_assert_uint_eq(loss.count, 0);
    lh_lease_destroy(lease);
}
END_TEST

START_TEST(a_stream_that_does_not_answer_costs_nothing)
{
    struct lh_lease *lease;

    client_declare(600 * LH_US_PER_MS, 0);
    fake.remaining_us = 600 * LH_US_PER_MS;
    fake_next(&fake, FAKE_KEEP_ALIVE, FAKE_KEEP, 3, LH_OK);
    lease = held("a");
    WAIT_FOR(stats().renewals >= 4);
    ck_assert_uint_gt(fake.calls[FAKE_HEARTBEAT], 0);
    ck_assert_uint_eq(loss.count, 0);
    lh_lease_destroy(lease);
}
END_TEST

START_TEST(what_a_broken_stream_owes_goes_by_a_call_in_the_same_round)
{
    struct lh_lease *lease;

    client_declare(900 * LH_US_PER_MS, 0);
    fake_next(&fake, FAKE_KEEP_ALIVE, FAKE_VANISH, 1, LH_OK);
    lease = held("a");
    WAIT_FOR(stats().renewals >= 1);
    ck_assert_uint_eq(fake.calls[FAKE_KEEP_ALIVE], 1);
    ck_assert_uint_eq(fake.calls[FAKE_HEARTBEAT], 1);
    lh_lease_destroy(lease);
}
END_TEST

START_TEST(renewals_outlive_failures_until_the_deadline_is_near)
{
    struct lh_lease *lease;

    client_declare(900 * LH_US_PER_MS, 100 * LH_US_PER_MS);
    fake.remaining_us = 900 * LH_US_PER_MS;
    fake_next(&fake, FAKE_KEEP_ALIVE, FAKE_VANISH, 2, LH_OK);
    fake_next(&fake, FAKE_HEARTBEAT, FAKE_FAIL, 3, LH_DATABASE_UNAVAILABLE);
    lease = held("a");
    WAIT_FOR(stats().renewals >= 1);
    ck_assert_uint_eq(loss.count, 0);
    fake_next(&fake, FAKE_KEEP_ALIVE, FAKE_FAIL, 1000000, LH_DATABASE_UNAVAILABLE);
    fake_next(&fake, FAKE_HEARTBEAT, FAKE_FAIL, 1000000, LH_DATABASE_UNAVAILABLE);
    WAIT_FOR(loss.count > 0);
    ck_assert_int_eq(loss.reason, LH_LOST_UNREACHABLE);
    ck_assert_int_le(loss.remaining_us, 100 * LH_US_PER_MS);
    ck_assert_uint_eq(loss.count, 1);
    lh_lease_destroy(lease);
}
END_TEST

static void expect_one_lost_of(size_t count)
{
    struct lh_lease **leases = calloc(count, sizeof(*leases));
    char key[8];

    client_declare(1500 * LH_US_PER_MS, 0);
    fake.remaining_us = 1500 * LH_US_PER_MS;
    strcpy(fake.locked, "7");
    for (size_t i = 0; i < count; i++) {
        snprintf(key, sizeof(key), "%zu", i);
        leases[i] = held(key);
    }
    WAIT_FOR(loss.count > 0);
    ck_assert(!lh_lease_is_held(leases[7]));
    WAIT_FOR(stats().renewals >= 4 * (count - 1));
    ck_assert_uint_eq(loss.count, 1);
    for (size_t i = 0; i < count; i++)
        lh_lease_destroy(leases[i]);
    free(leases);
}

START_TEST(one_locked_row_costs_no_other_lease_on_a_stream)
{
    expect_one_lost_of(400);
}
END_TEST

START_TEST(one_locked_row_costs_no_other_lease_by_calls)
{
    fake_next(&fake, FAKE_KEEP_ALIVE, FAKE_FAIL, 1000, LH_UNIMPLEMENTED);
    expect_one_lost_of(400);
}
END_TEST

TCase *tcase_client_renewals(void)
{
    TCase *tcase = tcase_create("renewals");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, client_setup, client_teardown);
    tcase_add_test(tcase, renewals_go_over_one_stream_in_one_batch);
    tcase_add_test(tcase, a_grant_that_was_told_late_is_renewed_at_once);
    tcase_add_test(tcase, without_a_stream_renewals_go_by_calls);
    tcase_add_test(tcase, a_stream_that_does_not_answer_costs_nothing);
    tcase_add_test(tcase, what_a_broken_stream_owes_goes_by_a_call_in_the_same_round);
    tcase_add_test(tcase, renewals_outlive_failures_until_the_deadline_is_near);
    tcase_add_test(tcase, one_locked_row_costs_no_other_lease_on_a_stream);
    tcase_add_test(tcase, one_locked_row_costs_no_other_lease_by_calls);
    return tcase;
}
