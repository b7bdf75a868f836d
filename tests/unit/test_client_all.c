/* Several scopes at once: what is asked for, what each lease is, and what becomes of answers that got lost. */
#include "client_fixture.h"

#include <stdio.h>

struct all_answer {
    unsigned done;
    enum lh_status status;
    struct lh_lease *leases[4];
    struct lh_error error;
};

static void on_all(void *arg, enum lh_status status, struct lh_lease *const *leases, const struct lh_error *error)
{
    struct all_answer *answer = arg;

    answer->done++;
    answer->status = status;
    answer->error = *error;
    ck_assert((leases != NULL) == (status == LH_OK));
    for (size_t i = 0; status == LH_OK && i < 3; i++)
        answer->leases[i] = leases[i];
}

static void not_called(void *arg, enum lh_status status, struct lh_lease *const *leases, const struct lh_error *error)
{
    ck_abort_msg("called after a refusal");
}

static int marks[3];

static void acquire_three(const struct lh_acquire_options *options, struct all_answer *answer)
{
    const struct lh_acquire_scope scopes[] = {
        {.declared = declared, .key = "c", .user = &marks[0]},
        {.declared = declared, .key = "a", .mode = LH_SHARED, .units = 2, .user = &marks[1]},
        {.declared = declared, .key = "b", .mode = LH_SHARED, .user = &marks[2]},
    };

    *answer = (struct all_answer){0};
    ck_assert_int_eq(lh_acquire_all_async(scopes, 3, options, on_all, answer, NULL, NULL), LH_OK);
    ck_assert_uint_eq(answer->done, 0);
}

static void destroy_three(const struct all_answer *answer)
{
    for (size_t i = 0; i < 3; i++)
        lh_lease_destroy(answer->leases[i]);
}

START_TEST(several_scopes_are_asked_for_in_their_order_and_each_lease_is_one_like_any_other)
{
    struct all_answer answer;
    struct answer released;
    char key[37], other[37];

    acquire_three(&(struct lh_acquire_options){.wait_us = 5 * LH_SECOND}, &answer);
    WAIT_FOR(answer.done == 1);
    ck_assert_msg(answer.status == LH_OK, "%s", answer.error.message);
    ck_assert_str_eq(fake.asked_scopes, "c,a*2,b*1");
    ck_assert_int_gt(fake.wait_us, 4 * LH_US_PER_S);
    ck_assert_uint_eq(stats().leases, 3);
    for (size_t i = 0; i < 3; i++) {
        ck_assert_int_eq(lh_lease_token(answer.leases[i]), 100 + (int64_t)i);
        ck_assert_str_eq(lh_lease_scope_key(answer.leases[i]), i == 0 ? "c" : i == 1 ? "a" : "b");
        ck_assert_ptr_eq(lh_lease_user(answer.leases[i]), &marks[i]);
        lh_lease_key(answer.leases[i], i == 0 ? key : other);
        ck_assert(i == 0 || strcmp(key, other) == 0);
    }
    WAIT_FOR(fake.items[FAKE_KEEP_ALIVE] == 3 || fake.items[FAKE_HEARTBEAT] == 3);

    release(answer.leases[1], &released); /* by itself */
    WAIT_FOR(released.done == 1);
    ck_assert_int_eq(released.status, LH_OK);
    ck_assert_uint_eq(fake.items[FAKE_RELEASE], 1);
    ck_assert(lh_lease_is_held(answer.leases[0]) && lh_lease_is_held(answer.leases[2]));
    snprintf(fake.lost, sizeof(fake.lost), "b"); /* so is this */
    WAIT_FOR(loss.count == 1);
    ck_assert(!lh_lease_is_held(answer.leases[2]));
    ck_assert(lh_lease_is_held(answer.leases[0]));
    destroy_three(&answer);
}
END_TEST

