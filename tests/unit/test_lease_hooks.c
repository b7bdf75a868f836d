/* The core and hooks: who goes by a hook lane, what is answered, and how what has expired is reaped. */
#include <stdio.h>

#include "lease/reaping.h"
#include "lease_fixture.h"

static struct fake_node *node;
static struct ask first, second, third;
static struct beat beat;
static struct give give;

/* The fixture's world, with hooks everywhere. */
static void begin(void)
{
    world.is_hooked = true;
    world.hook_timeout_us = MS(1000);
    node = start_node();
}

static struct lh_coordinator_stats stats_now(void)
{
    struct lh_coordinator_stats stats;
    lh_coordinator_stats(node->coordinator, &stats);
    return stats;
}

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
    begin();
    ask_for(node, &first, 0, 1, LH_WAIT_NONE, 0);
    ask_for(node, &second, 1, 2, LH_WAIT_NONE, 0);
    fake_run(&world, MS(20));
    ck_assert_int_eq(first.status, LH_OK);
    ck_assert_int_eq(second.status, LH_OK);
    ck_assert_int_eq(world.hook_batches[0], 2);
    ck_assert_int_eq(world.batches[0], 3); /* one found out for both */
    ck_assert_uint_eq(stats_now().hook_calls[0], 2);
}
END_TEST

START_TEST(what_is_known_goes_there_at_once_and_is_asked_again_after_a_second)
{
    begin();
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
    begin();
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
    begin();
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
    begin();
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
    begin();
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
    begin();
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
    begin();
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
    struct lh_coordinator_stats stats = stats_now();
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
    begin();
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
    begin();
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
    begin();
    world.hook_break_percent = 100;
    ask_for(node, &first, 0, 1, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(5000));
    ck_assert_int_eq(first.answers, 1);
    ck_assert_int_eq(first.status, LH_HOOK_REJECTED);
    struct lh_coordinator_stats stats = stats_now();
    ck_assert_uint_eq(stats.hook_losses, 3);
    world.hook_break_percent = 0;
    ask_for(node, &second, 0, 2, LH_WAIT_TIME, MS(15000));
    fake_run(&world, MS(15000));
    ck_assert_int_eq(second.status, LH_OK);
}
END_TEST

