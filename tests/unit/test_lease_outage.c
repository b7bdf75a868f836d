/* The core when things go wrong: busy rows, lost replies, errors, outages, limits, stops. */
#include <limits.h>

#include "lease/timer.h"
#include "lease_fixture.h"

static void drop_lanes(struct fake_node *node, bool commits)
{
    for (unsigned i = 0; i < FAKE_LANES; i++)
        fake_lane_drop(node, i, commits);
}

static void raise_lanes(struct fake_node *node)
{
    for (unsigned i = 0; i < FAKE_LANES; i++)
        fake_lane_raise(node, i);
}

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

START_TEST(a_grant_whose_reply_was_lost_is_asked_for_again)
{
    struct fake_node *node = start_node();
    struct ask a;
    ask_for(node, &a, 0, 1, LH_WAIT_NONE, 0);
    fake_run(&world, 100);
    drop_lanes(node, true);
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
    fake_run(&world, 100);
    drop_lanes(node, true);
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
    hold_now(node, &a, 0, 1);
    ask_for(node, &b, 0, 2, LH_WAIT_TIME, MS(9000));
    fake_run(&world, MS(5));
    give_send(node, &give, 0, 1);
    fake_run(&world, 100);
    drop_lanes(node, true);
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
    drop_lanes(node, false);
    fake_run(&world, MS(500));
    raise_lanes(node);
    fake_run(&world, MS(5));
    ck_assert_int_eq(beat.outcome, LH_OUTCOME_OK);
    drop_lanes(node, false);
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
    drop_lanes(node, false);
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

START_TEST(a_grant_that_a_timeout_overtook_is_still_handed_over)
{
    options.max_block_us = MS(50);
    struct fake_node *node = start_node();
    struct ask a;
    world.min_delay_us = world.max_delay_us = MS(40);
    ask_for(node, &a, 0, 1, LH_WAIT_TIME, MS(5000));
    fake_run(&world, MS(60)); /* granted, the answer under way, and its time has passed */
    ck_assert(world.scopes[0].is_held);
    fake_lane_drop(node, 0, true);
    fake_run(&world, MS(200));
    ck_assert_int_eq(world.batches[3], 1); /* the leave found the lease */
    ck_assert_int_eq(a.status, LH_OK);
    ck_assert(world.scopes[0].is_held);
}
END_TEST

START_TEST(a_cancel_after_a_lost_reply_ends_the_lease)
{
    struct fake_node *node = start_node();
    struct ask a;
    ask_for(node, &a, 0, 1, LH_WAIT_TIME, MS(5000));
    fake_run(&world, 100);
    drop_lanes(node, true);
    lh_coordinator_cancel(node->coordinator, &a.acquire);
    fake_run(&world, MS(5));
    ck_assert_int_eq(a.status, LH_CANCELED);
    ck_assert(world.scopes[0].is_held);
    raise_lanes(node);
    fake_run(&world, MS(5));
    ck_assert(!world.scopes[0].is_held);
}
END_TEST

START_TEST(who_comes_back_while_it_leaves_is_asked_for_anew)
{
    struct fake_node *node = start_node();
    struct ask a, b, c;
    hold_now(node, &a, 0, 1);
    ask_for(node, &b, 0, 2, LH_WAIT_TIME, MS(5000));
    fake_run(&world, MS(5));
    lh_coordinator_cancel(node->coordinator, &b.acquire);
    fake_run(&world, 100); /* the leave is out */
    ask_for(node, &c, 0, 2, LH_WAIT_TIME, MS(5000));
    fake_run(&world, MS(10));
    ck_assert_int_eq(b.status, LH_CANCELED);
    ck_assert_int_eq(c.answers, 0);
    ck_assert_ptr_nonnull(row_of(0, 2));
}
END_TEST

START_TEST(who_comes_back_before_it_left_keeps_its_ticket)
{
    struct fake_node *node = start_node();
    struct ask a, b, c;
    hold_now(node, &a, 0, 1);
    ask_for(node, &b, 0, 2, LH_WAIT_TIME, MS(5000));
    fake_run(&world, MS(5));
    int64_t ticket = row_of(0, 2)->ticket;
    lh_coordinator_cancel(node->coordinator, &b.acquire);
    ask_for(node, &c, 0, 2, LH_WAIT_TIME, MS(5000));
    fake_run(&world, MS(10));
    ck_assert_int_eq(world.batches[3], 0);
    ck_assert_int_eq(row_of(0, 2)->ticket, ticket);
}
END_TEST

START_TEST(waiters_and_items_are_bounded)
{
    options.max_waiters = 2;
    options.max_pending = 2;
    struct fake_node *node = start_node();
    struct ask a, b, c, d;
    struct beat beat;
    struct lh_coordinator_stats stats;
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
    lh_coordinator_stats(node->coordinator, &stats);
    ck_assert_uint_eq(stats.waiters, 2);
    ck_assert_uint_eq(stats.pending, 2);
    ck_assert_uint_eq(stats.refused, 3);
    fake_run(&world, MS(5));
    ck_assert_int_eq(a.status, LH_OK);
}
END_TEST

START_TEST(a_stop_answers_waiters_and_keeps_their_places)
{
    struct fake_node *node = start_node();
    struct ask a, b, c;
    struct give give;
    hold_now(node, &a, 0, 1);
    ask_for(node, &b, 0, 2, LH_WAIT_TIME, MS(9000));
    fake_run(&world, MS(5));
    ask_for(node, &c, 1, 3, LH_WAIT_TIME, MS(9000)); /* not asked for yet */
    give_send(node, &give, 2, 9);
    fake_node_stop(node);
    ck_assert_int_eq(b.answers + c.answers + give.answers, 0);
    struct ask late;
    ask_init(&late, 0, 4, LH_WAIT_NONE, 0);
    ck_assert_int_eq(lh_coordinator_acquire(node->coordinator, &late.acquire), LH_SHUTTING_DOWN);
    fake_run(&world, MS(20));
    ck_assert_int_eq(b.status, LH_SHUTTING_DOWN);
    ck_assert_int_eq(c.status, LH_SHUTTING_DOWN);
    ck_assert_int_eq(give.outcome, LH_OUTCOME_LOST);
    ck_assert_int_gt(row_of(0, 2)->away_until_us, world.now_us);
    ck_assert(node->has_stopped);
}
END_TEST

START_TEST(a_grant_in_flight_at_the_stop_is_handed_over)
{
    struct fake_node *node = start_node();
    struct ask a;
    ask_for(node, &a, 0, 1, LH_WAIT_TIME, MS(5000));
    fake_run(&world, 600);
    fake_node_stop(node);
    fake_run(&world, MS(20));
    ck_assert_int_eq(a.status, LH_OK);
    ck_assert(node->has_stopped);
}
END_TEST

START_TEST(a_stop_without_a_database_ends)
{
    struct fake_node *node = start_node();
    struct ask a, b;
    struct beat beat;
    hold_now(node, &a, 0, 1);
    ask_for(node, &b, 0, 2, LH_WAIT_TIME, MS(9000));
    fake_run(&world, MS(5));
    fake_database_drop(&world);
    beat_send(node, &beat, 0, 1);
    fake_node_stop(node);
    fake_run(&world, MS(20));
    ck_assert_int_eq(b.status, LH_SHUTTING_DOWN);
    ck_assert_int_eq(beat.outcome, LH_OUTCOME_RETRY);
    ck_assert(node->has_stopped);
}
END_TEST

START_TEST(a_stop_with_a_busy_row_ends)
{
    struct fake_node *node = start_node();
    struct ask a, b;
    hold_now(node, &a, 0, 1);
    ask_for(node, &b, 0, 2, LH_WAIT_TIME, MS(9000));
    fake_run(&world, MS(5));
    world.scopes[0].busy_until_us = world.now_us + MS(60000);
    fake_node_stop(node);
    fake_run(&world, MS(6000));
    ck_assert_int_eq(b.status, LH_SHUTTING_DOWN);
    ck_assert(node->has_stopped);
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

START_TEST(the_reaper_ends_what_its_holder_left_and_counts_it)
{
    struct fake_node *node = start_node();
    struct ask a;
    struct lh_coordinator_stats stats;
    ask_init(&a, 0, 1, LH_WAIT_NONE, 0);
    a.acquire.duration_us = MS(1000);
    ask_send(node, &a);
    fake_run(&world, MS(1100));
    ck_assert(world.scopes[0].is_held);
    fake_run(&world, MS(1500));
    ck_assert(!world.scopes[0].is_held);
    lh_coordinator_stats(node->coordinator, &stats);
    ck_assert_uint_eq(stats.reaped, 1);
}
END_TEST

START_TEST(the_clock_is_believed_from_good_answers_only)
{
    struct fake_node *node = start_node();
    struct ask a;
    fake_run(&world, MS(3000));
    world.min_delay_us = world.max_delay_us = MS(300); /* slow, but it agrees */
    fake_run(&world, MS(3000));
    world.min_delay_us = world.max_delay_us = 500;
    ask_for(node, &a, 0, 1, LH_WAIT_NONE, 0);
    fake_run(&world, MS(5));
    int64_t error_us = node->last_clock_us - (world.now_us - MS(5) + world.clock_offset_us);
    ck_assert_int_lt(llabs(error_us), MS(2));
}
END_TEST

START_TEST(a_clock_that_stepped_is_seen_by_the_tick_and_believed_after_it)
{
    struct fake_node *node = start_node();
    struct ask a, b;
    fake_run(&world, MS(3000));
    fake_control_drop(node);
    world.clock_offset_us += MS(5000);
    fake_control_raise(node);
    fake_run(&world, 700); /* registered again, the tick is out */
    ask_for(node, &a, 0, 1, LH_WAIT_NONE, 0);
    fake_run(&world, 400);
    int64_t true_us = world.now_us + world.clock_offset_us;
    ck_assert_int_gt(true_us - node->last_clock_us, MS(4000)); /* registering did not hide the step */
    fake_run(&world, MS(1500));
    ask_for(node, &b, 1, 2, LH_WAIT_NONE, 0);
    fake_run(&world, 100);
    true_us = world.now_us + world.clock_offset_us;
    ck_assert_int_lt(true_us - node->last_clock_us, MS(5));
    fake_run(&world, MS(5));
}
END_TEST

START_TEST(timers_come_in_order_and_can_be_moved)
{
    struct lh_heap heap = {0};
    struct lh_heap_timer timers[200] = {{0}};
    for (int i = 0; i < 200; i++)
        lh_heap_set(&heap, &timers[i], fake_below(&world, 1000));
    for (int i = 0; i < 200; i += 3)
        lh_heap_set(&heap, &timers[i], i % 2 == 0 ? LH_NEVER : fake_below(&world, 1000));
    for (int i = 1; i < 200; i += 7)
        lh_heap_remove(&heap, &timers[i]);
    int64_t last_us = -1;
    struct lh_heap_timer *timer;
    ck_assert_ptr_null(lh_heap_due(&heap, -1));
    while ((timer = lh_heap_due(&heap, 1000)) != NULL) {
        ck_assert_int_ge(timer->at_us, last_us);
        ck_assert_uint_eq(timer->slot, 0);
        ck_assert((timer - timers) % 7 != 1);
        last_us = timer->at_us;
    }
    ck_assert_int_eq(lh_heap_next_us(&heap), LH_NEVER);
    lh_heap_finish(&heap);
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_test(tcase, while_a_row_is_busy_only_the_first_is_tried);
    tcase_add_test(tcase, who_does_not_wait_hears_of_a_busy_row_after_a_second);
    tcase_add_test(tcase, a_heartbeat_is_not_held_up_by_an_acquire_in_backoff);
    tcase_add_test(tcase, heartbeats_and_releases_of_a_busy_row_end_as_retry);
    tcase_add_test(tcase, a_grant_whose_reply_was_lost_is_asked_for_again);
    tcase_add_test(tcase, a_release_whose_reply_was_lost_is_done);
    tcase_add_test(tcase, a_lost_reply_of_a_release_still_wakes_the_next);
    tcase_add_test(tcase, a_heartbeat_outlives_a_short_outage_and_not_a_long_one);
    tcase_add_test(tcase, while_the_database_is_down_who_does_not_wait_is_told_so);
    tcase_add_test(tcase, an_error_is_told_to_who_does_not_wait_and_outlived_by_who_does);
    tcase_add_test(tcase, a_waiter_gives_up_after_ten_errors_in_a_row);
    tcase_add_test(tcase, refused_batches_are_sent_when_the_lane_is_up_again);
    tcase_add_test(tcase, waiters_outlive_an_outage_with_their_places);
    tcase_add_test(tcase, nobody_is_queued_before_the_coordinator_is_registered);
    tcase_add_test(tcase, a_wait_that_passes_in_an_outage_is_cleaned_up_afterwards);
    tcase_add_test(tcase, a_grant_that_a_timeout_overtook_is_still_handed_over);
    tcase_add_test(tcase, a_cancel_after_a_lost_reply_ends_the_lease);
    tcase_add_test(tcase, who_comes_back_while_it_leaves_is_asked_for_anew);
    tcase_add_test(tcase, who_comes_back_before_it_left_keeps_its_ticket);
    tcase_add_test(tcase, waiters_and_items_are_bounded);
    tcase_add_test(tcase, a_stop_answers_waiters_and_keeps_their_places);
    tcase_add_test(tcase, a_grant_in_flight_at_the_stop_is_handed_over);
    tcase_add_test(tcase, a_stop_without_a_database_ends);
    tcase_add_test(tcase, a_stop_with_a_busy_row_ends);
    tcase_add_test(tcase, who_was_taken_for_dead_registers_and_queues_again);
    tcase_add_test(tcase, nobody_is_asked_for_before_the_cancels_of_a_pause_were_read);
    tcase_add_test(tcase, the_reaper_ends_what_its_holder_left_and_counts_it);
    tcase_add_test(tcase, the_clock_is_believed_from_good_answers_only);
    tcase_add_test(tcase, a_clock_that_stepped_is_seen_by_the_tick_and_believed_after_it);
    tcase_add_test(tcase, timers_come_in_order_and_can_be_moved);
}

int main(void)
{
    return run_suite("lease, outages", add);
}
