/*
 * Who gets a lane: renewals and everything else beside each other, acquires and releases behind each other. A batch takes
 * 1 ms here, which is a database that is near, and one item where nothing else is said.
 */
#include <limits.h>

#include "lease_fixture.h"

static struct fake_node *start_with(int held)
{
    options.batch_max = 1;
    struct fake_node *node = start_node();
    for (int i = 0; i < held; i++) {
        struct ask ask;
        hold_now(node, &ask, i, i + 1);
    }
    return node;
}

START_TEST(an_acquire_does_not_wait_behind_renewals)
{
    struct fake_node *node = start_with(3);
    struct beat beats[3];
    struct ask ask;
    int64_t begun_us = world.now_us;
    for (int i = 0; i < 3; i++)
        beat_send(node, &beats[i], i, i + 1);
    fake_run(&world, MS(1) / 2);
    int64_t sent_us = world.now_us;
    ask_for(node, &ask, 3, 4, LH_WAIT_NONE, 0);
    fake_run(&world, MS(5));
    ck_assert_int_eq(ask.status, LH_OK);
    ck_assert_int_eq(ask.answered_us - sent_us, MS(1));
    /* Two lanes were theirs, and one of them was in want of a third. */
    ck_assert_int_eq(beats[0].answered_us - begun_us, MS(1));
    ck_assert_int_eq(beats[1].answered_us - begun_us, MS(1));
    ck_assert_int_eq(beats[2].answered_us - begun_us, MS(2));
}
END_TEST

START_TEST(a_renewal_does_not_wait_behind_the_others)
{
    struct fake_node *node = start_with(3);
    struct beat beat;
    struct give gives[2];
    struct ask ask;
    int64_t sent_us = world.now_us;
    give_send(node, &gives[0], 1, 2);
    give_send(node, &gives[1], 2, 3);
    fake_run(&world, 1); /* one after the other */
    ask_for(node, &ask, 3, 4, LH_WAIT_NONE, 0);
    fake_run(&world, 1);
    beat_send(node, &beat, 0, 1);
    fake_run(&world, MS(5));
    ck_assert_int_eq(beat.outcome, LH_OUTCOME_OK);
    ck_assert_int_eq(beat.answered_us - sent_us, MS(1) + 2);
    ck_assert_int_eq(gives[0].answered_us - sent_us, MS(1));
    ck_assert_int_eq(gives[1].answered_us - sent_us, MS(1));
    ck_assert_int_eq(ask.answered_us - sent_us, MS(2));
}
END_TEST

START_TEST(with_two_lanes_left_each_kind_takes_both)
{
    struct fake_node *node = start_with(2);
    struct beat beats[2];
    struct ask asks[2];
    fake_lane_drop(node, 1, false);
    int64_t sent_us = world.now_us;
    for (int i = 0; i < 2; i++)
        beat_send(node, &beats[i], i, i + 1);
    fake_run(&world, MS(5));
    ck_assert_int_eq(beats[0].answered_us - sent_us, MS(1));
    ck_assert_int_eq(beats[1].answered_us - sent_us, MS(1));

    sent_us = world.now_us;
    for (int i = 0; i < 2; i++)
        ask_for(node, &asks[i], i + 2, i + 3, LH_WAIT_NONE, 0);
    fake_run(&world, MS(5));
    ck_assert_int_eq(asks[0].answered_us - sent_us, MS(1));
    ck_assert_int_eq(asks[1].answered_us - sent_us, MS(1));
}
END_TEST

START_TEST(the_last_lane_takes_everything)
{
    struct fake_node *node = start_with(2);
    struct beat beats[2];
    struct ask ask;
    for (int i = 0; i < 2; i++)
        beat_send(node, &beats[i], i, i + 1);
    fake_run(&world, MS(1) / 4); /* both are out */
    fake_lane_drop(node, 0, false);
    fake_lane_drop(node, 2, false);
    ask_for(node, &ask, 3, 4, LH_WAIT_NONE, 0);
    fake_run(&world, MS(5));
    ck_assert_int_eq(beats[0].outcome, LH_OUTCOME_OK);
    ck_assert_int_eq(beats[1].outcome, LH_OUTCOME_OK);
    ck_assert_int_eq(ask.status, LH_OK);
}
END_TEST

