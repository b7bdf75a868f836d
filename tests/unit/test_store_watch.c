/* The store's calls of watching, on the real schema: what is added, settled, taken, and what is told of what was lost.
 */
#include <libpq-fe.h>
#include <stdio.h>
#include <string.h>

#include "test_store.h"

static const char *conninfo;
static struct test_store test;
static struct test_answer answer;

static struct {
    uint64_t horizon;
    bool is_settled, is_lagged, has_more;
    size_t count;
    struct lh_lease_event events[8];
    char words[8][4][64]; /* key, reason, result, error of each */
} got;

static void setup_all(void)
{
    conninfo = test_store_database("watch");
}

static void on_tick(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_tick_answer *tick)
{
    test_on_answer(&answer, status, error);
}

static void on_barrier(void *arg, enum lh_status status, const struct lh_error *error, uint64_t horizon)
{
    got.horizon = horizon;
    test_on_answer(&answer, status, error);
}

static void on_settled(void *arg, enum lh_status status, const struct lh_error *error, bool is_settled)
{
    got.is_settled = is_settled;
    test_on_answer(&answer, status, error);
}

static void on_events(void *arg, enum lh_status status, const struct lh_error *error,
                      const struct lh_events_answer *events)
{
    test_on_answer(&answer, status, error);
    if (status != LH_OK)
        return;
    got.is_lagged = events->is_lagged;
    got.has_more = events->has_more;
    got.count = events->event_count;
    for (size_t i = 0; i < events->event_count && i < 8; i++) {
        const struct lh_lease_event *event = &events->events[i];
        const char *words[] = {event->lease.key, event->reason, event->result, event->error};
        got.events[i] = *event;
        for (int w = 0; w < 4; w++)
            snprintf(got.words[i][w], sizeof(got.words[i][w]), "%s", words[w] == NULL ? "-" : words[w]);
    }
}

static void setup(void)
{
    memset(&answer, 0, sizeof(answer));
    memset(&got, 0, sizeof(got));
    test_store_start(&test, conninfo, 1);
    ck_assert_int_eq(test.store->ops->enroll(test.store, on_tick, NULL), LH_OK);
    test_wait_for_ok(&answer);
}

static void teardown(void)
{
    test_store_stop(&test);
}

static void add(const char *ns, bool include_children)
{
    ck_assert_int_eq(test.store->ops->watch_add(test.store, ns, include_children, test_on_answer, &answer), LH_OK);
    test_wait_for_ok(&answer);
}

static void barrier(void)
{
    ck_assert_int_eq(test.store->ops->watch_barrier(test.store, on_barrier, NULL), LH_OK);
    test_wait_for_ok(&answer);
}

static bool settled(uint64_t horizon)
{
    ck_assert_int_eq(test.store->ops->watch_settled(test.store, horizon, on_settled, NULL), LH_OK);
    test_wait_for_ok(&answer);
    return got.is_settled;
}

static void take(int32_t max)
{
    memset(&got, 0, sizeof(got));
    ck_assert_int_eq(test.store->ops->take_events(test.store, max, on_events, NULL), LH_OK);
    test_wait_for_ok(&answer);
}

static void take_and_give(const char *ns)
{
    char sql[512];
    snprintf(sql, sizeof(sql),
             "do $$ declare v_ns text := '%s'; v_key uuid := gen_random_uuid(); begin "
             "perform leasehold.acquire(v_ns, 'k', '30 s', 'worker', v_key); "
             "perform leasehold.release_ok(v_ns, 'k', v_key, '{\"rows\": 3}'); end $$",
             ns);
    pg_fixture_execute(conninfo, sql);
}