START_TEST(without_a_hook_lane_heartbeats_are_told_to_retry_and_acquires_to_come_back)
{
    begin();
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
        beat.items[i] = (struct lh_heartbeat){
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
    begin();
    hold_now(node, &first, 0, 1);
    beat_send(node, &beat, 0, 1);
    fake_run(&world, MS(5));
    ck_assert_int_eq(beat.outcome, LH_OUTCOME_OK);
    fake_lane_drop(node, FAKE_LANES, false);
    fake_lane_drop(node, FAKE_LANES + 1, false);
    ask_for(node, &second, 1, 2, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(1));
    ck_assert_uint_eq(stats_now().hooked, 1);
    ask_init(&third, 2, 3, LH_WAIT_UNTIL_GRANTED, 0);
    ck_assert_int_eq(lh_coordinator_acquire(node->coordinator, &third.acquire), LH_OVERLOADED);
    ck_assert_uint_eq(stats_now().refused_hooked, 1);
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

/* --- reaping --- */

static void hold_for(int64_t duration_us, int64_t grant_us)
{
    static int lease_keys;

    for (int i = 0; i < 4; i++) {
        ask_init(&first, i, ++lease_keys, LH_WAIT_NONE, 0);
        first.acquire.duration_us = duration_us;
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
    begin();
    hold_and_forget();
    fake_run(&world, MS(3000));
    ck_assert_int_eq(count_held(), 0);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(world.scopes[i].reap_hooks, 1);
    ck_assert_uint_gt(world.largest_run, 1);
    struct lh_coordinator_stats stats = stats_now();
    ck_assert_uint_eq(stats.reaped, 4);
    ck_assert_uint_eq(stats.hook_calls[4], 4);
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
    begin();
    hold_and_forget();
    world.on_hook = refuse_k2;
    fake_run(&world, MS(3000));
    ck_assert_int_eq(count_held(), 1);
    struct lh_coordinator_stats stats = stats_now();
    ck_assert_uint_ge(stats.reap_failures, 1);
    ck_assert_int_eq((int)stats.reap_failures, world.scopes[2].reap_failures);
    ck_assert_uint_eq(stats.hook_rejections[4], stats.reap_failures);
    world.on_hook = NULL;
    fake_run(&world, MS(3000));
    ck_assert_int_eq(count_held(), 0);
    ck_assert_int_eq(world.scopes[2].reap_hooks, 1);
    ck_assert_uint_eq(stats_now().reaped, 4);
}
END_TEST

START_TEST(a_reap_that_breaks_its_connection_is_recorded_and_the_others_are_done)
{
    begin();
    hold_and_forget();
    world.hook_break_percent = 100;
    fake_run(&world, MS(2000));
    world.hook_break_percent = 0;
    fake_run(&world, MS(12000));
    ck_assert_int_eq(count_held(), 0);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(world.scopes[i].reap_hooks, 1);
    struct lh_coordinator_stats stats = stats_now();
    ck_assert_uint_ge(stats.hook_losses, 1);
    ck_assert_uint_ge(stats.reap_failures, 1);
    ck_assert_uint_eq(stats.reaped, 4);
}
END_TEST

/* All four are reaped, so often that they go together. */
static void win_some(void)
{
    begin();
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
    struct lh_coordinator_stats stats = stats_now();
    ck_assert_uint_eq(stats.reaped, 16);
    ck_assert_uint_eq(stats.hook_calls[4], 16);
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
    ck_assert_uint_eq(stats_now().reap_failures, 1);
    ck_assert_uint_eq(stats_now().hook_rejections[4], 1);
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
    begin();
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
    while (stats_now().hook_losses == 0)
        fake_step(&world, world.now_us + MS(1));
    world.hook_break_percent = 0;
    fake_run(&world, MS(12000));
    ck_assert_int_eq(count_held(), 0);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(world.scopes[i].reap_hooks, 5);
    ck_assert_uint_eq(stats_now().reap_failures, 0);
    ck_assert_uint_eq(stats_now().reaped, 20);
    world.largest_group = 0;
    hold_and_forget();
    fake_run(&world, MS(3000));
    ck_assert_uint_eq(world.largest_group, 0);
}
END_TEST

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
    begin();
    world.min_delay_us = world.max_delay_us = MS(20);
    world.is_release_plain = true;
    int64_t alone_us = reap_slowly(false);
    int64_t beside_us = reap_slowly(true);
    ck_assert_msg(beside_us >= alone_us + MS(40), "%lld, %lld", (long long)alone_us, (long long)beside_us);
}
END_TEST

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
    begin();
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
    begin();
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

START_TEST(a_stop_waits_for_the_hook_that_runs)
{
    begin();
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

START_TEST(a_waiter_of_an_expired_lease_does_not_wait_for_the_reapers_tick)
{
    options.reap_interval_us = MS(60000);
    begin();
    ask_init(&first, 0, 1, LH_WAIT_NONE, 0);
    first.acquire.duration_us = MS(300);
    ask_send(node, &first);
    fake_run(&world, MS(20));
    ask_for(node, &second, 0, 2, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(280) + FAKE_GRACE_US + MS(20));
    ck_assert_int_eq(second.answers, 1);
    ck_assert_int_eq(second.status, LH_OK);
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
    tcase_add_test(tcase, a_veto_is_told_in_the_hooks_own_words);
    tcase_add_test(tcase, after_a_veto_it_is_the_next_ones_turn);
    tcase_add_test(tcase, arrivals_keep_their_order_by_the_hook_lane);
    tcase_add_test(tcase, a_hook_that_breaks_its_connection_is_refused_at_the_third_time);
    tcase_add_test(tcase, without_a_hook_lane_heartbeats_are_told_to_retry_and_acquires_to_come_back);
    tcase_add_test(tcase, the_line_has_a_limit);
    tcase_add_test(tcase, expired_leases_are_reaped_in_a_run_and_each_hook_runs_once);
    tcase_add_test(tcase, a_failed_reap_is_counted_and_tried_again);
    tcase_add_test(tcase, a_reap_that_breaks_its_connection_is_recorded_and_the_others_are_done);
    tcase_add_test(tcase, reaps_that_go_well_share_a_transaction);
    tcase_add_test(tcase, of_reaps_that_shared_a_transaction_in_vain_only_the_cause_has_failed);
    tcase_add_test(tcase, who_has_failed_before_shares_no_transaction);
    tcase_add_test(tcase, reaps_that_take_long_share_no_transaction);
    tcase_add_test(tcase, of_reaps_that_shared_a_broken_connection_none_has_failed);
    tcase_add_test(tcase, a_backlog_of_reaps_leaves_half_of_the_time_to_others);
    tcase_add_test(tcase, who_asks_for_a_reap_hears_when_all_of_it_is_done);
    tcase_add_test(tcase, who_asks_for_a_reap_is_answered_at_a_stop);
    tcase_add_test(tcase, a_stop_waits_for_the_hook_that_runs);
    tcase_add_test(tcase, a_waiter_of_an_expired_lease_does_not_wait_for_the_reapers_tick);
}

int main(void)
{
    return run_suite("lease, hooks", add);
}