static struct beat ahead;
static struct give gives[2];
static struct ask asks[2];

/* Two releases and two acquires become ready while the one lane is out. */
static struct fake_node *start_with_both_kinds(void)
{
    struct ask held;
    options.batch_max = LH_BATCH_MAX;
    struct fake_node *node = start_node();
    for (int i = 0; i < 5; i++)
        hold_now(node, &held, i, i + 1);
    fake_lane_drop(node, 1, false);
    fake_lane_drop(node, 2, false);
    beat_send(node, &ahead, 0, 1);
    fake_run(&world, MS(1) / 4);
    for (int i = 0; i < 2; i++) {
        ask_for(node, &asks[i], 5 + i, 6 + i, LH_WAIT_NONE, 0);
        give_send(node, &gives[i], 1 + i, 2 + i);
    }
    return node;
}

START_TEST(acquires_ride_with_releases_that_are_ready)
{
    start_with_both_kinds();
    size_t transactions = world.batches[0] + world.batches[2];
    fake_run(&world, MS(5));
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(gives[i].outcome, LH_OUTCOME_OK);
        ck_assert_int_eq(asks[i].status, LH_OK);
    }
    ck_assert_uint_eq(world.riders, 2);
    ck_assert_uint_eq(world.batches[0] + world.batches[2], transactions + 1);
}
END_TEST

/* Whoever has gone meanwhile gets no lease. */
START_TEST(no_acquire_rides_before_disconnects_are_read)
{
    struct fake_node *node = start_with_both_kinds();
    node->behind = INT_MAX;
    for (int i = 0; i < 200; i++)
        fake_step(&world, world.now_us + MS(5));
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(gives[i].outcome, LH_OUTCOME_OK);
        ck_assert_int_eq(asks[i].answers, 0);
    }
    ck_assert_uint_eq(world.riders, 0);
    node->behind = 0;
    fake_run(&world, MS(5));
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(asks[i].status, LH_OK);
}
END_TEST

#define POLLS_US 600   /* for an answer */
#define GATHERS_US 400 /* for those who were just answered */
#define LATE_US(items) (MS(3) + 30 * (items))

static struct ask early[4], late, later[3];

/* One trip tells how far away the database is. */
static struct fake_node *start_at(int64_t trip_us)
{
    options.batch_max = LH_BATCH_MAX;
    world.min_delay_us = world.max_delay_us = trip_us / 2;
    return start_node();
}

static struct fake_node *start_with_large_batches(int64_t trip_us)
{
    struct fake_node *node = start_at(trip_us);
    hold_now(node, &early[0], 0, 9);
    return node;
}

/* So many acquires are out, and one more is sent behind them. */
static void ask_behind(struct fake_node *node, int early_count)
{
    for (int i = 0; i < early_count; i++)
        ask_for(node, &early[i], i + 1, i + 1, LH_WAIT_NONE, 0);
    fake_run(&world, MS(1) / 4);
    ask_for(node, &late, 5, 5, LH_WAIT_NONE, 0);
    fake_run(&world, MS(100));
    ck_assert_int_eq(late.status, LH_OK);
}

START_TEST(what_comes_behind_a_batch_of_three_waits_for_it)
{
    struct fake_node *node = start_with_large_batches(MS(1));
    ask_behind(node, 3);
    ck_assert_int_eq(late.answered_us - early[0].answered_us, GATHERS_US + MS(1));
}
END_TEST

START_TEST(what_comes_behind_one_or_two_does_not_wait)
{
    struct fake_node *node = start_with_large_batches(MS(1));
    ask_behind(node, 2);
    ck_assert_int_eq(late.answered_us - early[0].answered_us, MS(1) / 4);
}
END_TEST

/* Where a transaction of few costs nearly what one of many does. */
static struct fake_node *start_with_dear_batches(int64_t trip_us)
{
    struct fake_node *node = start_with_large_batches(trip_us);
    world.worth_a_batch = 24;
    return node;
}

