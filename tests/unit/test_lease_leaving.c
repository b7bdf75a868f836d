/* The core and who leaves: cancels and timeouts that meet a grant, who comes back, the coordinator's own stop. */
#include "lease_fixture.h"

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
    lose_replies(node);
    lh_coordinator_cancel(node->coordinator, &a.acquire);
    fake_run(&world, MS(5));
    ck_assert_int_eq(a.status, LH_CANCELED);
    ck_assert(world.scopes[0].is_held);
    raise_lanes(node);
    fake_run(&world, MS(5));
    ck_assert(!world.scopes[0].is_held);
}
END_TEST

START_TEST(a_lease_that_nobody_heard_of_ends_though_the_clock_has_stepped_back)
{
    struct fake_node *node = start_node();
    struct ask a;
    fake_run(&world, MS(1500));
    world.clock_offset_us -= MS(60000);
    ask_for(node, &a, 0, 1, LH_WAIT_TIME, MS(5000));
    lose_replies(node);
    lh_coordinator_cancel(node->coordinator, &a.acquire);
    fake_run(&world, MS(5));
    ck_assert(world.scopes[0].is_held);
    raise_lanes(node);
    fake_run(&world, MS(3000)); /* the coordinator has heard of the clock */
    ck_assert(!world.scopes[0].is_held);
}
END_TEST

/*
 * The request was repeated at another coordinator, or at this one, which told the grant; then the first sending came here,
 * and was cancelled. Its batch renewed the lease and the reply was lost, or it never came to the database, or the grant of
 * its second batch found no caller any more.
 */
enum { BY_OTHER, BY_ITSELF, NOT_DONE, AT_SECOND, LATE_KINDS };

START_TEST(a_cancel_of_a_late_request_leaves_the_lease_to_its_holder)
{
    struct fake_node *node = start_node(), *other = _i == BY_OTHER ? start_node() : node;
    struct ask a, late;
    hold_now(other, &a, 0, 1);
    fake_run(&world, MS(200));
    ask_for(node, &late, 0, 1, LH_WAIT_TIME, MS(5000));
    if (_i == NOT_DONE) {
        fake_run(&world, 100);
        drop_lanes(node);
    } else {
        lose_replies(node);
    }
    if (_i == AT_SECOND) {
        raise_lanes(node);
        fake_run(&world, 100);
    }
    lh_coordinator_cancel(node->coordinator, &late.acquire);
    raise_lanes(node);
    fake_run(&world, MS(50));
    ck_assert_int_eq(late.status, LH_CANCELED);
    ck_assert_int_eq(world.batches[3], _i != AT_SECOND);
    ck_assert(world.scopes[0].is_held);
}
END_TEST

START_TEST(who_comes_back_while_it_leaves_is_asked_for_anew)
{
    struct fake_node *node = start_node();
    struct ask a, b, c;
    hold_and_queue(node, &a, &b);
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
    hold_and_queue(node, &a, &b);
    int64_t ticket = row_of(0, 2)->ticket;
    lh_coordinator_cancel(node->coordinator, &b.acquire);
    ask_for(node, &c, 0, 2, LH_WAIT_TIME, MS(5000));
    fake_run(&world, MS(10));
    ck_assert_int_eq(world.batches[3], 0);
    ck_assert_int_eq(row_of(0, 2)->ticket, ticket);
}
END_TEST

START_TEST(a_stop_answers_waiters_and_keeps_their_places)
{
    struct fake_node *node = start_node();
    struct ask a, b, c;
    struct give give;
    hold_and_queue(node, &a, &b);
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
    hold_and_queue(node, &a, &b);
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
    hold_and_queue(node, &a, &b);
    world.scopes[0].busy_until_us = world.now_us + MS(60000);
    fake_node_stop(node);
    fake_run(&world, MS(6000));
    ck_assert_int_eq(b.status, LH_SHUTTING_DOWN);
    ck_assert(node->has_stopped);
}
END_TEST

static void ignore_progress(struct lh_acquire *acquire, const struct lh_contention *contention)
{
}

/* A request that the network delivered late, to another coordinator: it has the place, is cancelled, and takes it away. */
static void take_place_away(struct fake_node *other, int lease_key)
{
    struct ask late;

    ask_for(other, &late, 0, lease_key, LH_WAIT_TIME, MS(9000));
    fake_run(&world, MS(10));
    lh_coordinator_cancel(other->coordinator, &late.acquire);
    fake_run(&world, MS(10));
    ck_assert_ptr_null(row_of(0, lease_key));
}

