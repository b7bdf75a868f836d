/* The core when things go wrong: lost replies, errors, outages, a process that stood still. */
#include <limits.h>

#include "lease/readiness.h"
#include "lease_fixture.h"

static enum lh_status refused(struct fake_node *node, struct ask *ask)
{
    ask_init(ask, 0, 2, LH_WAIT_TIME, MS(60000));
    return lh_coordinator_acquire(node->coordinator, &ask->acquire);
}

START_TEST(a_grant_whose_reply_was_lost_is_asked_for_again)
{
    struct fake_node *node = start_node();
    struct ask a;
    ask_for(node, &a, 0, 1, LH_WAIT_NONE, 0);
    lose_replies(node);
    ck_assert(world.scopes[0].is_held);
    fake_run(&world, MS(100));
    ck_assert_int_eq(a.answers, 0);
    raise_lanes(node);
    fake_run(&world, MS(5));
    ck_assert_int_eq(a.status, LH_OK);
    ck_assert(!a.is_renewal);
    ck_assert_int_ge(a.waited_us, MS(100));
}
END_TEST

START_TEST(a_release_whose_reply_was_lost_is_done)
{
    struct fake_node *node = start_node();
    struct ask a;
    struct give give;
    hold_now(node, &a, 0, 1);
    give_send(node, &give, 0, 1);
    lose_replies(node);
    raise_lanes(node);
    fake_run(&world, MS(5));
    ck_assert_int_eq(give.outcome, LH_OUTCOME_OK);
    give_send(node, &give, 0, 1);
    fake_run(&world, MS(5));
    ck_assert_int_eq(give.outcome, LH_OUTCOME_LOST); /* nothing was lost here: it is told as it is */
}
END_TEST

START_TEST(a_lost_reply_of_a_release_still_wakes_the_next)
{
    world.slow_poll_helps = false;
    options.reap_interval_us = 0;
    struct fake_node *node = start_node();
    struct ask a, b;
    struct give give;
    hold_and_queue(node, &a, &b);
    give_send(node, &give, 0, 1);
    lose_replies(node);
    raise_lanes(node);
    fake_run(&world, MS(10));
    ck_assert_int_eq(b.status, LH_OK);
}
END_TEST

START_TEST(a_heartbeat_outlives_a_short_outage_and_not_a_long_one)
{
    struct fake_node *node = start_node();
    struct ask a;
    struct beat beat, late;
    hold_now(node, &a, 0, 1);
    beat_send(node, &beat, 0, 1);
    fake_run(&world, 100);
    drop_lanes(node);
    fake_run(&world, MS(500));
    raise_lanes(node);
    fake_run(&world, MS(5));
    ck_assert_int_eq(beat.outcome, LH_OUTCOME_OK);
    drop_lanes(node);
    int64_t sent_us = world.now_us;
    beat_send(node, &late, 0, 1);
    fake_run(&world, MS(3000));
    ck_assert_int_eq(late.outcome, LH_OUTCOME_RETRY);
    ck_assert_int_eq(late.answered_us - sent_us, MS(1000));
}
END_TEST

START_TEST(while_the_database_is_down_who_does_not_wait_is_told_so)
{
    struct fake_node *node = start_node();
    struct ask a;
    struct give give;
    fake_database_drop(&world);
    int64_t sent_us = world.now_us;
    ask_for(node, &a, 0, 1, LH_WAIT_NONE, 0);
    give_send(node, &give, 1, 1);
    fake_run(&world, MS(3000));
    ck_assert_int_eq(a.status, LH_DATABASE_UNAVAILABLE);
    ck_assert_int_eq(a.answered_us - sent_us, MS(1000));
    ck_assert_int_eq(give.outcome, LH_OUTCOME_RETRY);
}
END_TEST

START_TEST(nobody_waits_for_a_database_that_has_not_answered_for_seconds)
{
    struct fake_node *node = start_node();
    struct ask waits, late;

    fake_run(&world, MS(1500));
    fake_database_drop(&world);
    ask_for(node, &waits, 0, 1, LH_WAIT_TIME, MS(60000));
    fake_run(&world, MS(6000));
    ck_assert_int_eq(waits.status, LH_DATABASE_UNAVAILABLE);
    ck_assert_int_eq(refused(node, &late), LH_DATABASE_UNAVAILABLE);
    fake_database_raise(&world);
    fake_run(&world, MS(1500));
    ask_for(node, &late, 0, 2, LH_WAIT_NONE, 0);
    fake_run(&world, MS(100));
    ck_assert_int_eq(late.status, LH_OK);
}
END_TEST

