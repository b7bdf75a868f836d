/* Control calls on the real schema. */
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pg/migrate.h"
#include "test_store.h"

static const struct lh_requester requester = {"user:admin", "unix:"};

#define SECOND INT64_C(1000000)
#define COPIES 16

static const char *conninfo;
static struct test_store test;
static struct test_answer answer;

/* What an answer held, copied while it lived. */
static struct {
    bool is_registered, is_held, has_last, has_more;
    int64_t database_now_us, token, last_token;
    enum lh_end_reason end_reason;
    size_t count, wake_count;
    char keys[COPIES][32];
    char last_error[64], owner[32], lease_key[LH_UUID_TEXT_BYTES];
    char cells[COPIES][7][32]; /* of `settings`; "-" for null */
} got;

static void setup_all(void)
{
    conninfo = test_store_database("control");
}

static void on_tick(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_tick_answer *tick)
{
    test_on_answer(&answer, status, error);
    if (status != LH_OK)
        return;
    got.is_registered = tick->is_registered;
    got.database_now_us = tick->database_now_us;
    got.wake_count = tick->wake_count;
    for (size_t i = 0; i < tick->wake_count && i < COPIES; i++)
        snprintf(got.keys[i], sizeof(got.keys[i]), "%s", tick->wakes[i].key);
}

static void setup(void)
{
    memset(&answer, 0, sizeof(answer));
    memset(&got, 0, sizeof(got));
    pg_fixture_execute(conninfo, "delete from leasehold.waiter; delete from leasehold.scope;"
                                 " delete from leasehold.policy where namespace <> ''");
    test_store_start(&test, conninfo, 1);
    ck_assert_int_eq(test.store->ops->enroll(test.store, on_tick, NULL), LH_OK);
    test_wait_for_ok(&answer);
}

static void teardown(void)
{
    test_store_stop(&test);
}

static struct lh_acquire_item acquire(const char *ns, const char *key, const char *owner, int64_t duration_us,
                                      bool queue)
{
    struct lh_acquire_item item = {.ns = ns,
                                   .key = key,
                                   .lease_key = lh_uuid_random(),
                                   .terms.owner = owner,
                                   .terms.labels = "{}",
                                   .terms.duration_us = duration_us,
                                   .queue = queue,
                                   .wait_us = LH_NEVER};
    struct lh_acquire_item *items[] = {&item};
    ck_assert_int_eq(
        test.store->ops->send(test.store, 0, LH_KIND_ACQUIRE, 0, (void **)items, 1, test_on_answer, &answer), LH_OK);
    test_wait_for_ok(&answer);
    return item;
}

START_TEST(enroll_tells_timeline_and_schema)
{
    char sql[128], id[LH_UUID_TEXT_BYTES];

    ck_assert_int_eq(test.store->ops->timeline(test.store), 1);
    ck_assert_int_eq(test.store->ops->schema_version(test.store),
                     lh_migrations.migrations[lh_migrations.migration_count - 1].number);
    lh_uuid_format(&test.store->coordinator, id);
    snprintf(sql, sizeof(sql), "select pid from leasehold.coordinator where id = '%s'", id);
    ck_assert_int_eq(atoi(pg_fixture_value(conninfo, sql)), getpid());
}
END_TEST

START_TEST(tick_says_when_this_coordinator_was_taken_for_dead)
{
    ck_assert_int_eq(test.store->ops->tick(test.store, 0, on_tick, NULL), LH_OK);
    test_wait_for_ok(&answer);
    ck_assert(got.is_registered);
    ck_assert_int_gt(got.database_now_us, INT64_C(1700000000) * SECOND);
    pg_fixture_execute(conninfo, "delete from leasehold.coordinator");
    ck_assert_int_eq(test.store->ops->tick(test.store, got.database_now_us, on_tick, NULL), LH_OK);
    test_wait_for_ok(&answer);
    ck_assert(!got.is_registered);
}
END_TEST

