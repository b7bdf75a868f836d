/* The core and hooks: who goes by a hook lane, and what is answered. */
#include "lease_fixture.h"

static struct fake_node *node;
static struct ask first, second, third;
static struct beat beat;
static struct give give;

/* Whatever its hook takes. */
static void hold_now_slowly(struct ask *ask, int scope, int lease_key)
{
    ask_for(node, ask, scope, lease_key, LH_WAIT_UNTIL_GRANTED, 0);
    while (ask->answers == 0)
        fake_step(&world, world.now_us + MS(1));
    ck_assert_int_eq(ask->status, LH_OK);
}

/* --- lanes --- */

START_TEST(a_hooked_acquire_goes_to_a_hook_lane_alone)
{
    node = start_hooked_node();
    ask_for(node, &first, 0, 1, LH_WAIT_NONE, 0);
    ask_for(node, &second, 1, 2, LH_WAIT_NONE, 0);
    fake_run(&world, MS(20));
    ck_assert_int_eq(first.status, LH_OK);
    ck_assert_int_eq(second.status, LH_OK);
    ck_assert_int_eq(world.hook_batches[0], 2);
    ck_assert_int_eq(world.batches[0], 3); /* one found out for both */
    ck_assert_uint_eq(stats_of(node).hook_calls[0], 2);
}
END_TEST

START_TEST(what_is_known_goes_there_at_once_and_is_asked_again_after_a_second)
{
    node = start_hooked_node();
    hold_now(node, &first, 0, 1);
    ck_assert_int_eq(world.batches[0] - world.hook_batches[0], 1);
    hold_now(node, &second, 1, 2);
    ck_assert_int_eq(world.batches[0] - world.hook_batches[0], 1);
    world.is_hooked = false;
    fake_run(&world, MS(1100));
    hold_now(node, &third, 2, 3);
    ck_assert_int_eq(world.batches[0] - world.hook_batches[0], 2);
    ck_assert_int_eq(world.hook_batches[0], 2);
}
END_TEST

START_TEST(heartbeats_and_releases_go_there_too)
{
    node = start_hooked_node();
    hold_now(node, &first, 0, 1);
    beat_send(node, &beat, 0, 1);
    fake_run(&world, MS(5));
    ck_assert_int_eq(beat.outcome, LH_OUTCOME_OK);
    give_send(node, &give, 0, 1);
    fake_run(&world, MS(5));
    ck_assert_int_eq(give.outcome, LH_OUTCOME_OK);
    ck_assert_int_eq(world.hook_batches[1], 1);
    ck_assert_int_eq(world.hook_batches[2], 1);
}
END_TEST

START_TEST(an_acquire_behind_a_release_says_nothing_of_releases)
{
    world.is_release_plain = true;
    node = start_hooked_node();
    hold_now(node, &first, 0, 1);
    ask_for(node, &second, 0, 2, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(1500)); /* what was known of hooks is to be asked for again */
    give_send(node, &give, 0, 1);
    fake_run(&world, MS(20));
    ck_assert_uint_eq(world.riders, 1);
    ck_assert_int_eq(second.status, LH_OK);
    give_send(node, &give, 0, 2);
    fake_run(&world, MS(20));
    ck_assert_int_eq(give.outcome, LH_OUTCOME_OK);
    ck_assert_int_eq(world.hook_batches[2], 0);
}
END_TEST

START_TEST(nobody_without_a_hook_waits_for_one)
{
    node = start_hooked_node();
    hold_now(node, &first, 1, 1);
    world.hook_us = MS(60000);
    ask_for(node, &second, 0, 2, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(5));
    world.is_hooked = false; /* for whoever comes now */
    fake_run(&world, MS(1100));
    for (int i = 0; i < 5; i++) {
        beat_send(node, &beat, 1, 1);
        fake_run(&world, MS(5));
        ck_assert_int_eq(beat.outcome, LH_OUTCOME_OK);
    }
}
END_TEST

START_TEST(a_heartbeat_behind_a_hook_of_its_own_scope_is_told_to_retry)
{
    node = start_hooked_node();
    hold_now(node, &first, 0, 1);
    world.hook_us = MS(60000);
    world.random_state = 12345; /* a long one */
    give_send(node, &give, 0, 1);
    fake_run(&world, MS(2));
    beat_send(node, &beat, 0, 1);
    fake_run(&world, MS(1100));
    ck_assert_int_eq(give.answers, 0);
    ck_assert_int_eq(beat.answers, 1);
    ck_assert_int_eq(beat.outcome, LH_OUTCOME_RETRY);
    fake_run(&world, MS(60000));
    ck_assert_int_eq(give.answers, 1);
}
END_TEST

