/* Long guards: looked for now and then, one look at a time; what was ended is counted, what cannot be is named. */
#include <stdio.h>

#include "base/log.h"
#include "lease_fixture.h"

static struct lh_store_ops ops;
static struct fake_node *node;
static lh_guards_cb *on_look;
static void *look_arg;
static int64_t look_us;
static int looks, warnings;
static char warning[512];

static enum lh_status end_long_guards(struct lh_store *store, int64_t max_us, lh_guards_cb *on_done, void *arg)
{
    looks++;
    look_us = max_us;
    on_look = on_done;
    look_arg = arg;
    return LH_OK;
}

static void on_line(void *arg, enum lh_log_level level, const char *line)
{
    if (level != LH_LOG_WARN)
        return;
    warnings++;
    snprintf(warning, sizeof(warning), "%s", line);
}

static void setup(void)
{
    looks = warnings = 0;
    lh_log_set_level(LH_LOG_WARN);
    lh_log_set_sink(on_line, NULL);
    node = start_node();
    ops = *node->store.ops;
    ops.end_long_guards = end_long_guards;
    node->store.ops = &ops;
}

static void teardown(void)
{
    lh_log_set_sink(NULL, NULL);
}

static void wait_for_look(void)
{
    int before = looks;
    for (int i = 0; i < 20 && looks == before; i++)
        fake_run(&world, MS(1000));
    ck_assert_int_eq(looks, before + 1);
}

START_TEST(a_guard_that_was_ended_is_counted_and_named)
{
    wait_for_look();
    ck_assert_int_eq(look_us, MS(60000));
    fake_run(&world, MS(60000));
    ck_assert_int_eq(looks, 1); /* not answered yet */
    on_look(look_arg, LH_OK, NULL, &(struct lh_long_guard){"pid 7 (user u)", NULL}, 1);
    ck_assert_uint_eq(stats_of(node).guards_ended, 1);
    ck_assert_uint_eq(stats_of(node).guards_overdue, 0);
    ck_assert_msg(
        strstr(warning, "a session guarded a lease for over 60 s (max_guard) and was ended: pid 7 (user u)") != NULL,
        "%s", warning);
    wait_for_look();
}
END_TEST

START_TEST(one_that_cannot_be_ended_is_named_once_a_minute)
{
    struct lh_long_guard guard = {"pid 7 (user u)", "it is a superuser's session"};

    for (int i = 0; i < 3; i++) {
        wait_for_look();
        on_look(look_arg, LH_OK, NULL, &guard, 1);
        ck_assert_uint_eq(stats_of(node).guards_overdue, 1);
    }
    ck_assert_int_eq(warnings, 1);
    fake_run(&world, MS(60000));
    on_look(look_arg, LH_OK, NULL, &guard, 1);
    ck_assert_int_eq(warnings, 2);
    ck_assert_ptr_nonnull(strstr(warning, "cannot be ended: pid 7 (user u): it is a superuser's session"));
    wait_for_look();
    on_look(look_arg, LH_OK, NULL, NULL, 0);
    ck_assert_uint_eq(stats_of(node).guards_overdue, 0);
    ck_assert_uint_eq(stats_of(node).guards_ended, 0);
}
END_TEST

START_TEST(a_limit_of_0_looks_for_none)
{
    lh_coordinator_set_max_guard(node->coordinator, 0);
    fake_run(&world, MS(60000));
    ck_assert_int_eq(looks, 0);
    lh_coordinator_set_max_guard(node->coordinator, MS(1000));
    wait_for_look();
    ck_assert_int_eq(look_us, MS(1000));
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_guard_that_was_ended_is_counted_and_named);
    tcase_add_test(tcase, one_that_cannot_be_ended_is_named_once_a_minute);
    tcase_add_test(tcase, a_limit_of_0_looks_for_none);
}

int main(void)
{
    return run_suite("lease, guards", add);
}
