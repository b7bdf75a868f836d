/* The survey: asked for now and then, one at a time, and an old transaction is named in the log, not too often. */
#include <stdio.h>

#include "base/log.h"
#include "lease_fixture.h"

static struct lh_store_ops ops;
static struct fake_node *node;
static lh_survey_cb *on_survey;
static void *survey_arg;
static int surveys, warnings;
static char warning[512];

static enum lh_status survey(struct lh_store *store, lh_survey_cb *on_done, void *arg)
{
    surveys++;
    on_survey = on_done;
    survey_arg = arg;
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
    surveys = warnings = 0;
    lh_log_set_level(LH_LOG_WARN);
    lh_log_set_sink(on_line, NULL);
    node = start_node();
    ops = *node->store.ops;
    ops.survey = survey;
    node->store.ops = &ops;
}

static void teardown(void)
{
    lh_log_set_sink(NULL, NULL);
}

/* Let the next one be asked for, and answer it. */
static void answer_next(int64_t held, int64_t oldest_us)
{
    struct lh_survey_answer answer = {held, oldest_us, "pid=7 user=u application=a state=s"};
    int before = surveys;

    for (int i = 0; i < 20 && surveys == before; i++)
        fake_run(&world, MS(1000));
    ck_assert_int_eq(surveys, before + 1);
    on_survey(survey_arg, LH_OK, NULL, &answer);
}

START_TEST(the_database_is_surveyed_every_15_seconds_and_never_twice_at_once)
{
    fake_run(&world, MS(60000));
    ck_assert_int_eq(surveys, 1); /* not answered yet */
    ck_assert_int_eq(stats_of(node).survey_us, 0);
    on_survey(survey_arg, LH_OK, NULL, &(struct lh_survey_answer){42, 3000000, "somebody"});
    ck_assert_int_eq(stats_of(node).held, 42);
    ck_assert_int_eq(stats_of(node).oldest_us, 3000000);
    ck_assert_int_eq(stats_of(node).survey_us, world.now_us);
    for (int i = 0; i < 4; i++)
        answer_next(i, 0);
    ck_assert_int_eq(stats_of(node).held, 3);
    ck_assert_int_eq(stats_of(node).oldest_us, 0);
    surveys = 0;
    fake_run(&world, MS(13000));
    ck_assert_int_eq(surveys, 0);
    ck_assert_int_eq(warnings, 0);
}
END_TEST

START_TEST(a_survey_that_failed_keeps_what_was_known_and_is_asked_again)
{
    struct lh_error error = {.status = LH_DATABASE_UNAVAILABLE};

    answer_next(5, 0);
    fake_run(&world, MS(17000));
    on_survey(survey_arg, LH_DATABASE_UNAVAILABLE, &error, NULL);
    ck_assert_int_eq(stats_of(node).held, 5);
    answer_next(6, 0);
    ck_assert_int_eq(stats_of(node).held, 6);
}
END_TEST

START_TEST(an_old_transaction_is_named_once_a_minute)
{
    answer_next(0, MS(59999));
    ck_assert_int_eq(warnings, 0);
    answer_next(0, MS(75500));
    ck_assert_int_eq(warnings, 1);
    ck_assert_ptr_nonnull(strstr(warning, "pid=7 user=u application=a state=s"));
    ck_assert_ptr_nonnull(strstr(warning, "75 s"));
    for (int i = 0; i < 3; i++)
        answer_next(0, MS(90000));
    ck_assert_int_eq(warnings, 1);
    for (int i = 0; i < 2; i++)
        answer_next(0, MS(120000));
    ck_assert_int_eq(warnings, 2);
}
END_TEST

START_TEST(batches_are_measured)
{
    struct ask a, b;
    uint64_t acquires = 0;

    hold_now(node, &a, 0, 1);
    hold_now(node, &b, 1, 2);
    for (size_t i = 0; i <= lh_latency_bounds.count; i++)
        acquires += stats_of(node).batch_us[0].counts[i];
    ck_assert_uint_eq(acquires, 2);
    ck_assert_uint_ge(stats_of(node).batch_us[0].sum, 2 * MS(1)); /* a round trip takes as long */
    ck_assert_uint_eq(stats_of(node).batch_sizes[0].counts[0], 2);
    ck_assert_uint_eq(stats_of(node).batch_sizes[0].sum, 2);
}
END_TEST

START_TEST(refusals_of_waiters_are_told_apart)
{
    struct ask asks[4];

    options.max_waiters = 1;
    node = start_node();
    hold_now(node, &asks[0], 0, 1);
    ask_for(node, &asks[1], 0, 2, LH_WAIT_TIME, MS(9000));
    ask_init(&asks[2], 0, 3, LH_WAIT_TIME, MS(9000));
    ck_assert_int_eq(lh_coordinator_acquire(node->coordinator, &asks[2].acquire), LH_OVERLOADED);
    ck_assert_uint_eq(stats_of(node).refused, 1);
    ck_assert_uint_eq(stats_of(node).refused_waiters, 1);
    ck_assert_uint_eq(stats_of(node).max_waiters, 1);
    ck_assert_uint_ge(stats_of(node).scopes, 1);
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, the_database_is_surveyed_every_15_seconds_and_never_twice_at_once);
    tcase_add_test(tcase, a_survey_that_failed_keeps_what_was_known_and_is_asked_again);
    tcase_add_test(tcase, an_old_transaction_is_named_once_a_minute);
    tcase_add_test(tcase, batches_are_measured);
    tcase_add_test(tcase, refusals_of_waiters_are_told_apart);
}

int main(void)
{
    return run_suite("lease, survey", add);
}
