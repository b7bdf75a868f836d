/* Shared leases: what is asked for, what a lease tells, and how it is downgraded. */
#include "client_fixture.h"

static void grant_slots(Leasehold__V1__Mode mode, int32_t units, size_t slot_count)
{
    fake.mode = mode;
    fake.units = units;
    fake.slot_count = slot_count;
    for (size_t i = 0; i < slot_count; i++)
        fake.slots[i] = (int32_t)(2 * i + 3);
}

static void downgrade(struct lh_lease *lease, int32_t units, struct answer *answer)
{
    *answer = (struct answer){0};
    ck_assert_int_eq(lh_downgrade_async(lease, units, NULL, on_done, answer, &answer->request, NULL), LH_OK);
    ck_assert_uint_eq(answer->done, 0);
}

static size_t slot_count_of(const struct lh_lease *lease)
{
    size_t count;
    lh_lease_slots(lease, &count);
    return count;
}

START_TEST(an_acquire_asks_for_its_mode_and_the_lease_tells_what_was_granted)
{
    struct lh_acquire_options options = {.mode = LH_SHARED, .units = 3};
    struct answer answer;
    const int32_t *slots;
    size_t count;

    grant_slots(LEASEHOLD__V1__MODE__MODE_SHARED, 3, 3);
    acquire("a", &options, &answer);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(fake.asked_mode, LEASEHOLD__V1__MODE__MODE_SHARED);
    ck_assert_int_eq(fake.asked_units, 3);
    ck_assert_int_eq(lh_lease_mode(answer.lease), LH_SHARED);
    ck_assert_int_eq(lh_lease_units(answer.lease), 3);
    slots = lh_lease_slots(answer.lease, &count);
    ck_assert_uint_eq(count, 3);
    ck_assert_int_eq(slots[0], 3);
    ck_assert_int_eq(slots[2], 7);
    lh_lease_destroy(answer.lease);
    options.units = 0;
    grant_slots(LEASEHOLD__V1__MODE__MODE_SHARED, 1, 0); /* no capacity, no slots */
    acquire("b", &options, &answer);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(fake.asked_units, 1);
    ck_assert_uint_eq(slot_count_of(answer.lease), 0);
    lh_lease_destroy(answer.lease);
}
END_TEST

START_TEST(an_exclusive_acquire_says_nothing_of_modes)
{
    struct lh_lease *lease = held("a"); /* by a server that knows none */

    ck_assert_int_eq(fake.asked_mode, LEASEHOLD__V1__MODE__MODE_UNSPECIFIED);
    ck_assert_int_eq(fake.asked_units, 0);
    ck_assert_int_eq(lh_lease_mode(lease), LH_EXCLUSIVE);
    ck_assert_int_eq(lh_lease_units(lease), 0);
    ck_assert_uint_eq(slot_count_of(lease), 0);
    lh_lease_destroy(lease);
}
END_TEST

static const struct {
    struct lh_acquire_options options;
    const char *field;
    const char *words;
} refused[] = {
    {{.units = 1}, "units", "units must be 0 for an exclusive lease, is 1: units are of shared ones (mode LH_SHARED)"},
    {{.mode = LH_SHARED, .units = -1}, "units", "units must be 0 (which is 1) to 1000000, is -1"},
    {{.mode = LH_SHARED, .units = 1000001}, "units", "units must be 0 (which is 1) to 1000000, is 1000001"},
    {{.mode = (enum lh_mode)2}, "mode", "mode must be LH_EXCLUSIVE or LH_SHARED, is 2"},
    {{.mode = LH_SHARED, .at_least_us = LH_SECOND},
     "at_least",
     "at_least must not be given for a shared lease (mode LH_SHARED)"},
};

static void not_called(void *arg, enum lh_status status, struct lh_lease *lease, const struct lh_error *error)
{
    ck_abort_msg("called after a refusal");
}

START_TEST(a_mode_that_cannot_be_is_refused_with_its_bound)
{
    struct lh_error error;

    ck_assert_int_eq(lh_acquire_async(declared, "a", &refused[_i].options, not_called, NULL, NULL, &error),
                     LH_INVALID_ARGUMENT);
    ck_assert_str_eq(error.field, refused[_i].field);
    ck_assert_str_eq(error.message, refused[_i].words);
    ck_assert_str_ne(error.bound, "");
}
END_TEST

