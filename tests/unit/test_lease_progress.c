/* Those who are told how their wait stands: when, how often, how many at once, and what. */
#include "lease_fixture.h"

#define MANY 1000

struct listener {
    struct ask ask; /* first */
    int told;
    int64_t told_us;
    int64_t longest_us;  /* between two words */
    int64_t shortest_us; /* the same */
    int32_t place;
    int64_t token;
    bool cancels; /* itself, when told */
};

static struct lh_store_ops ops;
static struct fake_node *node;
static int looks;
static lh_scope_cb *on_look;
static void *look_arg;
static int told_now; /* at told_now_us */
static int most_told;
static int64_t told_now_us;

static enum lh_status look(struct lh_store *store, const char *ns, const char *key, lh_scope_cb *on_done, void *arg)
{
    looks++;
    on_look = on_done;
    look_arg = arg;
    return LH_OK;
}

static void setup(void)
{
    looks = told_now = most_told = 0;
    told_now_us = 0;
    on_look = NULL;
    node = start_node();
    ops = *node->store.ops;
    ops.get = look;
    node->store.ops = &ops;
}

static void on_progress(struct lh_acquire *acquire, const struct lh_contention *contention)
{
    struct listener *listener = acquire->arg;
    int64_t pause_us = world.now_us - listener->told_us;

    ck_assert_int_eq(listener->ask.answers, 0);
    if (listener->told > 0 && pause_us > listener->longest_us)
        listener->longest_us = pause_us;
    if (listener->told > 0 && (listener->shortest_us == 0 || pause_us < listener->shortest_us))
        listener->shortest_us = pause_us;
    listener->told++;
    listener->told_us = world.now_us;
    listener->place = contention->waiters_ahead;
    listener->token = contention->has_holder ? contention->holder.token : 0;
    told_now = world.now_us == told_now_us ? told_now + 1 : 1;
    told_now_us = world.now_us;
    if (told_now > most_told)
        most_told = told_now;
    if (listener->cancels)
        lh_coordinator_cancel(node->coordinator, acquire);
}

static void listen(struct listener *listener, int lease_key)
{
    memset(listener, 0, sizeof(*listener));
    ask_init(&listener->ask, 0, lease_key, LH_WAIT_UNTIL_GRANTED, 0);
    listener->ask.acquire.on_progress = on_progress;
    ask_send(node, &listener->ask);
}

/* Renew it for so long, so that it does not expire. */
static void keep(int lease_key, int seconds)
{
    for (int i = 0; i < seconds; i++) {
        struct beat beat;
        beat_send(node, &beat, 0, lease_key);
        fake_run(&world, MS(1000));
        ck_assert_int_eq(beat.outcome, LH_OUTCOME_OK);
    }
}

static void give_now(int lease_key)
{
    struct give give;
    give_send(node, &give, 0, lease_key);
    fake_run(&world, MS(20));
    ck_assert_int_eq(give.outcome, LH_OUTCOME_OK);
}

START_TEST(waiter_is_told_at_once_when_it_is_queued_and_not_when_it_is_granted)
{
    struct ask holder;
    struct listener waiter, free;

    hold_now(node, &holder, 0, 1);
    listen(&waiter, 2);
    fake_run(&world, MS(5));
    ck_assert_int_eq(waiter.told, 1);
    ck_assert_int_eq(waiter.place, 0);
    ck_assert_int_eq(waiter.token, holder.token);
    give_now(1);
    ck_assert_int_eq(waiter.ask.status, LH_OK);
    ck_assert_int_eq(waiter.told, 1);
    give_now(2);
    listen(&free, 3);
    fake_run(&world, MS(5));
    ck_assert_int_eq(free.ask.status, LH_OK);
    ck_assert_int_eq(free.told, 0);
}
END_TEST

START_TEST(waiter_is_told_before_5_s_have_passed_and_the_holder_is_looked_up_once_for_all)
{
    struct ask holder;
    struct listener waiters[50];

    hold_now(node, &holder, 0, 1);
    for (int i = 0; i < 50; i++)
        listen(&waiters[i], 2 + i);
    keep(1, 60);
    for (int i = 0; i < 50; i++) {
        ck_assert_int_ge(waiters[i].told, 12);
        ck_assert_int_le(waiters[i].told, 25);
        ck_assert_int_le(waiters[i].longest_us, MS(5000));
    }
    /* A heartbeat that passes through here is as good as a look; else at most one goes out, for it is not answered. */
    ck_assert_int_le(looks, 1);
}
END_TEST

START_TEST(what_a_look_finds_is_told)
{
    struct ask holder;
    struct listener waiter;
    struct lh_scope_answer answer = {.is_held = true, .waiters = 1};

    hold_now(node, &holder, 0, 1);
    fake_row_add(&world, 0, key_of(9), start_node()->index); /* somebody elsewhere is ahead */
    listen(&waiter, 2);
    fake_run(&world, MS(5));
    ck_assert_int_eq(waiter.place, 1);
    for (int i = 0; i < 60 && looks == 0; i++)
        fake_run(&world, MS(100));
    ck_assert_int_eq(looks, 1);
    answer.lease.token = 4711;
    answer.lease.owner = "another";
    answer.lease.remaining_us = MS(5000);
    on_look(look_arg, LH_OK, NULL, &answer);
    fake_run(&world, MS(5));
    ck_assert_int_eq(waiter.told, 2);
    ck_assert_int_eq(waiter.token, 4711);
    ck_assert_int_eq(waiter.place, 0); /* it is the only one that waits */
}
END_TEST

