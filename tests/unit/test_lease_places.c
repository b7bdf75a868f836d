/* The core and the places of waiters: who keeps one, who gives it up, who shares it. */
#include "lease_fixture.h"

START_TEST(a_place_that_nobody_here_knows_of_makes_no_busy_loop)
{
    struct fake_node *node = start_node();
    struct ask a;
    ask_for(node, &a, 0, 1, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(5));
    /* As if it came from a batch that was committed after its connection was given up. */
    fake_row_add(&world, 1, key_of(7), node->index);
    world.passed_on = 0;
    fake_run(&world, MS(3000));
    ck_assert_int_ge(world.passed_on, 2); /* the slow poll names it */
    ck_assert_int_le(world.passed_on, 3 * 50 + 10);
}
END_TEST

START_TEST(when_the_first_waiter_goes_the_next_one_knows_the_expiry)
{
    options.reap_interval_us = 0;
    world.slow_poll_helps = false;
    struct fake_node *node = start_node();
    struct ask a, b, c;
    ask_init(&a, 0, 1, LH_WAIT_NONE, 0);
    a.acquire.terms.duration_us = MS(1000);
    ask_send(node, &a);
    ask_for(node, &b, 0, 2, LH_WAIT_TIME, MS(9000));
    ask_for(node, &c, 0, 3, LH_WAIT_TIME, MS(9000));
    fake_run(&world, MS(900));
    world.scopes[0].busy_until_us = world.now_us + MS(60);
    struct lh_wake wake = {world.scopes[0].ns, world.scopes[0].key, 0};
    node->events->on_wake(node->events_arg, &wake);
    fake_run(&world, MS(50)); /* the first one is being asked for, and the row is busy */
    lh_coordinator_cancel(node->coordinator, &b.acquire);
    int64_t expiry_us = fake_deadline_us(&world.scopes[0]) + FAKE_GRACE_US;
    fake_run(&world, MS(2000));
    ck_assert_int_eq(c.status, LH_OK);
    ck_assert_int_lt(c.answered_us, expiry_us + MS(10));
}
END_TEST

START_TEST(a_wait_that_has_passed_leaves_the_queue_and_tells_who_holds)
{
    struct fake_node *node = start_node();
    struct ask a, b;
    hold_now(node, &a, 0, 1);
    int64_t sent_us = world.now_us;
    ask_for(node, &b, 0, 2, LH_WAIT_TIME, MS(300));
    fake_run(&world, MS(100));
    ck_assert_ptr_nonnull(row_of(0, 2));
    fake_run(&world, MS(300));
    ck_assert_int_eq(b.status, LH_WAIT_TIMEOUT);
    ck_assert_int_eq(b.answered_us - sent_us, MS(301));
    ck_assert(b.has_contention && b.has_holder);
    ck_assert_ptr_null(row_of(0, 2));
}
END_TEST

START_TEST(the_shortest_wait_is_tried_once)
{
    struct fake_node *node = start_node();
    struct ask a, b;
    ask_for(node, &a, 0, 1, LH_WAIT_TIME, 0);
    fake_run(&world, MS(5));
    ck_assert_int_eq(a.status, LH_OK);
    ask_for(node, &b, 0, 2, LH_WAIT_TIME, 0);
    fake_run(&world, MS(5));
    ck_assert_int_eq(b.status, LH_WAIT_TIMEOUT);
    ck_assert(b.has_contention);
    ck_assert_ptr_null(row_of(0, 2));
}
END_TEST

START_TEST(a_blocking_timeout_keeps_the_place_for_who_comes_back)
{
    options.max_block_us = MS(500);
    struct fake_node *node = start_node();
    struct ask a, b, c, again;
    struct give give;
    hold_now(node, &a, 0, 1);
    ask_for(node, &b, 0, 2, LH_WAIT_TIME, MS(9000));
    ask_for(node, &c, 0, 3, LH_WAIT_TIME, MS(400));
    fake_run(&world, MS(600));
    ck_assert_int_eq(b.status, LH_BLOCKING_TIMEOUT);
    ck_assert(b.has_contention);
    ck_assert_int_gt(row_of(0, 2)->away_until_us, world.now_us);
    int64_t ticket = row_of(0, 2)->ticket;
    ask_for(node, &c, 0, 4, LH_WAIT_TIME, MS(9000));
    ask_for(node, &again, 0, 2, LH_WAIT_TIME, MS(8000));
    fake_run(&world, MS(5));
    ck_assert_int_eq(row_of(0, 2)->ticket, ticket);
    give_send(node, &give, 0, 1);
    fake_run(&world, MS(10));
    ck_assert_int_eq(again.status, LH_OK);
    ck_assert_int_eq(c.answers, 0);
}
END_TEST

