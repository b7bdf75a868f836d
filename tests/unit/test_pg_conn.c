/* A connection's life against a real server: losses, returns, time-outs, the end. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "conn_fixture.h"
#include "pg_fixture.h"
#include "test_pg.h"

static const struct lh_pg_statement read_only = {
    "read_only", "select set_config('transaction_read_only', 'on', true), (select nextval('only_writers'))", 0, {0}};

/* Three in flight: all are told, once, and it comes back and works. */
static void lose_and_return(void (*lose)(void))
{
    ck_assert_int_eq(ask_nothing(&nap, 0), LH_OK);
    ck_assert_int_eq(ask_int8(&echo, 1, 1), LH_OK);
    ck_assert_int_eq(ask_int8(&echo, 2, 2), LH_OK);
    lh_loop_run_once(loop, 0);
    lose();
    WAIT_FOR(loop, downs == 1);
    ck_assert_uint_eq(answer_count, 3);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(answers[i].id, i);
        ck_assert_int_eq(answers[i].status, LH_DATABASE_UNAVAILABLE);
    }
    ck_assert_int_eq(ask_int8(&echo, 3, 3), LH_DATABASE_UNAVAILABLE);
    WAIT_FOR(loop, ups == 2);
    ck_assert_int_eq(ask_int8(&echo, 3, 3), LH_OK);
    WAIT_FOR(loop, answer_count == 4);
    ck_assert_int_eq(answers[3].value, 3);
}

static void terminate_backend(void)
{
    char sql[96];
    snprintf(sql, sizeof(sql), "select pg_terminate_backend(%d)", lh_pg_conn_backend_pid(conn));
    pg_fixture_execute(pg_fixture_conninfo(), sql);
}

static void crash_backend(void)
{
    pg_fixture_crash(lh_pg_conn_backend_pid(conn));
}

static void restart_server(void)
{
    pg_fixture_stop();
    WAIT_FOR(loop, downs == 1);
    pg_fixture_start();
}

START_TEST(patient_queries_of_a_lost_connection_are_answered)
{
    for (int i = 0; i < 10; i++) {
        lh_pg_params_reset(&params);
        ask_patiently(&nap, i);
    }
    terminate_backend();
    WAIT_FOR(loop, answer_count == 10);
    for (int i = 0; i < 10; i++) {
        ck_assert_int_eq(answers[i].id, i);
        ck_assert_int_eq(answers[i].status, LH_DATABASE_UNAVAILABLE);
    }
    ck_assert_uint_eq(lh_pg_conn_in_flight(conn), 0);
}
END_TEST

START_TEST(a_terminated_backend_is_replaced)
{
    lose_and_return(terminate_backend);
}
END_TEST

/* Somebody who takes the number of the lost socket in the turn in which libpq closes it, as an accept may. */
static struct successor {
    int ends[2];
    int number;
    int lost_number;
    struct lh_watch knock;
    struct lh_watch watch;
    bool was_heard;
} successor;

static void on_heard(void *arg, unsigned ready)
{
    successor.was_heard = true;
    lh_watch_want(&successor.watch, 0);
}

static void on_knock(void *arg, unsigned ready)
{
    if (fcntl(successor.lost_number, F_GETFD) >= 0)
        return;
    successor.number = dup(successor.ends[1]);
    lh_watch_init(&successor.watch, loop, successor.number, on_heard, NULL);
    lh_watch_want(&successor.watch, LH_WATCH_READ);
    lh_watch_want(&successor.knock, 0);
}

START_TEST(whoever_gets_the_number_of_a_lost_socket_is_heard)
{
    struct pollfd lost = {.fd = PQsocket(conn->pg)};
    int fillers[32];

    successor = (struct successor){.number = -1, .lost_number = lost.fd};
    for (int i = 0; i < 32; i++)
        fillers[i] = dup(STDERR_FILENO); /* so that no lower number is free */
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, successor.ends), 0);
    lh_watch_init(&successor.knock, loop, successor.ends[1], on_knock, NULL);
    terminate_backend();
    ck_assert_int_eq(poll(&lost, 1, 20000), 1); /* it has hung up: its event comes first */
    ck_assert_int_eq(write(successor.ends[0], "x", 1), 1);
    lh_watch_want(&successor.knock, LH_WATCH_READ);
    WAIT_FOR(loop, successor.number >= 0);
    ck_assert_int_eq(successor.number, successor.lost_number);
    WAIT_FOR(loop, successor.was_heard);
    WAIT_FOR(loop, ups == 2);
    lh_watch_finish(&successor.knock);
    lh_watch_finish(&successor.watch);
    close(successor.number);
    close(successor.ends[0]);
    close(successor.ends[1]);
    for (int i = 0; i < 32; i++)
        close(fillers[i]);
}
END_TEST

