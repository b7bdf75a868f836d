/* The store on the real schema: releases with acquires behind them, in one transaction or one after the other. */
#include <stdio.h>

#include "test_store.h"

#define SECOND INT64_C(1000000)

static const char *conninfo;
static struct test_store one;
static struct test_answer answer;
static unsigned round_number;
static char key[32]; /* a scope of its own for each test */

static void on_enrolled(void *arg, enum lh_status status, const struct lh_error *error,
                        const struct lh_tick_answer *tick)
{
    ck_assert_msg(status == LH_OK, "%s", error == NULL ? "" : error->message);
    answer.count++;
}

static void setup_all(void)
{
    conninfo = test_store_database("hand_over");
}

static void setup(void)
{
    answer = (struct test_answer){0};
    snprintf(key, sizeof(key), "key-%u", round_number++);
    test_store_start(&one, conninfo, 1);
    ck_assert_int_eq(one.store->ops->enroll(one.store, on_enrolled, NULL), LH_OK);
    test_wait_for(&answer);
}

static void teardown(void)
{
    test_store_stop(&one);
}

static struct lh_acquire_item wish(bool queue)
{
    return (struct lh_acquire_item){
        .ns = "payments.invoices",
        .key = key,
        .lease_key = lh_uuid_random(),
        .terms.duration_us = 30 * SECOND,
        .at_least_us = LH_AT_LEAST_POLICY,
        .queue = queue,
        .wait_us = queue ? 20 * SECOND : 0,
    };
}

static void acquire(struct lh_acquire_item *item)
{
    ck_assert_int_eq(one.store->ops->send(one.store, 0, LH_KIND_ACQUIRE, 0, (void **)&item, 1, test_on_answer, &answer),
                     LH_OK);
    test_wait_for_ok(&answer);
}

static struct lh_holder_item heartbeat(const struct lh_acquire_item *lease)
{
    struct lh_holder_item item = {.ns = lease->ns, .key = lease->key, .lease_key = lease->lease_key};
    struct lh_holder_item *items[] = {&item};
    ck_assert_int_eq(
        one.store->ops->send(one.store, 0, LH_KIND_HEARTBEAT, 0, (void **)items, 1, test_on_answer, &answer), LH_OK);
    test_wait_for_ok(&answer);
    return item;
}

static void hand_over(struct lh_holder_item *given, struct lh_acquire_item *next)
{
    ck_assert_int_eq(one.store->ops->hand_over(one.store, 0, 0, &given, 1, &next, 1, test_on_answer, &answer), LH_OK);
    test_wait_for_ok(&answer);
}

START_TEST(a_release_carries_an_acquire_behind_it)
{
    struct lh_acquire_item mine = wish(false), next = wish(true), last = wish(true);

    acquire(&mine);
    acquire(&next);
    acquire(&last);
    next.ticket = next.new_ticket;
    last.ticket = last.new_ticket;
    struct lh_holder_item given = {.ns = mine.ns, .key = mine.key, .lease_key = mine.lease_key};
    hand_over(&given, &next);
    ck_assert_int_eq(given.outcome, LH_OUTCOME_OK);
    ck_assert_int_eq(next.outcome, LH_ACQUIRE_GRANTED);
    ck_assert_int_gt(next.lease.token, mine.lease.token);
    ck_assert(lh_uuid_equal(&next.lease.lease_key, &next.lease_key));

    hand_over(&given, &last); /* a repeated release */
    ck_assert_int_eq(given.outcome, LH_OUTCOME_LOST);
    ck_assert_int_eq(given.end_reason, LH_END_RELEASED);
    ck_assert_int_eq(last.outcome, LH_ACQUIRE_QUEUED);
    ck_assert_int_eq(heartbeat(&next).outcome, LH_OUTCOME_OK);
}
END_TEST