START_TEST(nobody_waits_for_a_database_that_needs_a_person)
{
    struct fake_node *node = start_node();
    struct ask waits, late;

    fake_run(&world, MS(1500));
    fake_database_drop(&world);
    ask_for(node, &waits, 0, 1, LH_WAIT_TIME, MS(60000));
    world.is_trouble_permanent = true;
    fake_run(&world, MS(1200)); /* a tick */
    ck_assert_int_eq(waits.status, LH_DATABASE_UNAVAILABLE);
    ck_assert_int_eq(refused(node, &late), LH_DATABASE_UNAVAILABLE);
}
END_TEST

START_TEST(nobody_waits_for_a_database_that_refuses_this_coordinator)
{
    struct fake_node *node;
    struct ask waits, late;

    world.refuses_coordinators = true;
    node = fake_node_start(&world, &options);
    ask_for(node, &waits, 0, 1, LH_WAIT_TIME, MS(60000));
    fake_run(&world, MS(100));
    ck_assert_int_eq(waits.status, LH_DATABASE_UNAVAILABLE);
    ck_assert_int_eq(refused(node, &late), LH_DATABASE_UNAVAILABLE);
    world.refuses_coordinators = false; /* its role got the right */
    fake_run(&world, MS(1500));
    ask_for(node, &late, 0, 2, LH_WAIT_NONE, 0);
    fake_run(&world, MS(100));
    ck_assert_int_eq(late.status, LH_OK);
}
END_TEST

START_TEST(a_server_that_commits_no_tick_for_ten_seconds_may_be_no_primary_any_more)
{
    unsigned looks;

    start_node();
    fake_run(&world, MS(12000));
    ck_assert_uint_eq(world.looks_elsewhere, 0);
    world.refuses_ticks = true;
    fake_run(&world, MS(8000));
    ck_assert_uint_eq(world.looks_elsewhere, 0);
    fake_run(&world, MS(4000));
    ck_assert_uint_eq(world.looks_elsewhere, 1);
    fake_run(&world, MS(12000));
    looks = world.looks_elsewhere;
    ck_assert_uint_ge(looks, 2);
    world.refuses_ticks = false;
    fake_run(&world, MS(30000));
    ck_assert_uint_eq(world.looks_elsewhere, looks);
}
END_TEST

START_TEST(an_error_is_told_to_who_does_not_wait_and_outlived_by_who_does)
{
    struct fake_node *node = start_node();
    struct ask a, b;
    struct beat beat;
    world.fail_with = LH_INTERNAL;
    ask_for(node, &a, 0, 1, LH_WAIT_NONE, 0);
    ask_for(node, &b, 1, 2, LH_WAIT_TIME, MS(15000));
    beat_send(node, &beat, 2, 3);
    fake_run(&world, MS(5));
    ck_assert_int_eq(a.status, LH_INTERNAL);
    ck_assert_str_eq(a.message, "the database says no");
    ck_assert_int_eq(beat.outcome, LH_OUTCOME_RETRY);
    ck_assert_str_eq(beat.message, "the database says no");
    fake_run(&world, MS(2000));
    ck_assert_int_eq(b.answers, 0);
    world.fail_with = LH_OK;
    fake_run(&world, MS(5000));
    ck_assert_int_eq(b.status, LH_OK);
}
END_TEST

static bool is_connected(struct lh_store *store)
{
    return true;
}

static bool is_ready(const struct fake_node *node)
{
    struct lh_readiness readiness;

    lh_coordinator_readiness(node->coordinator, &readiness);
    return readiness.is_ready;
}

