/* The core when rows are busy, and when it has as much to do as it may. */
#include "lease_fixture.h"

START_TEST(while_a_row_is_busy_only_the_first_is_tried)
{
    struct fake_node *node = start_node();
    struct ask w[20];
    world.scopes[0].busy_until_us = world.now_us + MS(200);
    for (int i = 0; i < 20; i++)
        ask_for(node, &w[i], 0, 10 + i, LH_WAIT_TIME, MS(9000));
    fake_run(&world, MS(5));
    world.scopes[0].tried = 0;
    fake_run(&world, MS(190));
    ck_assert_int_ge(world.scopes[0].tried, 4);
    ck_assert_int_le(world.scopes[0].tried, 12); /* 2, 4, 8, 16, 32 and then 50 ms */
    fake_run(&world, MS(100));
    ck_assert_int_eq(w[0].status, LH_OK);
    for (int i = 1; i < 20; i++)
        ck_assert_int_eq(row_of(0, 10 + i)->ticket, world.scopes[0].rows[0].ticket + i - 1);
}
END_TEST

START_TEST(who_does_not_wait_hears_of_a_busy_row_after_a_second)
{
    struct fake_node *node = start_node();
    struct ask a, b;
    world.scopes[0].busy_until_us = world.now_us + MS(3000);
    int64_t sent_us = world.now_us;
    ask_for(node, &a, 0, 1, LH_WAIT_NONE, 0);
    ask_for(node, &b, 0, 2, LH_WAIT_TIME, MS(9000));
    fake_run(&world, MS(2000));
    ck_assert_int_eq(a.status, LH_SCOPE_BUSY);
    ck_assert_int_eq(a.answered_us - sent_us, MS(1000));
    ck_assert_int_eq(b.answers, 0); /* it waits as long as it waits */
    fake_run(&world, MS(1200));
    ck_assert_int_eq(b.status, LH_OK);
}
END_TEST

START_TEST(a_heartbeat_is_not_held_up_by_an_acquire_in_backoff)
{
    struct fake_node *node = start_node();
    struct ask a, b;
    struct beat beat;
    hold_now(node, &a, 0, 1);
    world.scopes[0].busy_until_us = world.now_us + MS(400);
    ask_for(node, &b, 0, 2, LH_WAIT_TIME, MS(9000));
    fake_run(&world, MS(399));
    world.scopes[0].busy_until_us = 0;
    int64_t sent_us = world.now_us;
    beat_send(node, &beat, 0, 1);
    fake_run(&world, MS(10));
    ck_assert_int_eq(beat.outcome, LH_OUTCOME_OK);
    ck_assert_int_le(beat.answered_us - sent_us, MS(2));
}
END_TEST

START_TEST(heartbeats_and_releases_of_a_busy_row_end_as_retry)
{
    struct fake_node *node = start_node();
    struct ask a;
    struct beat beat;
    struct give give;
    hold_now(node, &a, 0, 1);
    world.scopes[0].busy_until_us = world.now_us + MS(5000);
    int64_t sent_us = world.now_us;
    beat_send(node, &beat, 0, 1);
    give_send(node, &give, 0, 1);
    fake_run(&world, MS(2000));
    ck_assert_int_eq(beat.outcome, LH_OUTCOME_RETRY);
    ck_assert_int_eq(give.outcome, LH_OUTCOME_RETRY);
    ck_assert_int_le(beat.answered_us - sent_us, MS(1002));
    ck_assert_int_le(give.answered_us - sent_us, MS(1002));
}
END_TEST

/* Promise 12. */
START_TEST(waiters_and_items_are_bounded)
{
    options.max_waiters = 2;
    options.max_pending = 2;
    struct fake_node *node = start_node();
    struct ask a, b, c, d;
    struct beat beat;
    hold_now(node, &d, 0, 9);
    ask_for(node, &a, 0, 1, LH_WAIT_TIME, MS(5000));
    ask_for(node, &b, 0, 2, LH_WAIT_TIME, MS(5000));
    ask_init(&c, 0, 3, LH_WAIT_TIME, MS(5000));
    ck_assert_int_eq(lh_coordinator_acquire(node->coordinator, &c.acquire), LH_OVERLOADED);
    fake_run(&world, MS(5));
    lh_coordinator_cancel(node->coordinator, &a.acquire);
    ck_assert_int_eq(lh_coordinator_acquire(node->coordinator, &c.acquire), LH_OVERLOADED); /* a still leaves */
    fake_run(&world, MS(5));
    ck_assert_int_eq(lh_coordinator_acquire(node->coordinator, &c.acquire), LH_OK);

    ask_for(node, &a, 1, 4, LH_WAIT_NONE, 0);
    ask_for(node, &d, 1, 5, LH_WAIT_NONE, 0);
    memset(&beat, 0, sizeof(beat));
    beat.request.items = beat.items;
    beat.request.count = 1;
    ck_assert_int_eq(lh_coordinator_heartbeat(node->coordinator, &beat.request), LH_OVERLOADED);
    struct lh_coordinator_stats stats = stats_of(node);
    ck_assert_uint_eq(stats.waiters, 2);
    ck_assert_uint_eq(stats.pending, 2);
    ck_assert_uint_eq(stats.refused, 3);
    fake_run(&world, MS(5));
    ck_assert_int_eq(a.status, LH_OK);
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_test(tcase, while_a_row_is_busy_only_the_first_is_tried);
    tcase_add_test(tcase, who_does_not_wait_hears_of_a_busy_row_after_a_second);
    tcase_add_test(tcase, a_heartbeat_is_not_held_up_by_an_acquire_in_backoff);
    tcase_add_test(tcase, heartbeats_and_releases_of_a_busy_row_end_as_retry);
    tcase_add_test(tcase, waiters_and_items_are_bounded);
}

int main(void)
{
    return run_suite("lease, busy rows", add);
}