/* The first rider is next in the queue; behind it others come to that queue, and to other scopes. */
START_TEST(newcomers_are_in_the_transaction_of_a_hand_over)
{
    struct lh_acquire_item mine = wish(false), next = wish(true), late[] = {wish(true), wish(true), wish(false)};
    struct lh_acquire_item *riders[] = {&next, &late[0], &late[1], &late[2]};
    char other[64], sql[256];

    snprintf(other, sizeof(other), "%s-other", key);
    late[2].key = other;
    acquire(&mine);
    acquire(&next);
    next.ticket = next.new_ticket;
    struct lh_holder_item given = {.ns = mine.ns, .key = mine.key, .lease_key = mine.lease_key}, *gives = &given;
    ck_assert_int_eq(one.store->ops->hand_over(one.store, 0, 0, &gives, 1, riders, 4, test_on_answer, &answer), LH_OK);
    test_wait_for_ok(&answer);
    ck_assert_int_eq(given.outcome, LH_OUTCOME_OK);
    ck_assert_int_eq(next.outcome, LH_ACQUIRE_GRANTED);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(late[i].outcome, LH_ACQUIRE_QUEUED);
        ck_assert_int_eq(late[i].waiters_ahead, i);
        ck_assert_int_eq(late[i].lease.token, next.lease.token);
    }
    ck_assert_int_gt(late[1].new_ticket, late[0].new_ticket);
    ck_assert_int_eq(late[2].outcome, LH_ACQUIRE_GRANTED);
    snprintf(sql, sizeof(sql),
             "select count(distinct x) from (select xmin::text from leasehold.scope where key like '%s%%'"
             " union all select xmin::text from leasehold.waiter where key = '%s') r (x)",
             key, key);
    ck_assert_str_eq(pg_fixture_value(conninfo, sql), "1");
}
END_TEST

START_TEST(what_fails_behind_a_hand_over_leaves_it_alone)
{
    struct lh_acquire_item mine = wish(false), next = wish(true), late[] = {wish(true), wish(true)};
    struct lh_acquire_item *riders[] = {&next, &late[0], &late[1]};

    late[0].terms.labels = "{\"a\": \"\\u0000\"}";
    acquire(&mine);
    acquire(&next);
    next.ticket = next.new_ticket;
    struct lh_holder_item given = {.ns = mine.ns, .key = mine.key, .lease_key = mine.lease_key}, *gives = &given;
    ck_assert_int_eq(one.store->ops->hand_over(one.store, 0, 0, &gives, 1, riders, 3, test_on_answer, &answer), LH_OK);
    test_wait_for_ok(&answer);
    ck_assert_int_eq(given.outcome, LH_OUTCOME_OK);
    ck_assert_int_eq(next.outcome, LH_ACQUIRE_GRANTED);
    ck_assert_int_eq(late[0].outcome, LH_ACQUIRE_INVALID);
    ck_assert_int_eq(late[1].outcome, LH_ACQUIRE_QUEUED);
}
END_TEST

START_TEST(an_acquire_behind_a_release_that_is_refused_waits)
{
    struct lh_acquire_item mine = wish(false), next = wish(true);

    acquire(&mine);
    acquire(&next);
    next.ticket = next.new_ticket;
    struct lh_holder_item given = {.ns = mine.ns, .key = mine.key, .lease_key = mine.lease_key, .value = "1e200000"};
    hand_over(&given, &next);
    ck_assert_int_eq(given.outcome, LH_OUTCOME_INVALID);
    ck_assert_int_eq(next.outcome, LH_ACQUIRE_QUEUED);
    ck_assert_int_eq(next.new_ticket, next.ticket);
    ck_assert_int_eq(heartbeat(&mine).outcome, LH_OUTCOME_OK);
}
END_TEST

#define SOME 6

/* Leases that are released, and with them acquires of other scopes, of which the last but one waits for the first of these. */
static struct exchange {
    struct lh_acquire_item had[SOME], wanted[SOME + 1];
    struct lh_holder_item given[SOME];
    char keys[2 * SOME][48];
} some;