START_TEST(who_comes_back_is_ready_when_there_is_a_lane)
{
    struct fake_node *node = start_node();
    struct lh_store_ops ops = *node->store.ops;

    ops.is_connected = is_connected;
    node->store.ops = &ops;
    fake_run(&world, MS(1500));
    ck_assert(is_ready(node));
    drop_lanes(node);
    fake_run(&world, MS(1500));
    ck_assert(is_ready(node)); /* a short gap is no outage */
    fake_control_drop(node);
    fake_control_raise(node);
    fake_run(&world, MS(1500));
    ck_assert(!is_ready(node));
    raise_lanes(node);
    ck_assert(is_ready(node));
    fake_run(&world, MS(1500));
    drop_lanes(node);
    ck_assert(is_ready(node));
}
END_TEST

START_TEST(a_waiter_gives_up_after_ten_errors_in_a_row)
{
    lh_coordinator_options_init(&options);
    options.max_block_us = 0;
    struct fake_node *node = start_node();
    struct ask a;
    world.fail_with = LH_INTERNAL;
    ask_for(node, &a, 0, 1, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(20000));
    ck_assert_int_eq(a.answers, 0);
    fake_run(&world, MS(40000));
    ck_assert_int_eq(a.status, LH_INTERNAL);
    ck_assert_int_eq(world.batches[0], 10);
}
END_TEST

START_TEST(refused_batches_are_sent_when_the_lane_is_up_again)
{
    struct fake_node *node = start_node();
    struct ask a;
    struct give give;
    world.refuse_batches = true;
    ask_for(node, &a, 0, 1, LH_WAIT_TIME, MS(5000));
    give_send(node, &give, 1, 9);
    fake_run(&world, MS(20));
    ck_assert_int_eq(a.answers, 0);
    drop_lanes(node);
    world.refuse_batches = false;
    raise_lanes(node);
    fake_run(&world, MS(5));
    ck_assert_int_eq(a.status, LH_OK);
    ck_assert_int_eq(give.outcome, LH_OUTCOME_LOST);
}
END_TEST

START_TEST(waiters_outlive_an_outage_with_their_places)
{
    struct fake_node *node = start_node();
    struct ask a, b, c, newcomer;
    struct give give;
    hold_now(node, &a, 0, 1);
    ask_for(node, &b, 0, 2, LH_WAIT_TIME, MS(9000));
    ask_for(node, &c, 0, 3, LH_WAIT_TIME, MS(9000));
    fake_run(&world, MS(5));
    int64_t tickets[2] = {row_of(0, 2)->ticket, row_of(0, 3)->ticket};
    fake_database_drop(&world);
    fake_rows_lose(&world, 100);
    fake_run(&world, MS(1500));
    ask_for(node, &newcomer, 0, 4, LH_WAIT_TIME, MS(9000));
    fake_database_raise(&world);
    fake_run(&world, MS(10));
    ck_assert_int_eq(row_of(0, 2)->ticket, tickets[0]);
    ck_assert_int_eq(row_of(0, 3)->ticket, tickets[1]);
    ck_assert_int_gt(row_of(0, 4)->ticket, tickets[1]);
    give_send(node, &give, 0, 1);
    fake_run(&world, MS(10));
    ck_assert_int_eq(b.status, LH_OK);
    ck_assert_int_eq(c.answers + newcomer.answers, 0);
}
END_TEST

START_TEST(waiters_are_handed_back_before_others_pass_them_over)
{
    struct fake_node *node = start_node();
    struct ask a, b, again;
    hold_now(node, &a, 0, 1);
    ask_for(node, &b, 0, 2, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(5));
    int64_t ticket = row_of(0, 2)->ticket;
    fake_database_drop(&world);
    fake_run(&world, MS(2800));
    ck_assert_int_eq(b.answers, 0);
    fake_run(&world, MS(2400));
    ck_assert_int_eq(b.status, LH_DATABASE_UNAVAILABLE);
    ck_assert_int_eq(refused(node, &again), LH_DATABASE_UNAVAILABLE);
    fake_database_raise(&world);
    fake_run(&world, MS(10));
    ck_assert_int_gt(row_of(0, 2)->away_until_us, 0);
    ask_for(node, &again, 0, 2, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(10));
    ck_assert_int_eq(row_of(0, 2)->ticket, ticket);
    ck_assert_int_eq(row_of(0, 2)->away_until_us, 0);
}
END_TEST