START_TEST(tick_finds_a_free_scope_whose_first_waiter_is_ours)
{
    struct lh_acquire_item mine = acquire("a", "one", "me", 30 * SECOND, false);
    acquire("a", "one", "next", 30 * SECOND, true);
    ck_assert_int_eq(mine.outcome, LH_ACQUIRE_GRANTED);
    /* The row is freed behind everybody's back: no notification. */
    pg_fixture_execute(conninfo, "update leasehold.scope set state = 'free', lease_key = null, check_at = now()");
    ck_assert_int_eq(test.store->ops->tick(test.store, 0, on_tick, NULL), LH_OK);
    test_wait_for_ok(&answer);
    ck_assert_uint_eq(got.wake_count, 1);
    ck_assert_str_eq(got.keys[0], "one");
    /* And a wake-up that reached somebody else is passed on to it: to us, without a notification. */
    test.wakes = 0;
    ck_assert_int_eq(test.store->ops->pass_on(test.store, &(struct lh_wake){"a", "one", 0}, test_on_answer, &answer),
                     LH_OK);
    test_wait_for_ok(&answer);
    ck_assert_uint_eq(test.wakes, 1);
    ck_assert_str_eq(test.wake_key, "one");
}
END_TEST

static void on_scope(void *arg, enum lh_status status, const struct lh_error *error,
                     const struct lh_scope_answer *scope)
{
    test_on_answer(&answer, status, error);
    if (status != LH_OK)
        return;
    got.is_held = scope->is_held;
    got.has_last = scope->has_last;
    got.token = scope->lease.token;
    snprintf(got.owner, sizeof(got.owner), "%s", scope->lease.owner == NULL ? "" : scope->lease.owner);
    lh_uuid_format(&scope->lease.lease_key, got.lease_key);
    ck_assert_str_eq(scope->lease.ns, "a");
    if (!scope->has_last)
        return;
    got.last_token = scope->last.token;
    got.end_reason = scope->last.end_reason;
    snprintf(got.last_error, sizeof(got.last_error), "%s", scope->last.error);
}

static void get(const char *key)
{
    memset(&got, 0, sizeof(got));
    ck_assert_int_eq(test.store->ops->get(test.store, "a", key, on_scope, NULL), LH_OK);
    test_wait_for_ok(&answer);
}

START_TEST(get_shows_holder_last_hold_or_nothing)
{
    struct lh_acquire_item mine;
    struct lh_holder_item back = {.ns = "a", .key = "one", .is_failure = true, .value = "it broke"};
    struct lh_holder_item *items[] = {&back};

    get("one");
    ck_assert(!got.is_held && !got.has_last);
    mine = acquire("a", "one", "me", 30 * SECOND, false);
    get("one");
    ck_assert(got.is_held);
    ck_assert_int_eq(got.token, mine.lease.token);
    ck_assert_str_eq(got.owner, "me");
    ck_assert_str_eq(got.lease_key, "00000000-0000-0000-0000-000000000000");
    back.lease_key = mine.lease_key;
    ck_assert_int_eq(
        test.store->ops->send(test.store, 0, LH_KIND_RELEASE, 0, (void **)items, 1, test_on_answer, &answer), LH_OK);
    test_wait_for_ok(&answer);
    get("one");
    ck_assert(!got.is_held && got.has_last);
    ck_assert_int_eq(got.last_token, mine.lease.token);
    ck_assert_int_eq(got.end_reason, LH_END_FAILED);
    ck_assert_str_eq(got.last_error, "it broke");
}
END_TEST

static void on_list(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_list_answer *list)
{
    test_on_answer(&answer, status, error);
    if (status != LH_OK)
        return;
    got.count = list->lease_count;
    got.has_more = list->has_more;
    for (size_t i = 0; i < list->lease_count && i < COPIES; i++)
        snprintf(got.keys[i], sizeof(got.keys[i]), "%s/%s", list->leases[i].ns, list->leases[i].key);
}

static void list(const struct lh_list_request *request)
{
    ck_assert_int_eq(test.store->ops->list(test.store, request, on_list, NULL), LH_OK);
    test_wait_for_ok(&answer);
}

START_TEST(list_goes_page_by_page)
{
    acquire("a", "one", "me", 30 * SECOND, false);
    acquire("a", "two", "you", 30 * SECOND, false);
    acquire("a.b", "three", "me", 30 * SECOND, false);
    acquire("ab", "four", "me", 30 * SECOND, false);
    list(&(struct lh_list_request){.ns = "", .page_size = 3});
    ck_assert_uint_eq(got.count, 3);
    ck_assert(got.has_more);
    ck_assert_str_eq(got.keys[2], "a.b/three");
    list(&(struct lh_list_request){.ns = "", .page_size = 3, .after_ns = "a.b", .after_key = "three"});
    ck_assert_uint_eq(got.count, 1);
    ck_assert(!got.has_more);
    ck_assert_str_eq(got.keys[0], "ab/four");
    list(&(struct lh_list_request){.ns = "a", .include_children = true, .page_size = 3});
    ck_assert_uint_eq(got.count, 3);
    ck_assert(!got.has_more);
    list(&(struct lh_list_request){.ns = "a", .page_size = 10, .owner = "you"});
    ck_assert_uint_eq(got.count, 1);
    ck_assert_str_eq(got.keys[0], "a/two");
}
END_TEST

