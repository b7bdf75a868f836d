/* The library over a PGconn: verbs, their repetition, waiting, reaping; on a real PostgreSQL. */
#include <check.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "embed/transaction.h"
#include "leasehold.h"
#include "pg/migrate.h"
#include "pg_fixture.h"

static const char *conninfo;
static PGconn *conn;
static struct lh_error error;

static void on_line(void *arg, const char *line)
{
}

static void ignore_notice(void *arg, const PGresult *result)
{
}

static void execute(const char *sql)
{
    pg_fixture_execute(conninfo, sql);
}

static const char *value(const char *sql)
{
    return pg_fixture_value(conninfo, sql);
}

static void check_value(const char *sql, const char *expected)
{
    ck_assert_str_eq(value(sql), expected);
}

static void setup(void)
{
    execute("truncate leasehold.scope, leasehold.waiter, public.note");
    conn = PQconnectdb(conninfo);
    PQsetNoticeReceiver(conn, ignore_notice, NULL);
    ck_assert_int_eq(PQstatus(conn), CONNECTION_OK);
    memset(&error, 0, sizeof(error));
}

static void teardown(void)
{
    PQfinish(conn);
}

static void prepare(void)
{
    struct lh_migrate_output output = {.on_line = on_line};

    conninfo = pg_fixture_create_database("embed");
    ck_assert_int_eq(lh_migrate(conninfo, LH_MIGRATE_RUN, &lh_migrations, "0.1.0", &output, &error), LH_OK);
    execute("create table public.note (words text not null);"
            "create table public.once (id integer primary key deferrable initially deferred);"
            "create sequence public.attempt;"
            "create table public.late (id integer);"
            "create sequence public.commit_number;"
            "create function public.fail_the_first_commit() returns trigger language plpgsql as $$ begin"
            "  if nextval('public.commit_number') = 1 then"
            "    raise exception 'not serializable' using errcode = '40001'; end if; return null; end $$;"
            "create constraint trigger late after insert on public.late deferrable initially deferred"
            "  for each row execute function public.fail_the_first_commit();"
            "select leasehold.reap()");
}

/* --- callbacks --- */

struct script {
    const char *name;
    const char *sql; /* run in the transaction; NULL: nothing */
    int calls;
    int failures; /* of so many calls: with error 40001 */
    int answer;
    const char *words;
};

static int note(void *arg, PGconn *on, const struct lh_embed_lease *lease, const char *words, struct lh_error *err)
{
    struct script *script = arg;
    char text[256];
    const char *const values[] = {text};
    PGresult *result;
    int failed;

    script->calls++;
    snprintf(text, sizeof(text), "%s %.64s %s", script->name, lease->key, words != NULL ? words : "-");
    result = PQexecParams(on, "insert into public.note values ($1)", 1, NULL, values, NULL, NULL, 0);
    ck_assert_int_eq(PQresultStatus(result), PGRES_COMMAND_OK);
    PQclear(result);
    if (script->calls <= script->failures)
        result = PQexec(on, "do $$ begin raise exception 'not serializable' using errcode = '40001'; end $$");
    else if (script->sql != NULL)
        result = PQexec(on, script->sql);
    else
        result = PQexec(on, "select 1");
    failed = PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK;
    if (failed)
        lh_embed_failed(on, result, err);
    else if (script->words != NULL)
        snprintf(err->message, sizeof(err->message), "%s", script->words);
    PQclear(result);
    return failed ? 1 : script->answer;
}

static struct lh_embed_options calling(struct script *script)
{
    return (struct lh_embed_options){
        .will_insert = note,
        .will_heartbeat = note,
        .will_release_ok = note,
        .will_release_fail = note,
        .arg = script,
    };
}

static enum lh_status acquire(struct script *script, const char *key, struct lh_embed_lease *lease)
{
    struct lh_embed_acquire_options options = {.embed = calling(script)};
    return lh_embed_acquire(conn, "embed", key, &options, lease, &error);
}

