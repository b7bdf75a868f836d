/* When a command that loses its lease is sent TERM and KILL. */
#include "test_cli.h"

#include "base/clock.h"
#include "cli/run/supervisor_internal.h"

#define MS LH_US_PER_MS
#define S LH_US_PER_S

START_TEST(a_long_lease_leaves_all_of_kill_after)
{
    struct lh_run_schedule schedule = lh_run_schedule_of(30 * S, 5 * S);
    ck_assert_int_eq(schedule.grace_us, 5 * S);
    ck_assert_int_eq(schedule.margin_us, 1 * S);
    ck_assert_int_eq(lh_run_term_at_us(&schedule, 100 * S), 95 * S);
    ck_assert_int_eq(lh_run_kill_at_us(&schedule, 95 * S, 100 * S), 99 * S);
}
END_TEST

START_TEST(a_short_lease_shrinks_it_to_a_third)
{
    struct lh_run_schedule schedule = lh_run_schedule_of(3 * S, 5 * S);
    ck_assert_int_eq(schedule.grace_us, 1 * S);
    ck_assert_int_eq(schedule.margin_us, 300 * MS);
    schedule = lh_run_schedule_of(100 * MS, 5 * S);
    ck_assert_int_eq(schedule.grace_us, 100 * MS / 3);
    ck_assert_int_eq(schedule.margin_us, 10 * MS);
}
END_TEST

START_TEST(a_command_told_to_end_early_is_killed_a_grace_later)
{
    struct lh_run_schedule schedule = lh_run_schedule_of(30 * S, 5 * S);
    ck_assert_int_eq(lh_run_kill_at_us(&schedule, 80 * S, 100 * S), 85 * S);
    ck_assert_int_eq(lh_run_kill_at_us(&schedule, 97 * S, 100 * S), 99 * S);
    ck_assert_int_eq(lh_run_kill_at_us(&schedule, 200 * S, 100 * S), 99 * S); /* past: at once */
}
END_TEST

/* Whatever is asked for: TERM, then KILL, then the deadline, with time between. */
START_TEST(the_order_holds_for_every_duration)
{
    static const int64_t kill_afters[] = {0, 1, MS, 100 * MS, S, 5 * S, 3600 * S, 365 * 86400 * S};

    for (int64_t duration_us = 100 * MS; duration_us <= 365 * 86400 * S; duration_us = duration_us * 3 / 2) {
        for (size_t i = 0; i < sizeof(kill_afters) / sizeof(kill_afters[0]); i++) {
            struct lh_run_schedule schedule = lh_run_schedule_of(duration_us, kill_afters[i]);
            int64_t deadline_us = 1000 * S + duration_us;
            int64_t term_us = lh_run_term_at_us(&schedule, deadline_us);
            int64_t kill_us = lh_run_kill_at_us(&schedule, term_us, deadline_us);

            ck_assert_int_ge(term_us, 1000 * S + duration_us * 2 / 3); /* a renewal can fail once */
            ck_assert_int_gt(kill_us, term_us);
            ck_assert_int_ge(deadline_us - kill_us, 10 * MS);
        }
    }
}
END_TEST

TCase *test_cli_run(void)
{
    TCase *tcase = tcase_create("run");

    tcase_add_test(tcase, a_long_lease_leaves_all_of_kill_after);
    tcase_add_test(tcase, a_short_lease_shrinks_it_to_a_third);
    tcase_add_test(tcase, a_command_told_to_end_early_is_killed_a_grace_later);
    tcase_add_test(tcase, the_order_holds_for_every_duration);
    return tcase;
}
