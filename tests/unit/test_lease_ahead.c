/* Looking ahead: our first waiter was asked for again, nobody holds the scope, and yet it is not its turn. */
#include "lease_fixture.h"

static struct lh_store_ops ops;
static const struct lh_store_ops *real_ops;
static int passed_on;
static int64_t first_ticket;

static enum lh_status count_pass_on(struct lh_store *store, const struct lh_wake *wake, lh_store_cb *on_done, void *arg)
{
    passed_on++;
    first_ticket = wake->first_ticket;
    return real_ops->pass_on(store, wake, on_done, arg);
}

static struct fake_node *start_counting(void)
{
    struct fake_node *node = start_node();
    real_ops = node->store.ops;
    ops = *real_ops;
    ops.pass_on = count_pass_on;
    node->store.ops = &ops;
    passed_on = 0;
    first_ticket = -1;
    return node;
}

START_TEST(a_row_that_nobody_knows_is_passed_on_with_the_ticket_of_our_first)
{
    struct fake_node *node = start_counting();
    struct ask holder, first, second;
    struct give give;
    hold_now(node, &holder, 0, 1);
    fake_row_add(&world, 0, key_of(9),
                 node->index); /* of a batch whose connection was given up before it was committed */
    ask_for(node, &first, 0, 2, LH_WAIT_UNTIL_GRANTED, 0);
    ask_for(node, &second, 0, 3, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(5));
    ck_assert_int_eq(passed_on, 0); /* that they were queued is no reason */
    int64_t ticket = row_of(0, 2)->ticket;
    ck_assert_int_gt(ticket, row_of(0, 9)->ticket);

    give_send(node, &give, 0, 1);
    fake_run(&world, MS(10));
    ck_assert_int_ge(passed_on, 1);
    ck_assert_int_eq(first_ticket, ticket);
    ck_assert_int_eq(first.answers, 0); /* the rules of the queue are the database's */

    /* The row stays for a while: it is not told about all the time. */
    int before = passed_on;
    fake_run(&world, MS(1000));
    ck_assert_int_le(passed_on - before, 1000 / 20 + 1);

    /* When it has gone our first one's turn comes, by the slow poll at the latest. */
    memmove(world.scopes[0].rows, world.scopes[0].rows + 1, --world.scopes[0].row_count * sizeof(struct fake_row));
    fake_run(&world, MS(1500));
    ck_assert_int_eq(first.status, LH_OK);
    ck_assert_int_eq(second.answers, 0);
}
END_TEST

START_TEST(somebody_elses_waiter_ahead_is_told)
{
    struct fake_node *node = start_counting();
    struct fake_node *other = fake_node_start(&world, &options);
    struct ask holder, theirs, ours;
    struct give give;
    hold_now(node, &holder, 0, 1);
    fake_run(&world, MS(10));
    ask_for(other, &theirs, 0, 2, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(5));
    ask_for(node, &ours, 0, 3, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(5));
    fake_listener_drop(other); /* it does not hear of the release */
    give_send(node, &give, 0, 1);
    fake_run(&world, MS(5));
    lh_coordinator_wake(node->coordinator, world.scopes[0].ns, world.scopes[0].key);
    fake_run(&world, MS(5));
    ck_assert_int_ge(passed_on, 1);
    ck_assert_int_eq(first_ticket, row_of(0, 3)->ticket);
    fake_run(&world, MS(1500));
    ck_assert_int_eq(theirs.status, LH_OK);
    ck_assert_int_eq(ours.answers, 0);
}
END_TEST

/* The wake-up is for the first of the queue, which may be somebody whom nobody here knows. */
START_TEST(a_wake_up_is_passed_on_when_who_was_to_ask_leaves_before)
{
    struct fake_node *node = start_counting();
    struct ask holder, mine;
    hold_now(node, &holder, 0, 1);
    fake_run(&world, MS(10));
    ask_for(node, &mine, 0, 2, LH_WAIT_UNTIL_GRANTED, 0);
    lh_coordinator_wake(node->coordinator, world.scopes[0].ns, world.scopes[0].key);
    lh_coordinator_cancel(node->coordinator, &mine.acquire);
    fake_run(&world, MS(10));
    ck_assert_int_eq(passed_on, 1);
}
END_TEST

START_TEST(while_somebody_holds_it_nobody_is_told)
{
    struct fake_node *node = start_counting();
    struct ask holder, first;
    struct beat beat;
    hold_now(node, &holder, 0, 1);
    fake_row_add(&world, 0, key_of(9),
                 node->index); /* of a batch whose connection was given up before it was committed */
    ask_for(node, &first, 0, 2, LH_WAIT_UNTIL_GRANTED, 0);
    fake_run(&world, MS(5));
    for (int i = 0; i < 5; i++) {
        beat_send(node, &beat, 0, 1);
        lh_coordinator_wake(node->coordinator, world.scopes[0].ns, world.scopes[0].key);
        fake_run(&world, MS(2000));
    }
    ck_assert_int_gt(world.scopes[0].acquires, 3); /* it was asked for */
    ck_assert_int_eq(passed_on, 0);
    ck_assert_int_eq(first.answers, 0);
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_test(tcase, a_row_that_nobody_knows_is_passed_on_with_the_ticket_of_our_first);
    tcase_add_test(tcase, somebody_elses_waiter_ahead_is_told);
    tcase_add_test(tcase, a_wake_up_is_passed_on_when_who_was_to_ask_leaves_before);
    tcase_add_test(tcase, while_somebody_holds_it_nobody_is_told);
}

int main(void)
{
    return run_suite("lease, looking ahead", add);
}