static void force_release(int64_t token)
{
    memset(&got, 0, sizeof(got));
    ck_assert_int_eq(test.store->ops->force_release(test.store, "a", "one", "host is gone", token, false, &requester,
                                                    on_scope, NULL),
                     LH_OK);
    test_wait_for(&answer);
}

START_TEST(force_release_ends_the_lease_that_was_meant)
{
    struct lh_acquire_item mine;
    char lease_key[LH_UUID_TEXT_BYTES];

    force_release(0);
    ck_assert_int_eq(answer.status, LH_NOT_HELD);
    mine = acquire("a", "one", "me", 30 * SECOND, false);
    force_release(mine.lease.token + 1);
    ck_assert_int_eq(answer.status, LH_NOT_HELD);
    force_release(mine.lease.token);
    ck_assert_int_eq(answer.status, LH_OK);
    ck_assert_int_eq(got.token, mine.lease.token);
    lh_uuid_format(&mine.lease_key, lease_key);
    ck_assert_str_eq(got.lease_key, lease_key);
    get("one");
    ck_assert_int_eq(got.end_reason, LH_END_FORCED);
}
END_TEST

START_TEST(force_release_names_the_session_that_is_in_the_way)
{
    PGconn *session = PQconnectdb(conninfo);
    char pid[16];

    acquire("a", "one", "me", 30 * SECOND, false);
    PQclear(PQexec(session, "begin; select * from leasehold.scope for key share"));
    snprintf(pid, sizeof(pid), "%d", PQbackendPID(session));
    force_release(0);
    PQfinish(session);
    ck_assert_int_eq(answer.status, LH_SCOPE_BUSY);
    ck_assert_msg(strstr(answer.error.message, pid) != NULL, "%s", answer.error.message);
}
END_TEST

static struct {
    int64_t held, oldest_us;
    char oldest[256];
} surveyed;

static void on_survey(void *arg, enum lh_status status, const struct lh_error *error,
                      const struct lh_survey_answer *survey)
{
    test_on_answer(&answer, status, error);
    if (status != LH_OK)
        return;
    surveyed.held = survey->held;
    surveyed.oldest_us = survey->oldest_us;
    snprintf(surveyed.oldest, sizeof(surveyed.oldest), "%s", survey->oldest);
}

static void survey(void)
{
    ck_assert_int_eq(test.store->ops->survey(test.store, on_survey, NULL), LH_OK);
    test_wait_for_ok(&answer);
}

START_TEST(survey_counts_leases_and_names_the_transaction_that_holds_back_vacuum)
{
    PGconn *session = PQconnectdb(conninfo);
    char pid[24];

    acquire("a", "one", "me", 30 * SECOND, false);
    acquire("a", "two", "me", 30 * SECOND, false);
    snprintf(pid, sizeof(pid), "pid=%d ", PQbackendPID(session));
    PQclear(PQexec(session, "begin; select 1")); /* without a snapshot it holds back nothing */
    survey();
    ck_assert_int_eq(surveyed.held, 2);
    ck_assert_msg(strstr(surveyed.oldest, pid) == NULL, "%s", surveyed.oldest);
    PQclear(PQexec(session, "rollback; begin isolation level repeatable read; select 1"));
    survey();
    ck_assert_msg(strstr(surveyed.oldest, pid) == surveyed.oldest, "%s", surveyed.oldest);
    ck_assert_ptr_nonnull(strstr(surveyed.oldest, "idle in transaction"));
    ck_assert_int_gt(surveyed.oldest_us, 0);
    PQfinish(session);
}
END_TEST

