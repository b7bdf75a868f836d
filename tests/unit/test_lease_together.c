/* The core and requests for several scopes: one call for all, one place in each queue, and all of them when somebody goes. */
#include "lease_fixture.h"

#define ALL 6 /* kinds of batches in the fake */
#define LEAVE 3

static struct lh_wanted_scope also[2];

/* For scopes 0, 1 and 2. */
static void ask_for_all(struct fake_node *node, struct ask *ask, int lease_key, enum lh_wait wait, int64_t wait_us)
{
    ask_init(ask, 0, lease_key, wait, wait_us);
    for (int i = 0; i < 2; i++)
        also[i] = (struct lh_wanted_scope){world.scopes[i + 1].ns, world.scopes[i + 1].key, 0, LH_AT_LEAST_POLICY};
    ask->acquire.terms.duration_us = 10 * LH_US_PER_S;
    ask->acquire.also = also;
    ask->acquire.also_count = 2;
    ask_send(node, ask);
}

static int held_count(void)
{
    return world.scopes[0].is_held + world.scopes[1].is_held + world.scopes[2].is_held;
}

static int place_count(int lease_key)
{
    return (row_of(0, lease_key) != NULL) + (row_of(1, lease_key) != NULL) + (row_of(2, lease_key) != NULL);
}

/* Lease key 1 holds scope 1, and 2 waits for all three. */
static void hold_one_and_queue_for_all(struct fake_node *node, struct ask *holder, struct ask *waiter)
{
    hold_now(node, holder, 1, 1);
    ask_for_all(node, waiter, 2, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(10));
    ck_assert_int_eq(place_count(2), 3);
    ck_assert_int_eq(held_count(), 1);
}

static void give_now(struct fake_node *node, int scope, int lease_key)
{
    struct give give;
    give_send(node, &give, scope, lease_key);
    fake_run(&world, MS(20));
    ck_assert_int_eq(give.outcome, LH_OUTCOME_OK);
}

START_TEST(all_are_granted_by_one_call)
{
    struct fake_node *node = start_node();
    struct ask a;
    ask_for_all(node, &a, 1, LH_WAIT_NONE, 0);
    fake_run(&world, MS(5));
    ck_assert_int_eq(a.status, LH_OK);
    ck_assert_int_eq(held_count(), 3);
    ck_assert_int_eq(world.batches[ALL], 1);
    ck_assert_int_eq(world.batches[0], 0);
    ck_assert_uint_eq(stats_of(node).grants, 3);
}
END_TEST

START_TEST(none_is_granted_where_one_is_held)
{
    struct fake_node *node = start_node();
    struct ask a, b;
    hold_now(node, &a, 1, 1);
    ask_for_all(node, &b, 2, LH_WAIT_NONE, 0);
    fake_run(&world, MS(20));
    ck_assert_int_eq(b.status, LH_LEASE_HELD);
    ck_assert(b.has_holder);
    ck_assert_int_eq(held_count(), 1);
    ck_assert_int_eq(place_count(2), 0);
}
END_TEST

START_TEST(a_release_asks_for_all_at_once_and_hands_nothing_over)
{
    struct fake_node *node = start_node();
    struct ask a, b, behind;
    hold_one_and_queue_for_all(node, &a, &b);
    ask_for(node, &behind, 1, 3, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(10));
    size_t riders = world.riders;
    give_now(node, 1, 1);
    ck_assert_int_eq(b.status, LH_OK);
    ck_assert_int_eq(held_count(), 3);
    ck_assert_uint_eq(world.riders, riders);
    ck_assert_int_eq(behind.answers, 0);
    give_now(node, 1, 2);
    ck_assert_int_eq(behind.status, LH_OK);
}
END_TEST

START_TEST(it_is_asked_for_again_when_what_is_in_its_way_ends_and_not_before)
{
    struct fake_node *node = start_node();
    struct ask first, second, waiter;
    hold_now(node, &first, 0, 1);
    hold_now(node, &second, 2, 3);
    ask_for_all(node, &waiter, 2, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(10));
    ck_assert_int_eq(world.batches[ALL], 1);
    give_now(node, 2, 3);
    ck_assert_int_eq(world.batches[ALL], 1); /* it has heard that the other one holds */
    give_now(node, 0, 1);
    ck_assert_int_eq(world.batches[ALL], 2);
    ck_assert_int_eq(waiter.status, LH_OK);
}
END_TEST

