/* The core and time: the reaper, what it believes of the database's clock, its timers. */
#include "base/heap.h"
#include "lease_fixture.h"

START_TEST(the_reaper_ends_what_its_holder_left_and_counts_it)
{
    struct fake_node *node = start_node();
    struct ask a;
    ask_init(&a, 0, 1, LH_WAIT_NONE, 0);
    a.acquire.terms.duration_us = MS(1000);
    ask_send(node, &a);
    fake_run(&world, MS(1100));
    ck_assert(world.scopes[0].is_held);
    fake_run(&world, MS(1500));
    ck_assert(!world.scopes[0].is_held);
    ck_assert_uint_eq(stats_of(node).reaped, 1);
}
END_TEST

START_TEST(the_clock_is_believed_from_good_answers_only)
{
    struct fake_node *node = start_node();
    struct ask a;
    fake_run(&world, MS(3000));
    world.min_delay_us = world.max_delay_us = MS(300); /* slow, but it agrees */
    fake_run(&world, MS(3000));
    world.min_delay_us = world.max_delay_us = 500;
    ask_for(node, &a, 0, 1, LH_WAIT_NONE, 0);
    fake_run(&world, MS(5));
    int64_t error_us = node->last_clock_us - (world.now_us - MS(5) + world.clock_offset_us);
    ck_assert_int_lt(llabs(error_us), MS(2));
}
END_TEST

START_TEST(a_clock_that_stepped_is_seen_by_the_tick_and_believed_after_it)
{
    struct fake_node *node = start_node();
    struct ask a, b;
    fake_run(&world, MS(3000));
    fake_control_drop(node);
    world.clock_offset_us += MS(5000);
    fake_control_raise(node);
    fake_run(&world, 700); /* registered again, the tick is out */
    ask_for(node, &a, 0, 1, LH_WAIT_NONE, 0);
    fake_run(&world, 400);
    int64_t true_us = world.now_us + world.clock_offset_us;
    ck_assert_int_gt(true_us - node->last_clock_us, MS(4000)); /* registering did not hide the step */
    fake_run(&world, MS(1500));
    ask_for(node, &b, 1, 2, LH_WAIT_NONE, 0);
    fake_run(&world, 100);
    true_us = world.now_us + world.clock_offset_us;
    ck_assert_int_lt(true_us - node->last_clock_us, MS(5));
    fake_run(&world, MS(5));
}
END_TEST

START_TEST(timers_come_in_order_and_can_be_moved)
{
    struct lh_heap heap = {0};
    struct lh_heap_timer timers[200] = {{0}};
    for (int i = 0; i < 200; i++)
        lh_heap_set(&heap, &timers[i], fake_below(&world, 1000));
    for (int i = 0; i < 200; i += 3)
        lh_heap_set(&heap, &timers[i], i % 2 == 0 ? LH_NEVER : fake_below(&world, 1000));
    for (int i = 1; i < 200; i += 7)
        lh_heap_remove(&heap, &timers[i]);
    int64_t last_us = -1;
    struct lh_heap_timer *timer;
    ck_assert_ptr_null(lh_heap_due(&heap, -1));
    while ((timer = lh_heap_due(&heap, 1000)) != NULL) {
        ck_assert_int_ge(timer->at_us, last_us);
        ck_assert_uint_eq(timer->slot, 0);
        ck_assert((timer - timers) % 7 != 1);
        last_us = timer->at_us;
    }
    ck_assert_int_eq(lh_heap_next_us(&heap), LH_NEVER);
    lh_heap_finish(&heap);
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_test(tcase, the_reaper_ends_what_its_holder_left_and_counts_it);
    tcase_add_test(tcase, the_clock_is_believed_from_good_answers_only);
    tcase_add_test(tcase, a_clock_that_stepped_is_seen_by_the_tick_and_believed_after_it);
    tcase_add_test(tcase, timers_come_in_order_and_can_be_moved);
}

int main(void)
{
    return run_suite("lease, clocks", add);
}