START_TEST(a_slow_namespace_never_has_the_last_hook_lane)
{
    struct ask slow[4];

    options.max_block_us = 0;
    world.scopes[3].ns = "fast";
    node = start_hooked_node();
    world.slow_ns = world.scopes[0].ns;
    world.hook_us = MS(1000);
    world.random_state = 99; /* not a short one */
    hold_now_slowly(&first, 0, 1);
    for (int i = 0; i < 2; i++)
        ask_for(node, &slow[i], 1 + i, 10 + i, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(10));
    ask_for(node, &second, 3, 2, LH_WAIT_NONE, 0);
    fake_run(&world, MS(10));
    ck_assert_int_eq(second.answers, 1);
    ck_assert_int_eq(second.status, LH_OK);
    ck_assert_int_eq(slow[0].answers + slow[1].answers, 0);
    fake_run(&world, MS(3000));
    ck_assert_int_eq(slow[0].answers + slow[1].answers, 2);
}
END_TEST

START_TEST(a_stop_waits_for_the_hook_that_runs)
{
    node = start_hooked_node();
    hold_now(node, &first, 0, 1);
    world.hook_us = MS(4000);
    world.random_state = 777;
    give_send(node, &give, 0, 1);
    fake_run(&world, MS(3));
    fake_node_stop(node);
    fake_run(&world, MS(6000));
    ck_assert(node->has_stopped);
    ck_assert_int_eq(give.answers, 1);
    ck_assert_int_eq(give.outcome, LH_OUTCOME_OK);
    ck_assert(!world.scopes[0].is_held);
}
END_TEST

/* --- vetoes --- */

static bool refuse_all(struct fake_world *unused, const char *key, const char **message)
{
    *message = "not on my watch";
    return true;
}

static bool time_out_all(struct fake_world *unused, const char *key, const char **message)
{
    *message = LH_HOOK_TIMEOUT_WORDS " of 1 s";
    return true;
}

START_TEST(a_veto_is_told_in_the_hooks_own_words)
{
    node = start_hooked_node();
    hold_now(node, &first, 0, 1);
    world.on_hook = refuse_all;
    beat_send(node, &beat, 0, 1);
    fake_run(&world, MS(5));
    ck_assert_int_eq(beat.outcome, LH_OUTCOME_REJECTED);
    ck_assert_str_eq(beat.message, "not on my watch");
    give_send(node, &give, 0, 1);
    fake_run(&world, MS(5));
    ck_assert_int_eq(give.outcome, LH_OUTCOME_REJECTED);
    ck_assert(world.scopes[0].is_held);
    ask_for(node, &second, 1, 2, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(5));
    ck_assert_int_eq(second.status, LH_HOOK_REJECTED);
    ck_assert_str_eq(second.message, "not on my watch");
    world.on_hook = time_out_all;
    ask_for(node, &third, 1, 3, LH_WAIT_NONE, 0);
    fake_run(&world, MS(5));
    ck_assert_int_eq(third.status, LH_HOOK_REJECTED);
    struct lh_coordinator_stats stats = stats_of(node);
    ck_assert_uint_eq(stats.hook_rejections[0], 2);
    ck_assert_uint_eq(stats.hook_timeouts[0], 1);
    ck_assert_uint_eq(stats.hook_rejections[1], 1);
    ck_assert_uint_eq(stats.hook_rejections[2], 1);
}
END_TEST

static int veto_count;

static bool refuse_the_next(struct fake_world *unused, const char *key, const char **message)
{
    *message = "you not";
    return veto_count-- > 0;
}

START_TEST(after_a_veto_it_is_the_next_ones_turn)
{
    node = start_hooked_node();
    world.slow_poll_helps = false;
    hold_now(node, &first, 0, 1);
    ask_for(node, &second, 0, 2, LH_WAIT_UNTIL_GRANTED, 0);
    ask_for(node, &third, 0, 3, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(20));
    give_send(node, &give, 0, 1);
    while (give.answers == 0)
        fake_step(&world, world.now_us + MS(1));
    veto_count = 1;
    world.on_hook = refuse_the_next;
    fake_run(&world, MS(5)); /* told, not found out by looking again */
    ck_assert_int_eq(second.status, LH_HOOK_REJECTED);
    ck_assert_int_eq(third.answers, 1);
    ck_assert_int_eq(third.status, LH_OK);
}
END_TEST

START_TEST(arrivals_keep_their_order_by_the_hook_lane)
{
    node = start_hooked_node();
    struct ask asks[8];
    int64_t token = 0;
    for (int i = 0; i < 8; i++)
        ask_for(node, &asks[i], 0, 10 + i, LH_WAIT_UNTIL_GRANTED, 0);
    for (int i = 0; i < 8; i++) {
        fake_run(&world, MS(100));
        ck_assert_int_eq(asks[i].answers, 1);
        ck_assert_int_gt(asks[i].token, token);
        token = asks[i].token;
        for (int k = i + 1; k < 8; k++)
            ck_assert_int_eq(asks[k].answers, 0);
        give_send(node, &give, 0, 10 + i);
    }
    fake_run(&world, MS(100));
}
END_TEST