/* It hears of progress; or nobody is sent back after max_block. */
START_TEST(a_place_that_a_late_request_took_away_is_taken_anew)
{
    bool is_stream = _i == 0;
    options.max_block_us = is_stream ? MS(20000) : 0;
    struct fake_node *node = start_node(), *other = start_node();
    struct ask a, b;
    struct give give;

    hold_now(other, &a, 0, 1);
    world.scopes[0].is_manual = true; /* else it is asked for again at the expiry */
    ask_init(&b, 0, 2, LH_WAIT_UNTIL_GRANTED, 0);
    b.acquire.on_progress = is_stream ? ignore_progress : NULL;
    ask_send(node, &b);
    fake_run(&world, MS(10));
    take_place_away(other, 2);
    give_send(other, &give, 0, 1);
    fake_run(&world, MS(10));
    ck_assert_int_eq(give.outcome, LH_OUTCOME_OK);
    ck_assert_int_eq(b.answers, 0); /* nobody knows of it */
    fake_run(&world, MS(20000));
    ck_assert_int_eq(b.answers, 1);
    ck_assert_int_eq(b.status, LH_OK);
}
END_TEST

static void queue_many(struct fake_node *node, struct ask *asks, int count)
{
    for (int i = 0; i < count; i++) {
        ask_init(&asks[i], 0, 2 + i, LH_WAIT_UNTIL_GRANTED, 0);
        asks[i].acquire.on_progress = ignore_progress;
        ask_send(node, &asks[i]);
    }
}

START_TEST(who_came_together_looks_again_part_by_part)
{
    enum { MANY = 300 };
    options.batch_max = 20;
    struct fake_node *node = start_node();
    struct ask holder, waiters[MANY];
    int most = 0;

    hold_now(node, &holder, 0, 1);
    world.scopes[0].is_manual = true;
    queue_many(node, waiters, MANY);
    fake_run(&world, MS(100));
    ck_assert_uint_eq(world.scopes[0].row_count, MANY);
    world.scopes[0].tried = 0;
    for (int i = 0; i < 2000; i++) {
        int before = world.scopes[0].tried;
        fake_run(&world, MS(10));
        most = world.scopes[0].tried - before > most ? world.scopes[0].tried - before : most;
    }
    ck_assert_int_eq(world.scopes[0].tried, MANY);
    ck_assert_int_eq(most, 10); /* half a batch */
}
END_TEST

START_TEST(newcomers_get_places_though_more_look_again_than_the_database_answers)
{
    enum { MANY = 300 };
    options.batch_max = 20;
    struct fake_node *node = start_node();
    struct ask holder, waiters[MANY];

    hold_now(node, &holder, 0, 1);
    world.scopes[0].is_manual = true;
    world.min_delay_us = world.max_delay_us = MS(1000);
    queue_many(node, waiters, MANY);
    fake_run(&world, MS(60000));
    ck_assert_uint_eq(world.scopes[0].row_count, MANY);
    ck_assert_int_gt(world.scopes[0].tried, MANY);
}
END_TEST

START_TEST(who_comes_while_others_look_again_gets_its_place_soon)
{
    enum { MANY = 300 };
    options.batch_max = 20;
    struct fake_node *node = start_node();
    struct ask holder, waiters[MANY], newcomer;

    hold_now(node, &holder, 0, 1);
    world.scopes[0].is_manual = true;
    queue_many(node, waiters, MANY);
    fake_run(&world, MS(1000));
    world.min_delay_us = world.max_delay_us = MS(500);
    world.scopes[0].tried = 0;
    for (int i = 0; i < 30 && world.scopes[0].tried < 20; i++)
        fake_run(&world, MS(1000));
    ck_assert_int_ge(world.scopes[0].tried, 20);
    ask_for(node, &newcomer, 0, 2 + MANY, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(4000));
    ck_assert_ptr_nonnull(row_of(0, 2 + MANY));
    ck_assert_int_lt(world.scopes[0].tried, MANY);
}
END_TEST

/* The scope has other timers, too. */
START_TEST(nobody_looks_again_before_its_time)
{
    struct fake_node *node = start_node();
    struct ask holder, waiters[20];
    struct beat beat;

    hold_now(node, &holder, 0, 1);
    world.scopes[0].is_manual = true;
    queue_many(node, waiters, 20);
    fake_run(&world, MS(100));
    ck_assert_uint_eq(world.scopes[0].row_count, 20);
    world.scopes[0].tried = 0;
    world.scopes[0].busy_until_us = world.now_us + MS(500);
    beat_send(node, &beat, 0, 1);
    fake_run(&world, MS(3000));
    ck_assert_int_eq(beat.outcome, LH_OUTCOME_OK);
    ck_assert_int_eq(world.scopes[0].tried, 0);
}
END_TEST