START_TEST(who_is_behind_another_coordinators_place_in_a_free_scope_asks_rarely)
{
    struct fake_node *node = start_node();
    struct fake_node *other = start_node();
    struct ask holder, waiter, behind;
    hold_one_and_queue_for_all(other, &holder, &waiter);
    ask_for_all(node, &behind, 3, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(10));
    ck_assert_int_eq(world.batches[ALL], 2);
    fake_run(&world, MS(950));
    ck_assert_int_eq(world.batches[ALL], 2);
    give_now(other, 1, 1);
    ck_assert_int_eq(waiter.status, LH_OK);
    ck_assert_int_eq(behind.answers, 0);
    give_now(other, 2, 2);
    give_now(other, 1, 2);
    give_now(other, 0, 2);
    ck_assert_int_eq(behind.status, LH_OK);
    ck_assert_int_le(world.batches[ALL], 6); /* once for each that was in its way */
}
END_TEST

START_TEST(a_cancel_gives_up_all_places)
{
    struct fake_node *node = start_node();
    struct ask a, b, behind;
    hold_one_and_queue_for_all(node, &a, &b);
    ask_for(node, &behind, 0, 3, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(10));
    ck_assert_int_eq(behind.answers, 0);
    lh_coordinator_cancel(node->coordinator, &b.acquire);
    fake_run(&world, MS(20));
    ck_assert_int_eq(b.status, LH_CANCELED);
    ck_assert_int_eq(place_count(2), 0);
    ck_assert_int_eq(behind.status, LH_OK);
}
END_TEST

START_TEST(a_grant_whose_caller_has_gone_is_given_back_in_all_scopes)
{
    struct fake_node *node = start_node();
    struct ask a;
    ask_for_all(node, &a, 1, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, 700); /* granted, the reply under way */
    ck_assert_int_eq(held_count(), 3);
    lh_coordinator_cancel(node->coordinator, &a.acquire);
    fake_run(&world, MS(20));
    ck_assert_int_eq(a.status, LH_CANCELED);
    ck_assert_int_eq(held_count(), 0);
}
END_TEST

START_TEST(a_lost_reply_leaves_nothing_held_when_the_caller_goes)
{
    struct fake_node *node = start_node();
    struct ask a;
    ask_for_all(node, &a, 1, LH_WAIT_UNTIL_GRANTED, 0);
    lose_replies(node);
    ck_assert_int_eq(held_count(), 3);
    lh_coordinator_cancel(node->coordinator, &a.acquire);
    raise_lanes(node);
    fake_run(&world, MS(500));
    ck_assert_int_eq(held_count(), 0);
}
END_TEST

START_TEST(a_lost_reply_is_asked_for_again)
{
    struct fake_node *node = start_node();
    struct ask a;
    ask_for_all(node, &a, 1, LH_WAIT_UNTIL_GRANTED, 0);
    lose_replies(node);
    raise_lanes(node);
    fake_run(&world, MS(500));
    ck_assert_int_eq(a.status, LH_OK);
    ck_assert(!a.is_renewal);
    ck_assert_int_eq(held_count(), 3);
}
END_TEST

/* A leave finds that the scope is its lease, granted by the batch of the lost reply; that is one of three. Then a stop, too. */
START_TEST(who_comes_back_while_its_grant_leaves_has_all_leases)
{
    struct fake_node *node = start_node();
    struct ask a, b;
    ask_for_all(node, &a, 1, LH_WAIT_TIME, MS(100));
    lose_replies(node);
    fake_run(&world, MS(2000));
    ck_assert_int_eq(a.status, LH_DATABASE_UNAVAILABLE);
    raise_lanes(node);
    for (int i = 0; i < 10000 && world.batches[LEAVE] == 0; i++)
        fake_run(&world, 100);
    ck_assert_int_eq(world.batches[LEAVE], 1);
    ask_for_all(node, &b, 1, LH_WAIT_TIME, MS(5000));
    if (_i == 1)
        fake_node_stop(node);
    fake_run(&world, MS(2000));
    ck_assert_int_eq(b.answers, 1);
    ck_assert_int_eq(b.status, LH_OK);
    ck_assert(b.has_all);
    ck_assert_int_eq(held_count(), 3);
    ck_assert_int_eq(node->has_stopped, _i);
}
END_TEST

START_TEST(a_busy_row_of_one_scope_keeps_nobody_of_the_others_waiting)
{
    struct fake_node *node = start_node();
    struct ask a, b;
    world.scopes[1].busy_until_us = world.now_us + MS(3000);
    ask_for_all(node, &a, 1, LH_WAIT_TIME, MS(600));
    ask_for(node, &b, 0, 2, LH_WAIT_NONE, 0);
    fake_run(&world, MS(200));
    ck_assert_int_eq(b.status, LH_OK);
    fake_run(&world, MS(3000));
    ck_assert_int_eq(a.status, LH_WAIT_TIMEOUT);
}
END_TEST