/* --- lost connections --- */

START_TEST(a_hook_that_breaks_its_connection_is_refused_at_the_third_time)
{
    node = start_hooked_node();
    world.hook_break_percent = 100;
    ask_for(node, &first, 0, 1, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(5000));
    ck_assert_int_eq(first.answers, 1);
    ck_assert_int_eq(first.status, LH_HOOK_REJECTED);
    struct lh_coordinator_stats stats = stats_of(node);
    ck_assert_uint_eq(stats.hook_losses, 3);
    world.hook_break_percent = 0;
    ask_for(node, &second, 0, 2, LH_WAIT_TIME, MS(15000));
    fake_run(&world, MS(15000));
    ck_assert_int_eq(second.status, LH_OK);
}
END_TEST

#define ITEMS 8

/* Those that had no turn, too: the namespace goes on ever later. */
START_TEST(each_item_behind_a_hook_that_breaks_its_connection_is_answered_in_time)
{
    struct ask held[ITEMS], asks[ITEMS];
    struct give gives[ITEMS];

    node = start_hooked_node();
    for (int i = 0; i < ITEMS; i++)
        hold_now_slowly(&held[i], i, 10 + i);
    world.hook_break_percent = 100;
    for (int i = 0; i < ITEMS; i++)
        give_send(node, &gives[i], i, 10 + i);
    fake_run(&world, MS(1500));
    for (int i = 0; i < ITEMS; i++) {
        ck_assert_int_eq(gives[i].answers, 1);
        ck_assert_int_eq(gives[i].outcome, LH_OUTCOME_RETRY);
    }
    for (int i = 0; i < ITEMS; i++)
        ask_for(node, &asks[i], ITEMS + i, 20 + i, i % 2 == 0 ? LH_WAIT_NONE : LH_WAIT_TIME, MS(700));
    fake_run(&world, MS(2000));
    for (int i = 0; i < ITEMS; i++) {
        ck_assert_int_eq(asks[i].answers, 1);
        ck_assert_int_ne(asks[i].status, LH_OK);
        if (asks[i].status == LH_SCOPE_BUSY)
            ck_assert_str_eq(asks[i].message,
                             "the connection to the database was lost while a hook of the namespace ran");
    }
}
END_TEST

/* The line goes on, one hook at a time, and is longer than anybody's time. */
START_TEST(each_item_in_a_slow_line_is_answered_in_its_own_time)
{
    static const char words[] = "the hooks of the namespace are slow: its turn did not come in time";
    struct ask held[ITEMS], asks[ITEMS], patient[2];
    struct give gives[ITEMS];

    node = start_hooked_node();
    for (int i = 0; i < ITEMS; i++)
        hold_now_slowly(&held[i], i, 10 + i);
    world.hook_us = MS(60000);
    world.random_state = 12345; /* long ones */
    for (int i = 0; i < 2; i++)
        ask_for(node, &patient[i], 2 * ITEMS + i, 9, LH_WAIT_UNTIL_GRANTED, 0); /* both hook lanes are theirs */
    fake_run(&world, MS(20));
    for (int i = 0; i < ITEMS; i++)
        ask_for(node, &asks[i], ITEMS + i, 20 + i, i % 2 == 0 ? LH_WAIT_NONE : LH_WAIT_TIME, MS(300));
    for (int i = 0; i < ITEMS; i++)
        give_send(node, &gives[i], i, 10 + i);
    fake_run(&world, MS(400));
    for (int i = 1; i < ITEMS; i += 2) {
        ck_assert_int_eq(asks[i].answers, 1);
        ck_assert_int_eq(asks[i].status, LH_WAIT_TIMEOUT);
    }
    fake_run(&world, MS(800));
    for (int i = 0; i < ITEMS; i++) {
        ck_assert_int_eq(asks[i].answers, 1);
        ck_assert_int_eq(asks[i].status, i % 2 == 0 ? LH_SCOPE_BUSY : LH_WAIT_TIMEOUT);
        ck_assert_str_eq(asks[i].message, words);
        ck_assert_int_eq(gives[i].answers, 1);
        ck_assert_int_eq(gives[i].outcome, LH_OUTCOME_RETRY);
    }
    ck_assert_int_eq(patient[0].answers + patient[1].answers, 0);
    fake_run(&world, MS(130000));
    ck_assert_int_eq(patient[0].status, LH_OK);
    ck_assert_int_eq(patient[1].status, LH_OK);
}
END_TEST