START_TEST(connections_and_reconnects_are_counted)
{
    struct lh_store_stats stats;

    lh_store_stats(test.store, &stats);
    for (int role = 0; role < LH_STORE_HOOK_LANE; role++) {
        ck_assert_uint_eq(stats.connections[role], 1);
        ck_assert_uint_eq(stats.connections_up[role], 1);
        ck_assert_uint_eq(stats.reconnects[role], 0);
    }
    pg_fixture_execute(conninfo, "select pg_terminate_backend(pid) from pg_stat_activity"
                                 " where pid <> pg_backend_pid() and application_name = 'leaseholdd'");
    do {
        lh_loop_run_once(test_loop, 20 * LH_US_PER_MS);
        lh_store_stats(test.store, &stats);
    } while (stats.connections_up[0] + stats.connections_up[1] + stats.connections_up[2] < 3 ||
             stats.reconnects[0] + stats.reconnects[1] + stats.reconnects[2] < 3);
    ck_assert_uint_eq(stats.reconnects[LH_STORE_LISTENER], 1);
}
END_TEST

static void on_reap(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_reap_answer *reap)
{
    test_on_answer(&answer, status, error);
    if (status != LH_OK)
        return;
    got.count = reap->lease_count;
    got.has_more = reap->has_more;
    for (size_t i = 0; i < reap->lease_count && i < COPIES; i++) {
        ck_assert(!reap->leases[i].is_failure);
        snprintf(got.keys[i], sizeof(got.keys[i]), "%s", reap->leases[i].lease.key);
    }
}

/* How many it reaped. */
static size_t reap(const char *ns, int32_t max)
{
    const char *const namespaces[] = {ns};
    ck_assert_int_eq(test.store->ops->reap(test.store, 0, namespaces, ns != NULL, true, NULL, max, ns == NULL,
                                           &requester, on_reap, NULL),
                     LH_OK);
    test_wait_for_ok(&answer);
    return got.count;
}

START_TEST(reap_ends_what_has_expired)
{
    pg_fixture_execute(conninfo, "insert into leasehold.policy (namespace, min_duration, grace) values"
                                 " ('short', '100 ms', '0 s')");
    acquire("short", "one", "me", SECOND / 5, false);
    acquire("short", "two", "me", SECOND / 5, false);
    acquire("a", "one", "me", 30 * SECOND, false);
    WAIT_FOR(test_loop, reap("short", 1) == 1);
    ck_assert(got.has_more);
    WAIT_FOR(test_loop, reap(NULL, 100) == 1);
    ck_assert_uint_eq(reap(NULL, 100), 0);
    get("one");
    ck_assert(got.is_held);
}
END_TEST

static const char *const settings[7] = {"grace",        "frozen",      "expiry", "max_leases", "max_reap_failures",
                                        "max_duration", "source_lines"};
enum { GRACE, FROZEN, EXPIRY, MAX_LEASES, MAX_REAP_FAILURES, MAX_DURATION, SOURCES };

static void on_policy(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_rows *rows)
{
    test_on_answer(&answer, status, error);
    if (status != LH_OK)
        return;
    got.count = rows->row_count;
    got.has_more = rows->has_more;
    for (size_t i = 0; i < rows->row_count && i < COPIES; i++) {
        snprintf(got.keys[i], sizeof(got.keys[i]), "%s", lh_rows_cell(rows, i, "namespace"));
        for (size_t j = 0; j < 7; j++) {
            const char *cell = lh_rows_cell(rows, i, settings[j]);
            snprintf(got.cells[i][j], sizeof(got.cells[i][j]), "%s", cell == NULL ? "-" : cell);
        }
    }
}

static void set_policy(size_t count, const char *const *values)
{
    struct lh_policy_change change = {.ns = "a", .count = count, .names = settings, .values = values};
    struct lh_admin_request request = {
        .verb = LH_ADMIN_SET_POLICY, .by = &requester, .ns = change.ns, .change = &change};

    ck_assert_int_eq(test.store->ops->administer(test.store, &request, on_policy, NULL), LH_OK);
    test_wait_for(&answer);
}

static void list_policies(const char *after)
{
    struct lh_list_page page = {.list = LH_LIST_POLICIES, .page_size = 1, .after = {after, NULL}};

    ck_assert_int_eq(test.store->ops->list_rows(test.store, &page, on_policy, NULL), LH_OK);
    test_wait_for_ok(&answer);
    ck_assert_uint_eq(got.count, 1);
}