static void ask_for_some(struct fake_node *node, struct ask *asked, int count, int from)
{
    for (int i = 0; i < count; i++)
        ask_for(node, &asked[i], from + i, from + i, LH_WAIT_NONE, 0);
}

START_TEST(fewer_than_are_out_wait_for_them)
{
    struct fake_node *node = start_with_dear_batches(MS(1));
    ask_behind(node, 4);
    ck_assert_int_eq(late.answered_us - early[0].answered_us, GATHERS_US + MS(1));
}
END_TEST

START_TEST(nothing_waits_for_three_that_are_dear)
{
    struct fake_node *node = start_with_dear_batches(MS(1));
    ask_behind(node, 3);
    ck_assert_int_eq(late.answered_us - early[0].answered_us, MS(1) / 4);
}
END_TEST

START_TEST(as_many_as_are_out_take_another_lane)
{
    struct fake_node *node = start_with_dear_batches(MS(1));
    ask_for_some(node, early, 4, 1);
    fake_run(&world, MS(1) / 4);
    ask_for_some(node, later, 3, 5);
    fake_run(&world, MS(1) / 4);
    ask_for_some(node, &late, 1, 8);
    fake_run(&world, MS(5));
    ck_assert_int_eq(late.answered_us - early[0].answered_us, MS(1) / 2);
    ck_assert_int_eq(later[0].answered_us, late.answered_us);
}
END_TEST

/* The one that was sent last is answered, and the one before is late at its own time. */
START_TEST(each_batch_is_late_at_its_own_time)
{
    struct fake_node *node = start_with_dear_batches(MS(1));
    struct ask others[4];
    world.min_delay_us = world.max_delay_us = MS(20);
    int64_t sent_us = world.now_us;
    ask_for_some(node, early, 4, 1);
    fake_run(&world, MS(2));
    world.min_delay_us = world.max_delay_us = MS(1) / 4;
    ask_for_some(node, others, 4, 5);
    fake_run(&world, MS(1) * 3 / 4);
    ck_assert_int_eq(others[0].status, LH_OK);
    ask_for_some(node, &late, 1, 9);
    fake_run(&world, MS(5));
    ck_assert_int_eq(late.answered_us - sent_us, LATE_US(4) + MS(1) / 2);
}
END_TEST

START_TEST(where_the_database_is_far_nothing_waits)
{
    struct fake_node *node = start_with_large_batches(MS(2));
    ask_behind(node, 3);
    ck_assert_int_eq(late.answered_us - early[0].answered_us, MS(1) / 4);
}
END_TEST

START_TEST(where_the_database_is_far_fewer_do_not_wait_either)
{
    struct fake_node *node = start_with_dear_batches(MS(2));
    ask_behind(node, 4);
    ck_assert_int_eq(late.answered_us - early[0].answered_us, MS(1) / 4);
}
END_TEST

START_TEST(a_database_that_has_moved_away_is_noticed)
{
    struct fake_node *node = start_with_large_batches(MS(1));
    struct beat beat;
    world.min_delay_us = world.max_delay_us = MS(1);
    for (int i = 0; i < 128; i++) {
        beat_send(node, &beat, 0, 9);
        fake_run(&world, MS(3));
    }
    ask_behind(node, 3);
    ck_assert_int_eq(late.answered_us - early[0].answered_us, MS(1) / 4);
}
END_TEST

START_TEST(nothing_waits_for_a_batch_that_is_late)
{
    struct fake_node *node = start_with_large_batches(MS(1));
    world.min_delay_us = world.max_delay_us = MS(20);
    ask_behind(node, 3);
    ck_assert_int_eq(late.answered_us - early[0].answered_us, LATE_US(3));
}
END_TEST

/* Three are answered by one batch, and so many come again, one after the other. */
static struct fake_node *answer_three(int again)
{
    struct fake_node *node = start_with_large_batches(MS(1));
    ask_for_some(node, early, 3, 1);
    fake_run(&world, MS(1));
    ck_assert_int_eq(early[0].status, LH_OK);
    for (int i = 0; i < again; i++) {
        fake_run(&world, 20);
        give_send(node, &gives[i], i + 1, i + 1);
    }
    return node;
}

