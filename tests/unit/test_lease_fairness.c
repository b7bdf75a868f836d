/* What one client may cost another. One lane, and a batch takes 1 ms here. */
#include "lease_fixture.h"

#define MANY 30

static struct fake_node *start_with_one_lane(size_t batch_max)
{
    options.batch_max = batch_max;
    struct fake_node *node = start_node();
    fake_lane_drop(node, 1, false);
    fake_lane_drop(node, 2, false);
    return node;
}

static void ask_as(struct fake_node *node, struct ask *ask, uint64_t client, int scope, int lease_key,
                   enum lh_wait wait)
{
    ask_init(ask, scope, lease_key, wait, 0);
    ask->acquire.client = client;
    ask_send(node, ask);
}

static void expect_granted(const struct ask *ask)
{
    ck_assert_int_eq(ask->answers, 1);
    ck_assert_int_eq(ask->status, LH_OK);
}

START_TEST(the_last_quarter_of_max_pending_is_for_heartbeats_and_releases)
{
    options.max_pending = 8;
    struct fake_node *node = start_with_one_lane(100);
    struct ask asks[7];
    struct beat beat;
    struct give give;
    for (int i = 0; i < 6; i++)
        ask_for(node, &asks[i], i, i + 1, LH_WAIT_NONE, 0);
    ask_init(&asks[6], 6, 7, LH_WAIT_NONE, 0);
    ck_assert_int_eq(lh_coordinator_acquire(node->coordinator, &asks[6].acquire), LH_OVERLOADED);
    beat_send(node, &beat, 0, 1);
    give_send(node, &give, 1, 2);
    ck_assert_uint_eq(stats_of(node).refused, 1);
    fake_run(&world, MS(10));
    ck_assert_int_eq(beat.answers, 1);
    ck_assert_int_eq(give.answers, 1);
}
END_TEST

START_TEST(a_long_line_of_one_client_delays_another_by_a_batch)
{
    struct fake_node *node = start_with_one_lane(2);
    struct ask line[MANY], other;
    for (int i = 0; i < MANY; i++)
        ask_as(node, &line[i], 1, i, i + 1, LH_WAIT_NONE);
    fake_run(&world, 1);
    int64_t sent_us = world.now_us;
    ask_as(node, &other, 2, MANY, MANY + 1, LH_WAIT_NONE);
    fake_run(&world, MS(5));
    expect_granted(&other);
    ck_assert_int_le(other.answered_us - sent_us, MS(2));
    fake_run(&world, MS(20));
    for (int i = 0; i < MANY; i++)
        expect_granted(&line[i]);
}
END_TEST

START_TEST(many_acquires_of_one_scope_leave_others_their_share_of_a_batch)
{
    struct fake_node *node = start_with_one_lane(10);
    struct ask line[MANY], holder, others[2];
    hold_now(node, &holder, 0, 100);
    fake_lane_drop(node, 0, false);
    for (int i = 0; i < MANY; i++)
        ask_as(node, &line[i], 1, 0, i + 1, LH_WAIT_UNTIL_GRANTED);
    for (int i = 0; i < 2; i++)
        ask_as(node, &others[i], (uint64_t)i + 2, i + 1, i + 101, LH_WAIT_NONE);
    fake_lane_raise(node, 0);
    fake_run(&world, MS(1) + 1);
    expect_granted(&others[0]);
    expect_granted(&others[1]);
}
END_TEST

START_TEST(turns_do_not_change_the_order_within_a_scope)
{
    struct fake_node *node = start_with_one_lane(2);
    struct ask holder, asks[4];
    struct give give;
    hold_now(node, &holder, 0, 100);
    for (int i = 0; i < 4; i++)
        ask_as(node, &asks[i], i == 2 ? 2 : 1, 0, i + 1, LH_WAIT_UNTIL_GRANTED);
    fake_run(&world, MS(5));
    give_send(node, &give, 0, 100);
    for (int i = 0; i < 4; i++) {
        fake_run(&world, MS(5));
        expect_granted(&asks[i]);
        for (int j = i + 1; j < 4; j++)
            ck_assert_int_eq(asks[j].answers, 0);
        give_send(node, &give, 0, i + 1);
    }
    fake_run(&world, MS(5));
}
END_TEST

START_TEST(a_client_that_leaves_many_waiters_does_not_hold_up_an_acquire_and_they_go_soon)
{
    struct fake_node *node = start_with_one_lane(2);
    struct ask holder, line[MANY], other;
    hold_now(node, &holder, 0, 100);
    for (int i = 0; i < MANY; i++)
        ask_as(node, &line[i], 1, 0, i + 1, LH_WAIT_UNTIL_GRANTED);
    fake_run(&world, MS(30));
    ck_assert_uint_eq(world.scopes[0].row_count, MANY);
    for (int i = 0; i < MANY; i++)
        lh_coordinator_cancel(node->coordinator, &line[i].acquire);
    fake_run(&world, 1);
    int64_t sent_us = world.now_us;
    ask_as(node, &other, 2, 1, 101, LH_WAIT_NONE);
    fake_run(&world, MS(5));
    expect_granted(&other);
    ck_assert_int_le(other.answered_us - sent_us, MS(2));

    /* Nor do acquires hold up the leaves: they have every second batch. */
    struct ask more[MANY];
    for (int i = 2; i < MANY; i++)
        ask_as(node, &more[i], 2, i, i + 200, LH_WAIT_NONE);
    fake_run(&world, MS(MANY - 4));
    ck_assert_uint_eq(world.scopes[0].row_count, 0);
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_test(tcase, the_last_quarter_of_max_pending_is_for_heartbeats_and_releases);
    tcase_add_test(tcase, a_long_line_of_one_client_delays_another_by_a_batch);
    tcase_add_test(tcase, many_acquires_of_one_scope_leave_others_their_share_of_a_batch);
    tcase_add_test(tcase, turns_do_not_change_the_order_within_a_scope);
    tcase_add_test(tcase, a_client_that_leaves_many_waiters_does_not_hold_up_an_acquire_and_they_go_soon);
}

int main(void)
{
    return run_suite("lease, what one client may cost another", add);
}
