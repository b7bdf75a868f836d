/* The core and the reaps of leases that have hooks: in runs, in shared transactions, at somebody's word. */
#include <stdio.h>

#include "lease/reaping.h"
#include "lease_fixture.h"

static struct fake_node *node;
static struct ask first, second;
static struct give give;

static void hold_for(int64_t duration_us, int64_t grant_us)
{
    static int lease_keys;

    for (int i = 0; i < 4; i++) {
        ask_init(&first, i, ++lease_keys, LH_WAIT_NONE, 0);
        first.acquire.terms.duration_us = duration_us;
        ask_send(node, &first);
        fake_run(&world, grant_us);
        ck_assert_int_eq(first.status, LH_OK);
    }
}

static void hold_and_forget(void)
{
    hold_for(MS(300), MS(20));
}

static int count_held(void)
{
    int held = 0;
    for (int i = 0; i < 4; i++)
        held += world.scopes[i].is_held;
    return held;
}

START_TEST(expired_leases_are_reaped_in_a_run_and_each_hook_runs_once)
{
    node = start_hooked_node();
    hold_and_forget();
    fake_run(&world, MS(3000));
    ck_assert_int_eq(count_held(), 0);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(world.scopes[i].reap_hooks, 1);
    ck_assert_uint_gt(world.largest_run, 1);
    struct lh_coordinator_stats stats = stats_of(node);
    ck_assert_uint_eq(stats.reaped, 4);
    ck_assert_uint_eq(stats.hook_calls[6], 4);
    ck_assert_uint_eq(stats.reaps, 0);
}
END_TEST

static bool refuse_k2(struct fake_world *unused, const char *key, const char **message)
{
    *message = "k2 is special";
    return strcmp(key, "k2") == 0;
}

START_TEST(a_failed_reap_is_counted_and_tried_again)
{
    node = start_hooked_node();
    hold_and_forget();
    world.on_hook = refuse_k2;
    fake_run(&world, MS(3000));
    ck_assert_int_eq(count_held(), 1);
    struct lh_coordinator_stats stats = stats_of(node);
    ck_assert_uint_ge(stats.reap_failures, 1);
    ck_assert_int_eq((int)stats.reap_failures, world.scopes[2].reap_failures);
    ck_assert_uint_eq(stats.hook_rejections[6], stats.reap_failures);
    world.on_hook = NULL;
    fake_run(&world, MS(3000));
    ck_assert_int_eq(count_held(), 0);
    ck_assert_int_eq(world.scopes[2].reap_hooks, 1);
    ck_assert_uint_eq(stats_of(node).reaped, 4);
}
END_TEST

START_TEST(a_reap_that_breaks_its_connection_is_recorded_and_the_others_are_done)
{
    node = start_hooked_node();
    hold_and_forget();
    world.hook_break_percent = 100;
    fake_run(&world, MS(2000));
    world.hook_break_percent = 0;
    fake_run(&world, MS(12000));
    ck_assert_int_eq(count_held(), 0);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(world.scopes[i].reap_hooks, 1);
    struct lh_coordinator_stats stats = stats_of(node);
    ck_assert_uint_ge(stats.hook_losses, 1);
    ck_assert_uint_ge(stats.reap_failures, 1);
    ck_assert_uint_eq(stats.reaped, 4);
}
END_TEST

/* --- shared transactions --- */

/* All four are reaped, so often that they go together. */
static void win_some(void)
{
    node = start_hooked_node();
    for (int round = 0; round < 4; round++) {
        hold_and_forget();
        fake_run(&world, MS(3000));
        ck_assert_int_eq(count_held(), 0);
        for (int i = 0; i < 4; i++)
            ck_assert_int_eq(world.scopes[i].reap_hooks, round + 1);
    }
    ck_assert_uint_eq(world.largest_group, 4);
    ck_assert_int_eq(world.lost_groups, 0);
    world.largest_group = 0;
}

START_TEST(reaps_that_go_well_share_a_transaction)
{
    win_some();
    struct lh_coordinator_stats stats = stats_of(node);
    ck_assert_uint_eq(stats.reaped, 16);
    ck_assert_uint_eq(stats.hook_calls[6], 16);
}
END_TEST