START_TEST(a_wait_forever_is_bounded_by_max_block_alone)
{
    options.max_block_us = MS(2000);
    struct fake_node *node = start_node();
    struct ask a, b;
    hold_now(node, &a, 0, 1);
    ask_for(node, &b, 0, 2, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(1990));
    ck_assert_int_eq(b.answers, 0);
    fake_run(&world, MS(50));
    ck_assert_int_eq(b.status, LH_BLOCKING_TIMEOUT);
}
END_TEST

START_TEST(a_cancelled_waiter_gives_up_its_place_at_once)
{
    struct fake_node *node = start_node();
    struct ask a, b, c;
    struct give give;
    hold_now(node, &a, 0, 1);
    ask_for(node, &b, 0, 2, LH_WAIT_TIME, MS(9000));
    ask_for(node, &c, 0, 3, LH_WAIT_TIME, MS(9000));
    fake_run(&world, MS(10));
    lh_coordinator_cancel(node->coordinator, &b.acquire);
    ck_assert_int_eq(b.answers, 0);
    fake_run(&world, MS(5));
    ck_assert_int_eq(b.status, LH_CANCELED);
    ck_assert_ptr_null(row_of(0, 2));
    give_send(node, &give, 0, 1);
    fake_run(&world, MS(10));
    ck_assert_int_eq(c.status, LH_OK);
}
END_TEST

START_TEST(when_the_one_whose_turn_it_is_goes_the_next_is_asked_for_at_once)
{
    struct fake_node *node = start_node();
    struct ask a, b, c;
    struct give give;
    hold_now(node, &a, 0, 1);
    ask_for(node, &b, 0, 2, LH_WAIT_TIME, MS(9000));
    ask_for(node, &c, 0, 3, LH_WAIT_TIME, MS(9000));
    fake_run(&world, MS(10));
    give_send(node, &give, 0, 1);
    lh_coordinator_cancel(node->coordinator, &b.acquire);
    int64_t sent_us = world.now_us;
    fake_run(&world, MS(50));
    ck_assert_int_eq(c.status, LH_OK);
    ck_assert_int_le(c.answered_us - sent_us, MS(4)); /* release, leave, acquire */
}
END_TEST

START_TEST(a_grant_for_a_cancelled_request_is_given_back)
{
    struct fake_node *node = start_node();
    struct ask a;
    ask_for(node, &a, 0, 1, LH_WAIT_TIME, MS(1000));
    fake_run(&world, 600); /* granted in the database, the answer is on its way */
    ck_assert(world.scopes[0].is_held);
    lh_coordinator_cancel(node->coordinator, &a.acquire);
    fake_run(&world, MS(10));
    ck_assert_int_eq(a.status, LH_CANCELED);
    ck_assert(!world.scopes[0].is_held);
}
END_TEST

START_TEST(a_grant_for_a_request_that_was_sent_back_stays)
{
    struct fake_node *node = start_node();
    struct ask a, again;
    ask_for(node, &a, 0, 1, LH_WAIT_TIME, MS(1000));
    fake_run(&world, 600); /* granted in the database, the answer is on its way */
    lh_coordinator_send_back(node->coordinator, &a.acquire);
    fake_run(&world, MS(10));
    ck_assert_int_eq(a.status, LH_DATABASE_UNAVAILABLE);
    ck_assert(world.scopes[0].is_held);
    ask_for(node, &again, 0, 1, LH_WAIT_TIME, MS(1000));
    fake_run(&world, MS(10));
    ck_assert_int_eq(again.status, LH_OK);
}
END_TEST

START_TEST(a_waiter_that_was_sent_back_keeps_its_place)
{
    struct fake_node *node = start_node();
    struct ask a, b, again, c;
    struct give give;
    hold_now(node, &a, 0, 1);
    ask_for(node, &b, 0, 2, LH_WAIT_TIME, MS(9000));
    ask_for(node, &c, 0, 3, LH_WAIT_TIME, MS(9000));
    fake_run(&world, MS(10));
    lh_coordinator_send_back(node->coordinator, &b.acquire);
    fake_run(&world, MS(10));
    ck_assert_int_eq(b.status, LH_DATABASE_UNAVAILABLE);
    ask_for(node, &again, 0, 2, LH_WAIT_TIME, MS(9000));
    fake_run(&world, MS(10));
    give_send(node, &give, 0, 1);
    fake_run(&world, MS(50));
    ck_assert_int_eq(again.status, LH_OK);
    ck_assert_int_eq(c.answers, 0);
}
END_TEST

