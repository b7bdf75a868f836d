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

/* For the scope and the one after it, in this mode. */
static void ask_for_two(struct fake_node *node, struct ask *ask, int scope, int lease_key, int32_t units)
{
    static struct lh_wanted_scope also;

    also = (struct lh_wanted_scope){world.scopes[scope + 1].ns, world.scopes[scope + 1].key, units, LH_AT_LEAST_POLICY};
    ask_init(ask, scope, lease_key, LH_WAIT_UNTIL_GRANTED, 0);
    ask->acquire.units = units;
    ask->acquire.terms.duration_us = 10 * LH_US_PER_S;
    ask->acquire.also = &also;
    ask->acquire.also_count = 1;
    ask_send(node, ask);
}

/* Of a batch that was committed late: its ticket is older. */
static void row_before(int scope, int lease_key, int node)
{
    struct fake_row *rows;

    fake_row_add(&world, scope, key_of(lease_key), node);
    rows = world.scopes[scope].rows;
    ck_assert_uint_eq(world.scopes[scope].row_count, 2);
    struct fake_row row = rows[1];
    row.ticket = rows[0].ticket - 1;
    rows[1] = rows[0];
    rows[0] = row;
}

/* Its place here waits for another scope, so that no answer here says whose turn it is. */
START_TEST(a_row_that_nobody_knows_goes_from_before_a_place_that_waits_for_another_scope)
{
    options.max_block_us = 0;
    struct fake_node *node = start_counting();
    struct ask holder, ours;
    world.scopes[1].is_manual = true; /* its holder does not expire */
    hold_now(node, &holder, 1, 1);
    ask_for_two(node, &ours, 1, 2, 0);
    fake_run(&world, MS(10));
    int64_t ticket = row_of(2, 2)->ticket;
    row_before(2, 9, node->index);
    ck_assert_int_eq(passed_on, 0);

    fake_run(&world, MS(1500));
    ck_assert_int_eq(passed_on, 1);
    ck_assert_int_eq(first_ticket, ticket);
    fake_run(&world, MS(22000));
    ck_assert_ptr_null(row_of(2, 9));
    ck_assert_ptr_nonnull(row_of(2, 2));
    ck_assert_int_le(passed_on, 3); /* as long as it waits there, its scope is named at each tick */
    ck_assert_int_eq(ours.answers, 0);
}
END_TEST

/* A place of several that goes with its first waiter is to be asked for again when the answer for that one comes. */
START_TEST(a_row_that_nobody_knows_goes_from_before_shared_waiters)
{
    struct fake_node *node = start_counting();
    struct ask holder, first, second;
    struct give give;
    hold_now(node, &holder, 0, 1);
    fake_row_add(&world, 0, key_of(9), node->index);
    ask_init(&first, 0, 2, LH_WAIT_UNTIL_GRANTED, 0);
    first.acquire.units = 1;
    ask_send(node, &first);
    fake_run(&world, MS(5));
    ask_for_two(node, &second, 0, 3, 1);
    fake_run(&world, MS(5));
    int64_t ticket = row_of(0, 2)->ticket;
    give_send(node, &give, 0, 1);
    fake_run(&world, MS(50));
    ck_assert_int_ge(passed_on, 1);
    ck_assert_int_eq(first_ticket, ticket);
    fake_run(&world, MS(13000));
    ck_assert_int_eq(first.status, LH_OK);
    ck_assert_int_eq(second.status, LH_OK);
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_test(tcase, a_row_that_nobody_knows_is_passed_on_with_the_ticket_of_our_first);
    tcase_add_test(tcase, somebody_elses_waiter_ahead_is_told);
    tcase_add_test(tcase, a_wake_up_is_passed_on_when_who_was_to_ask_leaves_before);
    tcase_add_test(tcase, a_row_that_nobody_knows_goes_from_before_a_place_that_waits_for_another_scope);
    tcase_add_test(tcase, a_row_that_nobody_knows_goes_from_before_shared_waiters);
    tcase_add_test(tcase, while_somebody_holds_it_nobody_is_told);
}

int main(void)
{
    return run_suite("lease, looking ahead", add);
}