/* Promise 10. Sixteen requests that take turns in being busy would hold back the others for most of the time. */
START_TEST(who_is_behind_many_with_places_gets_one_while_a_row_of_theirs_is_busy)
{
    struct fake_node *node = start_node();
    struct ask holder, waiters[16], behind[20];
    hold_now(node, &holder, 1, 1);
    for (int i = 0; i < 16; i++) {
        ask_for_all(node, &waiters[i], 2 + i, LH_WAIT_UNTIL_GRANTED, 0);
        fake_run(&world, MS(10));
        ck_assert_int_eq(place_count(2 + i), 3);
    }
    world.scopes[2].busy_until_us = world.now_us + MS(60000);
    world.min_delay_us = world.max_delay_us = MS(5);
    fake_database_drop(&world);
    fake_run(&world, MS(10));
    fake_database_raise(&world);
    fake_run(&world, MS(1000));
    for (int i = 0; i < 20; i++) {
        ask_for(node, &behind[i], _i, 20 + i, LH_WAIT_UNTIL_GRANTED, 0);
        fake_run(&world, MS(150));
        ck_assert_ptr_nonnull(row_of(_i, 20 + i));
    }
}
END_TEST

enum exit { CANCELS, TIMES_OUT, IS_STOPPED, EXITS };

static void make_it_leave(struct fake_node *node, struct ask *waiter, enum exit exit)
{
    if (exit == CANCELS)
        lh_coordinator_cancel(node->coordinator, &waiter->acquire);
    else if (exit == IS_STOPPED)
        fake_node_stop(node);
    fake_run(&world, exit == CANCELS ? MS(30) : MS(1500)); /* the others are to hear of the contention first */
}

/* Each of its scopes in turn has a row that a stranger keeps locked. */
START_TEST(a_place_that_cannot_leave_keeps_no_other_one_standing)
{
    int busy = _i % 3;
    enum exit exit = (enum exit)(_i / 3);
    struct fake_node *node = start_node(), *other = start_node();
    struct ask holder, waiter, behind[3];
    hold_now(other, &holder, 1, 1);
    ask_for_all(node, &waiter, 2, exit == TIMES_OUT ? LH_WAIT_TIME : LH_WAIT_UNTIL_GRANTED, MS(100));
    fake_run(&world, MS(10));
    for (int s = 0; s < 3; s++)
        ask_for(other, &behind[s], s, 3 + s, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(10));
    ck_assert_int_eq(behind[0].answers + behind[1].answers + behind[2].answers, 0);
    world.scopes[busy].busy_until_us = world.now_us + MS(4000);
    make_it_leave(node, &waiter, exit);
    ck_assert_int_eq(waiter.answers, 1);
    for (int s = 0; s < 3; s++) {
        ck_assert_int_eq(behind[s].answers, s != 1 && s != busy);
        ck_assert(s == busy || row_of(s, 2) == NULL || row_of(s, 2)->away_until_us > world.now_us);
    }
    ck_assert_ptr_nonnull(row_of(busy, 2));
    fake_run(&world, MS(4100));
    ck_assert_int_eq(behind[busy].answers, busy != 1);
    ck_assert(!world.scopes[busy].is_held || world.scopes[busy].lease_key.bytes[0] != 2);
    if (exit != IS_STOPPED)
        ck_assert_int_eq(place_count(2), 0);
    else
        ck_assert(node->has_stopped);
}
END_TEST

/* Its caller comes back while a place is left in a scope alone: then it is for all again, and not before. */
START_TEST(who_comes_back_while_one_place_cannot_leave_has_all_places_again)
{
    struct fake_node *node = start_node();
    struct ask holder, waiter, again;
    hold_one_and_queue_for_all(node, &holder, &waiter);
    world.scopes[_i].busy_until_us = world.now_us + MS(500);
    lh_coordinator_cancel(node->coordinator, &waiter.acquire);
    fake_run(&world, MS(20));
    ck_assert_int_eq(place_count(2), 1);
    ask_for_all(node, &again, 2, LH_WAIT_TIME, MS(5000));
    fake_run(&world, MS(100));
    ck_assert_int_eq(place_count(2), 1);
    fake_run(&world, MS(500));
    ck_assert_int_eq(place_count(2), 3);
    give_now(node, 1, 1);
    ck_assert_int_eq(again.status, LH_OK);
    ck_assert(again.has_all);
}
END_TEST

