/* The verbs over a PGconn with their callbacks: by themselves, and in a transaction of the caller's. */
#include <string.h>

#include "base/clock.h"
#include "test_embed.h"

START_TEST(a_lease_goes_through_its_life_with_its_callbacks)
{
    struct script script = {.name = "insert"};
    struct lh_embed_options options = calling(&script);
    const char *const labels[] = {"team=red \"1\"", "b=", NULL};
    struct lh_embed_acquire_options request = {
        .duration_us = 5 * LH_SECOND, .owner = "me", .labels = labels, .embed = options};
    struct lh_embed_lease lease, other;
    int64_t before_us = lh_clock_us();

    ck_assert_int_eq(lh_embed_acquire(conn, "embed.a", "k", &request, &lease, &test_error), LH_OK);
    ck_assert_str_eq(lease.namespace_text, "embed.a");
    ck_assert_str_eq(lease.owner, "me");
    ck_assert_ptr_null(lease.labels);
    ck_assert_ptr_null(lease.principal);
    ck_assert_int_gt(lease.token, 0);
    ck_assert(lease.deadline_us >= before_us + 5 * LH_SECOND && lease.deadline_us <= lh_clock_us() + 5 * LH_SECOND);
    ck_assert_int_eq(lease.deadline_at_us - lease.acquired_at_us, 5 * LH_SECOND);
    check_value("select labels from leasehold.scope", "{\"b\": \"\", \"team\": \"red \\\"1\\\"\"}");

    ck_assert_int_eq(acquire(&script, "other", &other), LH_OK);
    request.lease_key = NULL;
    ck_assert_int_eq(lh_embed_acquire(conn, "embed.a", "k", &request, &other, &test_error), LH_LEASE_HELD);
    request.lease_key = lease.lease_key;
    script.name = "renew";
    ck_assert_int_eq(lh_embed_acquire(conn, "embed.a", "k", &request, &lease, &test_error), LH_OK);
    script.name = "heartbeat";
    ck_assert_int_eq(lh_embed_heartbeat(conn, &lease, &options, &test_error), LH_OK);
    ck_assert_int_eq(lease.heartbeats, 2);
    check_value("select heartbeats from leasehold.scope where namespace = 'embed.a'", "2");
    script.name = "release";
    ck_assert_int_eq(lh_embed_release_ok(conn, &lease, "{\"rows\": 3}", &options, &test_error), LH_OK);
    ck_assert_int_eq(lh_embed_release_ok(conn, &lease, NULL, &options, &test_error), LH_LOST);
    ck_assert_int_eq(lh_embed_heartbeat(conn, &lease, &options, &test_error), LH_LOST);
    check_value("select string_agg(words, ', ') from public.note",
                "insert k -, insert other -, renew k -, heartbeat k -, release k {\"rows\": 3}");
    check_value("select last_result->>'rows' from leasehold.scope where namespace = 'embed.a'", "3");
}
END_TEST

START_TEST(a_minimum_hold_lets_the_scope_rest)
{
    struct lh_embed_acquire_options request = {.embed.at_least_us = 600 * LH_SECOND};
    struct lh_embed_lease lease;

    ck_assert_int_eq(lh_embed_acquire(conn, "embed.rest", "k", &request, &lease, &test_error), LH_OK);
    ck_assert_int_eq(lh_embed_release_ok(conn, &lease, NULL, NULL, &test_error), LH_OK);
    ck_assert_int_eq(lh_embed_acquire(conn, "embed.rest", "k", NULL, &lease, &test_error), LH_LEASE_HELD);
    ck_assert_ptr_nonnull(strstr(test_error.message, "it rests"));
    execute("select leasehold.set_policy('embed.rest', at_least => '10 min')");
    request.embed.at_least_us = LH_NO_MINIMUM;
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(lh_embed_acquire(conn, "embed.rest", "other", &request, &lease, &test_error), LH_OK);
        ck_assert_int_eq(lh_embed_release_ok(conn, &lease, NULL, NULL, &test_error), LH_OK);
    }
    request.embed.at_least_us = 86400 * LH_SECOND + 1;
    ck_assert_int_eq(lh_embed_acquire(conn, "embed.rest", "k", &request, &lease, &test_error), LH_INVALID_ARGUMENT);
    ck_assert_str_eq(test_error.field, "at_least");
}
END_TEST

