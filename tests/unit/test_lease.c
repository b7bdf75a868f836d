/* The core while all is well: grants, waits, wake-ups, repeats, cancels. */
#include "lease/queue_internal.h"
#include "lease_fixture.h"

START_TEST(a_free_scope_is_granted_in_one_round_trip)
{
    struct fake_node *node = start_node();
    struct ask a;
    int64_t sent_us = world.now_us;
    ask_for(node, &a, 0, 1, LH_WAIT_NONE, 0);
    fake_run(&world, MS(5));
    ck_assert_int_eq(a.status, LH_OK);
    ck_assert_int_eq(a.answered_us - sent_us, MS(1));
    ck_assert_int_eq(a.waited_us, 0);
    ck_assert(!a.is_renewal);
}
END_TEST

START_TEST(a_lease_and_its_row_have_the_principal_of_the_request)
{
    struct ask a, b;
    struct fake_node *node = start_node();

    ask_init(&a, 0, 1, LH_WAIT_NONE, 0);
    a.acquire.terms.principal = "dns:one";
    ask_send(node, &a);
    ask_init(&b, 1, 2, LH_WAIT_NONE, 0);
    b.acquire.terms.principal = NULL;
    ask_send(node, &b);
    fake_run(&world, MS(5));
    ck_assert_int_eq(b.status, LH_OK);
    ck_assert_str_eq(world.scopes[0].principal, "dns:one");
    ck_assert_str_eq(world.scopes[1].principal, "");
}
END_TEST

START_TEST(what_arrives_in_one_turn_makes_one_batch)
{
    struct fake_node *node = start_node();
    struct ask a[4];
    for (int i = 0; i < 4; i++)
        ask_for(node, &a[i], i, i + 1, LH_WAIT_NONE, 0);
    fake_run(&world, MS(5));
    ck_assert_uint_eq(world.largest_batch, 4);
    ck_assert_int_eq(world.batches[0], 1);
}
END_TEST

START_TEST(a_batch_is_no_larger_than_batch_max)
{
    options.batch_max = 2;
    struct fake_node *node = start_node();
    struct ask a[4];
    for (int i = 0; i < 4; i++)
        ask_for(node, &a[i], 0, i + 1, LH_WAIT_TIME, MS(100));
    fake_run(&world, MS(10));
    ck_assert_uint_eq(world.largest_batch, 2);
    for (int i = 1; i < 4; i++)
        ck_assert_int_eq(row_of(0, i + 1)->ticket, 100 + i + 1);
}
END_TEST

START_TEST(a_held_scope_refuses_who_does_not_wait)
{
    struct fake_node *node = start_node();
    struct ask a, b;
    hold_now(node, &a, 0, 1);
    ask_for(node, &b, 0, 2, LH_WAIT_NONE, 0);
    fake_run(&world, MS(5));
    ck_assert_int_eq(b.status, LH_LEASE_HELD);
    ck_assert(b.has_contention && b.has_holder);
    ck_assert_ptr_null(row_of(0, 2));
}
END_TEST

START_TEST(a_release_grants_to_the_first_waiter_in_the_same_transaction)
{
    struct fake_node *node = start_node();
    struct ask a, b, c;
    struct give give;
    world.slow_poll_helps = false;
    hold_now(node, &a, 0, 1);
    int64_t sent_us = world.now_us;
    ask_for(node, &b, 0, 2, LH_WAIT_TIME, MS(3000));
    ask_for(node, &c, 0, 3, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(50));
    give_send(node, &give, 0, 1);
    int64_t released_us = world.now_us;
    fake_run(&world, MS(10));
    ck_assert_int_eq(give.outcome, LH_OUTCOME_OK);
    ck_assert_int_eq(b.status, LH_OK);
    ck_assert_int_eq(b.answered_us - released_us, MS(1)); /* one way there and back */
    ck_assert_uint_eq(world.riders, 1);
    ck_assert_int_gt(b.token, a.token);
    ck_assert_int_eq(b.waited_us, released_us - sent_us); /* to just before the granting statement */
    ck_assert_int_eq(c.answers, 0);
}
END_TEST

