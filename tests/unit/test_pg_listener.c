/* Notifications arrive, and go on arriving after the listener's session was ended. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pg/listener.h"
#include "pg_fixture.h"
#include "test_pg.h"

static struct lh_loop *loop;
static struct lh_pg_listener *listener;
static unsigned ups, downs, closes, notifications;
static char last_payload[64];
static struct lh_error last_error;

static void on_up(void *arg)
{
    ups++;
}

static void on_down(void *arg, const struct lh_error *error)
{
    downs++;
    last_error = *error;
}

static void on_notify(void *arg, const char *payload)
{
    notifications++;
    snprintf(last_payload, sizeof(last_payload), "%s", payload);
}

static void on_closed(void *arg)
{
    closes++;
}

static void start_with(const char *setting, int64_t check_interval_us, int64_t answer_timeout_us)
{
    static const struct lh_pg_listener_events events = {on_up, on_down, on_notify};
    struct lh_pg_listener_options options;
    char conninfo[512];

    ups = downs = closes = notifications = 0;
    loop = lh_loop_create();
    lh_pg_listener_options_init(&options);
    snprintf(conninfo, sizeof(conninfo), "%s application_name=test_listener %s", pg_fixture_conninfo(), setting);
    options.conninfo = conninfo;
    options.channel = "test \"channel\"";
    options.check_interval_us = check_interval_us;
    options.answer_timeout_us = answer_timeout_us;
    listener = lh_pg_listener_create(loop, &options, &events, NULL);
    lh_pg_listener_start(listener);
    WAIT_FOR(loop, ups == 1);
    ck_assert(lh_pg_listener_is_up(listener));
}

static void start(int64_t check_interval_us, int64_t answer_timeout_us)
{
    start_with("", check_interval_us, answer_timeout_us);
}

static int backend_pid(void)
{
    return atoi(pg_fixture_value(pg_fixture_conninfo(),
                                 "select pid from pg_stat_activity where application_name = 'test_listener'"));
}

static void finish(void)
{
    lh_pg_listener_close(listener, on_closed, NULL);
    WAIT_FOR(loop, closes == 1);
    lh_loop_destroy(loop);
}

static void notify(const char *payload)
{
    char sql[128];
    snprintf(sql, sizeof(sql), "select pg_notify('test \"channel\"', '%s')", payload);
    pg_fixture_execute(pg_fixture_conninfo(), sql);
}

START_TEST(notifications_arrive)
{
    start(10 * LH_US_PER_S, 10 * LH_US_PER_S);
    notify("payments\nfirst");
    WAIT_FOR(loop, notifications == 1);
    ck_assert_str_eq(last_payload, "payments\nfirst");
    notify("");
    WAIT_FOR(loop, notifications == 2);
    ck_assert_str_eq(last_payload, "");
    finish();
}
END_TEST

START_TEST(it_listens_again_after_its_session_was_ended)
{
    char sql[96];

    start(10 * LH_US_PER_S, 10 * LH_US_PER_S);
    snprintf(sql, sizeof(sql), "select pg_terminate_backend(%d)", backend_pid());
    pg_fixture_execute(pg_fixture_conninfo(), sql);
    WAIT_FOR(loop, downs == 1);
    ck_assert(!lh_pg_listener_is_up(listener));
    WAIT_FOR(loop, ups == 2);
    notify("again");
    WAIT_FOR(loop, notifications == 1);
    ck_assert_str_eq(last_payload, "again");
    finish();
}
END_TEST

START_TEST(it_never_leaves_a_transaction_open)
{
    start(20 * LH_US_PER_MS, 10 * LH_US_PER_S);
    char sql[160];
    snprintf(sql, sizeof(sql),
             "select count(*) from pg_stat_activity where pid = %d and state = 'idle'"
             " and backend_xid is null and backend_xmin is null",
             backend_pid());
    WAIT_FOR(loop, strcmp(pg_fixture_value(pg_fixture_conninfo(), sql), "1") == 0);
    finish();
}
END_TEST

START_TEST(a_session_that_does_not_answer_its_check_is_replaced)
{
    int pid;

    start(20 * LH_US_PER_MS, 300 * LH_US_PER_MS);
    pid = backend_pid();
    ck_assert_int_eq(kill(pid, SIGSTOP), 0);
    WAIT_FOR(loop, downs == 1);
    kill(pid, SIGCONT);
    WAIT_FOR(loop, ups == 2);
    WAIT_FOR(loop, backend_pid() != pid); /* the one that was stopped ends when it has seen that it is alone */
    finish();
}
END_TEST

START_TEST(connect_timeout_is_its_patience)
{
    int pid;

    start_with("connect_timeout=1", 20 * LH_US_PER_MS, 600 * LH_US_PER_S);
    pid = backend_pid();
    ck_assert_int_eq(kill(pid, SIGSTOP), 0);
    WAIT_FOR(loop, downs == 1);
    kill(pid, SIGCONT);
    ck_assert_ptr_nonnull(strstr(last_error.message, "no answer within 1000 ms"));
    finish();
}
END_TEST

TCase *test_pg_listener(void)
{
    TCase *tcase = tcase_create("listener");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, notifications_arrive);
    tcase_add_test(tcase, it_listens_again_after_its_session_was_ended);
    tcase_add_test(tcase, it_never_leaves_a_transaction_open);
    tcase_add_test(tcase, a_session_that_does_not_answer_its_check_is_replaced);
    tcase_add_test(tcase, connect_timeout_is_its_patience);
    return tcase;
}
