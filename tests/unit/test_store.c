#include "test_store.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "pg/migrate.h"
#include "run_tests.h"

struct lh_loop *test_loop;

static void on_lane_up(void *arg, unsigned lane)
{
    ((struct test_store *)arg)->lanes_up++;
}

static void on_lane_down(void *arg, unsigned lane)
{
    ((struct test_store *)arg)->lanes_down++;
}

static void on_control_up(void *arg)
{
    ((struct test_store *)arg)->control_up++;
}

static void on_control_down(void *arg)
{
    ((struct test_store *)arg)->control_down++;
}

static void on_listener_up(void *arg)
{
    ((struct test_store *)arg)->listener_up++;
}

static void on_wake(void *arg, const struct lh_wake *wake)
{
    struct test_store *test = arg;
    test->wakes++;
    snprintf(test->wake_ns, sizeof(test->wake_ns), "%s", wake->ns == NULL ? "*" : wake->ns);
    snprintf(test->wake_key, sizeof(test->wake_key), "%s", wake->key == NULL ? "*" : wake->key);
}

static void on_stopped(void *arg, enum lh_status status, const struct lh_error *error)
{
    ck_assert_int_eq(status, LH_OK);
    ((struct test_store *)arg)->is_stopped = true;
}

const char *test_store_database(const char *name)
{
    const char *conninfo = pg_fixture_create_database(name);
    struct lh_error error;

    ck_assert_msg(lh_migrate(conninfo, LH_MIGRATE_RUN, &lh_migrations, LH_VERSION, NULL, &error) == LH_OK, "%s",
                  error.message);
    return conninfo;
}

void test_store_start(struct test_store *test, const char *conninfo, unsigned lanes)
{
    test_store_start_with(test, conninfo, lanes, 10 * LH_US_PER_S);
}

static void start(struct test_store *test, const char *conninfo, unsigned lanes, unsigned hook_lanes,
                  int64_t stop_timeout_us)
{
    static const struct lh_store_events events = {
        on_lane_up, on_lane_down, on_control_up, on_control_down, on_listener_up, on_wake, NULL, NULL, NULL};
    struct lh_store_options options;

    memset(test, 0, sizeof(*test));
    lh_store_options_init(&options);
    options.conninfo = conninfo;
    options.lanes = lanes;
    options.hook_lanes = hook_lanes;
    options.stop_timeout_us = stop_timeout_us;
    test->store = lh_store_create(test_loop, &options);
    test->store->ops->start(test->store, &events, test);
    WAIT_FOR(test_loop, test->lanes_up == lanes + hook_lanes && test->control_up == 1 && test->listener_up == 1);
    ck_assert(test->store->ops->is_connected(test->store));
}

void test_store_start_with(struct test_store *test, const char *conninfo, unsigned lanes, int64_t stop_timeout_us)
{
    start(test, conninfo, lanes, 0, stop_timeout_us);
}

void test_store_start_hooked(struct test_store *test, const char *conninfo, unsigned lanes, unsigned hook_lanes)
{
    start(test, conninfo, lanes, hook_lanes, 10 * LH_US_PER_S);
}

void test_store_stop(struct test_store *test)
{
    test->store->ops->stop(test->store, on_stopped, test);
    WAIT_FOR(test_loop, test->is_stopped);
    lh_store_destroy(test->store);
    test->store = NULL;
}

void test_on_answer(void *arg, enum lh_status status, const struct lh_error *error)
{
    struct test_answer *answer = arg;
    answer->count++;
    answer->status = status;
    memset(&answer->error, 0, sizeof(answer->error));
    if (error != NULL)
        answer->error = *error;
}

void test_wait_for(struct test_answer *answer)
{
    WAIT_FOR(test_loop, answer->count > 0);
    ck_assert_uint_eq(answer->count, 1);
    answer->count = 0;
}

void test_wait_for_ok(struct test_answer *answer)
{
    test_wait_for(answer);
    ck_assert_msg(answer->status == LH_OK, "%s (%s)", answer->error.message, answer->error.sqlstate);
}

int main(void)
{
    Suite *suite = suite_create("store");
    int status;

    lh_log_set_level(LH_LOG_ERROR + 1);
    pg_fixture_conninfo();
    test_loop = lh_loop_create();
    suite_add_tcase(suite, test_store_batches());
    suite_add_tcase(suite, test_store_leases());
    suite_add_tcase(suite, test_store_hand_over());
    suite_add_tcase(suite, test_store_control());
    suite_add_tcase(suite, test_store_hooks());
    suite_add_tcase(suite, test_store_watch());
    status = run_tests(suite, CK_NOFORK);
    lh_loop_destroy(test_loop);
    return status;
}
