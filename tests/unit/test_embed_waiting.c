/* Waiting over a PGconn. */
#include <pthread.h>

#include "base/clock.h"
#include "embed/transaction.h"
#include "test_embed.h"

struct release_later {
    struct lh_embed_lease lease;
    const char *priority; /* of the waiter */
    enum lh_status status;
};

static void *release_when_somebody_waits(void *arg)
{
    struct release_later *later = arg;
    PGconn *own = PQconnectdb(conninfo);
    int64_t until_us = lh_clock_us() + 20 * LH_US_PER_S;
    bool is_waited_for = false;

    while (!is_waited_for && lh_clock_us() < until_us) {
        PGresult *result = PQexecParams(own, "select 1 from leasehold.waiter where priority = $1::integer", 1, NULL,
                                        &later->priority, NULL, NULL, 0);
        is_waited_for = PQntuples(result) > 0;
        PQclear(result);
        lh_pause(5 * LH_US_PER_MS);
    }
    later->status = lh_embed_release_ok(own, &later->lease, NULL, NULL, NULL);
    if (!is_waited_for)
        later->status = LH_NOT_HELD; /* the waiter never was as it should be */
    PQfinish(own);
    return NULL;
}

START_TEST(a_waiter_is_told_when_its_turn_comes)
{
    struct lh_embed_acquire_options options = {.duration_us = LH_SECOND * 60, .wait_us = LH_FOREVER};
    struct release_later later = {.priority = "0"};
    struct lh_embed_lease lease;
    pthread_t thread;

    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", &options, &later.lease, &test_error), LH_OK);
    pthread_create(&thread, NULL, release_when_somebody_waits, &later);
    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", &options, &lease, &test_error), LH_OK);
    pthread_join(thread, NULL);
    ck_assert_int_eq(later.status, LH_OK);
    ck_assert_int_gt(lease.token, later.lease.token);
    check_value("select count(*) from leasehold.waiter", "0");
    PGresult *result = PQexec(conn, "select pg_listening_channels()");
    ck_assert_int_eq(PQntuples(result), 0);
    PQclear(result);
}
END_TEST

START_TEST(a_waiter_has_the_priority_of_its_request)
{
    struct lh_embed_acquire_options options = {.wait_us = LH_FOREVER, .embed = {.priority = 7}};
    struct release_later later = {.priority = "7"};
    struct lh_embed_lease lease;
    pthread_t thread;

    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", &options, &later.lease, &test_error), LH_OK);
    pthread_create(&thread, NULL, release_when_somebody_waits, &later);
    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", &options, &lease, &test_error), LH_OK);
    pthread_join(thread, NULL);
    ck_assert_int_eq(later.status, LH_OK);
    options.embed.priority = 1001;
    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", &options, &lease, &test_error), LH_INVALID_ARGUMENT);
    ck_assert_str_eq(test_error.message, "priority must be 0 to 1000, is 1001");
}
END_TEST

START_TEST(a_waiter_takes_over_what_expires_where_no_daemon_runs)
{
    struct lh_embed_acquire_options options = {.duration_us = LH_SECOND, .wait_us = 20 * LH_SECOND};
    struct lh_embed_lease first, lease;

    execute("select leasehold.set_policy('embed', grace => '0 s')");
    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", &options, &first, &test_error), LH_OK);
    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", &options, &lease, &test_error), LH_OK);
    ck_assert_int_gt(lease.token, first.token);
    ck_assert_int_eq(lh_embed_heartbeat(conn, &first, NULL, &test_error), LH_LOST);
}
END_TEST

START_TEST(a_wait_ends_and_leaves_no_place_behind)
{
    struct lh_embed_acquire_options options = {.wait_us = 200 * LH_MILLISECOND};
    struct lh_embed_lease first, lease;

    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", &options, &first, &test_error), LH_OK);
    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", &options, &lease, &test_error), LH_WAIT_TIMEOUT);
    check_value("select count(*) from leasehold.waiter", "0");
    options.lease_key = first.lease_key; /* its own holder does not wait */
    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", &options, &lease, &test_error), LH_OK);
    ck_assert_int_eq(lh_embed_release_ok(conn, &first, NULL, NULL, &test_error), LH_OK);
    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", &options, &lease, &test_error), LH_LEASE_ENDED);
}
END_TEST

START_TEST(what_no_rule_allows_is_denied)
{
    struct lh_embed_acquire_options options = {.wait_us = LH_FOREVER};
    struct lh_embed_lease lease;

    execute("create role embed_worker login in role leasehold_client");
    execute("select leasehold.access_grant('role:embed_worker', 'embed', 'read')");
    PQclear(PQexec(conn, "set session authorization embed_worker"));
    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", &options, &lease, &test_error), LH_ACCESS_DENIED);
    ck_assert_str_eq(test_error.sqlstate, "LH007");
    PQclear(PQexec(conn, "reset session authorization"));
    execute("select leasehold.access_revoke('role:embed_worker', 'embed')");
    execute("drop role embed_worker");
}
END_TEST

void add_embed_waiting(TCase *tests)
{
    tcase_add_test(tests, what_no_rule_allows_is_denied);
    tcase_add_test(tests, a_waiter_is_told_when_its_turn_comes);
    tcase_add_test(tests, a_waiter_has_the_priority_of_its_request);
    tcase_add_test(tests, a_waiter_takes_over_what_expires_where_no_daemon_runs);
    tcase_add_test(tests, a_wait_ends_and_leaves_no_place_behind);
}