START_TEST(an_answer_for_several_that_got_lost_is_asked_for_again_with_the_same_lease_key)
{
    struct all_answer answer;
    char key[sizeof(fake.lease_key)];

    fake_next(&fake, FAKE_ACQUIRE_ALL, FAKE_VANISH, 1, LH_OK);
    acquire_three(NULL, &answer);
    WAIT_FOR(fake.calls[FAKE_ACQUIRE_ALL] == 1);
    memcpy(key, fake.lease_key, sizeof(key));
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_OK);
    ck_assert_uint_eq(fake.calls[FAKE_ACQUIRE_ALL], 2);
    ck_assert_str_eq(fake.lease_key, key);
    destroy_three(&answer);
}
END_TEST

START_TEST(several_that_may_have_been_granted_are_all_given_back)
{
    struct all_answer answer;

    fake_next(&fake, FAKE_ACQUIRE_ALL, FAKE_VANISH, 1000, LH_OK);
    acquire_three(&(struct lh_acquire_options){.timeout_us = LH_SECOND}, &answer);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_ne(answer.status, LH_OK);
    WAIT_FOR(fake.calls[FAKE_RELEASE] > 0 && fake.items[FAKE_RELEASE] == 3);
    ck_assert_uint_eq(stats().leases, 0);
}
END_TEST

START_TEST(what_is_left_of_several_that_were_taken_back_is_released_first)
{
    struct all_answer answer;

    fake_next(&fake, FAKE_ACQUIRE_ALL, FAKE_UNDO, 1, LH_OK);
    fake_next(&fake, FAKE_RELEASE, FAKE_KEEP, 1, LH_OK);
    acquire_three(NULL, &answer);
    WAIT_FOR(fake.kept_count == 1);
    ck_assert_uint_eq(fake.items[FAKE_RELEASE], 3);
    ck_assert_uint_eq(fake.calls[FAKE_ACQUIRE_ALL], 2); /* lost; LEASE_ENDED */
    ck_assert_str_eq(fake.lease_key, fake.ended_key);
    fake_let_go(&fake);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_OK);
    ck_assert_uint_eq(fake.calls[FAKE_ACQUIRE_ALL], 3);
    ck_assert_str_ne(fake.lease_key, fake.ended_key);
    destroy_three(&answer);
}
END_TEST

START_TEST(several_whose_time_was_over_before_they_came_are_all_given_back)
{
    struct all_answer answer;

    fake.remaining_us = LH_US_PER_S; /* below the margin */
    acquire_three(NULL, &answer);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_LOST);
    WAIT_FOR(fake.calls[FAKE_RELEASE] > 0 && fake.items[FAKE_RELEASE] == 3);
}
END_TEST

START_TEST(a_repeat_with_their_lease_key_returns_the_same_leases)
{
    struct lh_acquire_options options = {.lease_key = "6f2c1f0e-5d0b-4b57-9a35-0c8f6c2e7a11"};
    struct all_answer answer, again;

    acquire_three(&options, &answer);
    WAIT_FOR(answer.done == 1);
    acquire_three(&options, &again);
    WAIT_FOR(again.done == 1);
    ck_assert_int_eq(again.status, LH_OK);
    for (size_t i = 0; i < 3; i++)
        ck_assert_ptr_eq(again.leases[i], answer.leases[i]);
    ck_assert_uint_eq(stats().leases, 3);
    destroy_three(&again);
    destroy_three(&answer);
}
END_TEST

START_TEST(a_lease_key_says_nothing_of_another_scope)
{
    struct lh_acquire_options options = {.lease_key = "6f2c1f0e-5d0b-4b57-9a35-0c8f6c2e7a11"};
    struct answer one, two;

    acquire("a", &options, &one);
    WAIT_FOR(one.done == 1);
    acquire("b", &options, &two);
    WAIT_FOR(two.done == 1);
    ck_assert_ptr_ne(one.lease, two.lease);
    ck_assert_str_eq(lh_lease_scope_key(two.lease), "b");
    lh_lease_destroy(one.lease);
    lh_lease_destroy(two.lease);
}
END_TEST

