/* Access rules: read with the first tick and whenever the version that ticks tell is another one. Rows of spread namespaces:
   read with each tick, and when a key is elsewhere. */
#include <stdio.h>

#include "base/log.h"
#include "lease/readiness.h"
#include "lease_fixture.h"

static struct lh_store_ops ops;
static struct fake_node *node;
static lh_access_cb *on_read;
static void *read_arg;
static int reads, loads, row_reads, row_loads;
static int64_t told_us;
static size_t rules;
static char warnings[1024];

static enum lh_status read_access(struct lh_store *store, lh_access_cb *on_done, void *arg)
{
    reads++;
    on_read = on_done;
    read_arg = arg;
    return LH_OK;
}

static bool is_connected(struct lh_store *store)
{
    return true;
}

static void on_rules(void *arg, const struct lh_access_answer *answer)
{
    loads++;
    rules = answer->rule_count;
}

static void on_line(void *arg, enum lh_log_level level, const char *line)
{
    size_t used = strlen(warnings);
    if (level == LH_LOG_WARN)
        snprintf(warnings + used, sizeof(warnings) - used, "%s\n", line);
}

static void setup(void)
{
    reads = loads = row_reads = row_loads = 0;
    told_us = 0;
    warnings[0] = '\0';
    lh_log_set_level(LH_LOG_WARN);
    lh_log_set_sink(on_line, NULL);
    world.access_version = 1;
    node = start_node();
    ops = *node->store.ops;
    ops.read_access = read_access;
    ops.is_connected = is_connected;
    node->store.ops = &ops;
    lh_coordinator_on_rules(node->coordinator, on_rules, NULL);
    lh_coordinator_need_rules(node->coordinator, true);
}

static void teardown(void)
{
    lh_log_set_sink(NULL, NULL);
}

static void answer(size_t rule_count)
{
    struct lh_access_answer given = {.rule_count = rule_count};
    on_read(read_arg, LH_OK, NULL, &given);
}

static bool is_ready(void)
{
    struct lh_readiness readiness;
    lh_coordinator_readiness(node->coordinator, &readiness);
    return readiness.is_ready;
}

START_TEST(rules_are_read_once_for_each_version)
{
    ck_assert(!is_ready());
    fake_run(&world, MS(5000));
    ck_assert_int_eq(reads, 1); /* not answered yet */
    ck_assert(!is_ready());
    answer(3);
    ck_assert_uint_eq(rules, 3);
    ck_assert(is_ready());
    fake_run(&world, MS(10000));
    ck_assert_int_eq(reads, 1);
    world.access_version = 2;
    fake_run(&world, MS(3000));
    ck_assert_int_eq(reads, 2);
    world.access_version = 3; /* while that is on its way */
    fake_run(&world, MS(3000));
    answer(4);
    fake_run(&world, MS(3000));
    ck_assert_int_eq(reads, 3);
    answer(5);
    ck_assert_int_eq(loads, 3);
}
END_TEST

START_TEST(last_rules_stay_when_new_ones_cannot_be_read)
{
    struct lh_error refusal = {.status = LH_INTERNAL, .message = "permission denied"};

    fake_run(&world, MS(3000));
    answer(3);
    world.access_version = 2;
    for (int i = 0; i < 5; i++) {
        int before = reads;
        fake_run(&world, MS(3000));
        ck_assert_int_eq(reads, before + 1); /* again with each tick */
        on_read(read_arg, LH_INTERNAL, &refusal, NULL);
    }
    ck_assert_int_eq(loads, 1);
    ck_assert(is_ready());
    ck_assert_ptr_nonnull(strstr(warnings, "the last ones stay in force: permission denied"));
    ck_assert_ptr_null(strstr(strstr(warnings, "permission denied") + 1, "permission denied")); /* once a minute */
}
END_TEST

/* --- rows of spread namespaces --- */

static lh_spread_read_cb *on_rows;
static void *rows_arg;

static enum lh_status read_spread(struct lh_store *store, int64_t read_us, lh_spread_read_cb *on_done, void *arg)
{
    row_reads++;
    told_us = read_us;
    on_rows = on_done;
    rows_arg = arg;
    return LH_OK;
}

static void on_spread(void *arg, const struct lh_spread_answer *answer)
{
    row_loads++;
}

static void answer_rows(int64_t changed_at_us)
{
    struct lh_spread_row row = {.changed_at_us = changed_at_us};
    struct lh_spread_answer given = {&row, 1};

    on_rows(rows_arg, LH_OK, NULL, &given);
}

START_TEST(rows_are_read_with_each_tick_and_what_is_in_force_is_told_at_once)
{
    ops.read_spread = read_spread;
    fake_run(&world, MS(3000));
    ck_assert_int_eq(row_reads, 0); /* nobody wants them */
    lh_coordinator_on_spread(node->coordinator, on_spread, NULL);
    fake_run(&world, MS(3000));
    ck_assert_int_eq(row_reads, 1); /* not answered yet */
    ck_assert_int_eq(told_us, 0);
    answer_rows(7);
    ck_assert_int_eq(row_reads, 2);
    ck_assert_int_eq(told_us, 7);
    answer_rows(7);
    ck_assert_int_eq(row_loads, 2);
    ck_assert_int_eq(row_reads, 2);
    fake_run(&world, MS(1200));
    ck_assert_int_eq(row_reads, 3);
}
END_TEST

START_TEST(a_key_that_is_elsewhere_makes_it_read_the_rows_but_not_in_a_hurry)
{
    struct ask asks[3];

    ops.read_spread = read_spread;
    lh_coordinator_on_spread(node->coordinator, on_spread, NULL);
    world.scopes[0].is_elsewhere = true;
    fake_run(&world, MS(1500));
    while (row_loads == 0 || told_us == 0)
        answer_rows(7);
    answer_rows(7);
    row_reads = 0;
    for (int i = 0; i < 3; i++) {
        ask_for(node, &asks[i], 0, (unsigned char)(i + 1), LH_WAIT_TIME, MS(5000));
        fake_run(&world, MS(5));
        ck_assert_int_eq(asks[i].status, LH_DATABASE_UNAVAILABLE);
        ck_assert_int_eq(row_reads, 1);
        if (i == 0)
            answer_rows(7);
    }
    fake_run(&world, MS(250));
    row_reads = 0;
    ask_for(node, &asks[0], 0, 4, LH_WAIT_TIME, MS(5000));
    fake_run(&world, MS(5));
    ck_assert_int_eq(row_reads, 1);
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, rows_are_read_with_each_tick_and_what_is_in_force_is_told_at_once);
    tcase_add_test(tcase, a_key_that_is_elsewhere_makes_it_read_the_rows_but_not_in_a_hurry);
    tcase_add_test(tcase, rules_are_read_once_for_each_version);
    tcase_add_test(tcase, last_rules_stay_when_new_ones_cannot_be_read);
}

int main(void)
{
    return run_suite("lease, rules", add);
}