START_TEST(a_lease_goes_through_its_life_with_its_callbacks)
{
    struct script script = {.name = "insert"};
    struct lh_embed_options options = calling(&script);
    const char *const labels[] = {"team=red \"1\"", "b=", NULL};
    struct lh_embed_acquire_options request = {
        .duration_us = 5 * LH_SECOND, .owner = "me", .labels = labels, .embed = options};
    struct lh_embed_lease lease, other;
    int64_t before_us = lh_clock_us();

    ck_assert_int_eq(lh_embed_acquire(conn, "embed.a", "k", &request, &lease, &error), LH_OK);
    ck_assert_str_eq(lease.namespace_text, "embed.a");
    ck_assert_str_eq(lease.owner, "me");
    ck_assert_ptr_null(lease.labels);
    ck_assert_int_gt(lease.token, 0);
    ck_assert(lease.deadline_us >= before_us + 5 * LH_SECOND && lease.deadline_us <= lh_clock_us() + 5 * LH_SECOND);
    ck_assert_int_eq(lease.deadline_at_us - lease.acquired_at_us, 5 * LH_SECOND);
    check_value("select labels from leasehold.scope", "{\"b\": \"\", \"team\": \"red \\\"1\\\"\"}");

    ck_assert_int_eq(acquire(&script, "other", &other), LH_OK);
    request.lease_key = NULL;
    ck_assert_int_eq(lh_embed_acquire(conn, "embed.a", "k", &request, &other, &error), LH_LEASE_HELD);
    request.lease_key = lease.lease_key;
    script.name = "renew";
    ck_assert_int_eq(lh_embed_acquire(conn, "embed.a", "k", &request, &lease, &error), LH_OK);
    script.name = "heartbeat";
    ck_assert_int_eq(lh_embed_heartbeat(conn, &lease, &options, &error), LH_OK);
    ck_assert_int_eq(lease.heartbeats, 2);
    check_value("select heartbeats from leasehold.scope where namespace = 'embed.a'", "2");
    script.name = "release";
    ck_assert_int_eq(lh_embed_release_ok(conn, &lease, "{\"rows\": 3}", &options, &error), LH_OK);
    ck_assert_int_eq(lh_embed_release_ok(conn, &lease, NULL, &options, &error), LH_LOST);
    ck_assert_int_eq(lh_embed_heartbeat(conn, &lease, &options, &error), LH_LOST);
    check_value("select string_agg(words, ', ') from public.note",
                "insert k -, insert other -, renew k -, heartbeat k -, release k {\"rows\": 3}");
    check_value("select last_result->>'rows' from leasehold.scope where namespace = 'embed.a'", "3");
}
END_TEST

START_TEST(a_failure_is_released_with_its_words)
{
    struct script script = {.name = "failed"};
    struct lh_embed_options options = calling(&script);
    struct lh_embed_lease lease;

    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", NULL, &lease, &error), LH_OK);
    ck_assert_int_eq(lh_embed_release_fail(conn, &lease, "no disk", &options, &error), LH_OK);
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
    ck_assert_str_eq(error.message, "not today");
    check_value("select count(*) from leasehold.scope where state = 'held'", "0");
    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", NULL, &lease, &error), LH_OK);
    int64_t deadline_us = lease.deadline_us;
    ck_assert_int_eq(lh_embed_heartbeat(conn, &lease, &options, &error), LH_HOOK_REJECTED);
    ck_assert_int_eq(lease.heartbeats, 0);
    ck_assert_int_eq(lease.deadline_us, deadline_us);
    script.words = NULL;
    ck_assert_int_eq(lh_embed_release_ok(conn, &lease, NULL, &options, &error), LH_HOOK_REJECTED);
    ck_assert_str_ne(error.message, "");
    check_value("select state || heartbeats from leasehold.scope", "held0");
    script.answer = 0;
    script.sql = "select 1/0";
    ck_assert_int_eq(lh_embed_release_ok(conn, &lease, NULL, &options, &error), LH_HOOK_REJECTED);
    ck_assert_str_eq(error.message, "division by zero");
    check_value("select count(*) from public.note", "0");
    ck_assert_int_eq(PQtransactionStatus(conn), PQTRANS_IDLE);
}
END_TEST