START_TEST(look_that_is_answered_too_late_finds_nobody)
{
    struct ask holder;
    struct listener waiter;
    struct lh_scope_answer answer = {0};

    hold_now(node, &holder, 0, 1);
    listen(&waiter, 2);
    for (int i = 0; i < 60 && looks == 0; i++)
        fake_run(&world, MS(100));
    ck_assert_int_eq(looks, 1);
    lh_coordinator_cancel(node->coordinator, &waiter.ask.acquire);
    fake_run(&world, MS(20));
    on_look(look_arg, LH_OK, NULL, &answer); /* ASan watches */
    fake_run(&world, MS(20));
    ck_assert_int_eq(waiter.told, 1);
}
END_TEST

START_TEST(places_count_down_and_a_cancel_moves_only_those_behind)
{
    struct ask holder;
    struct listener waiters[5];

    hold_now(node, &holder, 0, 1);
    for (int i = 0; i < 5; i++) {
        listen(&waiters[i], 2 + i);
        fake_run(&world, MS(5));
        ck_assert_int_eq(waiters[i].place, i);
    }
    lh_coordinator_cancel(node->coordinator, &waiters[2].ask.acquire);
    keep(1, 3);
    ck_assert_int_eq(waiters[1].place, 1);
    ck_assert_int_eq(waiters[3].place, 2);
    ck_assert_int_eq(waiters[4].place, 3);
    give_now(1);
    keep(2, 3);
    ck_assert_int_eq(waiters[1].place, 0);
    ck_assert_int_eq(waiters[3].place, 1);
    ck_assert_int_eq(waiters[4].place, 2);
    ck_assert_int_eq(waiters[4].token, waiters[0].ask.token);
}
END_TEST

START_TEST(hand_off_does_not_speak_to_everybody_at_once)
{
    static struct listener waiters[MANY];
    struct ask holder;
    int told = 0;

    hold_now(node, &holder, 0, 1);
    for (int i = 0; i < MANY; i++)
        listen(&waiters[i], 2 + i);
    keep(1, 2);
    most_told = 0;
    for (int i = 0; i < 100; i++) { /* many in a second */
        give_now(1 + i);
        ck_assert_int_eq(waiters[i].ask.status, LH_OK);
    }
    keep(101, 3);
    for (int i = 101; i < MANY; i++) {
        ck_assert_int_eq(waiters[i].place, i - 100);
        ck_assert_int_ge(waiters[i].shortest_us, MS(1000));
        told += waiters[i].told;
    }
    ck_assert_int_le(most_told, 256);
    ck_assert_int_le(told, MANY * 9); /* 7 s */
    fake_node_stop(node);
    fake_run(&world, MS(100));
}
END_TEST

START_TEST(who_is_told_is_exempt_from_the_blocking_limit)
{
    struct ask holder, blocked;
    struct listener waiter;

    lh_coordinator_set_max_block(node->coordinator, MS(2000));
    hold_now(node, &holder, 0, 1);
    listen(&waiter, 2);
    ask_for(node, &blocked, 0, 3, LH_WAIT_UNTIL_GRANTED, 0);
    keep(1, 4);
    ck_assert_int_eq(blocked.status, LH_BLOCKING_TIMEOUT);
    ck_assert_int_eq(waiter.ask.answers, 0);
    give_now(1);
    ck_assert_int_eq(waiter.ask.status, LH_OK);
}
END_TEST

START_TEST(who_cancels_when_told_is_told_no_more)
{
    struct ask holder;
    struct listener waiters[3];

    hold_now(node, &holder, 0, 1);
    for (int i = 0; i < 3; i++) {
        listen(&waiters[i], 2 + i);
        waiters[i].cancels = i == 1;
    }
    keep(1, 6);
    ck_assert_int_eq(waiters[1].told, 1);
    ck_assert_int_eq(waiters[1].ask.status, LH_CANCELED);
    ck_assert_int_eq(waiters[2].place, 1);
    ck_assert_ptr_null(row_of(0, 3));
}
END_TEST

START_TEST(outage_does_not_silence_it)
{
    struct ask holder;
    struct listener waiter;

    hold_now(node, &holder, 0, 1);
    listen(&waiter, 2);
    fake_run(&world, MS(20));
    fake_database_drop(&world);
    fake_run(&world, MS(20000));
    ck_assert_int_ge(waiter.told, 4);
    ck_assert_int_le(waiter.longest_us, MS(5000));
    fake_node_kill(node); /* what it had for its waiters goes with it */
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, waiter_is_told_at_once_when_it_is_queued_and_not_when_it_is_granted);
    tcase_add_test(tcase, waiter_is_told_before_5_s_have_passed_and_the_holder_is_looked_up_once_for_all);
    tcase_add_test(tcase, what_a_look_finds_is_told);
    tcase_add_test(tcase, look_that_is_answered_too_late_finds_nobody);
    tcase_add_test(tcase, places_count_down_and_a_cancel_moves_only_those_behind);
    tcase_add_test(tcase, hand_off_does_not_speak_to_everybody_at_once);
    tcase_add_test(tcase, who_is_told_is_exempt_from_the_blocking_limit);
    tcase_add_test(tcase, who_cancels_when_told_is_told_no_more);
    tcase_add_test(tcase, outage_does_not_silence_it);
}

int main(void)
{
    return run_suite("lease, progress", add);
}