START_TEST(what_is_watched_is_taken_once_in_order_with_everything_it_tells)
{
    add("jobs", true);
    barrier();
    ck_assert_uint_gt(got.horizon, 0);
    ck_assert(settled(got.horizon));
    take_and_give("other");
    take_and_give("jobs.child");
    pg_fixture_execute(conninfo, "do $$ begin perform leasehold.acquire('jobs', 'k', '30 s'); "
                                 "perform leasehold.force_release('jobs', 'k', reason => 'a test'); end $$");
    take(100);
    ck_assert_uint_eq(got.count, 4);
    ck_assert(!got.is_lagged && !got.has_more);
    ck_assert_int_eq(got.events[0].type, LH_EVENT_ACQUIRED);
    ck_assert_int_eq(got.events[1].type, LH_EVENT_RELEASED);
    ck_assert_int_eq(got.events[1].end_reason, LH_END_RELEASED);
    ck_assert_str_eq(got.words[1][2], "{\"rows\": 3}");
    ck_assert_int_eq(got.events[0].lease.token, got.events[1].lease.token);
    ck_assert_int_eq(got.events[2].type, LH_EVENT_ACQUIRED);
    ck_assert_int_eq(got.events[3].type, LH_EVENT_FORCED);
    ck_assert_int_eq(got.events[3].end_reason, LH_END_FORCED);
    ck_assert_str_eq(got.words[3][1], "a test");
    ck_assert_str_eq(got.words[3][0], "k");
    ck_assert_int_gt(got.events[3].lease.token, got.events[1].lease.token);
    take(100);
    ck_assert_uint_eq(got.count, 0);
}
END_TEST

START_TEST(no_more_are_taken_than_were_asked_for)
{
    add("jobs", false);
    take_and_give("jobs");
    take_and_give("jobs");
    take(3);
    ck_assert_uint_eq(got.count, 3);
    ck_assert(got.has_more);
    take(3);
    ck_assert_uint_eq(got.count, 1);
    ck_assert(!got.has_more);
}
END_TEST

START_TEST(an_open_transaction_that_changed_a_lease_does_not_settle_and_one_that_reads_does)
{
    PGconn *other = PQconnectdb(conninfo);
    PQclear(PQexec(other, "begin"));
    PQclear(PQexec(other, "select leasehold.acquire('jobs', 'open', '30 s')"));
    add("jobs", false);
    barrier();
    uint64_t horizon = got.horizon;
    ck_assert(!settled(horizon));
    ck_assert(!settled(horizon));
    PQclear(PQexec(other, "commit"));
    ck_assert(settled(horizon));
    PQclear(PQexec(other, "begin"));
    PQclear(PQexec(other, "select count(*) from leasehold.lease"));
    barrier();
    ck_assert(settled(got.horizon));
    PQfinish(other);
    pg_fixture_execute(conninfo, "select leasehold.force_release('jobs', 'open', reason => 'a test')");
}
END_TEST

START_TEST(a_watch_that_is_removed_tells_nothing_more)
{
    add("jobs", false);
    ck_assert_int_eq(test.store->ops->watch_remove(test.store, "jobs", false, test_on_answer, &answer), LH_OK);
    test_wait_for_ok(&answer);
    add("other", false); /* something is watched, else it would have lagged */
    take_and_give("jobs");
    take(100);
    ck_assert_uint_eq(got.count, 0);
}
END_TEST

START_TEST(what_was_cleared_is_told_as_lost)
{
    add("jobs", false);
    take_and_give("jobs");
    ck_assert_int_eq(test.store->ops->watch_clear(test.store, test_on_answer, &answer), LH_OK);
    test_wait_for_ok(&answer);
    barrier();
    ck_assert_uint_eq(got.horizon, 0);
    take(100);
    ck_assert(got.is_lagged);
}
END_TEST

TCase *test_store_watch(void)
{
    TCase *tests = tcase_create("watch");

    tcase_add_unchecked_fixture(tests, setup_all, NULL);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, what_is_watched_is_taken_once_in_order_with_everything_it_tells);
    tcase_add_test(tests, no_more_are_taken_than_were_asked_for);
    tcase_add_test(tests, an_open_transaction_that_changed_a_lease_does_not_settle_and_one_that_reads_does);
    tcase_add_test(tests, a_watch_that_is_removed_tells_nothing_more);
    tcase_add_test(tests, what_was_cleared_is_told_as_lost);
    return tests;
}