START_TEST(who_was_answered_and_comes_again_at_once_makes_one_batch)
{
    size_t transactions;
    struct fake_node *node = answer_three(2);
    transactions = world.batches[LH_KIND_RELEASE];
    fake_run(&world, 20);
    ask_for(node, &late, 5, 5, LH_WAIT_NONE, 0);
    fake_run(&world, MS(1));
    ck_assert_int_eq(late.answered_us - early[0].answered_us, 3 * 20 + MS(1));
    ck_assert_int_eq(gives[0].answered_us, late.answered_us);
    ck_assert_int_eq(gives[1].answered_us, late.answered_us);
    ck_assert_uint_eq(world.batches[LH_KIND_RELEASE], transactions + 1);
    ck_assert_uint_eq(world.riders, 1);
}
END_TEST

START_TEST(who_does_not_come_again_is_waited_for_less_often)
{
    struct fake_node *node = answer_three(2);
    fake_run(&world, GATHERS_US - 2 * 20 + MS(1));
    ck_assert_int_eq(gives[0].answered_us - early[0].answered_us, GATHERS_US + MS(1));
    ck_assert_int_eq(gives[1].answered_us, world.now_us);
    ask_for(node, &late, 5, 5, LH_WAIT_NONE, 0); /* behind the answer that is passed over */
    fake_run(&world, MS(1));
    ck_assert_int_eq(late.answered_us - gives[1].answered_us, MS(1));
    ask_for_some(node, later, 2, 6);
    fake_run(&world, MS(1));
    give_send(node, &gives[0], 6, 6);
    fake_run(&world, MS(2));
    ck_assert_int_eq(gives[0].answered_us - later[0].answered_us, GATHERS_US + MS(1));
}
END_TEST

/* With trips of GATHERS_US two are answered together, and one comes again at once, or both. Returns how long the first is kept for the second. */
static int64_t kept_us(struct fake_node *node, int from, bool come_both)
{
    ask_for_some(node, later, 2, from);
    fake_run(&world, GATHERS_US);
    ck_assert_int_eq(later[1].status, LH_OK);
    int64_t sent_us = world.now_us;
    give_send(node, &gives[0], from, from);
    if (come_both)
        give_send(node, &gives[1], from + 1, from + 1);
    fake_run(&world, MS(2));
    if (!come_both)
        give_send(node, &gives[1], from + 1, from + 1);
    fake_run(&world, MS(2));
    return gives[0].answered_us - sent_us - GATHERS_US;
}

START_TEST(who_comes_again_by_chance_is_not_waited_for_always)
{
    static const struct {
        bool come_both;
        int64_t kept_us;
    } steps[] = {
        {false, GATHERS_US}, {false, 0},                         /* one answer is passed over */
        {false, GATHERS_US}, {false, 0}, {false, 0}, {false, 0}, /* three are */
        {true, 0},           {false, 0},                         /* two: that of both, and that of the next two */
        {false, GATHERS_US},
    };
    struct fake_node *node = start_with_large_batches(GATHERS_US);
    for (int i = 0; i < (int)(sizeof(steps) / sizeof(steps[0])); i++)
        ck_assert_int_eq(kept_us(node, 10 + 2 * i, steps[i].come_both), steps[i].kept_us);
}
END_TEST

START_TEST(hand_off_waits_for_nobody)
{
    struct fake_node *node = answer_three(0);
    struct ask waiter;
    fake_run(&world, MS(1));
    ask_for(node, &waiter, 1, 8, LH_WAIT_UNTIL_GRANTED, 0);
    ask_for_some(node, later, 2, 6);
    fake_run(&world, MS(1));
    ck_assert_int_eq(later[0].status, LH_OK);
    int64_t sent_us = world.now_us;
    give_send(node, &gives[0], 1, 1);
    fake_run(&world, MS(2));
    ck_assert_int_eq(gives[0].answered_us - sent_us, MS(1));
    ck_assert_int_eq(waiter.answered_us - sent_us, MS(1));
}
END_TEST

