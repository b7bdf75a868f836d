/* What is repeated over a PGconn: serialization failures, connections that break, commits whose answer is lost. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "embed/transaction.h"
#include "test_embed.h"

START_TEST(what_cannot_be_serialized_is_repeated_with_its_callback)
{
    struct script script = {.name = "n", .failures = 3};
    struct lh_embed_lease lease;

    ck_assert_int_eq(acquire(&script, "k", &lease), LH_OK);
    ck_assert_int_eq(script.calls, 4);
    check_value("select count(*) from public.note", "1");
    check_value("select heartbeats from leasehold.scope", "0");
}
END_TEST

START_TEST(a_heartbeat_that_is_repeated_counts_once)
{
    struct script beat = {.name = "heartbeat", .sql = "insert into public.late values (1)"};
    struct lh_embed_options beating = {.arg = &beat, .will_heartbeat = note};
    struct lh_embed_lease lease;

    ck_assert_int_eq(lh_embed_acquire(conn, "e", "late", NULL, &lease, &test_error), LH_OK);
    ck_assert_int_eq(lh_embed_heartbeat(conn, &lease, &beating, &test_error), LH_OK);
    ck_assert_int_eq(beat.calls, 2);
    check_value("select heartbeats from leasehold.scope", "1");
    ck_assert_int_eq(lease.heartbeats, 1);
}
END_TEST

START_TEST(repetition_has_an_end)
{
    struct script script = {.name = "n", .failures = 100};
    struct lh_embed_options options = calling(&script);
    struct lh_embed_lease lease;

    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", NULL, &lease, &test_error), LH_OK);
    options.max_attempts = 3;
    ck_assert_int_eq(lh_embed_release_ok(conn, &lease, NULL, &options, &test_error), LH_HOOK_REJECTED);
    ck_assert_int_eq(script.calls, 3);
    ck_assert_str_eq(test_error.sqlstate, "40001");
    check_value("select state from leasehold.scope", "held");
}
END_TEST

START_TEST(a_connection_that_breaks_is_made_anew_and_the_verb_repeated)
{
    /* The first time only: a sequence does not go back. */
    struct script script = {
        .name = "n",
        .sql = "select case when nextval('public.attempt') = 1 then pg_terminate_backend(pg_backend_pid()) end",
    };
    struct lh_embed_options options = calling(&script);
    struct lh_embed_lease lease;

    execute("alter sequence public.attempt restart");
    ck_assert_int_eq(acquire(&script, "k", &lease), LH_OK);
    ck_assert_int_eq(script.calls, 2);
    execute("alter sequence public.attempt restart");
    ck_assert_int_eq(lh_embed_heartbeat(conn, &lease, &options, &test_error), LH_OK);
    execute("alter sequence public.attempt restart");
    ck_assert_int_eq(lh_embed_release_ok(conn, &lease, NULL, &options, &test_error), LH_OK);
    check_value("select count(*) from public.note", "3");
    check_value("select state || heartbeats from leasehold.scope", "free1");
}
END_TEST

START_TEST(an_idle_connection_that_broke_is_made_anew)
{
    struct lh_embed_lease lease;
    char sql[96];

    snprintf(sql, sizeof(sql), "select pg_terminate_backend(%d, 5000)", PQbackendPID(conn));
    execute(sql);
    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", NULL, &lease, &test_error), LH_OK);
    check_value("select state from leasehold.scope", "held");
}
END_TEST

/* Ends the session that waits for a standby which never comes: it has committed, and cannot say so. */
static void *cut_off(void *arg)
{
    static const char sql[] =
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity where wait_event = 'SyncRep'";
    PGconn *own = PQconnectdb(conninfo);
    int64_t until_us = lh_clock_us() + 20 * LH_US_PER_S;
    bool is_done = false;

    while (!is_done && lh_clock_us() < until_us) {
        PGresult *result = PQexec(own, sql);
        is_done = PQntuples(result) > 0;
        PQclear(result);
        lh_pause(5 * LH_US_PER_MS);
    }
    PQclear(PQexec(own, "alter system reset synchronous_standby_names"));
    PQclear(PQexec(own, "select pg_reload_conf()"));
    PQfinish(own);
    return is_done ? &conninfo : NULL;
}

START_TEST(a_commit_whose_answer_is_lost_is_not_done_twice)
{
    struct script script = {.name = "n"};
    struct lh_embed_options options = calling(&script);
    struct lh_embed_lease lease;
    pthread_t thread;
    void *was_cut;

    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", NULL, &lease, &test_error), LH_OK);
    PGconn *own = PQconnectdb(conninfo);
    PQclear(PQexec(own, "alter system set synchronous_standby_names = 'nobody'"));
    PQclear(PQexec(own, "select pg_reload_conf()"));
    PQfinish(own);
    for (int64_t until_us = lh_clock_us() + 20 * LH_US_PER_S; lh_clock_us() < until_us;) {
        PGresult *result = PQexec(conn, "show synchronous_standby_names");
        bool is_set = strcmp(PQgetvalue(result, 0, 0), "nobody") == 0;
        PQclear(result);
        if (is_set)
            break;
        lh_pause(5 * LH_US_PER_MS);
    }
    execute("checkpoint"); /* the checkpointer passes the setting on to those who commit */
    pthread_create(&thread, NULL, cut_off, NULL);
    ck_assert_int_eq(lh_embed_release_ok(conn, &lease, NULL, &options, &test_error), LH_OK);
    pthread_join(thread, &was_cut);
    ck_assert_ptr_nonnull(was_cut);
    ck_assert_int_eq(script.calls, 1);
    check_value("select count(*) from public.note", "1");
    check_value("select state from leasehold.scope", "free");
}
END_TEST

START_TEST(the_fate_of_a_transaction_is_known)
{
    struct lh_transaction transaction = {.conn = conn};

    ck_assert_int_eq(lh_transaction_fate(&transaction), LH_FATE_ABORTED);
    ck_assert_int_eq(lh_transaction_begin(&transaction, conn, &test_error), LH_OK);
    ck_assert_int_eq(lh_transaction_commit(&transaction, &test_error), LH_OK);
    ck_assert_int_eq(lh_transaction_fate(&transaction), LH_FATE_COMMITTED);
    ck_assert_int_eq(lh_transaction_begin(&transaction, conn, &test_error), LH_OK);
    lh_transaction_abandon(&transaction);
    ck_assert_int_eq(lh_transaction_fate(&transaction), LH_FATE_ABORTED);
    ck_assert_int_eq(lh_transaction_begin(&transaction, conn, &test_error), LH_OK);
    PQclear(PQexec(conn, "select 1/0"));
    ck_assert_int_eq(lh_transaction_commit(&transaction, &test_error), LH_INTERNAL);
    snprintf(transaction.number, sizeof(transaction.number), "999999999");
    ck_assert_int_eq(lh_transaction_fate(&transaction), LH_FATE_UNKNOWN);
}
END_TEST

void add_embed_repeats(TCase *tests)
{
    tcase_add_test(tests, what_cannot_be_serialized_is_repeated_with_its_callback);
    tcase_add_test(tests, a_heartbeat_that_is_repeated_counts_once);
    tcase_add_test(tests, repetition_has_an_end);
    tcase_add_test(tests, a_connection_that_breaks_is_made_anew_and_the_verb_repeated);
    tcase_add_test(tests, an_idle_connection_that_broke_is_made_anew);
    tcase_add_test(tests, a_commit_whose_answer_is_lost_is_not_done_twice);
    tcase_add_test(tests, the_fate_of_a_transaction_is_known);
}
