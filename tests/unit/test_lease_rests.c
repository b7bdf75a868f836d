/* The minimum hold: a scope that rests is granted to nobody, and its waiters need no wake-up when the rest is over. */
#include "lease_fixture.h"

static struct fake_node *node;

/* No safety net: neither the slow poll nor a notification. */
static void start(void)
{
    world.slow_poll_helps = false;
    world.notify_loss_percent = 100;
    node = start_node();
}

static void hold_at_least(struct ask *holder, int64_t duration_us, int64_t at_least_us)
{
    ask_init(holder, 0, 1, LH_WAIT_NONE, 0);
    holder->acquire.terms.duration_us = duration_us;
    holder->acquire.at_least_us = at_least_us;
    ask_send(node, holder);
    fake_run(&world, MS(5));
    ck_assert_int_eq(holder->status, LH_OK);
    ck_assert_int_eq(holder->answers, 1);
}

static void give_now(int lease_key)
{
    struct give give;
    give_send(node, &give, 0, lease_key);
    fake_run(&world, MS(5));
    ck_assert_int_eq(give.outcome, LH_OUTCOME_OK);
}

/* Granted when the rest ends, and hardly asked for before. */
static void expect_granted_after_the_rest(struct ask *waiter)
{
    int64_t rests_until_us = world.scopes[0].rests_until_us;

    world.scopes[0].tried = 0;
    fake_run(&world, rests_until_us - world.now_us);
    ck_assert_int_eq(waiter->answers, 0);
    ck_assert_int_le(world.scopes[0].tried, 2);
    fake_run(&world, MS(10));
    ck_assert_int_eq(waiter->answers, 1);
    ck_assert_int_eq(waiter->status, LH_OK);
}

START_TEST(waiter_is_granted_when_the_rest_ends)
{
    struct ask holder, waiter;

    start();
    hold_at_least(&holder, MS(60000), MS(3000));
    ask_for(node, &waiter, 0, 2, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(5));
    give_now(1);
    expect_granted_after_the_rest(&waiter);
    ck_assert_int_eq(world.passed_on, 0);
}
END_TEST

START_TEST(waiter_that_comes_during_the_rest_is_granted_when_it_ends)
{
    struct ask holder, waiter;

    start();
    hold_at_least(&holder, MS(60000), MS(3000));
    give_now(1);
    ask_for(node, &waiter, 0, 2, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(5));
    expect_granted_after_the_rest(&waiter);
    ck_assert_int_eq(world.passed_on, 0); /* it is nobody else's turn */
}
END_TEST

START_TEST(waiter_of_a_holder_that_expires_within_the_rest_is_granted_when_the_rest_ends)
{
    struct ask holder, waiter;

    start();
    hold_at_least(&holder, MS(1000), MS(5000));
    ask_for(node, &waiter, 0, 2, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(2000));
    expect_granted_after_the_rest(&waiter);
}
END_TEST

START_TEST(waiter_of_a_holder_that_outlives_the_rest_is_granted_at_the_expiry)
{
    struct ask holder, waiter;

    start();
    hold_at_least(&holder, MS(5000), MS(1000));
    ask_for(node, &waiter, 0, 2, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(5100));
    ck_assert_int_eq(waiter.answers, 0);
    fake_run(&world, MS(150));
    ck_assert_int_eq(waiter.status, LH_OK);
    ck_assert_int_eq(waiter.answers, 1);
}
END_TEST

START_TEST(waiters_of_another_coordinator_hear_of_the_end_and_wait_for_the_rest)
{
    struct fake_node *other;
    struct ask holder, waiter;

    start();
    world.notify_loss_percent = 0;
    other = start_node();
    hold_at_least(&holder, MS(60000), MS(3000));
    ask_for(other, &waiter, 0, 2, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(5));
    give_now(1);
    expect_granted_after_the_rest(&waiter);
}
END_TEST

START_TEST(request_that_does_not_wait_is_told_how_long_the_scope_rests)
{
    struct ask holder, other;

    start();
    hold_at_least(&holder, MS(60000), MS(3000));
    ask_for(node, &other, 0, 2, LH_WAIT_NONE, 0);
    fake_run(&world, MS(5));
    ck_assert_int_eq(other.status, LH_LEASE_HELD);
    ck_assert(other.has_holder);
    ck_assert_int_gt(other.rests_us, MS(2900));
    give_now(1);
    ask_for(node, &other, 0, 2, LH_WAIT_NONE, 0);
    fake_run(&world, MS(5));
    ck_assert_int_eq(other.status, LH_LEASE_HELD);
    ck_assert(!other.has_holder);
    ck_assert_int_gt(other.rests_us, MS(2900));
    ck_assert_int_le(other.rests_us, MS(3000));
}
END_TEST

START_TEST(wait_that_ends_during_the_rest_is_told_how_long_it_lasts)
{
    struct ask holder, waiter;

    start();
    hold_at_least(&holder, MS(60000), MS(3000));
    give_now(1);
    ask_for(node, &waiter, 0, 2, LH_WAIT_TIME, MS(1000));
    fake_run(&world, MS(1100));
    ck_assert_int_eq(waiter.status, LH_WAIT_TIMEOUT);
    ck_assert(!waiter.has_holder);
    ck_assert_int_gt(waiter.rests_us, MS(1800));
    ck_assert_int_le(waiter.rests_us, MS(2000));
}
END_TEST

