/* Reaping over a PGconn. */
#include <stdio.h>

#include "test_embed.h"

static void expire(const char *ns, int count)
{
    char sql[512];

    snprintf(sql, sizeof(sql),
             "with a as (select l.key from generate_series(1, %d) n,"
             " leasehold.acquire('%s', 'k' || n, '30 s', labels => '{\"a\": \"b\"}') l) select count(*) from a",
             count, ns);
    execute(sql);
    execute("update leasehold.scope set deadline = deadline - interval '1 h', check_at = check_at - interval '1 h'"
            " where deadline > now()");
}

static int reap_callback(void *arg, PGconn *on, const struct lh_embed_lease *lease, struct lh_error *err)
{
    int *calls = arg;

    ck_assert_ptr_eq(on, conn);
    ck_assert_str_eq(lease->labels, "{\"a\": \"b\"}");
    ck_assert_int_eq(strncmp(lease->principal, "role:", 5), 0);
    ck_assert_int_eq(lease->limit_us, 5 * LH_SECOND);
    PQclear(PQexec(on, "insert into public.note values ('reaped')"));
    if (++*calls % 3 != 0)
        return 0;
    snprintf(err->message, sizeof(err->message), "the third");
    return 1;
}

START_TEST(stale_leases_are_reaped_with_the_callback)
{
    const char *const namespaces[] = {"stale.a", "stale.\"b"};
    int calls = 0;

    expire("stale.a", 5);
    expire("stale.a.child", 2);
    expire("stale.\"b", 2);
    expire("stale", 2);
    ck_assert_int_eq(lh_reap_stale(conn, namespaces, 2, false, reap_callback, &calls), LH_HOOK_REJECTED);
    ck_assert_int_eq(calls, 7);
    check_value("select count(*) from public.note", "5");
    check_value("select string_agg(error || reap_failures, ',') from leasehold.reap_failure", "the third1,the third1");
    check_value("select count(*) from leasehold.scope where state = 'held'", "6");
    ck_assert_int_eq(lh_reap_stale(conn, namespaces, 1, true, NULL, NULL), LH_OK);
    ck_assert_int_eq(lh_reap_stale(conn, NULL, 0, false, NULL, NULL), LH_OK);
    check_value("select count(*) from leasehold.scope where state = 'held' and reap_failures = 0", "0");
}
END_TEST

static int count_outcomes;

static void on_outcome(void *arg, const struct lh_reap_outcome *outcome)
{
    count_outcomes++;
    ck_assert(outcome->is_reaped);
    ck_assert_ptr_null(outcome->error);
}

static int reap_in_serializable(void *arg, PGconn *on, const struct lh_embed_lease *lease, struct lh_error *err)
{
    PGresult *result = PQexec(on, "show transaction_isolation");
    ck_assert_str_eq(PQgetvalue(result, 0, 0), "read committed");
    PQclear(result);
    return 0;
}

START_TEST(a_limit_of_leases_is_kept_and_the_sessions_defaults_do_not_matter)
{
    struct lh_reap_options options = {
        .on_lease = reap_in_serializable, .on_outcome = on_outcome, .max = 7, .transaction_max = 3};
    struct lh_reap_counts counts;

    expire("stale", 20);
    PQclear(PQexec(conn, "set default_transaction_isolation = serializable; set timezone = 'Asia/Tokyo';"
                         "set datestyle = 'German'"));
    count_outcomes = 0;
    ck_assert_int_eq(lh_reap_stale_with(conn, &options, &counts, &test_error), LH_OK);
    ck_assert_int_eq(counts.reaped, 7);
    ck_assert_int_eq(count_outcomes, 7);
    options.on_lease = NULL;
    options.max = 5;
    ck_assert_int_eq(lh_reap_stale_with(conn, &options, &counts, &test_error), LH_OK);
    ck_assert_int_eq(counts.reaped, 5);
    options.max = 0;
    ck_assert_int_eq(lh_reap_stale_with(conn, &options, NULL, &test_error), LH_OK);
    check_value("select count(*) from leasehold.scope where state = 'held'", "0");
}
END_TEST

START_TEST(nothing_is_reaped_in_a_new_life_of_the_database)
{
    int calls = 0;

    expire("stale", 3);
    execute("delete from leasehold.incarnation_marker");
    ck_assert_int_eq(lh_reap_stale(conn, NULL, 0, false, reap_callback, &calls), LH_OK);
    ck_assert_int_eq(lh_reap_stale(conn, NULL, 0, false, NULL, NULL), LH_OK);
    ck_assert_int_eq(calls, 0);
    check_value("select count(*) from leasehold.scope where state = 'held'", "3");
    check_value("select count(*) from leasehold.incarnation_marker", "1");
}
END_TEST

void add_embed_reaping(TCase *tests)
{
    tcase_add_test(tests, stale_leases_are_reaped_with_the_callback);
    tcase_add_test(tests, a_limit_of_leases_is_kept_and_the_sessions_defaults_do_not_matter);
    tcase_add_test(tests, nothing_is_reaped_in_a_new_life_of_the_database);
}
