/* Access rules: read with the first tick and whenever the version that ticks tell is another one. */
#include <stdio.h>

#include "base/log.h"
#include "lease/readiness.h"
#include "lease_fixture.h"

static struct lh_store_ops ops;
static struct fake_node *node;
static lh_access_cb *on_read;
static void *read_arg;
static int reads, loads;
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
    reads = loads = 0;
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

static void add(TCase *tcase)
{
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, rules_are_read_once_for_each_version);
    tcase_add_test(tcase, last_rules_stay_when_new_ones_cannot_be_read);
}

int main(void)
{
    return run_suite("lease, rules", add);
}