START_TEST(several_follow_the_release_of_one_of_them)
{
    struct lh_lease *before = held("b");
    struct all_answer answer;

    fake_next(&fake, FAKE_RELEASE, FAKE_KEEP, 1, LH_OK);
    ck_assert_int_eq(lh_try_release(before, NULL), LH_OK);
    acquire_three(NULL, &answer);
    WAIT_FOR(fake.kept_count == 1);
    ck_assert_uint_eq(fake.calls[FAKE_ACQUIRE_ALL], 0);
    fake_let_go(&fake);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.status, LH_OK);
    destroy_three(&answer);
    lh_lease_destroy(before);
}
END_TEST

START_TEST(scopes_that_cannot_be_are_refused_by_their_place)
{
    struct lh_declared *longer =
        lh_declare(client, "test.longer", &(struct lh_declare_options){.duration_us = 60 * LH_SECOND}, NULL);
    struct lh_acquire_scope scopes[LH_ACQUIRE_ALL_MAX + 1];
    struct lh_acquire_scope good = {.declared = declared, .key = "a"};
    const struct {
        struct lh_acquire_scope third;
        struct lh_acquire_options options;
        size_t count;
        const char *field, *words;
    } refused[] = {
        {good, {0}, 0, "scopes", "there are 0 scopes; there must be 1 to 100"},
        {good, {0}, 101, "scopes", "there are 101 scopes; there must be 1 to 100"},
        {{.key = "a"}, {0}, 3, "scopes[2].declared", "scopes[2]: declared is missing"},
        {{.declared = declared}, {0}, 3, "scopes[2].key", NULL},
        {{.declared = declared, .key = "a", .units = 1}, {0}, 3, "scopes[2].units", NULL},
        {{.declared = longer, .key = "a"},
         {0},
         3,
         "scopes[2].declared",
         "scopes[2]: its declaration has another client or another duration than the first"},
        {good,
         {.mode = LH_SHARED},
         3,
         "mode",
         "mode is for the acquire of one scope; here it must not be set, each scope has its own"},
        {good,
         {.wait_while_alive = true},
         3,
         "wait_while_alive",
         "wait_while_alive is for the acquire of one scope; here it must not be set"},
        {good, {.wait_us = -1}, 3, "wait_us", "wait_us must not be negative, is -1 us"},
        {good, {.timeout_us = -7}, 3, "timeout_us", "timeout_us must not be negative, is -7 us"},
    };
    struct lh_error error;

    for (size_t n = 0; n < sizeof(refused) / sizeof(refused[0]); n++) {
        for (size_t i = 0; i <= LH_ACQUIRE_ALL_MAX; i++)
            scopes[i] = i == 2 ? refused[n].third : good;
        ck_assert_int_eq(
            lh_acquire_all_async(scopes, refused[n].count, &refused[n].options, not_called, NULL, NULL, &error),
            LH_INVALID_ARGUMENT);
        ck_assert_str_eq(error.field, refused[n].field);
        ck_assert(refused[n].words == NULL || strcmp(error.message, refused[n].words) == 0);
    }
    ck_assert_int_eq(lh_acquire_all_async(scopes, 2, NULL, NULL, NULL, NULL, &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_acquire_all(scopes, 2, NULL, NULL, &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_acquire_all(scopes, 2, NULL, (struct lh_lease *[2]){0}, &error), LH_WOULD_BLOCK);
}
END_TEST

TCase *tcase_client_all(void)
{
    TCase *tcase = tcase_create("several scopes");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, client_setup, client_teardown);
    tcase_add_test(tcase, several_scopes_are_asked_for_in_their_order_and_each_lease_is_one_like_any_other);
    tcase_add_test(tcase, an_answer_for_several_that_got_lost_is_asked_for_again_with_the_same_lease_key);
    tcase_add_test(tcase, several_that_may_have_been_granted_are_all_given_back);
    tcase_add_test(tcase, what_is_left_of_several_that_were_taken_back_is_released_first);
    tcase_add_test(tcase, several_whose_time_was_over_before_they_came_are_all_given_back);
    tcase_add_test(tcase, a_repeat_with_their_lease_key_returns_the_same_leases);
    tcase_add_test(tcase, a_lease_key_says_nothing_of_another_scope);
    tcase_add_test(tcase, several_follow_the_release_of_one_of_them);
    tcase_add_test(tcase, scopes_that_cannot_be_are_refused_by_their_place);
    return tcase;
}