/* One acquires, is answered, and releases `after_us` later. */
static struct fake_node *come_again(int64_t trip_us, int64_t after_us)
{
    struct fake_node *node = start_at(trip_us);
    ask_for(node, &late, 1, 1, LH_WAIT_NONE, 0);
    fake_run(&world, trip_us);
    ck_assert_int_eq(late.status, LH_OK);
    fake_run(&world, after_us);
    give_send(node, &gives[0], 1, 1);
    fake_run(&world, 0);
    return node;
}

START_TEST(a_caller_that_comes_again_and_its_answer_are_polled_for)
{
    struct fake_node *node = come_again(POLLS_US, GATHERS_US);
    ck_assert_int_eq(node->polls_until_us, world.now_us + POLLS_US);
    fake_run(&world, POLLS_US);
    ck_assert_int_eq(gives[0].answered_us, world.now_us);
    ck_assert_int_eq(node->polls_until_us, world.now_us + GATHERS_US);
}
END_TEST

START_TEST(who_comes_late_is_polled_for_less_often)
{
    struct fake_node *node = come_again(MS(1), GATHERS_US + 1);
    ck_assert_int_eq(node->polls_until_us, 0);
    for (int i = 0; i < 2; i++) { /* one answer is passed over */
        fake_run(&world, MS(1));
        ck_assert_int_eq(node->polls_until_us, i == 0 ? 0 : world.now_us + GATHERS_US);
        ask_for(node, &later[i], 2 + i, 2 + i, LH_WAIT_NONE, 0);
    }
}
END_TEST

START_TEST(an_answer_that_comes_late_is_polled_for_less_often)
{
    struct fake_node *node = come_again(POLLS_US + 2, 0);
    ck_assert_int_eq(node->polls_until_us, world.now_us + POLLS_US);
    for (int i = 0; i < 2; i++) { /* one batch is passed over */
        fake_run(&world, POLLS_US + 2);
        ck_assert_int_eq(node->polls_until_us, world.now_us + GATHERS_US);
        ask_for(node, &later[i], 2 + i, 2 + i, LH_WAIT_NONE, 0);
        fake_run(&world, 0);
        ck_assert_int_eq(node->polls_until_us, i == 0 ? 0 : world.now_us + POLLS_US);
    }
}
END_TEST

START_TEST(nobody_is_polled_for_while_something_else_is_out)
{
    struct fake_node *node = start_at(POLLS_US);
    struct beat beat;
    ask_for(node, &late, 1, 1, LH_WAIT_NONE, 0);
    fake_run(&world, POLLS_US / 2);
    beat_send(node, &beat, 0, 9);
    fake_run(&world, POLLS_US / 2);
    ck_assert_int_eq(late.status, LH_OK);
    ck_assert_int_eq(node->polls_until_us, 0);
    fake_run(&world, POLLS_US / 2); /* the renewal is answered, and renewals are not polled for */
    ck_assert_int_eq(beat.answers, 1);
    ck_assert_int_eq(node->polls_until_us, 0);
    give_send(node, &gives[0], 1, 1);
    fake_run(&world, POLLS_US);
    ck_assert_int_eq(node->polls_until_us, world.now_us + GATHERS_US);
}
END_TEST

/* One after the other acquires and releases, with trips of these lengths in turn. */
static struct fake_node *start_with_usual_trips(int64_t trip_us, int64_t next_trip_us)
{
    struct fake_node *node = start_with_large_batches(trip_us);
    for (int i = 0; i < 100; i++) {
        world.min_delay_us = world.max_delay_us = trip_us / 2;
        ask_for(node, &late, 1, 10 + i, LH_WAIT_NONE, 0);
        fake_run(&world, trip_us);
        ck_assert_int_eq(late.status, LH_OK);
        world.min_delay_us = world.max_delay_us = next_trip_us / 2;
        give_send(node, &gives[0], 1, 10 + i);
        fake_run(&world, next_trip_us);
        ck_assert_int_eq(gives[0].answered_us, world.now_us);
    }
    return node;
}

#define NEARLY(us, expected_us) ck_assert((us) > (expected_us)-60 && (us) < (expected_us) + 60)