START_TEST(a_policy_is_set_inherited_and_reset)
{
    static const char *const values[] = {"2500000", "true", "manual", "7", "3"}, *const inherited[] = {NULL};
    static const struct lh_admin_request look = {.verb = LH_ADMIN_GET_POLICY, .ns = "a.b"};

    set_policy(5, values);
    ck_assert_msg(answer.status == LH_OK, "%s", answer.error.message);
    ck_assert_uint_eq(got.count, 2); /* its own, and what is in force */
    ck_assert_str_eq(got.cells[1][GRACE], "2500000");

    ck_assert_int_eq(test.store->ops->administer(test.store, &look, on_policy, NULL), LH_OK);
    test_wait_for_ok(&answer);
    ck_assert_uint_eq(got.count, 2);
    for (size_t i = 0; i < 6; i++)
        ck_assert_str_eq(got.cells[0][i], "-");
    ck_assert_str_eq(got.cells[1][FROZEN], "true");
    ck_assert_str_eq(got.cells[1][EXPIRY], "manual");
    ck_assert_str_eq(got.cells[1][MAX_LEASES], "7");
    ck_assert_str_eq(got.cells[1][MAX_REAP_FAILURES], "3");
    ck_assert_str_eq(got.cells[1][MAX_DURATION], "86400000000");
    ck_assert_msg(strncmp(got.cells[1][SOURCES], "\n\na\n", 4) == 0, "%s", got.cells[1][SOURCES]); /* grace is third */

    set_policy(1, inherited);
    ck_assert_str_eq(got.cells[1][GRACE], "1000000");
    ck_assert_str_eq(got.cells[1][FROZEN], "true");

    list_policies(NULL);
    ck_assert(got.has_more);
    ck_assert_str_eq(got.keys[0], "");
    list_policies("");
    ck_assert(!got.has_more);
    ck_assert_str_eq(got.keys[0], "a");
}
END_TEST

START_TEST(a_bad_policy_names_field_and_limit)
{
    static const char *const values[] = {"-5"};

    set_policy(1, values);
    ck_assert_int_eq(answer.status, LH_INVALID_ARGUMENT);
    ck_assert_str_eq(answer.error.field, "grace");
    ck_assert_str_ne(answer.error.bound, "");
    ck_assert_str_eq(pg_fixture_value(conninfo, "select count(*) from leasehold.policy"), "1");
}
END_TEST

START_TEST(control_calls_are_answered_when_the_server_goes)
{
    ck_assert_int_eq(test.store->ops->tick(test.store, 0, on_tick, NULL), LH_OK);
    pg_fixture_stop();
    WAIT_FOR(test_loop, answer.count == 1 && test.control_down == 1);
    answer.count = 0;
    ck_assert_int_eq(test.store->ops->tick(test.store, 0, on_tick, NULL), LH_DATABASE_UNAVAILABLE);
    pg_fixture_start();
    WAIT_FOR(test_loop, test.control_up == 2);
    ck_assert_uint_eq(answer.count, 0);
}
END_TEST

START_TEST(control_calls_have_a_bound)
{
    unsigned accepted = 0;
    enum lh_status status;

    while ((status = test.store->ops->tick(test.store, 0, on_tick, NULL)) == LH_OK)
        ck_assert_uint_lt(++accepted, 100000);
    ck_assert_int_eq(status, LH_OVERLOADED);
    ck_assert_uint_eq(accepted, 1024);
    WAIT_FOR(test_loop, answer.count == accepted);
    answer.count = 0;
    ck_assert_int_eq(test.store->ops->tick(test.store, 0, on_tick, NULL), LH_OK);
    test_wait_for_ok(&answer);
}
END_TEST

TCase *test_store_control(void)
{
    TCase *tcase = tcase_create("control");
    tcase_add_unchecked_fixture(tcase, setup_all, NULL);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, enroll_tells_timeline_and_schema);
    tcase_add_test(tcase, tick_says_when_this_coordinator_was_taken_for_dead);
    tcase_add_test(tcase, tick_finds_a_free_scope_whose_first_waiter_is_ours);
    tcase_add_test(tcase, get_shows_holder_last_hold_or_nothing);
    tcase_add_test(tcase, list_goes_page_by_page);
    tcase_add_test(tcase, force_release_ends_the_lease_that_was_meant);
    tcase_add_test(tcase, force_release_names_the_session_that_is_in_the_way);
    tcase_add_test(tcase, survey_counts_leases_and_names_the_transaction_that_holds_back_vacuum);
    tcase_add_test(tcase, connections_and_reconnects_are_counted);
    tcase_add_test(tcase, reap_ends_what_has_expired);
    tcase_add_test(tcase, a_policy_is_set_inherited_and_reset);
    tcase_add_test(tcase, a_bad_policy_names_field_and_limit);
    tcase_add_test(tcase, control_calls_are_answered_when_the_server_goes);
    tcase_add_test(tcase, control_calls_have_a_bound);
    return tcase;
}