/* The wake-up passes on in the database, which removes old rows of ours that nobody here knows: this one is known. */
START_TEST(a_wake_up_before_a_place_is_put_away_leaves_it_its_row)
{
    options.max_block_us = MS(12000);
    struct fake_node *node = start_node(), *other = start_node();
    struct ask a, b, c, d, back;
    struct give give;

    hold_now(other, &a, 0, 1);
    world.scopes[0].is_manual = true;
    ask_for(node, &b, 0, 2, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(5010));
    ask_for(other, &c, 0, 3, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(10));
    ask_for(other, &d, 0, 4, LH_WAIT_UNTIL_GRANTED, 0);
    int64_t ticket = row_of(0, 2)->ticket;
    fake_run(&world, MS(6970));
    drop_lanes(node);
    fake_run(&world, MS(30));
    ck_assert_int_eq(b.status, LH_DATABASE_UNAVAILABLE); /* it keeps its place; the leave waits for a lane */
    give_send(other, &give, 0, 1);
    fake_run(&world, MS(10));
    ck_assert_int_eq(give.outcome, LH_OUTCOME_OK);
    raise_lanes(node);
    fake_run(&world, MS(20));
    ck_assert_ptr_nonnull(row_of(0, 2));
    ck_assert_int_gt(row_of(0, 2)->away_until_us, 0);
    ck_assert_int_eq(c.status, LH_OK); /* the leave has passed the wake-up on */

    ask_for(node, &back, 0, 2, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(10));
    ck_assert_int_eq(row_of(0, 2)->ticket, ticket);
}
END_TEST

/* The wake-up came while it was away, and is passed on behind its coming back: that removes old rows of ours that nobody here knew. */
START_TEST(who_comes_back_before_a_wake_up_is_passed_on_gets_its_row_again)
{
    options.max_block_us = MS(12000);
    struct fake_node *node = start_node(), *other = start_node();
    struct ask a, b, back;
    struct give give;

    fake_set_capacity(&world, &world.scopes[0], 1);
    ask_init(&a, 0, 1, LH_WAIT_UNTIL_GRANTED, 0);
    a.acquire.units = 1;
    a.acquire.terms.duration_us = MS(60000);
    ask_send(other, &a);
    fake_run(&world, MS(10));
    ask_init(&b, 0, 2, LH_WAIT_UNTIL_GRANTED, 0);
    b.acquire.units = 1;
    ask_send(node, &b);
    fake_run(&world, MS(5));
    int64_t ticket = row_of(0, 2)->ticket;
    fake_run(&world, MS(12010));
    ck_assert_int_eq(b.status, LH_BLOCKING_TIMEOUT);
    ck_assert_int_gt(row_of(0, 2)->away_until_us, 0);

    for (int scope = 5; scope >= 0; scope--) /* the control connection is behind */
        node->events->on_wake(node->events_arg, &(struct lh_wake){world.scopes[scope].ns, world.scopes[scope].key, 0});
    ask_init(&back, 0, 2, LH_WAIT_UNTIL_GRANTED, 0);
    back.acquire.units = 1;
    ask_send(node, &back);
    fake_run(&world, MS(50));
    ck_assert_ptr_nonnull(row_of(0, 2));
    ck_assert_int_eq(row_of(0, 2)->ticket, ticket);
    give_send(other, &give, 0, 1);
    fake_run(&world, MS(10));
    ck_assert_int_eq(back.status, LH_OK);
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_test(tcase, a_grant_that_a_timeout_overtook_is_still_handed_over);
    tcase_add_test(tcase, a_cancel_after_a_lost_reply_ends_the_lease);
    tcase_add_test(tcase, a_lease_that_nobody_heard_of_ends_though_the_clock_has_stepped_back);
    tcase_add_loop_test(tcase, a_cancel_of_a_late_request_leaves_the_lease_to_its_holder, 0, LATE_KINDS);
    tcase_add_test(tcase, who_comes_back_while_it_leaves_is_asked_for_anew);
    tcase_add_test(tcase, who_comes_back_before_it_left_keeps_its_ticket);
    tcase_add_test(tcase, a_stop_answers_waiters_and_keeps_their_places);
    tcase_add_test(tcase, a_grant_in_flight_at_the_stop_is_handed_over);
    tcase_add_test(tcase, a_stop_without_a_database_ends);
    tcase_add_test(tcase, a_stop_with_a_busy_row_ends);
    tcase_add_test(tcase, a_wake_up_before_a_place_is_put_away_leaves_it_its_row);
    tcase_add_test(tcase, who_comes_back_before_a_wake_up_is_passed_on_gets_its_row_again);
    tcase_add_loop_test(tcase, a_place_that_a_late_request_took_away_is_taken_anew, 0, 2);
    tcase_add_test(tcase, who_came_together_looks_again_part_by_part);
    tcase_add_test(tcase, newcomers_get_places_though_more_look_again_than_the_database_answers);
    tcase_add_test(tcase, who_comes_while_others_look_again_gets_its_place_soon);
    tcase_add_test(tcase, nobody_looks_again_before_its_time);
}

int main(void)
{
    return run_suite("lease, who leaves", add);
}