START_TEST(a_downgrade_changes_what_the_lease_tells_and_renews_it)
{
    struct lh_lease *lease = held("a");
    const int32_t *slots;
    struct answer answer;
    int64_t before_us;
    size_t count;

    grant_slots(LEASEHOLD__V1__MODE__MODE_SHARED, 2, 2);
    fake.downgraded_token = 41;
    fake.waited_us = 2 * LH_US_PER_S;
    fake.remaining_us = 20 * LH_US_PER_S;
    before_us = lh_clock_us();
    fake_next(&fake, FAKE_DOWNGRADE, FAKE_KEEP, 1, LH_OK);
    downgrade(lease, 2, &answer);
    WAIT_FOR(fake.kept_count == 1);
    virtual_clock_pass(3 * LH_US_PER_S);
    fake_let_go(&fake);
    WAIT_FOR(answer.done == 1);
    ck_assert_msg(answer.status == LH_OK, "%s", answer.error.message);
    ck_assert_int_eq(fake.asked_units, 2);
    ck_assert_int_eq(lh_lease_token(lease), 41);
    ck_assert_int_eq(lh_lease_mode(lease), LH_SHARED);
    ck_assert_int_eq(lh_lease_units(lease), 2);
    slots = lh_lease_slots(lease, &count);
    ck_assert_uint_eq(count, 2);
    ck_assert_int_ge(lh_lease_deadline_us(lease), before_us + 22 * LH_US_PER_S);
    ck_assert_int_lt(lh_lease_deadline_us(lease), before_us + 23 * LH_US_PER_S);
    grant_slots(LEASEHOLD__V1__MODE__MODE_SHARED, 1, 1);
    downgrade(lease, 0, &answer); /* gives one back */
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(fake.asked_units, 1);
    ck_assert_int_eq(lh_lease_units(lease), 1);
    ck_assert_uint_eq(slot_count_of(lease), 1);
    ck_assert_int_eq(slots[1], 5); /* the old ones stay as long as the lease */
    lh_lease_destroy(lease);
}
END_TEST

static void renew(struct lh_lease *lease)
{
    struct answer answer = {0};

    ck_assert_int_eq(lh_heartbeat_async(lease, NULL, on_done, &answer, &answer.request, NULL), LH_OK);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_OK);
}

START_TEST(a_renewal_says_what_a_downgrade_by_somebody_else_left)
{
    struct lh_lease *lease = held("a");
    const int32_t *slots;
    size_t count;

    fake.downgraded_token = 41;
    grant_slots(LEASEHOLD__V1__MODE__MODE_SHARED, 3, 3);
    renew(lease);
    ck_assert_int_eq(lh_lease_token(lease), 41);
    ck_assert_int_eq(lh_lease_mode(lease), LH_SHARED);
    ck_assert_int_eq(lh_lease_units(lease), 3);
    slots = lh_lease_slots(lease, &count);
    ck_assert_uint_eq(count, 3);
    for (int32_t i = 0; i < 3; i++)
        ck_assert_int_eq(slots[i], i + 1);
    fake.units = 2; /* one is given back */
    renew(lease);
    ck_assert_int_eq(lh_lease_units(lease), 2);
    ck_assert_uint_eq(slot_count_of(lease), 2);
    fake.units = 3; /* an answer that was late */
    renew(lease);
    fake.downgraded_token = 40;
    fake.units = 1;
    renew(lease);
    ck_assert_int_eq(lh_lease_token(lease), 41);
    ck_assert_int_eq(lh_lease_units(lease), 2);
    lh_lease_destroy(lease);
}
END_TEST

START_TEST(a_shared_lease_keeps_the_lowest_of_its_slots)
{
    struct lh_acquire_options options = {.mode = LH_SHARED, .units = 3};
    struct answer answer;
    const int32_t *slots;
    size_t count;

    grant_slots(LEASEHOLD__V1__MODE__MODE_SHARED, 3, 3); /* 3, 5, 7 */
    acquire("a", &options, &answer);
    WAIT_FOR(answer.done == 1);
    fake.downgraded_token = lh_lease_token(answer.lease);
    fake.units = 2;
    WAIT_FOR(stats().renewals >= 1);
    slots = lh_lease_slots(answer.lease, &count);
    ck_assert_uint_eq(count, 2);
    ck_assert_int_eq(slots[0], 3);
    ck_assert_int_eq(slots[1], 5);
    lh_lease_destroy(answer.lease);
}
END_TEST