START_TEST(without_max_block_a_wait_outlives_any_outage)
{
    lh_coordinator_options_init(&options);
    options.max_block_us = 0;
    struct fake_node *node = start_node();
    struct ask a, b;
    struct give give;
    hold_now(node, &a, 0, 1);
    ask_for(node, &b, 0, 2, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(5));
    fake_database_drop(&world);
    fake_run(&world, MS(12000));
    ck_assert_int_eq(b.answers, 0);
    fake_database_raise(&world);
    fake_run(&world, MS(10));
    give_send(node, &give, 0, 1);
    fake_run(&world, MS(10));
    ck_assert_int_eq(b.status, LH_OK);
}
END_TEST

START_TEST(a_server_without_room_throws_no_waiter_out_and_serves_it_soon_after)
{
    lh_coordinator_options_init(&options);
    options.max_block_us = 0;
    struct fake_node *node = start_node();
    struct ask a, b;
    world.fail_with = LH_OVERLOADED;
    ask_for(node, &a, 0, 1, LH_WAIT_NONE, 0);
    ask_for(node, &b, 1, 2, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(5));
    ck_assert_int_eq(a.status, LH_OVERLOADED);
    ck_assert_str_eq(a.message, "the database says no");
    fake_run(&world, MS(60000));
    ck_assert_int_eq(b.answers, 0);
    world.fail_with = LH_OK;
    fake_run(&world, MS(1300));
    ck_assert_int_eq(b.status, LH_OK);
}
END_TEST

START_TEST(a_server_without_room_is_named_though_another_batch_was_answered_meanwhile)
{
    struct fake_node *node = start_node();
    struct ask a, b;
    struct beat beat;
    world.fail_with = LH_OVERLOADED;
    ask_for(node, &a, 0, 1, LH_WAIT_TIME, MS(9000));
    fake_run(&world, MS(4000)); /* until it rests for a second each time */
    ask_for(node, &b, 0, 2, LH_WAIT_NONE, 0);
    fake_run(&world, MS(990));
    beat_send(node, &beat, 0, 3);
    fake_run(&world, MS(11));
    ck_assert_int_eq(beat.outcome, LH_OUTCOME_RETRY);
    ck_assert_int_eq(b.status, LH_OVERLOADED);
}
END_TEST

START_TEST(nobody_is_queued_before_the_coordinator_is_registered)
{
    struct fake_node *node = fake_node_start(&world, &options);
    struct ask a;
    struct beat beat;
    fake_lane_raise(node, 0);
    ask_for(node, &a, 0, 1, LH_WAIT_TIME, MS(5000));
    beat_send(node, &beat, 0, 9);
    fake_run(&world, 400);
    ck_assert_int_eq(world.batches[0], 0);
    ck_assert_int_eq(world.batches[1], 1);
    fake_run(&world, MS(10));
    ck_assert_int_eq(a.status, LH_OK);
}
END_TEST

START_TEST(a_wait_that_passes_in_an_outage_is_cleaned_up_afterwards)
{
    struct fake_node *node = start_node();
    struct ask a, b, c;
    hold_now(node, &a, 0, 1);
    ask_for(node, &b, 0, 2, LH_WAIT_TIME, MS(1000));
    ask_for(node, &c, 0, 3, LH_WAIT_TIME, MS(9000));
    fake_run(&world, MS(5));
    fake_database_drop(&world);
    fake_run(&world, MS(500));
    lh_coordinator_cancel(node->coordinator, &c.acquire);
    fake_run(&world, MS(1));
    ck_assert_int_eq(c.status, LH_CANCELED);
    fake_run(&world, MS(600));
    ck_assert_int_eq(b.status, LH_DATABASE_UNAVAILABLE);
    ck_assert_ptr_nonnull(row_of(0, 3));
    fake_database_raise(&world);
    fake_run(&world, MS(10));
    ck_assert_int_gt(row_of(0, 2)->away_until_us, 0); /* told to come back: its place is kept */
    ck_assert_ptr_null(row_of(0, 3));
}
END_TEST