static void check_polls_for_an_answer(struct fake_node *node, int64_t expected_us)
{
    world.min_delay_us = world.max_delay_us = MS(1) / 4;
    ask_for(node, &late, 1, 5, LH_WAIT_NONE, 0);
    fake_run(&world, 0);
    NEARLY(node->polls_until_us - world.now_us, expected_us);
    fake_run(&world, MS(1) / 2);
    ck_assert_int_eq(late.status, LH_OK);
}

/* Two are answered, and one of them comes again. */
static void check_waits_for_the_other(struct fake_node *node, int64_t expected_us)
{
    world.min_delay_us = world.max_delay_us = MS(1) / 4;
    ask_for_some(node, early, 2, 2);
    fake_run(&world, MS(1) / 2);
    ck_assert_int_eq(early[0].answered_us, world.now_us);
    int64_t us = node->polls_until_us - world.now_us;
    NEARLY(us, expected_us);
    give_send(node, &gives[0], 2, 2);
    fake_run(&world, MS(2));
    ck_assert_int_eq(gives[0].answered_us - early[0].answered_us, us + MS(1) / 2);
}

START_TEST(where_trips_take_longer_so_does_waiting_for_who_comes_again)
{
    struct fake_node *node = start_with_usual_trips(800, 800);
    check_polls_for_an_answer(node, 2 * 800);
    check_waits_for_the_other(node, 800);
}
END_TEST

START_TEST(trips_that_differ_have_their_mean)
{
    struct fake_node *node = start_with_usual_trips(400, 1000);
    check_polls_for_an_answer(node, 2 * 700);
    check_waits_for_the_other(node, 700);
}
END_TEST

START_TEST(where_trips_take_very_long_at_times_nobody_is_waited_for_as_long)
{
    check_waits_for_the_other(start_with_usual_trips(400, MS(100)), MS(1));
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_test(tcase, an_acquire_does_not_wait_behind_renewals);
    tcase_add_test(tcase, a_renewal_does_not_wait_behind_the_others);
    tcase_add_test(tcase, with_two_lanes_left_each_kind_takes_both);
    tcase_add_test(tcase, the_last_lane_takes_everything);
    tcase_add_test(tcase, acquires_ride_with_releases_that_are_ready);
    tcase_add_test(tcase, no_acquire_rides_before_disconnects_are_read);
    tcase_add_test(tcase, what_comes_behind_a_batch_of_three_waits_for_it);
    tcase_add_test(tcase, what_comes_behind_one_or_two_does_not_wait);
    tcase_add_test(tcase, fewer_than_are_out_wait_for_them);
    tcase_add_test(tcase, nothing_waits_for_three_that_are_dear);
    tcase_add_test(tcase, as_many_as_are_out_take_another_lane);
    tcase_add_test(tcase, each_batch_is_late_at_its_own_time);
    tcase_add_test(tcase, where_the_database_is_far_nothing_waits);
    tcase_add_test(tcase, where_the_database_is_far_fewer_do_not_wait_either);
    tcase_add_test(tcase, who_was_answered_and_comes_again_at_once_makes_one_batch);
    tcase_add_test(tcase, who_does_not_come_again_is_waited_for_less_often);
    tcase_add_test(tcase, who_comes_again_by_chance_is_not_waited_for_always);
    tcase_add_test(tcase, hand_off_waits_for_nobody);
    tcase_add_test(tcase, a_caller_that_comes_again_and_its_answer_are_polled_for);
    tcase_add_test(tcase, who_comes_late_is_polled_for_less_often);
    tcase_add_test(tcase, an_answer_that_comes_late_is_polled_for_less_often);
    tcase_add_test(tcase, nobody_is_polled_for_while_something_else_is_out);
    tcase_add_test(tcase, where_trips_take_longer_so_does_waiting_for_who_comes_again);
    tcase_add_test(tcase, trips_that_differ_have_their_mean);
    tcase_add_test(tcase, where_trips_take_very_long_at_times_nobody_is_waited_for_as_long);
    tcase_add_test(tcase, a_database_that_has_moved_away_is_noticed);
    tcase_add_test(tcase, nothing_waits_for_a_batch_that_is_late);
}

int main(void)
{
    return run_suite("lease, who gets a lane", add);
}