START_TEST(a_crashed_backend_is_replaced)
{
    lose_and_return(crash_backend);
}
END_TEST

START_TEST(a_restarted_server_is_found_again)
{
    lose_and_return(restart_server);
}
END_TEST

START_TEST(an_idle_connection_that_is_terminated_comes_back)
{
    terminate_backend();
    WAIT_FOR(loop, downs == 1);
    ck_assert_str_eq(down_message, "terminating connection due to administrator command");
    WAIT_FOR(loop, ups == 2);
    ck_assert_uint_eq(answer_count, 0);
}
END_TEST

START_TEST(a_server_that_takes_no_writes_is_left)
{
    pg_fixture_execute(pg_fixture_conninfo(), "create sequence only_writers");
    ck_assert_int_eq(ask_nothing(&read_only, 0), LH_OK);
    WAIT_FOR(loop, downs == 1);
    pg_fixture_execute(pg_fixture_conninfo(), "drop sequence only_writers");
    ck_assert_int_eq(answers[0].status, LH_DATABASE_UNAVAILABLE);
    ck_assert_str_eq(answers[0].sqlstate, "25006");
    WAIT_FOR(loop, ups == 2);
}
END_TEST

START_TEST(a_statement_that_takes_too_long_is_ended_by_the_server)
{
    struct lh_pg_conn_options options;

    close_conn();
    ups = closes = 0;
    lh_pg_conn_options_init(&options);
    options.statement_timeout_us = LH_US_PER_S; /* of the second one too, on a busy machine */
    make_conn(&options);
    ck_assert_int_eq(ask_nothing(&nap, 0), LH_OK);
    ck_assert_int_eq(ask_int8(&echo, 1, 1), LH_OK);
    WAIT_FOR(loop, answer_count == 2);
    ck_assert_str_eq(answers[0].sqlstate, "57014");
    ck_assert_int_eq(answers[1].status, LH_OK);
    ck_assert_uint_eq(downs, 0);
}
END_TEST

START_TEST(a_server_that_does_not_answer_is_given_up)
{
    struct lh_pg_conn_options options;
    int pid;

    close_conn();
    ups = closes = 0;
    lh_pg_conn_options_init(&options);
    options.statement_timeout_us = 100 * LH_US_PER_MS;
    options.answer_slack_us = 200 * LH_US_PER_MS;
    make_conn(&options);
    pid = lh_pg_conn_backend_pid(conn);
    ck_assert_int_eq(kill(pid, SIGSTOP), 0);
    ck_assert_int_eq(ask_int8(&echo, 0, 1), LH_OK);
    WAIT_FOR(loop, downs == 1);
    kill(pid, SIGCONT);
    ck_assert_uint_eq(answer_count, 1);
    ck_assert_int_eq(answers[0].status, LH_DATABASE_UNAVAILABLE);
    WAIT_FOR(loop, ups == 2);
}
END_TEST

static const struct lh_pg_statement shape = {"shape", "select * from shaped", 0, {0}};

START_TEST(a_statement_whose_result_changed_shape_gets_a_new_connection)
{
    pg_fixture_execute(pg_fixture_conninfo(), "create table shaped as select 4::bigint as a");
    ck_assert_int_eq(ask_nothing(&shape, 0), LH_OK);
    WAIT_FOR(loop, answer_count == 1);
    ck_assert_int_eq(answers[0].value, 4);
    pg_fixture_execute(pg_fixture_conninfo(), "alter table shaped alter a type text");
    ck_assert_int_eq(ask_nothing(&shape, 1), LH_OK);
    WAIT_FOR(loop, downs == 1);
    ck_assert_int_eq(answers[1].status, LH_DATABASE_UNAVAILABLE);
    WAIT_FOR(loop, ups == 2);
    ck_assert_int_eq(ask_nothing(&shape, 2), LH_OK);
    WAIT_FOR(loop, answer_count == 3);
    pg_fixture_execute(pg_fixture_conninfo(), "drop table shaped");
    ck_assert_int_eq(answers[2].status, LH_OK);
    ck_assert_uint_eq(answers[2].size, 1);
}
END_TEST