#define LINED (LH_JOIN_BEHIND + 3) /* the holder, the next two, and enough behind them */

/* The first of those who wait has just got it. */
static struct fake_node *hand_over_one(struct ask *asks, int count, struct give *give)
{
    struct fake_node *node = start_node();
    hold_now(node, &asks[0], 0, 1);
    for (int i = 1; i < count; i++)
        ask_for(node, &asks[i], 0, i + 1, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(50));
    give_send(node, give, 0, 1);
    fake_run(&world, MS(1));
    ck_assert_int_eq(asks[1].status, LH_OK);
    return node;
}

START_TEST(who_comes_right_after_a_hand_over_queues_in_the_next_ones_transaction)
{
    struct ask asks[LINED], late[2];
    struct give gives[2];
    struct fake_node *node = hand_over_one(asks, LINED, &gives[0]);
    size_t acquires = world.batches[LH_KIND_ACQUIRE], riders = world.riders;
    for (int i = 0; i < 2; i++)
        ask_for(node, &late[i], 0, 20 + i, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(1) / 4);
    give_send(node, &gives[1], 0, 2);
    fake_run(&world, MS(1));
    ck_assert_int_eq(asks[2].status, LH_OK);
    ck_assert_uint_eq(world.riders, riders + 3);
    ck_assert_uint_eq(world.batches[LH_KIND_ACQUIRE], acquires);
    ck_assert_int_lt(row_of(0, 20)->ticket, row_of(0, 21)->ticket);
}
END_TEST

START_TEST(a_place_is_put_off_for_a_moment_and_a_try_not_at_all)
{
    struct ask asks[LINED], late[2];
    struct give give;
    struct fake_node *node = hand_over_one(asks, LINED, &give);
    int64_t came_us = world.now_us;
    ask_for(node, &late[0], 0, 20, LH_WAIT_NONE, 0);
    fake_run(&world, MS(1));
    ck_assert_int_eq(late[0].status, LH_LEASE_HELD);
    ck_assert_int_eq(late[0].answered_us - came_us, MS(1));
    ask_for(node, &late[1], 0, 21, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(1));
    ck_assert_ptr_nonnull(row_of(0, 21));
}
END_TEST

START_TEST(a_place_waits_no_longer_than_a_hand_over_may_take_to_follow)
{
    struct ask asks[LINED], late;
    struct give give;
    struct fake_node *node = hand_over_one(asks, LINED, &give);
    ask_for(node, &late, 0, 20, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, LH_JOIN_US - 1);
    ck_assert_ptr_null(row_of(0, 20));
    fake_run(&world, 1 + MS(1));
    ck_assert_ptr_nonnull(row_of(0, 20));
}
END_TEST

START_TEST(in_a_short_queue_and_with_slow_batches_a_place_waits_for_no_hand_over)
{
    struct ask asks[LINED], late;
    struct give give;
    world.worth_a_batch = _i == 0 ? 3 : 4;
    struct fake_node *node = hand_over_one(asks, _i == 0 ? LINED - 2 : LINED, &give);
    ask_for(node, &late, 0, 20, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, LH_JOIN_US - 1);
    ck_assert_ptr_nonnull(row_of(0, 20));
}
END_TEST

START_TEST(waiters_of_two_coordinators_are_served_in_their_order)
{
    struct fake_node *nodes[2] = {start_node(), start_node()};
    struct ask a, w[6];
    hold_now(nodes[0], &a, 0, 1);
    for (int i = 0; i < 6; i++) {
        ask_for(nodes[i % 2], &w[i], 0, 10 + i, LH_WAIT_TIME, MS(5000));
        fake_run(&world, MS(3));
    }
    int holder = 1;
    for (int i = 0; i < 6; i++) {
        struct give give;
        give_send(nodes[0], &give, 0, holder);
        fake_run(&world, MS(10));
        for (int k = 0; k < 6; k++)
            ck_assert_int_eq(w[k].answers, k <= i);
        ck_assert_int_eq(w[i].status, LH_OK);
        holder = 10 + i;
    }
}
END_TEST