START_TEST(shared_leases_have_units_and_slots)
{
    struct script script = {.name = "share"};
    struct lh_embed_options asking = calling(&script);
    struct lh_embed_acquire_options request = {.duration_us = 60 * LH_SECOND, .embed = asking};
    struct lh_embed_lease first, second, writer;

    request.embed.mode = LH_SHARED;
    execute("select leasehold.set_policy('embed.shared', capacity => 4)");
    ck_assert_int_eq(lh_embed_acquire(conn, "embed.shared", "k", &request, &first, &test_error), LH_OK);
    request.embed.units = 3;
    ck_assert_int_eq(lh_embed_acquire(conn, "embed.shared", "k", &request, &second, &test_error), LH_OK);
    ck_assert_int_eq(first.mode, LH_SHARED);
    ck_assert_int_eq(first.units, 1);
    ck_assert_int_eq(first.slot, 1);
    ck_assert_int_eq(second.units, 3);
    ck_assert_int_eq(second.slot, 2);
    ck_assert_int_eq(lh_embed_acquire(conn, "embed.shared", "k", &request, &writer, &test_error), LH_LEASE_HELD);
    ck_assert_int_eq(lh_embed_acquire(conn, "embed.shared", "k", NULL, &writer, &test_error), LH_LEASE_HELD);
    ck_assert_int_eq(lh_embed_heartbeat(conn, &first, &asking, &test_error), LH_OK);
    ck_assert_int_eq(first.heartbeats, 1);
    ck_assert_int_eq(first.slot, 1);
    ck_assert_int_eq(lh_embed_release_ok(conn, &first, NULL, &asking, &test_error), LH_OK);
    ck_assert_int_eq(lh_embed_heartbeat(conn, &first, &asking, &test_error), LH_LOST);
    ck_assert_int_eq(lh_embed_release_ok(conn, &second, NULL, &asking, &test_error), LH_OK);
    ck_assert_int_eq(lh_embed_acquire(conn, "embed.shared", "k", NULL, &writer, &test_error), LH_OK);
    ck_assert_int_eq(writer.mode, LH_EXCLUSIVE);
    ck_assert_int_eq(writer.units, 0);
    ck_assert_int_eq(script.calls, 5);
    request.embed.units = 1000001;
    ck_assert_int_eq(lh_embed_acquire(conn, "embed.shared", "k", &request, &first, &test_error), LH_INVALID_ARGUMENT);
    ck_assert_str_eq(test_error.field, "units");
}
END_TEST

START_TEST(several_scopes_are_acquired_in_one_transaction)
{
    struct script script = {.name = "all"};
    struct lh_embed_acquire_options request = {.duration_us = 60 * LH_SECOND, .embed = calling(&script)};
    const struct lh_embed_scope scopes[] = {
        {.namespace_text = "embed.all", .key = "c \"{},\\ ü"},
        {.namespace_text = "embed.all", .key = "a", .mode = LH_SHARED, .units = 2},
        {.namespace_text = "embed.all.b", .key = "a"},
    };
    struct lh_embed_lease leases[3], again[3], other;

    execute("select leasehold.set_policy('embed.all', capacity => 3)");
    ck_assert_int_eq(lh_embed_acquire_all(conn, scopes, 3, &request, leases, &test_error), LH_OK);
    ck_assert_int_eq(script.calls, 3);
    for (int i = 0; i < 3; i++) {
        ck_assert_str_eq(leases[i].namespace_text, scopes[i].namespace_text);
        ck_assert_str_eq(leases[i].key, scopes[i].key);
        ck_assert_str_eq(leases[i].lease_key, leases[0].lease_key);
        ck_assert(i == 0 || leases[i].token != leases[0].token);
        ck_assert_int_eq(leases[i].mode, scopes[i].mode);
        ck_assert_int_eq(leases[i].units, scopes[i].units);
        ck_assert_int_eq(leases[i].slot, i == 1);
        ck_assert_ptr_null(leases[i].labels);
        ck_assert_int_gt(leases[i].deadline_us, 0);
    }
    request.lease_key = leases[0].lease_key;
    ck_assert_int_eq(lh_embed_acquire_all(conn, scopes, 3, &request, again, &test_error), LH_OK);
    ck_assert_int_eq(again[2].token, leases[2].token);
    request.lease_key = NULL;

    ck_assert_int_eq(lh_embed_release_ok(conn, &leases[0], NULL, NULL, &test_error), LH_OK);
    ck_assert_int_eq(lh_embed_heartbeat(conn, &leases[2], NULL, &test_error), LH_OK); /* each by itself */
    ck_assert_int_eq(lh_embed_acquire_all(conn, scopes, 3, &request, again, &test_error), LH_LEASE_HELD);
    check_value("select count(*) from leasehold.lease where namespace like 'embed.all%'", "2");
    ck_assert_int_eq(lh_embed_release_ok(conn, &leases[1], NULL, NULL, &test_error), LH_OK);
    ck_assert_int_eq(lh_embed_release_ok(conn, &leases[2], NULL, NULL, &test_error), LH_OK);

    script.answer = 1; /* one that refuses takes all back */
    ck_assert_int_eq(lh_embed_acquire_all(conn, scopes, 3, &request, again, &test_error), LH_HOOK_REJECTED);
    check_value("select count(*) from leasehold.lease where namespace like 'embed.all%'", "0");
    ck_assert_int_eq(lh_embed_acquire(conn, "embed.all", "a", NULL, &other, &test_error), LH_OK);
}
END_TEST