START_TEST(without_a_hook_lane_heartbeats_are_told_to_retry_and_acquires_to_come_back)
{
    node = start_hooked_node();
    hold_now(node, &first, 0, 1);
    fake_lane_drop(node, FAKE_LANES, false);
    fake_lane_drop(node, FAKE_LANES + 1, false);
    beat_send(node, &beat, 0, 1);
    ask_for(node, &second, 1, 2, LH_WAIT_NONE, 0);
    fake_run(&world, MS(2500));
    ck_assert_int_eq(beat.outcome, LH_OUTCOME_RETRY);
    ck_assert_int_eq(second.status, LH_DATABASE_UNAVAILABLE);
    fake_lane_raise(node, FAKE_LANES);
    beat_send(node, &beat, 0, 1);
    fake_run(&world, MS(20));
    ck_assert_int_eq(beat.outcome, LH_OUTCOME_OK);
}
END_TEST

static void beat_send_two(int one, int other)
{
    const int scopes[] = {one, other};
    beat_send(node, &beat, one, 1); /* refused at once */
    fake_run(&world, 100);
    for (int i = 0; i < 2; i++)
        beat.items[i] = (struct lh_holder_entry){
            .item = {.ns = world.scopes[scopes[i]].ns, .key = world.scopes[scopes[i]].key, .lease_key = key_of(1)}};
    beat.request.count = 2;
    ck_assert_int_eq(beat.answers, 1);
    beat.answers = 0;
    ck_assert_int_eq(lh_coordinator_heartbeat(node->coordinator, &beat.request), LH_OK);
}

START_TEST(the_line_has_a_limit)
{
    options.max_hooked = 1;
    world.scopes[3].ns = "beside";
    node = start_hooked_node();
    hold_now(node, &first, 0, 1);
    beat_send(node, &beat, 0, 1);
    fake_run(&world, MS(5));
    ck_assert_int_eq(beat.outcome, LH_OUTCOME_OK);
    fake_lane_drop(node, FAKE_LANES, false);
    fake_lane_drop(node, FAKE_LANES + 1, false);
    ask_for(node, &second, 1, 2, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(1));
    ck_assert_uint_eq(stats_of(node).hooked, 1);
    ask_init(&third, 2, 3, LH_WAIT_UNTIL_GRANTED, 0);
    ck_assert_int_eq(lh_coordinator_acquire(node->coordinator, &third.acquire), LH_OVERLOADED);
    ck_assert_uint_eq(stats_of(node).refused_hooked, 1);
    beat_send_two(0, 3);
    fake_run(&world, 100);
    ck_assert_int_eq(beat.answers, 0); /* the second one's namespace is not known, and it has its turn */
    fake_lane_raise(node, FAKE_LANES);
    fake_run(&world, MS(50));
    ck_assert_int_eq(second.status, LH_OK);
    ck_assert_int_eq(beat.answers, 1);
    ck_assert_int_eq(beat.items[0].item.outcome, LH_OUTCOME_RETRY);
    ck_assert_int_eq(beat.items[1].item.outcome, LH_OUTCOME_LOST);
    ck_assert_int_eq(lh_coordinator_acquire(node->coordinator, &third.acquire), LH_OK);
    fake_run(&world, MS(50));
    ck_assert_int_eq(third.status, LH_OK);
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_test(tcase, a_hooked_acquire_goes_to_a_hook_lane_alone);
    tcase_add_test(tcase, what_is_known_goes_there_at_once_and_is_asked_again_after_a_second);
    tcase_add_test(tcase, heartbeats_and_releases_go_there_too);
    tcase_add_test(tcase, an_acquire_behind_a_release_says_nothing_of_releases);
    tcase_add_test(tcase, nobody_without_a_hook_waits_for_one);
    tcase_add_test(tcase, a_heartbeat_behind_a_hook_of_its_own_scope_is_told_to_retry);
    tcase_add_test(tcase, a_slow_namespace_never_has_the_last_hook_lane);
    tcase_add_test(tcase, a_stop_waits_for_the_hook_that_runs);
    tcase_add_test(tcase, a_veto_is_told_in_the_hooks_own_words);
    tcase_add_test(tcase, after_a_veto_it_is_the_next_ones_turn);
    tcase_add_test(tcase, arrivals_keep_their_order_by_the_hook_lane);
    tcase_add_test(tcase, a_hook_that_breaks_its_connection_is_refused_at_the_third_time);
    tcase_add_test(tcase, each_item_behind_a_hook_that_breaks_its_connection_is_answered_in_time);
    tcase_add_test(tcase, each_item_in_a_slow_line_is_answered_in_its_own_time);
    tcase_add_test(tcase, without_a_hook_lane_heartbeats_are_told_to_retry_and_acquires_to_come_back);
    tcase_add_test(tcase, the_line_has_a_limit);
}

int main(void)
{
    return run_suite("lease, hooks", add);
}