START_TEST(only_the_first_waiter_is_asked_for_at_a_wake_up)
{
    struct fake_node *node = start_node();
    struct ask a, w[5];
    struct give give;
    hold_now(node, &a, 0, 1);
    for (int i = 0; i < 5; i++)
        ask_for(node, &w[i], 0, 10 + i, LH_WAIT_TIME, MS(5000));
    fake_run(&world, MS(10));
    int before = world.scopes[0].acquires;
    give_send(node, &give, 0, 1);
    fake_run(&world, MS(500));
    ck_assert_int_eq(w[0].status, LH_OK);
    ck_assert_int_eq(world.scopes[0].acquires, before + 1); /* the next one knows the new expiry from that grant */
}
END_TEST

START_TEST(a_waiter_is_granted_at_the_holders_expiry_without_any_notification)
{
    options.reap_interval_us = 0;
    world.slow_poll_helps = false;
    world.notify_loss_percent = 100;
    struct fake_node *nodes[2] = {start_node(), start_node()};
    struct ask a, b;
    ask_init(&a, 0, 1, LH_WAIT_NONE, 0);
    a.acquire.terms.duration_us = MS(1000);
    ask_send(nodes[0], &a);
    fake_run(&world, MS(5));
    ask_for(nodes[1], &b, 0, 2, LH_WAIT_TIME, MS(5000));
    fake_run(&world, MS(20));
    int64_t expiry_us = fake_deadline_us(&world.scopes[0]) + FAKE_GRACE_US;
    fake_run(&world, MS(2000));
    ck_assert_int_eq(b.status, LH_OK);
    ck_assert_int_ge(b.answered_us, expiry_us);
    ck_assert_int_lt(b.answered_us, expiry_us + MS(10));
    ck_assert_int_le(world.scopes[0].acquires, 4); /* it slept */
}
END_TEST

START_TEST(heartbeats_that_pass_through_let_a_waiter_sleep_on)
{
    struct fake_node *node = start_node();
    struct ask a, b;
    ask_init(&a, 0, 1, LH_WAIT_NONE, 0);
    a.acquire.terms.duration_us = MS(1000);
    ask_send(node, &a);
    ask_for(node, &b, 0, 2, LH_WAIT_TIME, MS(60000));
    fake_run(&world, MS(10));
    int before = world.scopes[0].acquires;
    for (int i = 0; i < 20; i++) {
        struct beat beat;
        beat_send(node, &beat, 0, 1);
        fake_run(&world, MS(300));
        ck_assert_int_eq(beat.outcome, LH_OUTCOME_OK);
    }
    ck_assert_int_eq(world.scopes[0].acquires, before);
    ck_assert_int_eq(b.answers, 0);
}
END_TEST

START_TEST(a_manual_lease_is_looked_at_now_and_then_alone)
{
    world.slow_poll_helps = false;
    struct fake_node *node = start_node();
    struct ask a, b;
    hold_now(node, &a, 0, 1);
    world.scopes[0].is_manual = true;
    options.max_block_us = 0;
    lh_coordinator_set_max_block(node->coordinator, 0);
    ask_for(node, &b, 0, 2, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(10));
    int before = world.scopes[0].acquires;
    fake_run(&world, MS(90000));
    ck_assert_int_ge(world.scopes[0].acquires, before + 4);
    ck_assert_int_le(world.scopes[0].acquires, before + 6);
    ck_assert_int_eq(b.answers, 0);
}
END_TEST

START_TEST(a_wake_up_during_a_batch_is_not_lost)
{
    world.slow_poll_helps = false;
    options.reap_interval_us = 0;
    struct fake_node *nodes[2] = {start_node(), start_node()};
    struct ask a, b;
    struct beat beat;
    struct give give;
    hold_now(nodes[0], &a, 0, 1);
    ask_for(nodes[1], &b, 0, 2, LH_WAIT_TIME, MS(9000));
    fake_run(&world, MS(10));
    give_send(nodes[0], &give, 0, 1);
    fake_run(&world, 600); /* released; the notification is on its way */
    ck_assert(!world.scopes[0].is_held);
    beat_send(nodes[1], &beat, 0, 99); /* something of this scope is in flight when it comes */
    fake_run(&world, MS(20));
    ck_assert_int_eq(b.status, LH_OK);
}
END_TEST