START_TEST(who_was_taken_for_dead_registers_and_queues_again)
{
    struct fake_node *node = start_node();
    struct fake_node *other = start_node();
    struct ask a, b;
    hold_now(other, &a, 0, 1);
    ask_for(node, &b, 0, 2, LH_WAIT_TIME, MS(19000));
    fake_run(&world, MS(5));
    int64_t ticket = row_of(0, 2)->ticket;
    node->seen_at_us = world.now_us - MS(6000); /* it hung */
    node->is_registered = false;
    fake_rows_lose(&world, 100);
    fake_run(&world, MS(1500));
    ck_assert(node->is_registered);
    ck_assert_int_eq(row_of(0, 2)->ticket, ticket);
}
END_TEST

/* Its process stood still; in the queue of its socket there is the cancel of the first waiter. */
START_TEST(nobody_is_asked_for_before_the_cancels_of_a_pause_were_read)
{
    struct fake_node *node = start_node();
    struct ask holder, gone, next;
    struct give give;
    struct beat beat;
    hold_now(node, &holder, 0, 1);
    ask_for(node, &gone, 0, 2, LH_WAIT_UNTIL_GRANTED, 0);
    ask_for(node, &next, 0, 3, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(5));
    node->behind = INT_MAX;
    beat_send(node, &beat, 0, 1);
    for (int i = 0; i < 20; i++)
        fake_step(&world, world.now_us + MS(5));
    ck_assert_int_eq(beat.outcome, LH_OUTCOME_OK); /* who is there is served */
    give_send(node, &give, 0, 1);
    for (int i = 0; i < 200; i++)
        fake_step(&world, world.now_us + MS(5));
    ck_assert_int_eq(give.outcome, LH_OUTCOME_OK);
    ck_assert_int_eq(gone.answers + next.answers, 0);
    lh_coordinator_cancel(node->coordinator, &gone.acquire);
    node->behind = 3;
    fake_run(&world, MS(20));
    ck_assert_int_eq(gone.status, LH_CANCELED);
    ck_assert_int_eq(next.status, LH_OK);
    ck_assert_int_eq(next.token, holder.token + 1); /* nobody had it in between */
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_test(tcase, a_grant_whose_reply_was_lost_is_asked_for_again);
    tcase_add_test(tcase, a_release_whose_reply_was_lost_is_done);
    tcase_add_test(tcase, a_lost_reply_of_a_release_still_wakes_the_next);
    tcase_add_test(tcase, a_heartbeat_outlives_a_short_outage_and_not_a_long_one);
    tcase_add_test(tcase, while_the_database_is_down_who_does_not_wait_is_told_so);
    tcase_add_test(tcase, nobody_waits_for_a_database_that_has_not_answered_for_seconds);
    tcase_add_test(tcase, nobody_waits_for_a_database_that_needs_a_person);
    tcase_add_test(tcase, nobody_waits_for_a_database_that_refuses_this_coordinator);
    tcase_add_test(tcase, a_server_that_commits_no_tick_for_ten_seconds_may_be_no_primary_any_more);
    tcase_add_test(tcase, an_error_is_told_to_who_does_not_wait_and_outlived_by_who_does);
    tcase_add_test(tcase, who_comes_back_is_ready_when_there_is_a_lane);
    tcase_add_test(tcase, a_waiter_gives_up_after_ten_errors_in_a_row);
    tcase_add_test(tcase, refused_batches_are_sent_when_the_lane_is_up_again);
    tcase_add_test(tcase, waiters_outlive_an_outage_with_their_places);
    tcase_add_test(tcase, waiters_are_handed_back_before_others_pass_them_over);
    tcase_add_test(tcase, without_max_block_a_wait_outlives_any_outage);
    tcase_add_test(tcase, a_server_without_room_throws_no_waiter_out_and_serves_it_soon_after);
    tcase_add_test(tcase, a_server_without_room_is_named_though_another_batch_was_answered_meanwhile);
    tcase_add_test(tcase, nobody_is_queued_before_the_coordinator_is_registered);
    tcase_add_test(tcase, a_wait_that_passes_in_an_outage_is_cleaned_up_afterwards);
    tcase_add_test(tcase, who_was_taken_for_dead_registers_and_queues_again);
    tcase_add_test(tcase, nobody_is_asked_for_before_the_cancels_of_a_pause_were_read);
}

int main(void)
{
    return run_suite("lease, outages", add);
}