START_TEST(the_policy_counts_where_the_request_says_nothing)
{
    struct ask holder, other;

    start();
    world.at_least_us = MS(3000);
    hold_at_least(&holder, MS(60000), 0);
    give_now(1);
    ask_for(node, &other, 0, 2, LH_WAIT_NONE, 0);
    fake_run(&world, MS(5));
    ck_assert_int_eq(other.status, LH_OK);
    give_now(2);
    ask_init(&holder, 0, 3, LH_WAIT_NONE, 0);
    holder.acquire.at_least_us = LH_AT_LEAST_POLICY;
    ask_send(node, &holder);
    fake_run(&world, MS(5));
    give_now(3);
    ask_for(node, &other, 0, 4, LH_WAIT_NONE, 0);
    fake_run(&world, MS(5));
    ck_assert_int_eq(other.status, LH_LEASE_HELD);
}
END_TEST

static int downgrades;

static void on_downgraded(struct lh_holder_request *request)
{
    ck_assert_int_eq(request->items[0].item.outcome, LH_OUTCOME_OK);
    downgrades++;
}

static void make_shared(int lease_key)
{
    struct lh_downgrade downgrade = {.units = 1, .principal = ""};
    struct lh_holder_entry entry = {.item = {.ns = world.scopes[0].ns,
                                             .key = world.scopes[0].key,
                                             .lease_key = key_of(lease_key),
                                             .downgrade = &downgrade}};
    struct lh_holder_request request = {.items = &entry, .count = 1, .on_done = on_downgraded};

    downgrades = 0;
    ck_assert_int_eq(lh_coordinator_downgrade(node->coordinator, &request), LH_OK);
    fake_run(&world, MS(5));
    ck_assert_int_eq(downgrades, 1);
}

/* The newcomer's question is under way when the first waiter is to look; its answer tells when the holder's lease ends. */
START_TEST(no_answer_to_a_newcomer_puts_off_what_the_first_waiter_sleeps_for)
{
    struct ask holder, waiter, newcomer;

    start();
    hold_at_least(&holder, MS(60000), MS(3000));
    make_shared(1);
    ask_init(&waiter, 0, 2, LH_WAIT_UNTIL_GRANTED, 0);
    waiter.acquire.units = 1;
    ask_send(node, &waiter);
    fake_run(&world, world.scopes[0].rests_until_us + MS(1) - world.now_us);
    ck_assert_int_eq(waiter.answers, 0);
    ask_for(node, &newcomer, 0, 3, _i == 0 ? LH_WAIT_NONE : LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(20));
    ck_assert_int_eq(waiter.answers, 1);
    ck_assert_int_eq(waiter.status, LH_OK);
    ck_assert_int_eq(newcomer.answers, _i == 0);
}
END_TEST

struct listener {
    struct ask ask; /* first */
    int told;
    bool has_holder;
    int64_t rests_us;
};

static void on_progress(struct lh_acquire *acquire, const struct lh_contention *contention)
{
    struct listener *listener = acquire->arg;
    listener->told++;
    listener->has_holder = contention->has_holder;
    listener->rests_us = contention->rests_us;
}

START_TEST(waiter_is_told_of_the_rest)
{
    struct listener waiter = {0};
    struct ask holder;

    start();
    hold_at_least(&holder, MS(60000), MS(10000));
    give_now(1);
    ask_init(&waiter.ask, 0, 2, LH_WAIT_UNTIL_GRANTED, 0);
    waiter.ask.acquire.on_progress = on_progress;
    ask_send(node, &waiter.ask);
    fake_run(&world, MS(5));
    ck_assert_int_eq(waiter.told, 1);
    ck_assert(!waiter.has_holder);
    ck_assert_int_gt(waiter.rests_us, MS(9900));
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_test(tcase, waiter_is_granted_when_the_rest_ends);
    tcase_add_test(tcase, waiter_that_comes_during_the_rest_is_granted_when_it_ends);
    tcase_add_test(tcase, waiter_of_a_holder_that_expires_within_the_rest_is_granted_when_the_rest_ends);
    tcase_add_test(tcase, waiter_of_a_holder_that_outlives_the_rest_is_granted_at_the_expiry);
    tcase_add_test(tcase, waiters_of_another_coordinator_hear_of_the_end_and_wait_for_the_rest);
    tcase_add_test(tcase, request_that_does_not_wait_is_told_how_long_the_scope_rests);
    tcase_add_test(tcase, wait_that_ends_during_the_rest_is_told_how_long_it_lasts);
    tcase_add_test(tcase, the_policy_counts_where_the_request_says_nothing);
    tcase_add_loop_test(tcase, no_answer_to_a_newcomer_puts_off_what_the_first_waiter_sleeps_for, 0, 2);
    tcase_add_test(tcase, waiter_is_told_of_the_rest);
}

int main(void)
{
    return run_suite("lease, the minimum hold", add);
}