START_TEST(a_request_that_waits_for_longer_than_the_place_on_its_way_has_it_for_longer)
{
    struct fake_node *node = start_node();
    struct ask a, b, again;
    struct give give;
    hold_now(node, &a, 0, 1);
    ask_for(node, &b, 0, 2, LH_WAIT_TIME, MS(50));
    fake_run(&world, 600); /* queued in the database, the answer is on its way */
    ask_for(node, &again, 0, 2, LH_WAIT_TIME, MS(9000));
    fake_run(&world, MS(20));
    ck_assert_uint_eq(world.scopes[0].row_count, 1);
    ck_assert_int_gt(world.scopes[0].rows[0].wait_until_us, world.now_us + MS(8000));
    fake_run(&world, MS(100));
    ck_assert_int_eq(b.status, LH_WAIT_TIMEOUT);
    give_send(node, &give, 0, 1);
    fake_run(&world, MS(50));
    ck_assert_int_eq(again.status, LH_OK);
}
END_TEST
START_TEST(two_requests_with_one_lease_key_share_one_place)
{
    struct fake_node *node = start_node();
    struct ask a, b, c;
    struct give give;
    hold_now(node, &a, 0, 1);
    ask_for(node, &b, 0, 2, LH_WAIT_TIME, MS(9000));
    fake_run(&world, MS(10));
    ask_for(node, &c, 0, 2, LH_WAIT_TIME, MS(9000));
    fake_run(&world, MS(10));
    ck_assert_uint_eq(world.scopes[0].row_count, 1);
    give_send(node, &give, 0, 1);
    fake_run(&world, MS(10));
    ck_assert_int_eq(b.status, LH_OK);
    ck_assert_int_eq(c.status, LH_OK);
    ck_assert_int_eq(b.token, c.token);
}
END_TEST

START_TEST(a_shared_place_is_kept_until_the_last_request_has_gone)
{
    struct fake_node *node = start_node();
    struct ask a, b, c, d;
    hold_now(node, &a, 0, 1);
    ask_for(node, &b, 0, 2, LH_WAIT_TIME, MS(200));
    ask_for(node, &c, 0, 2, LH_WAIT_TIME, MS(9000));
    ask_for(node, &d, 0, 2, LH_WAIT_NONE, 0);
    fake_run(&world, MS(10));
    ck_assert_int_eq(d.status, LH_LEASE_HELD);
    ck_assert(d.has_contention);
    fake_run(&world, MS(300));
    ck_assert_int_eq(b.status, LH_WAIT_TIMEOUT);
    ck_assert(b.has_contention);
    ck_assert_ptr_nonnull(row_of(0, 2));
    lh_coordinator_cancel(node->coordinator, &c.acquire);
    fake_run(&world, MS(5));
    ck_assert_ptr_null(row_of(0, 2));
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_test(tcase, a_place_that_nobody_here_knows_of_makes_no_busy_loop);
    tcase_add_test(tcase, when_the_first_waiter_goes_the_next_one_knows_the_expiry);
    tcase_add_test(tcase, a_wait_that_has_passed_leaves_the_queue_and_tells_who_holds);
    tcase_add_test(tcase, the_shortest_wait_is_tried_once);
    tcase_add_test(tcase, a_blocking_timeout_keeps_the_place_for_who_comes_back);
    tcase_add_test(tcase, a_wait_forever_is_bounded_by_max_block_alone);
    tcase_add_test(tcase, a_cancelled_waiter_gives_up_its_place_at_once);
    tcase_add_test(tcase, when_the_one_whose_turn_it_is_goes_the_next_is_asked_for_at_once);
    tcase_add_test(tcase, a_grant_for_a_cancelled_request_is_given_back);
    tcase_add_test(tcase, a_grant_for_a_request_that_was_sent_back_stays);
    tcase_add_test(tcase, a_waiter_that_was_sent_back_keeps_its_place);
    tcase_add_test(tcase, a_request_that_waits_for_longer_than_the_place_on_its_way_has_it_for_longer);
    tcase_add_test(tcase, two_requests_with_one_lease_key_share_one_place);
    tcase_add_test(tcase, a_shared_place_is_kept_until_the_last_request_has_gone);
}

int main(void)
{
    return run_suite("lease, places", add);
}