/* Its lease key came back by another coordinator and went from there, and here nobody knows. */
START_TEST(who_is_behind_one_that_has_gone_elsewhere_is_granted_while_that_one_rests)
{
    struct fake_node *node = start_node(), *other = start_node();
    struct ask holder, waiter, again, behind;
    hold_one_and_queue_for_all(node, &holder, &waiter);
    ask_for(node, &behind, 1, 3, LH_WAIT_UNTIL_GRANTED, 0);
    ask_for_all(other, &again, 2, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(10));
    lh_coordinator_cancel(other->coordinator, &again.acquire);
    fake_run(&world, MS(10));
    ck_assert_int_eq(place_count(2), 0);
    world.scopes[0].busy_until_us = world.now_us + MS(5000);
    give_now(node, 1, 1);
    fake_run(&world, MS(3000));
    ck_assert_int_eq(behind.status, LH_OK);
    ck_assert_int_eq(behind.answers, 1);
}
END_TEST

START_TEST(the_lease_key_is_for_the_same_scopes_alone)
{
    struct fake_node *node = start_node();
    struct ask a, b, c;
    hold_one_and_queue_for_all(node, &a, &b);
    ask_init(&c, 2, 2, LH_WAIT_TIME, MS(1000));
    ck_assert_int_eq(lh_coordinator_acquire(node->coordinator, &c.acquire), LH_INVALID_ARGUMENT);
    ask_init(&c, 0, 2, LH_WAIT_TIME, MS(1000));
    c.acquire.also = also;
    c.acquire.also_count = 1;
    ck_assert_int_eq(lh_coordinator_acquire(node->coordinator, &c.acquire), LH_INVALID_ARGUMENT);
    c.acquire.also_count = 2;
    ck_assert_int_eq(lh_coordinator_acquire(node->coordinator, &c.acquire), LH_OK);
    fake_run(&world, MS(1100));
    ck_assert_int_eq(c.status, LH_WAIT_TIMEOUT);
    ck_assert_int_eq(place_count(2), 3);
}
END_TEST

/* Promise 12. */
START_TEST(places_count_as_waiters)
{
    options.max_waiters = 4;
    struct fake_node *node = start_node();
    struct ask a, b, c;
    hold_one_and_queue_for_all(node, &a, &b);
    ask_init(&c, 0, 3, LH_WAIT_TIME, MS(1000));
    c.acquire.also = also;
    c.acquire.also_count = 2;
    ck_assert_int_eq(lh_coordinator_acquire(node->coordinator, &c.acquire), LH_OVERLOADED);
    ck_assert_uint_eq(stats_of(node).refused_waiters, 1);
}
END_TEST

START_TEST(hooks_run_on_a_hook_lane_for_all)
{
    struct fake_node *node = start_hooked_node();
    struct ask a;
    ask_for_all(node, &a, 1, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(3000));
    ck_assert_int_eq(a.status, LH_OK);
    ck_assert_int_eq(world.hook_batches[ALL], 1);
    ck_assert_int_eq(held_count(), 3);
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_test(tcase, all_are_granted_by_one_call);
    tcase_add_test(tcase, none_is_granted_where_one_is_held);
    tcase_add_test(tcase, a_release_asks_for_all_at_once_and_hands_nothing_over);
    tcase_add_test(tcase, it_is_asked_for_again_when_what_is_in_its_way_ends_and_not_before);
    tcase_add_test(tcase, who_is_behind_another_coordinators_place_in_a_free_scope_asks_rarely);
    tcase_add_test(tcase, a_cancel_gives_up_all_places);
    tcase_add_test(tcase, a_grant_whose_caller_has_gone_is_given_back_in_all_scopes);
    tcase_add_test(tcase, a_lost_reply_leaves_nothing_held_when_the_caller_goes);
    tcase_add_test(tcase, a_lost_reply_is_asked_for_again);
    tcase_add_loop_test(tcase, who_comes_back_while_its_grant_leaves_has_all_leases, 0, 2);
    tcase_add_test(tcase, a_busy_row_of_one_scope_keeps_nobody_of_the_others_waiting);
    tcase_add_loop_test(tcase, who_is_behind_many_with_places_gets_one_while_a_row_of_theirs_is_busy, 0, 2);
    tcase_add_loop_test(tcase, a_place_that_cannot_leave_keeps_no_other_one_standing, 0, 3 * EXITS);
    tcase_add_loop_test(tcase, who_comes_back_while_one_place_cannot_leave_has_all_places_again, 0, 3);
    tcase_add_test(tcase, who_is_behind_one_that_has_gone_elsewhere_is_granted_while_that_one_rests);
    tcase_add_test(tcase, the_lease_key_is_for_the_same_scopes_alone);
    tcase_add_test(tcase, places_count_as_waiters);
    tcase_add_test(tcase, hooks_run_on_a_hook_lane_for_all);
}

int main(void)
{
    return run_suite("lease, several scopes", add);
}