static unsigned accept_all(int listening)
{
    unsigned accepted = 0;
    while (accept4(listening, NULL, NULL, SOCK_CLOEXEC) >= 0)
        accepted++;
    return accepted;
}

/* A server that accepts and says nothing: nothing blocks, and each attempt ends at its timeout. */
START_TEST(a_server_that_never_says_hello_is_tried_again)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct lh_pg_conn_options options;
    char directory[] = "/tmp/leasehold-mute-XXXXXX", conninfo[96];
    int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    unsigned accepted = 0;

    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/.s.PGSQL.5432", directory);
    ck_assert_int_eq(bind(listening, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(listening, 16), 0);
    close_conn();
    ups = closes = 0;
    lh_pg_conn_options_init(&options);
    snprintf(conninfo, sizeof(conninfo), "host=%s user=postgres", directory);
    options.conninfo = conninfo;
    options.connect_timeout_us = 50 * LH_US_PER_MS;
    conn = lh_pg_conn_create(loop, &options, &conn_events, NULL);
    lh_pg_conn_start(conn);
    WAIT_FOR(loop, (accepted += accept_all(listening)) >= 2);
    ck_assert_uint_eq(ups, 0);
    ck_assert_uint_eq(downs, 0);
    close_conn();
    close(listening);
    unlink(address.sun_path);
    rmdir(directory);
}
END_TEST

START_TEST(close_answers_what_is_in_flight)
{
    ck_assert_int_eq(ask_nothing(&nap, 0), LH_OK);
    lh_loop_run_once(loop, 0);
    close_conn();
    ck_assert_uint_eq(answer_count, 1);
    ck_assert_int_eq(answers[0].status, LH_CANCELED);
    ck_assert_uint_eq(downs, 0);
}
END_TEST

static void on_answer_close(void *arg, enum lh_status status, const PGresult *result, const struct lh_error *error)
{
    conn_on_answer(arg, status, result, error);
    if (answer_count == 1)
        lh_pg_conn_close(conn, conn_on_closed, NULL);
}

START_TEST(close_from_inside_an_answer_is_allowed)
{
    for (int i = 0; i < 3; i++) {
        lh_pg_params_reset(&params);
        lh_pg_add_int8(&params, i);
        ids[i] = i;
        ck_assert_int_eq(lh_pg_query(conn, &echo, &params, on_answer_close, &ids[i]), LH_OK);
    }
    WAIT_FOR(loop, closes == 1);
    conn = NULL;
    ck_assert_uint_eq(answer_count, 3);
    ck_assert_int_eq(answers[0].status, LH_OK);
    ck_assert_int_eq(answers[2].status, LH_CANCELED);
}
END_TEST

TCase *test_pg_conn(void)
{
    TCase *tcase = tcase_create("conn");
    tcase_add_checked_fixture(tcase, conn_setup, conn_teardown);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, patient_queries_of_a_lost_connection_are_answered);
    tcase_add_test(tcase, a_terminated_backend_is_replaced);
    tcase_add_test(tcase, whoever_gets_the_number_of_a_lost_socket_is_heard);
    tcase_add_test(tcase, a_crashed_backend_is_replaced);
    tcase_add_test(tcase, a_restarted_server_is_found_again);
    tcase_add_test(tcase, an_idle_connection_that_is_terminated_comes_back);
    tcase_add_test(tcase, a_server_that_takes_no_writes_is_left);
    tcase_add_test(tcase, a_statement_that_takes_too_long_is_ended_by_the_server);
    tcase_add_test(tcase, a_server_that_does_not_answer_is_given_up);
    tcase_add_test(tcase, a_statement_whose_result_changed_shape_gets_a_new_connection);
    tcase_add_test(tcase, a_server_that_never_says_hello_is_tried_again);
    tcase_add_test(tcase, close_answers_what_is_in_flight);
    tcase_add_test(tcase, close_from_inside_an_answer_is_allowed);
    return tcase;
}