/* --- repetition --- */

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

    ck_assert_int_eq(lh_embed_acquire(conn, "e", "late", NULL, &lease, &error), LH_OK);
    ck_assert_int_eq(lh_embed_heartbeat(conn, &lease, &beating, &error), LH_OK);
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

    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", NULL, &lease, &error), LH_OK);
    options.max_attempts = 3;
    ck_assert_int_eq(lh_embed_release_ok(conn, &lease, NULL, &options, &error), LH_HOOK_REJECTED);
    ck_assert_int_eq(script.calls, 3);
    ck_assert_str_eq(error.sqlstate, "40001");
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
    ck_assert_int_eq(lh_embed_heartbeat(conn, &lease, &options, &error), LH_OK);
    execute("alter sequence public.attempt restart");
    ck_assert_int_eq(lh_embed_release_ok(conn, &lease, NULL, &options, &error), LH_OK);
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
    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", NULL, &lease, &error), LH_OK);
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

    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", NULL, &lease, &error), LH_OK);
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
    ck_assert_int_eq(lh_embed_release_ok(conn, &lease, NULL, &options, &error), LH_OK);
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
    ck_assert_int_eq(lh_transaction_begin(&transaction, conn, &error), LH_OK);
    ck_assert_int_eq(lh_transaction_commit(&transaction, &error), LH_OK);
    ck_assert_int_eq(lh_transaction_fate(&transaction), LH_FATE_COMMITTED);
    ck_assert_int_eq(lh_transaction_begin(&transaction, conn, &error), LH_OK);
    lh_transaction_abandon(&transaction);
    ck_assert_int_eq(lh_transaction_fate(&transaction), LH_FATE_ABORTED);
    ck_assert_int_eq(lh_transaction_begin(&transaction, conn, &error), LH_OK);
    PQclear(PQexec(conn, "select 1/0"));
    ck_assert_int_eq(lh_transaction_commit(&transaction, &error), LH_INTERNAL);
    snprintf(transaction.number, sizeof(transaction.number), "999999999");
    ck_assert_int_eq(lh_transaction_fate(&transaction), LH_FATE_UNKNOWN);
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
    ck_assert_int_eq(lh_embed_release_ok(conn, &lease, NULL, &options, &error), LH_HOOK_REJECTED);
    script.answer = 0;
    script.failures = 3; /* calls */
    ck_assert_int_eq(lh_embed_heartbeat(conn, &lease, &options, &error), LH_HOOK_REJECTED);
    ck_assert_str_eq(error.sqlstate, "40001");
    ck_assert_int_eq(script.calls, 3); /* nothing was repeated */
    ck_assert_int_eq(PQtransactionStatus(conn), PQTRANS_INTRANS);
    check_value("select count(*) from leasehold.scope", "0");
    PQclear(PQexec(conn, "commit"));
    check_value("select count(*) from public.note", "2");
    check_value("select state || heartbeats from leasehold.scope", "held0");
    PQclear(PQexec(conn, "begin"));
    ck_assert_int_eq(lh_embed_release_ok(conn, &lease, NULL, NULL, &error), LH_OK);
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
    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", &options, &lease, &error), LH_OK);
    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", &options, &other, &error), LH_WAIT_TIMEOUT);
    ck_assert_int_eq(lh_embed_heartbeat(conn, &lease, NULL, &error), LH_OK);
    ck_assert_int_eq(lh_embed_release_ok(conn, &lease, NULL, NULL, &error), LH_OK);
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

    ck_assert_int_eq(lh_embed_acquire(NULL, "a", "k", NULL, &lease, &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_embed_acquire(conn, NULL, "k", NULL, &lease, &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_embed_acquire(conn, "a", NULL, NULL, &lease, NULL), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_embed_acquire(conn, "a", "k", NULL, NULL, &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_embed_acquire(conn, "a..b", "k", NULL, &lease, &error), LH_INVALID_ARGUMENT);
    ck_assert_str_eq(error.field, "namespace");
    ck_assert_int_eq(
        lh_embed_acquire(conn, "a", "k", &(struct lh_embed_acquire_options){.duration_us = 1}, &lease, &error),
        LH_INVALID_ARGUMENT);
    ck_assert_str_eq(error.field, "duration");
    ck_assert_int_eq(
        lh_embed_acquire(conn, "a", "k", &(struct lh_embed_acquire_options){.labels = labels}, &lease, &error),
        LH_INVALID_ARGUMENT);
    ck_assert_str_eq(error.field, "labels");
    ck_assert_int_eq(lh_embed_heartbeat(conn, NULL, NULL, &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_embed_release_fail(conn, &lease, NULL, NULL, &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_reap_stale_with(conn, &reap, &counts, &error), LH_INVALID_ARGUMENT);
    reap = (struct lh_reap_options){.transaction_max = 10001};
    ck_assert_int_eq(lh_reap_stale_with(conn, &reap, &counts, &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_reap_stale(NULL, NULL, 0, false, NULL, NULL), LH_INVALID_ARGUMENT);

    PQclear(PQexec(conn, "begin"));
    ck_assert_int_eq(lh_embed_acquire(conn, "a", "k", &options, &lease, &error), LH_INVALID_ARGUMENT);
    ck_assert_str_eq(error.field, "wait");
    ck_assert_int_eq(lh_reap_stale(conn, NULL, 0, false, NULL, NULL), LH_INVALID_ARGUMENT);
    PQclear(PQexec(conn, "select 1/0"));
    ck_assert_int_eq(lh_embed_acquire(conn, "a", "k", NULL, &lease, &error), LH_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(error.message, "roll it back first"));
    PQclear(PQexec(conn, "rollback"));
    ck_assert_int_eq(PQenterPipelineMode(conn), 1);
    ck_assert_int_eq(lh_embed_acquire(conn, "a", "k", NULL, &lease, &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_reap_stale(conn, NULL, 0, false, NULL, NULL), LH_INVALID_ARGUMENT);
    PQexitPipelineMode(conn);
}
END_TEST

/* --- waiting --- */

struct release_later {
    struct lh_embed_lease lease;
    enum lh_status status;
};

static void *release_when_somebody_waits(void *arg)
{
    struct release_later *later = arg;
    PGconn *own = PQconnectdb(conninfo);
    int64_t until_us = lh_clock_us() + 20 * LH_US_PER_S;
    bool is_waited_for = false;

    while (!is_waited_for && lh_clock_us() < until_us) {
        PGresult *result = PQexec(own, "select 1 from leasehold.waiter");
        is_waited_for = PQntuples(result) > 0;
        PQclear(result);
        lh_pause(5 * LH_US_PER_MS);
    }
    later->status = lh_embed_release_ok(own, &later->lease, NULL, NULL, NULL);
    PQfinish(own);
    return NULL;
}

START_TEST(a_waiter_is_told_when_its_turn_comes)
{
    struct lh_embed_acquire_options options = {.duration_us = LH_SECOND * 60, .wait_us = LH_FOREVER};
    struct release_later later;
    struct lh_embed_lease lease;
    pthread_t thread;

    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", &options, &later.lease, &error), LH_OK);
    pthread_create(&thread, NULL, release_when_somebody_waits, &later);
    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", &options, &lease, &error), LH_OK);
    pthread_join(thread, NULL);
    ck_assert_int_eq(later.status, LH_OK);
    ck_assert_int_gt(lease.token, later.lease.token);
    check_value("select count(*) from leasehold.waiter", "0");
    PGresult *result = PQexec(conn, "select pg_listening_channels()");
    ck_assert_int_eq(PQntuples(result), 0);
    PQclear(result);
}
END_TEST

START_TEST(a_waiter_takes_over_what_expires_where_no_daemon_runs)
{
    struct lh_embed_acquire_options options = {.duration_us = LH_SECOND, .wait_us = 20 * LH_SECOND};
    struct lh_embed_lease first, lease;

    execute("select leasehold.set_policy('embed', grace => '0 s')");
    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", &options, &first, &error), LH_OK);
    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", &options, &lease, &error), LH_OK);
    ck_assert_int_gt(lease.token, first.token);
    ck_assert_int_eq(lh_embed_heartbeat(conn, &first, NULL, &error), LH_LOST);
}
END_TEST

START_TEST(a_wait_ends_and_leaves_no_place_behind)
{
    struct lh_embed_acquire_options options = {.wait_us = 200 * LH_MILLISECOND};
    struct lh_embed_lease first, lease;

    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", &options, &first, &error), LH_OK);
    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", &options, &lease, &error), LH_WAIT_TIMEOUT);
    check_value("select count(*) from leasehold.waiter", "0");
    options.lease_key = first.lease_key; /* its own holder does not wait */
    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", &options, &lease, &error), LH_OK);
    ck_assert_int_eq(lh_embed_release_ok(conn, &first, NULL, NULL, &error), LH_OK);
    ck_assert_int_eq(lh_embed_acquire(conn, "embed", "k", &options, &lease, &error), LH_LEASE_ENDED);
}
END_TEST

/* --- reaping --- */

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
    ck_assert_int_eq(lh_reap_stale_with(conn, &options, &counts, &error), LH_OK);
    ck_assert_int_eq(counts.reaped, 7);
    ck_assert_int_eq(count_outcomes, 7);
    options.on_lease = NULL;
    options.max = 5;
    ck_assert_int_eq(lh_reap_stale_with(conn, &options, &counts, &error), LH_OK);
    ck_assert_int_eq(counts.reaped, 5);
    options.max = 0;
    ck_assert_int_eq(lh_reap_stale_with(conn, &options, NULL, &error), LH_OK);
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

int main(void)
{
    Suite *suite = suite_create("embed");
    SRunner *runner = srunner_create(suite);
    TCase *tests = tcase_create("embed");
    int failed;

    lh_log_set_level(LH_LOG_ERROR + 1);
    tcase_add_unchecked_fixture(tests, prepare, NULL);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_lease_goes_through_its_life_with_its_callbacks);
    tcase_add_test(tests, a_failure_is_released_with_its_words);
    tcase_add_test(tests, a_callback_that_refuses_takes_the_change_back);
    tcase_add_test(tests, what_cannot_be_serialized_is_repeated_with_its_callback);
    tcase_add_test(tests, a_heartbeat_that_is_repeated_counts_once);
    tcase_add_test(tests, repetition_has_an_end);
    tcase_add_test(tests, a_connection_that_breaks_is_made_anew_and_the_verb_repeated);
    tcase_add_test(tests, an_idle_connection_that_broke_is_made_anew);
    tcase_add_test(tests, a_commit_whose_answer_is_lost_is_not_done_twice);
    tcase_add_test(tests, the_fate_of_a_transaction_is_known);
    tcase_add_test(tests, a_verb_joins_the_callers_transaction);
    tcase_add_test(tests, a_client_needs_no_more_than_its_role);
    tcase_add_test(tests, misuse_is_answered_with_words);
    tcase_add_test(tests, a_waiter_is_told_when_its_turn_comes);
    tcase_add_test(tests, a_waiter_takes_over_what_expires_where_no_daemon_runs);
    tcase_add_test(tests, a_wait_ends_and_leaves_no_place_behind);
    tcase_add_test(tests, stale_leases_are_reaped_with_the_callback);
    tcase_add_test(tests, a_limit_of_leases_is_kept_and_the_sessions_defaults_do_not_matter);
    tcase_add_test(tests, nothing_is_reaped_in_a_new_life_of_the_database);
    suite_add_tcase(suite, tests);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