/* Promise 7. */
START_TEST(a_downgrade_whose_answer_got_lost_is_repeated)
{
    struct lh_lease *lease = held("a");
    struct answer answer;

    grant_slots(LEASEHOLD__V1__MODE__MODE_SHARED, 1, 1);
    fake.downgraded_token = 41;
    fake_next(&fake, FAKE_DOWNGRADE, FAKE_VANISH, 1, LH_OK);
    downgrade(lease, 1, &answer);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_OK);
    ck_assert_uint_eq(fake.calls[FAKE_DOWNGRADE], 2);
    ck_assert_int_eq(lh_lease_token(lease), 41);
    lh_lease_destroy(lease);
}
END_TEST

START_TEST(a_downgrade_of_a_lease_that_ended_is_a_loss)
{
    struct lh_lease *lease = held("a");
    struct answer answer;

    fake_next(&fake, FAKE_DOWNGRADE, FAKE_FAIL, 1, LH_NOT_HELD);
    downgrade(lease, 1, &answer);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_LOST);
    ck_assert_int_eq(answer.error.status, LH_LOST);
    ck_assert_uint_eq(loss.count, 1);
    ck_assert(!lh_lease_is_held(lease));
    downgrade(lease, 1, &answer); /* not even sent */
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_LOST);
    ck_assert_uint_eq(fake.calls[FAKE_DOWNGRADE], 1);
    ck_assert_uint_eq(loss.count, 1);
    lh_lease_destroy(lease);
}
END_TEST

START_TEST(a_downgrade_that_is_rejected_changes_nothing)
{
    struct lh_lease *lease = held("a");
    struct answer answer;

    fake_next(&fake, FAKE_DOWNGRADE, FAKE_FAIL, 1, LH_HOOK_REJECTED);
    downgrade(lease, 1, &answer);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_HOOK_REJECTED);
    ck_assert(lh_lease_is_held(lease));
    ck_assert_int_eq(lh_lease_mode(lease), LH_EXCLUSIVE);
    ck_assert_int_eq(lh_lease_token(lease), 1);
    lh_lease_destroy(lease);
}
END_TEST

START_TEST(a_downgrade_is_checked_before_it_is_sent)
{
    struct lh_lease *lease = held("a");
    struct lh_error error;
    struct answer answer;

    ck_assert_int_eq(lh_downgrade_async(lease, -1, NULL, on_done, &answer, NULL, &error), LH_INVALID_ARGUMENT);
    ck_assert_str_eq(error.message, "units must be 0 (which is 1) to 1000000, is -1");
    ck_assert_str_eq(error.field, "units");
    ck_assert_int_eq(lh_downgrade_async(NULL, 1, NULL, on_done, &answer, NULL, &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_downgrade_async(lease, 1, NULL, NULL, &answer, NULL, &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_downgrade(lease, 1, NULL, &error), LH_WOULD_BLOCK);
    lh_lease_destroy(lease);
}
END_TEST

TCase *tcase_client_shared(void)
{
    TCase *tcase = tcase_create("shared");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, client_setup, client_teardown);
    tcase_add_test(tcase, an_acquire_asks_for_its_mode_and_the_lease_tells_what_was_granted);
    tcase_add_test(tcase, an_exclusive_acquire_says_nothing_of_modes);
    tcase_add_loop_test(tcase, a_mode_that_cannot_be_is_refused_with_its_bound, 0,
                        sizeof(refused) / sizeof(refused[0]));
    tcase_add_test(tcase, a_downgrade_changes_what_the_lease_tells_and_renews_it);
    tcase_add_test(tcase, a_renewal_says_what_a_downgrade_by_somebody_else_left);
    tcase_add_test(tcase, a_shared_lease_keeps_the_lowest_of_its_slots);
    tcase_add_test(tcase, a_downgrade_whose_answer_got_lost_is_repeated);
    tcase_add_test(tcase, a_downgrade_of_a_lease_that_ended_is_a_loss);
    tcase_add_test(tcase, a_downgrade_that_is_rejected_changes_nothing);
    tcase_add_test(tcase, a_downgrade_is_checked_before_it_is_sent);
    return tcase;
}