START_TEST(a_wake_up_for_nobody_here_is_passed_on)
{
    struct fake_node *node = start_node();
    struct lh_wake wake = {world.scopes[2].ns, world.scopes[2].key, 0};
    node->events->on_wake(node->events_arg, &wake);
    fake_run(&world, MS(5));
    ck_assert_int_eq(world.passed_on, 1);
}
END_TEST

static struct ask *victim;
static struct fake_node *victims_node;

static void cancel_the_other(struct ask *ask)
{
    lh_coordinator_cancel(victims_node->coordinator, &victim->acquire);
}

START_TEST(a_callback_may_cancel_one_whose_answer_is_next)
{
    struct fake_node *node = start_node();
    struct ask a, b;
    ask_init(&a, 0, 1, LH_WAIT_NONE, 0);
    a.then = cancel_the_other;
    victim = &b;
    victims_node = node;
    ask_send(node, &a);
    ask_for(node, &b, 1, 2, LH_WAIT_NONE, 0);
    fake_run(&world, MS(10));
    ck_assert_int_eq(a.status, LH_OK);
    ck_assert_int_eq(b.status, LH_CANCELED);
    ck_assert(world.scopes[0].is_held);
    ck_assert(!world.scopes[1].is_held);
}
END_TEST

START_TEST(the_holder_renews_with_its_lease_key)
{
    struct fake_node *node = start_node();
    struct ask a, b;
    hold_now(node, &a, 0, 1);
    ask_for(node, &b, 0, 1, LH_WAIT_TIME, MS(100));
    fake_run(&world, MS(5));
    ck_assert_int_eq(b.status, LH_OK);
    ck_assert(b.is_renewal);
    ck_assert_int_eq(a.token, b.token);
}
END_TEST

START_TEST(a_cancelled_renewal_costs_the_holder_nothing)
{
    struct fake_node *node = start_node();
    struct ask a, b;
    hold_now(node, &a, 0, 1);
    ask_for(node, &b, 0, 1, LH_WAIT_TIME, MS(100));
    fake_run(&world, 600);
    lh_coordinator_cancel(node->coordinator, &b.acquire);
    fake_run(&world, MS(10));
    ck_assert_int_eq(b.status, LH_CANCELED);
    ck_assert(world.scopes[0].is_held);
}
END_TEST

START_TEST(a_wait_while_alive_counts_only_when_the_holder_is_silent)
{
    struct fake_node *node = start_node();
    struct ask a, b;
    struct beat beat;
    ask_init(&a, 0, 1, LH_WAIT_NONE, 0);
    a.acquire.terms.duration_us = MS(3000); /* silent for 2 s: suspected dead */
    ask_send(node, &a);
    fake_run(&world, MS(5));
    ask_for(node, &b, 0, 2, LH_WAIT_WHILE_ALIVE, MS(500));
    for (int i = 0; i < 10; i++) {
        fake_run(&world, MS(1000));
        beat_send(node, &beat, 0, 1);
    }
    ck_assert_int_eq(b.answers, 0);
    fake_run(&world, MS(2300)); /* it counts since 300 ms */
    ck_assert_int_eq(b.answers, 0);
    beat_send(node, &beat, 0, 1); /* alive again */
    fake_run(&world, MS(1900));
    ck_assert_int_eq(b.answers, 0);
    int64_t beaten_us = world.now_us - MS(1900);
    fake_run(&world, MS(800));
    ck_assert_int_eq(b.status, LH_WAIT_TIMEOUT);
    ck_assert_int_ge(b.answered_us, beaten_us + MS(2500));
}
END_TEST