START_TEST(of_reaps_that_shared_a_transaction_in_vain_only_the_cause_has_failed)
{
    win_some();
    hold_and_forget();
    world.on_hook = refuse_k2;
    fake_run(&world, MS(800));
    ck_assert_int_eq(world.lost_groups, 1);
    ck_assert_int_eq(count_held(), 1);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(world.scopes[i].reap_hooks, i == 2 ? 4 : 5);
    ck_assert_int_eq(world.scopes[2].reap_failures, 1);
    ck_assert_uint_eq(stats_of(node).reap_failures, 1);
    ck_assert_uint_eq(stats_of(node).hook_rejections[6], 1);
    fake_run(&world, MS(5000));
    ck_assert_int_gt(world.scopes[2].reap_failures, 1);
    ck_assert_int_eq(world.lost_groups, 1);
    world.on_hook = NULL;
    fake_run(&world, MS(8000));
    ck_assert_int_eq(count_held(), 0);
    /* After that they begin one by one. */
    world.largest_group = 0;
    hold_and_forget();
    fake_run(&world, MS(3000));
    ck_assert_int_eq(count_held(), 0);
    ck_assert_uint_eq(world.largest_group, 0);
    hold_and_forget();
    fake_run(&world, MS(3000));
    ck_assert_uint_eq(world.largest_group, 2);
}
END_TEST

START_TEST(who_has_failed_before_shares_no_transaction)
{
    win_some();
    hold_and_forget();
    world.scopes[2].reap_failures = 1;
    fake_run(&world, MS(3000));
    ck_assert_int_eq(count_held(), 0);
    ck_assert_uint_eq(world.largest_group, 2);
}
END_TEST

START_TEST(reaps_that_take_long_share_no_transaction)
{
    node = start_hooked_node();
    world.reap_us = MS(21);
    for (int round = 0; round < 4; round++) {
        hold_and_forget();
        fake_run(&world, MS(3000));
        ck_assert_int_eq(count_held(), 0);
    }
    ck_assert_uint_eq(world.largest_group, 0);
    world.reap_us = MS(4);
    for (int round = 0; round < 8; round++) {
        hold_and_forget();
        fake_run(&world, MS(3000));
    }
    ck_assert_uint_eq(world.largest_group, 4); /* 8 ms for two, so four are tried once: 16 ms */
    world.reap_us = MS(6);
    for (int round = 0; round < 8; round++) {
        world.largest_group = 0;
        hold_and_forget();
        fake_run(&world, MS(3000));
        ck_assert_uint_eq(world.largest_group, round == 0 ? 4 : 2);
    }
}
END_TEST

START_TEST(of_reaps_that_shared_a_broken_connection_none_has_failed)
{
    win_some();
    hold_and_forget();
    world.hook_break_percent = 100;
    while (stats_of(node).hook_losses == 0)
        fake_step(&world, world.now_us + MS(1));
    world.hook_break_percent = 0;
    fake_run(&world, MS(12000));
    ck_assert_int_eq(count_held(), 0);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(world.scopes[i].reap_hooks, 5);
    ck_assert_uint_eq(stats_of(node).reap_failures, 0);
    ck_assert_uint_eq(stats_of(node).reaped, 20);
    world.largest_group = 0;
    hold_and_forget();
    fake_run(&world, MS(3000));
    ck_assert_uint_eq(world.largest_group, 0);
}
END_TEST

/* --- beside others --- */

/* From the first reap of four to the last, each in a run of its own, of 40 ms. */
static int64_t reap_slowly(bool have_others_work)
{
    int64_t begun_us = 0;

    hold_for(MS(1000), MS(100));
    if (have_others_work)
        give_send(node, &give, 3, 99);
    while (count_held() > 0) {
        if (have_others_work && give.answers > 0)
            give_send(node, &give, 3, 99);
        fake_step(&world, world.now_us + MS(1));
        if (begun_us == 0 && count_held() < 4)
            begun_us = world.now_us;
    }
    return world.now_us - begun_us;
}

START_TEST(a_backlog_of_reaps_leaves_half_of_the_time_to_others)
{
    node = start_hooked_node();
    world.min_delay_us = world.max_delay_us = MS(20);
    world.is_release_plain = true;
    int64_t alone_us = reap_slowly(false);
    int64_t beside_us = reap_slowly(true);
    ck_assert_msg(beside_us >= alone_us + MS(40), "%lld, %lld", (long long)alone_us, (long long)beside_us);
}
END_TEST