START_TEST(several_scopes_that_cannot_be_are_refused)
{
    struct lh_embed_scope scopes[LH_ACQUIRE_ALL_MAX + 1] = {{0}};
    struct lh_embed_lease leases[LH_ACQUIRE_ALL_MAX];
    struct lh_embed_acquire_options request = {0};

    ck_assert_int_eq(lh_embed_acquire_all(conn, scopes, 101, NULL, leases, &test_error), LH_INVALID_ARGUMENT);
    ck_assert_str_eq(test_error.message, "there are 101 scopes; there must be 1 to 100");
    ck_assert_int_eq(lh_embed_acquire_all(conn, scopes, 0, NULL, leases, &test_error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_embed_acquire_all(conn, scopes, 1, NULL, leases, &test_error), LH_INVALID_ARGUMENT);
    ck_assert_str_eq(test_error.message, "scopes[0]: namespace_text and key are needed");
    ck_assert_int_eq(lh_embed_acquire_all(conn, scopes, 1, NULL, NULL, &test_error), LH_INVALID_ARGUMENT);
    scopes[0] = scopes[1] = (struct lh_embed_scope){.namespace_text = "embed", .key = "twice"};
    ck_assert_int_eq(lh_embed_acquire_all(conn, scopes, 2, NULL, leases, &test_error), LH_INVALID_ARGUMENT);
    ck_assert_str_eq(test_error.field, "keys[2]");
    scopes[1].units = 1;
    ck_assert_int_eq(lh_embed_acquire_all(conn, scopes, 2, NULL, leases, &test_error), LH_INVALID_ARGUMENT);
    ck_assert_str_eq(test_error.field, "units");
    ck_assert_int_eq(strncmp(test_error.message, "scopes[1]: units must be 0 ", 27), 0);
    request.wait_us = LH_SECOND;
    ck_assert_int_eq(lh_embed_acquire_all(conn, scopes, 1, &request, leases, &test_error), LH_INVALID_ARGUMENT);
    ck_assert_str_eq(test_error.field, "wait");
    request = (struct lh_embed_acquire_options){.embed.mode = LH_SHARED};
    ck_assert_int_eq(lh_embed_acquire_all(conn, scopes, 1, &request, leases, &test_error), LH_INVALID_ARGUMENT);
    ck_assert_str_eq(test_error.field, "mode");
    request = (struct lh_embed_acquire_options){.embed.priority = 1};
    ck_assert_int_eq(lh_embed_acquire_all(conn, scopes, 1, &request, leases, &test_error), LH_INVALID_ARGUMENT);
    ck_assert_str_eq(test_error.field, "priority");
}
END_TEST

START_TEST(a_downgrade_makes_an_exclusive_lease_shared)
{
    struct script script = {.name = "downgrade"};
    struct lh_embed_options options = calling(&script);
    struct lh_embed_acquire_options shared = {.embed.mode = LH_SHARED};
    struct lh_embed_lease lease, before, reader;

    execute("select leasehold.set_policy('embed', capacity => 3)");
    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", NULL, &lease, &test_error), LH_OK);
    before = lease;
    script.answer = 1;
    ck_assert_int_eq(lh_embed_downgrade(conn, &lease, 2, &options, &test_error), LH_HOOK_REJECTED);
    ck_assert_int_eq(lease.mode, LH_EXCLUSIVE);
    check_value("select mode from leasehold.lease where namespace = 'embed'", "exclusive");
    script.answer = 0;
    ck_assert_int_eq(lh_embed_downgrade(conn, &lease, 2, &options, &test_error), LH_OK);
    ck_assert_int_gt(lease.token, before.token);
    ck_assert_str_eq(lease.lease_key, before.lease_key);
    ck_assert_int_eq(lease.acquired_at_us, before.acquired_at_us);
    ck_assert_int_eq(lease.mode, LH_SHARED);
    ck_assert_int_eq(lease.units, 2);
    ck_assert_int_eq(lease.slot, 1);
    ck_assert_ptr_null(lease.principal);
    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", &shared, &reader, &test_error), LH_OK);
    ck_assert_int_eq(reader.slot, 3);
    ck_assert_int_eq(lh_embed_downgrade(conn, &lease, 4, &options, &test_error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_embed_downgrade(conn, &lease, -1, &options, &test_error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_embed_release_ok(conn, &lease, NULL, NULL, &test_error), LH_OK);
    ck_assert_int_eq(lh_embed_downgrade(conn, &lease, 1, &options, &test_error), LH_LOST);
    ck_assert_int_eq(lh_embed_downgrade(conn, NULL, 1, &options, &test_error), LH_INVALID_ARGUMENT);
}
END_TEST

START_TEST(a_failure_is_released_with_its_words)
{
    struct script script = {.name = "failed"};
    struct lh_embed_options options = calling(&script);
    struct lh_embed_lease lease;

    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", NULL, &lease, &test_error), LH_OK);
    ck_assert_int_eq(lh_embed_release_fail(conn, &lease, "no disk", &options, &test_error), LH_OK);
    check_value("select last_outcome || ' ' || last_error from leasehold.scope", "failed no disk");
    check_value("select words from public.note", "failed k no disk");
}
END_TEST

START_TEST(a_callback_that_refuses_takes_the_change_back)
{
    struct script script = {.name = "n", .answer = 1, .words = "not today"};
    struct lh_embed_options options = calling(&script);
    struct lh_embed_lease lease;

    ck_assert_int_eq(acquire(&script, "k", &lease), LH_HOOK_REJECTED);
    ck_assert_str_eq(test_error.message, "not today");
    check_value("select count(*) from leasehold.scope where state = 'held'", "0");
    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", NULL, &lease, &test_error), LH_OK);
    int64_t deadline_us = lease.deadline_us;
    ck_assert_int_eq(lh_embed_heartbeat(conn, &lease, &options, &test_error), LH_HOOK_REJECTED);
    ck_assert_int_eq(lease.heartbeats, 0);
    ck_assert_int_eq(lease.deadline_us, deadline_us);
    script.words = NULL;
    ck_assert_int_eq(lh_embed_release_ok(conn, &lease, NULL, &options, &test_error), LH_HOOK_REJECTED);
    ck_assert_str_ne(test_error.message, "");
    check_value("select state || heartbeats from leasehold.scope", "held0");
    script.answer = 0;
    script.sql = "select 1/0";
    ck_assert_int_eq(lh_embed_release_ok(conn, &lease, NULL, &options, &test_error), LH_HOOK_REJECTED);
    ck_assert_str_eq(test_error.message, "division by zero");
    check_value("select count(*) from public.note", "0");
    ck_assert_int_eq(PQtransactionStatus(conn), PQTRANS_IDLE);
}
END_TEST

/* --- in a transaction of the caller's --- */

START_TEST(a_verb_joins_the_callers_transaction)
{
    struct script script = {.name = "n"};
    struct lh_embed_options options = calling(&script);
    struct lh_embed_lease lease;

    PQclear(PQexec(conn, "begin; insert into public.note values ('mine')"));
    ck_assert_int_eq(acquire(&script, "k", &lease), LH_OK);
    script.answer = 1;
    ck_assert_int_eq(lh_embed_release_ok(conn, &lease, NULL, &options, &test_error), LH_HOOK_REJECTED);
    script.answer = 0;
    script.failures = 3; /* calls */
    ck_assert_int_eq(lh_embed_heartbeat(conn, &lease, &options, &test_error), LH_HOOK_REJECTED);
    ck_assert_str_eq(test_error.sqlstate, "40001");
    ck_assert_int_eq(script.calls, 3); /* nothing was repeated */
    ck_assert_int_eq(PQtransactionStatus(conn), PQTRANS_INTRANS);
    check_value("select count(*) from leasehold.scope", "0");
    PQclear(PQexec(conn, "commit"));
    check_value("select count(*) from public.note", "2");
    check_value("select state || heartbeats from leasehold.scope", "held0");
    PQclear(PQexec(conn, "begin"));
    ck_assert_int_eq(lh_embed_release_ok(conn, &lease, NULL, NULL, &test_error), LH_OK);
    PQclear(PQexec(conn, "rollback"));
    check_value("select state from leasehold.scope", "held");
}
END_TEST

START_TEST(a_client_needs_no_more_than_its_role)
{
    struct lh_embed_acquire_options options = {.wait_us = 100 * LH_MILLISECOND};
    struct lh_embed_lease lease, other;

    execute("do $$ begin create role embed_client; exception when duplicate_object then null; end $$;"
            "grant leasehold_client to embed_client");
    PQclear(PQexec(conn, "set role embed_client"));
    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", &options, &lease, &test_error), LH_OK);
    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", &options, &other, &test_error), LH_WAIT_TIMEOUT);
    ck_assert_int_eq(lh_embed_heartbeat(conn, &lease, NULL, &test_error), LH_OK);
    ck_assert_int_eq(lh_embed_release_ok(conn, &lease, NULL, NULL, &test_error), LH_OK);
    ck_assert_int_eq(lh_reap_stale(conn, NULL, 0, false, NULL, NULL), LH_ACCESS_DENIED);
}
END_TEST

START_TEST(misuse_is_answered_with_words)
{
    struct lh_embed_acquire_options options = {.wait_us = LH_SECOND};
    const char *const labels[] = {"none", NULL};
    struct lh_embed_lease lease = {0};
    struct lh_reap_options reap = {.namespace_count = 1};
    struct lh_reap_counts counts;

    ck_assert_int_eq(lh_embed_acquire(NULL, "a", "k", NULL, &lease, &test_error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_embed_acquire(conn, NULL, "k", NULL, &lease, &test_error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_embed_acquire(conn, "a", NULL, NULL, &lease, NULL), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_embed_acquire(conn, "a", "k", NULL, NULL, &test_error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_embed_acquire(conn, "a..b", "k", NULL, &lease, &test_error), LH_INVALID_ARGUMENT);
    ck_assert_str_eq(test_error.field, "namespace");
    ck_assert_int_eq(
        lh_embed_acquire(conn, "a", "k", &(struct lh_embed_acquire_options){.duration_us = 1}, &lease, &test_error),
        LH_INVALID_ARGUMENT);
    ck_assert_str_eq(test_error.field, "duration");
    ck_assert_int_eq(
        lh_embed_acquire(conn, "a", "k", &(struct lh_embed_acquire_options){.labels = labels}, &lease, &test_error),
        LH_INVALID_ARGUMENT);
    ck_assert_str_eq(test_error.field, "labels");
    ck_assert_int_eq(lh_embed_heartbeat(conn, NULL, NULL, &test_error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_embed_release_fail(conn, &lease, NULL, NULL, &test_error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_reap_stale_with(conn, &reap, &counts, &test_error), LH_INVALID_ARGUMENT);
    reap = (struct lh_reap_options){.transaction_max = 10001};
    ck_assert_int_eq(lh_reap_stale_with(conn, &reap, &counts, &test_error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_reap_stale(NULL, NULL, 0, false, NULL, NULL), LH_INVALID_ARGUMENT);

    PQclear(PQexec(conn, "begin"));
    ck_assert_int_eq(lh_embed_acquire(conn, "a", "k", &options, &lease, &test_error), LH_INVALID_ARGUMENT);
    ck_assert_str_eq(test_error.field, "wait");
    ck_assert_int_eq(lh_reap_stale(conn, NULL, 0, false, NULL, NULL), LH_INVALID_ARGUMENT);
    PQclear(PQexec(conn, "select 1/0"));
    ck_assert_int_eq(lh_embed_acquire(conn, "a", "k", NULL, &lease, &test_error), LH_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(test_error.message, "roll it back first"));
    PQclear(PQexec(conn, "rollback"));
    ck_assert_int_eq(PQenterPipelineMode(conn), 1);
    ck_assert_int_eq(lh_embed_acquire(conn, "a", "k", NULL, &lease, &test_error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_reap_stale(conn, NULL, 0, false, NULL, NULL), LH_INVALID_ARGUMENT);
    PQexitPipelineMode(conn);
}
END_TEST

void add_embed_verbs(TCase *tests)
{
    tcase_add_test(tests, a_lease_goes_through_its_life_with_its_callbacks);
    tcase_add_test(tests, a_minimum_hold_lets_the_scope_rest);
    tcase_add_test(tests, shared_leases_have_units_and_slots);
    tcase_add_test(tests, several_scopes_are_acquired_in_one_transaction);
    tcase_add_test(tests, several_scopes_that_cannot_be_are_refused);
    tcase_add_test(tests, a_downgrade_makes_an_exclusive_lease_shared);
    tcase_add_test(tests, a_failure_is_released_with_its_words);
    tcase_add_test(tests, a_callback_that_refuses_takes_the_change_back);
    tcase_add_test(tests, a_verb_joins_the_callers_transaction);
    tcase_add_test(tests, a_client_needs_no_more_than_its_role);
    tcase_add_test(tests, misuse_is_answered_with_words);
}