static void hold_some(void)
{
    for (size_t i = 0; i < SOME; i++) {
        snprintf(some.keys[i], sizeof(some.keys[i]), "%s-had-%zu", key, i);
        snprintf(some.keys[SOME + i], sizeof(some.keys[0]), "%s-wanted-%zu", key, i);
        some.had[i] = some.wanted[i] = wish(false);
        some.wanted[i].lease_key = lh_uuid_random();
        some.had[i].key = some.keys[i];
        some.wanted[i].key = some.keys[SOME + i];
        acquire(&some.had[i]);
        some.given[i] =
            (struct lh_holder_item){.ns = some.had[i].ns, .key = some.keys[i], .lease_key = some.had[i].lease_key};
    }
    some.wanted[SOME] = wish(true);
    some.wanted[SOME].key = some.keys[0];
    acquire(&some.wanted[SOME]);
    some.wanted[SOME].ticket = some.wanted[SOME].new_ticket;
}

static void exchange_some(void)
{
    struct lh_holder_item *gives[SOME];
    struct lh_acquire_item *wants[SOME + 1];

    for (size_t i = 0; i < SOME; i++)
        gives[i] = &some.given[i];
    for (size_t i = 0; i <= SOME; i++)
        wants[i] = &some.wanted[i];
    ck_assert_int_eq(one.store->ops->hand_over(one.store, 0, 0, gives, SOME, wants, SOME + 1, test_on_answer, &answer),
                     LH_OK);
    test_wait_for_ok(&answer);
}

static const char *transactions_of_some(void)
{
    char sql[256];

    snprintf(
        sql, sizeof(sql),
        "select count(distinct xmin::text) from leasehold.scope where key like '%s-wanted%%' or key like '%s-had%%'",
        key, key);
    return pg_fixture_value(conninfo, sql);
}

START_TEST(releases_and_acquires_of_other_scopes_are_one_transaction)
{
    hold_some();
    exchange_some();
    ck_assert_str_eq(transactions_of_some(), "1");
    for (size_t i = 0; i < SOME; i++)
        ck_assert_int_eq(some.given[i].outcome, LH_OUTCOME_OK);
    for (size_t i = 0; i <= SOME; i++) {
        ck_assert_int_eq(some.wanted[i].outcome, LH_ACQUIRE_GRANTED);
        ck_assert_str_eq(some.wanted[i].lease.key, some.wanted[i].key);
        ck_assert_int_eq(heartbeat(&some.wanted[i]).outcome, LH_OUTCOME_OK);
    }
}
END_TEST

START_TEST(what_fails_in_an_exchange_leaves_the_others_alone)
{
    hold_some();
    some.given[2].value = "1e200000";
    some.wanted[3].terms.labels = "{\"a\": \"\\u0000\"}";
    exchange_some();
    for (size_t i = 0; i < SOME; i++) {
        ck_assert_int_eq(some.given[i].outcome, i == 2 ? LH_OUTCOME_INVALID : LH_OUTCOME_OK);
        ck_assert_int_eq(some.wanted[i].outcome, i == 3 ? LH_ACQUIRE_INVALID : LH_ACQUIRE_GRANTED);
    }
    ck_assert_int_eq(some.wanted[SOME].outcome, LH_ACQUIRE_GRANTED);
    ck_assert_int_eq(heartbeat(&some.had[2]).outcome, LH_OUTCOME_OK);
}
END_TEST

TCase *test_store_hand_over(void)
{
    TCase *tcase = tcase_create("hand-over");
    tcase_add_unchecked_fixture(tcase, setup_all, NULL);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, a_release_carries_an_acquire_behind_it);
    tcase_add_test(tcase, newcomers_are_in_the_transaction_of_a_hand_over);
    tcase_add_test(tcase, what_fails_behind_a_hand_over_leaves_it_alone);
    tcase_add_test(tcase, an_acquire_behind_a_release_that_is_refused_waits);
    tcase_add_test(tcase, releases_and_acquires_of_other_scopes_are_one_transaction);
    tcase_add_test(tcase, what_fails_in_an_exchange_leaves_the_others_alone);
    return tcase;
}