START_TEST(a_waiter_of_an_expired_lease_does_not_wait_for_the_reapers_tick)
{
    options.reap_interval_us = MS(60000);
    node = start_hooked_node();
    ask_init(&first, 0, 1, LH_WAIT_NONE, 0);
    first.acquire.terms.duration_us = MS(300);
    ask_send(node, &first);
    fake_run(&world, MS(20));
    ask_for(node, &second, 0, 2, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(280) + FAKE_GRACE_US + MS(20));
    ck_assert_int_eq(second.answers, 1);
    ck_assert_int_eq(second.status, LH_OK);
}
END_TEST

/* --- at somebody's word --- */

static struct {
    struct lh_reap_request request;
    int answers;
    enum lh_status status;
    size_t reaped, failed;
    char error[64];
} asked;

static void on_reaped(struct lh_reap_request *request, enum lh_status status, const struct lh_error *error,
                      const struct lh_reap_answer *answer)
{
    asked.answers++;
    asked.status = status;
    for (size_t i = 0; status == LH_OK && i < answer->lease_count; i++) {
        asked.failed += answer->leases[i].is_failure;
        asked.reaped += !answer->leases[i].is_failure;
        ck_assert(!answer->leases[i].is_hooked);
        if (answer->leases[i].error != NULL)
            snprintf(asked.error, sizeof(asked.error), "%s", answer->leases[i].error);
    }
}

static void ask_to_reap(void)
{
    memset(&asked, 0, sizeof(asked));
    asked.request = (struct lh_reap_request){.max = 100, .on_done = on_reaped};
    ck_assert_int_eq(lh_coordinator_reap(node->coordinator, &asked.request), LH_OK);
    ck_assert_int_eq(asked.answers, 0);
}

START_TEST(who_asks_for_a_reap_hears_when_all_of_it_is_done)
{
    options.reap_interval_us = 0;
    node = start_hooked_node();
    hold_and_forget();
    fake_run(&world, MS(1000));
    ck_assert_int_eq(count_held(), 4);
    world.on_hook = refuse_k2;
    world.hook_us = MS(200);
    ask_to_reap();
    fake_run(&world, MS(2));
    ck_assert_int_eq(asked.answers, 0);
    while (asked.answers == 0)
        fake_step(&world, world.now_us + MS(1));
    ck_assert_int_eq(asked.status, LH_OK);
    ck_assert_uint_eq(asked.reaped, 3);
    ck_assert_uint_eq(asked.failed, 1);
    ck_assert_str_eq(asked.error, "k2 is special");
    ask_to_reap(); /* the failed one is not due */
    fake_run(&world, MS(20));
    ck_assert_int_eq(asked.answers, 1);
    ck_assert_uint_eq(asked.reaped + asked.failed, 0);
}
END_TEST

START_TEST(who_asks_for_a_reap_is_answered_at_a_stop)
{
    options.reap_interval_us = 0;
    node = start_hooked_node();
    hold_and_forget();
    fake_run(&world, MS(1000));
    fake_lane_drop(node, FAKE_LANES, false);
    fake_lane_drop(node, FAKE_LANES + 1, false);
    ask_to_reap();
    fake_run(&world, MS(20));
    ck_assert_int_eq(asked.answers, 0);
    fake_node_stop(node);
    fake_run(&world, MS(100));
    ck_assert_int_eq(asked.answers, 1);
    ck_assert(node->has_stopped);
    ck_assert_int_eq(count_held(), 4);
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_test(tcase, expired_leases_are_reaped_in_a_run_and_each_hook_runs_once);
    tcase_add_test(tcase, a_failed_reap_is_counted_and_tried_again);
    tcase_add_test(tcase, a_reap_that_breaks_its_connection_is_recorded_and_the_others_are_done);
    tcase_add_test(tcase, reaps_that_go_well_share_a_transaction);
    tcase_add_test(tcase, of_reaps_that_shared_a_transaction_in_vain_only_the_cause_has_failed);
    tcase_add_test(tcase, who_has_failed_before_shares_no_transaction);
    tcase_add_test(tcase, reaps_that_take_long_share_no_transaction);
    tcase_add_test(tcase, of_reaps_that_shared_a_broken_connection_none_has_failed);
    tcase_add_test(tcase, a_backlog_of_reaps_leaves_half_of_the_time_to_others);
    tcase_add_test(tcase, a_waiter_of_an_expired_lease_does_not_wait_for_the_reapers_tick);
    tcase_add_test(tcase, who_asks_for_a_reap_hears_when_all_of_it_is_done);
    tcase_add_test(tcase, who_asks_for_a_reap_is_answered_at_a_stop);
}

int main(void)
{
    return run_suite("lease, reaps through hooks", add);
}