START_TEST(refusals_keep_their_words)
{
    struct fake_node *node = start_node();
    struct ask a;
    world.scopes[0].is_frozen = true;
    ask_for(node, &a, 0, 1, LH_WAIT_TIME, MS(1000));
    fake_run(&world, MS(10));
    ck_assert_int_eq(a.status, LH_NAMESPACE_FROZEN);
    ck_assert_str_eq(a.message, "maintenance");
}
END_TEST

START_TEST(a_lease_key_that_has_ended_is_refused)
{
    struct fake_node *node = start_node();
    struct ask a, b;
    struct give give;
    hold_now(node, &a, 0, 1);
    give_send(node, &give, 0, 1);
    fake_run(&world, MS(5));
    ask_for(node, &b, 0, 1, LH_WAIT_TIME, MS(1000));
    fake_run(&world, MS(5));
    ck_assert_int_eq(b.status, LH_LEASE_ENDED);
}
END_TEST

START_TEST(a_request_without_open_items_is_answered_later)
{
    struct fake_node *node = start_node();
    struct beat beat;
    memset(&beat, 0, sizeof(beat));
    beat_send(node, &beat, 0, 1); /* for its callback */
    fake_run(&world, MS(5));
    beat.answers = 0;
    beat.request.count = 0;
    ck_assert_int_eq(lh_coordinator_heartbeat(node->coordinator, &beat.request), LH_OK);
    ck_assert_int_eq(beat.answers, 0);
    fake_run(&world, MS(1));
    ck_assert_int_eq(beat.answers, 1);
}
END_TEST

START_TEST(a_waiting_acquire_is_small)
{
    ck_assert_uint_le(sizeof(struct lh_waiter) + sizeof(struct lh_scope) + 96, 656);
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_test(tcase, a_free_scope_is_granted_in_one_round_trip);
    tcase_add_test(tcase, a_lease_and_its_row_have_the_principal_of_the_request);
    tcase_add_test(tcase, what_arrives_in_one_turn_makes_one_batch);
    tcase_add_test(tcase, a_batch_is_no_larger_than_batch_max);
    tcase_add_test(tcase, a_held_scope_refuses_who_does_not_wait);
    tcase_add_test(tcase, a_release_grants_to_the_first_waiter_in_the_same_transaction);
    tcase_add_test(tcase, who_comes_right_after_a_hand_over_queues_in_the_next_ones_transaction);
    tcase_add_test(tcase, a_place_is_put_off_for_a_moment_and_a_try_not_at_all);
    tcase_add_test(tcase, a_place_waits_no_longer_than_a_hand_over_may_take_to_follow);
    tcase_add_loop_test(tcase, in_a_short_queue_and_with_slow_batches_a_place_waits_for_no_hand_over, 0, 2);
    tcase_add_test(tcase, waiters_of_two_coordinators_are_served_in_their_order);
    tcase_add_test(tcase, only_the_first_waiter_is_asked_for_at_a_wake_up);
    tcase_add_test(tcase, a_waiter_is_granted_at_the_holders_expiry_without_any_notification);
    tcase_add_test(tcase, heartbeats_that_pass_through_let_a_waiter_sleep_on);
    tcase_add_test(tcase, a_manual_lease_is_looked_at_now_and_then_alone);
    tcase_add_test(tcase, a_wake_up_during_a_batch_is_not_lost);
    tcase_add_test(tcase, a_wake_up_for_nobody_here_is_passed_on);
    tcase_add_test(tcase, a_callback_may_cancel_one_whose_answer_is_next);
    tcase_add_test(tcase, the_holder_renews_with_its_lease_key);
    tcase_add_test(tcase, a_cancelled_renewal_costs_the_holder_nothing);
    tcase_add_test(tcase, a_wait_while_alive_counts_only_when_the_holder_is_silent);
    tcase_add_test(tcase, refusals_keep_their_words);
    tcase_add_test(tcase, a_lease_key_that_has_ended_is_refused);
    tcase_add_test(tcase, a_request_without_open_items_is_answered_later);
    tcase_add_test(tcase, a_waiting_acquire_is_small);
}

int main(void)
{
    return run_suite("lease", add);
}
