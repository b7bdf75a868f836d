/* A connection's life against a real server: answers, errors, losses, returns. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "pg/conn_internal.h"
#include "pg/result.h"
#include "pg_fixture.h"
#include "test_pg.h"

#define ANSWERS_MAX 4096

static struct lh_loop *loop;
static struct lh_pg_conn *conn;
static struct lh_pg_params params;
static unsigned ups, downs, closes;
static char down_message[512];

/* What came back, in order. */
static struct answer {
    int id;
    enum lh_status status;
    char sqlstate[6];
    int64_t value;
    size_t size;
} answers[ANSWERS_MAX];
static size_t answer_count;

static const struct lh_pg_statement echo = {"echo", "select $1", 1, {LH_PG_INT8}};
static const struct lh_pg_statement divide = {"divide", "select 100 / $1", 1, {LH_PG_INT8}};
static const struct lh_pg_statement absent = {"absent", "select * from no_such_table", 0, {0}};
static const struct lh_pg_statement nap = {"nap", "select 1::bigint from pg_sleep(30)", 0, {0}};
static const struct lh_pg_statement doze = {"doze", "select $1 from pg_sleep(0.01)", 1, {LH_PG_INT8}};
static const struct lh_pg_statement length = {
    "length", "select sum(length(t)) from unnest($1) as t", 1, {LH_PG_TEXT_ARRAY}};
static const struct lh_pg_statement repeat_text = {"repeat_text", "select repeat('x', $1)", 1, {LH_PG_INT4}};
static const struct lh_pg_statement read_only = {
    "read_only", "select set_config('transaction_read_only', 'on', true), (select nextval('only_writers'))", 0, {0}};
static const struct lh_pg_statement deferred = {"deferred", "insert into strict values (1), (1)", 0, {0}};

static void on_up(void *arg)
{
    ups++;
}

static void on_down(void *arg, const struct lh_error *error)
{
    ck_assert_int_eq(error->status, LH_DATABASE_UNAVAILABLE);
    ck_assert_uint_ne(error->message[0], '\0');
    snprintf(down_message, sizeof(down_message), "%s", error->message);
    downs++;
}

static void on_closed(void *arg)
{
    closes++;
}

static void on_answer(void *arg, enum lh_status status, const PGresult *result, const struct lh_error *error)
{
    struct answer *answer = &answers[answer_count++];

    ck_assert_uint_lt(answer_count, ANSWERS_MAX);
    ck_assert_int_eq(status == LH_OK, result != NULL);
    ck_assert_int_eq(status == LH_OK, error == NULL);
    *answer = (struct answer){.id = *(int *)arg, .status = status};
    if (status == LH_OK && PQnfields(result) == 1) {
        answer->value = lh_pg_int8(result, 0, 0);
        answer->size = (size_t)PQgetlength(result, 0, 0);
    }
    if (status != LH_OK)
        memcpy(answer->sqlstate, error->sqlstate, sizeof(answer->sqlstate));
}

static int ids[ANSWERS_MAX];

static enum lh_status ask(const struct lh_pg_statement *statement, int id)
{
    ids[id] = id;
    return lh_pg_query(conn, statement, &params, on_answer, &ids[id]);
}

static enum lh_status ask_int8(const struct lh_pg_statement *statement, int id, int64_t value)
{
    lh_pg_params_reset(&params);
    lh_pg_add_int8(&params, value);
    return ask(statement, id);
}

static enum lh_status ask_nothing(const struct lh_pg_statement *statement, int id)
{
    lh_pg_params_reset(&params);
    return ask(statement, id);
}

/* The first of two that are one transaction. */
static void begin_int8(const struct lh_pg_statement *statement, int id, int64_t value)
{
    lh_pg_params_reset(&params);
    lh_pg_add_int8(&params, value);
    ids[id] = id;
    ck_assert_int_eq(lh_pg_query_begin(conn, statement, &params, on_answer, &ids[id]), LH_OK);
}

static void make_conn(const struct lh_pg_conn_options *wanted)
{
    static const struct lh_pg_conn_events events = {on_up, on_down, NULL};
    struct lh_pg_conn_options options = *wanted;

    options.conninfo = pg_fixture_conninfo();
    options.name = "test";
    conn = lh_pg_conn_create(loop, &options, &events, NULL);
    lh_pg_conn_start(conn);
    ck_assert_int_eq(ask_nothing(&nap, 0), LH_DATABASE_UNAVAILABLE);
    WAIT_FOR(loop, ups == 1);
}

static void setup(void)
{
    struct lh_pg_conn_options options;

    ups = downs = closes = 0;
    answer_count = 0;
    loop = lh_loop_create();
    lh_pg_conn_options_init(&options);
    make_conn(&options);
}

static void close_conn(void)
{
    lh_pg_conn_close(conn, on_closed, NULL);
    ck_assert_uint_eq(closes, 0);
    WAIT_FOR(loop, closes == 1);
    conn = NULL;
}

static void teardown(void)
{
    if (conn != NULL)
        close_conn();
    lh_pg_params_finish(&params);
    lh_loop_destroy(loop);
}

START_TEST(a_thousand_queries_are_answered_in_order)
{
    for (int i = 0; i < 1000; i++)
        ck_assert_int_eq(ask_int8(&echo, i, i * 7), LH_OK);
    ck_assert_uint_eq(answer_count, 0);
    WAIT_FOR(loop, answer_count == 1000);
    for (int i = 0; i < 1000; i++) {
        ck_assert_int_eq(answers[i].id, i);
        ck_assert_int_eq(answers[i].status, LH_OK);
        ck_assert_int_eq(answers[i].value, i * 7);
    }
    ck_assert_uint_eq(lh_pg_conn_in_flight(conn), 0);
}
END_TEST

START_TEST(the_bound_on_queries_in_flight_refuses)
{
    for (int i = 0; i < 1024; i++)
        ck_assert_int_eq(ask_int8(&echo, i, i), LH_OK);
    ck_assert_int_eq(ask_int8(&echo, 1024, 0), LH_OVERLOADED);
    WAIT_FOR(loop, answer_count == 1024);
    ck_assert_int_eq(ask_int8(&echo, 1024, 0), LH_OK);
    WAIT_FOR(loop, answer_count == 1025);
}
END_TEST

static void ask_patiently(const struct lh_pg_statement *statement, int id)
{
    ids[id] = id;
    ck_assert_int_eq(lh_pg_query_patiently(conn, statement, &params, on_answer, &ids[id]), LH_OK);
}

START_TEST(others_pass_patient_queries)
{
    enum { PATIENT = 40, OTHER = 100 };
    size_t place = 0;

    for (int i = 0; i < PATIENT; i++) {
        lh_pg_params_reset(&params);
        lh_pg_add_int8(&params, i);
        ask_patiently(&doze, i);
    }
    ck_assert_int_eq(ask_int8(&echo, OTHER, 7), LH_OK);
    ck_assert_uint_eq(lh_pg_conn_in_flight(conn), PATIENT + 1);
    WAIT_FOR(loop, answer_count == PATIENT + 1);
    while (answers[place].id != OTHER)
        place++;
    ck_assert_uint_le(place, LH_PG_PATIENT_MAX);
    memmove(&answers[place], &answers[place + 1], (PATIENT - place) * sizeof(answers[0]));
    for (int i = 0; i < PATIENT; i++) {
        ck_assert_int_eq(answers[i].id, i);
        ck_assert_int_eq(answers[i].value, i);
    }
}
END_TEST

START_TEST(errors_in_the_midst_hit_their_own_query_alone)
{
    for (int i = 0; i < 300; i++)
        ck_assert_int_eq(i % 3 == 0   ? ask_int8(&divide, i, 0)
                         : i % 3 == 1 ? ask_int8(&divide, i, 5)
                                      : ask_nothing(&absent, i),
                         LH_OK);
    WAIT_FOR(loop, answer_count == 300);
    for (int i = 0; i < 300; i++) {
        ck_assert_int_eq(answers[i].id, i);
        ck_assert_int_eq(answers[i].status, i % 3 == 1 ? LH_OK : LH_INTERNAL);
        if (i % 3 == 0)
            ck_assert_str_eq(answers[i].sqlstate, "22012");
        if (i % 3 == 1)
            ck_assert_int_eq(answers[i].value, 20);
    }
    ck_assert_str_eq(answers[2].sqlstate, "42P01");
    ck_assert_uint_eq(downs, 0);
}
END_TEST

static const struct lh_pg_statement note = {"note", "insert into noted values ($1)", 1, {LH_PG_INT8}};
static const struct lh_pg_statement divide_by_noted = {
    "divide_by_noted", "select max(n) / (min(n) - $1) from noted", 1, {LH_PG_INT8}};

START_TEST(two_statements_are_one_transaction)
{
    pg_fixture_execute(pg_fixture_conninfo(), "create table noted (n bigint check (n <> 3))");
    for (int round = 0; round < 3; round++) { /* prepared in the first */
        int at = round * 7;
        begin_int8(&note, at, 10);
        ck_assert_int_eq(ask_int8(&divide_by_noted, at + 1, 0), LH_OK); /* sees it */
        begin_int8(&note, at + 2, 1);
        ck_assert_int_eq(ask_int8(&divide_by_noted, at + 3, 1), LH_OK); /* and takes it along */
        begin_int8(&note, at + 4, 3);
        ck_assert_int_eq(ask_int8(&echo, at + 5, 5), LH_OK);
        ck_assert_int_eq(ask_int8(&divide_by_noted, at + 6, 9), LH_OK);
    }
    WAIT_FOR(loop, answer_count == 15);
    pg_fixture_execute(pg_fixture_conninfo(), "drop table noted");
    for (int round = 0; round < 3; round++) {
        static const int expected[] = {0, 1, 3, 5, 6};
        const struct answer *of = &answers[round * 5];
        for (int i = 0; i < 5; i++)
            ck_assert_int_eq(of[i].id, round * 7 + expected[i]);
        ck_assert_int_eq(of[0].status, LH_OK);
        ck_assert_int_eq(of[1].value, 1);
        ck_assert_str_eq(of[2].sqlstate, "22012"); /* of the second */
        ck_assert_str_eq(of[3].sqlstate, "23514"); /* of the first */
        ck_assert_int_eq(of[4].value, 10);
    }
    ck_assert_uint_eq(downs, 0);
}
END_TEST

START_TEST(two_statements_of_a_lost_connection_are_answered_once)
{
    begin_int8(&echo, 0, 1);
    ck_assert_int_eq(ask_nothing(&nap, 1), LH_OK);
    begin_int8(&echo, 2, 1); /* its second never comes */
    lh_pg_conn_drop(conn, "the test says so");
    WAIT_FOR(loop, ups == 2);
    ck_assert_int_eq(ask_int8(&echo, 3, 8), LH_OK);
    WAIT_FOR(loop, answer_count == 2);
    ck_assert_int_eq(answers[0].id, 1);
    ck_assert_int_eq(answers[0].status, LH_DATABASE_UNAVAILABLE);
    ck_assert_int_eq(answers[1].value, 8);
}
END_TEST

START_TEST(a_statement_that_could_not_be_prepared_is_prepared_later)
{
    ck_assert_int_eq(ask_nothing(&absent, 0), LH_OK);
    WAIT_FOR(loop, answer_count == 1);
    ck_assert_str_eq(answers[0].sqlstate, "42P01");
    pg_fixture_execute(pg_fixture_conninfo(), "create table no_such_table as select 8::bigint");
    ck_assert_int_eq(ask_nothing(&absent, 1), LH_OK);
    WAIT_FOR(loop, answer_count == 2);
    pg_fixture_execute(pg_fixture_conninfo(), "drop table no_such_table");
    ck_assert_int_eq(answers[1].status, LH_OK);
    ck_assert_int_eq(answers[1].value, 8);
}
END_TEST

START_TEST(an_error_at_commit_is_an_error_of_the_query)
{
    pg_fixture_execute(pg_fixture_conninfo(), "create table strict (n integer unique deferrable initially deferred)");
    ck_assert_int_eq(ask_nothing(&deferred, 0), LH_OK);
    ck_assert_int_eq(ask_int8(&echo, 1, 1), LH_OK);
    WAIT_FOR(loop, answer_count == 2);
    pg_fixture_execute(pg_fixture_conninfo(), "drop table strict");
    ck_assert_int_eq(answers[0].status, LH_INTERNAL);
    ck_assert_str_eq(answers[0].sqlstate, "23505");
    ck_assert_int_eq(answers[1].status, LH_OK);
    ck_assert_uint_eq(downs, 0);
}
END_TEST

START_TEST(large_arrays_and_answers_pass_through_small_sockets)
{
    char text[1025];

    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    for (int i = 0; i < 4; i++) {
        lh_pg_params_reset(&params);
        lh_pg_array_begin(&params, LH_PG_TEXT);
        for (int n = 0; n < 2000; n++)
            lh_pg_array_add_text(&params, text);
        lh_pg_array_end(&params);
        ck_assert_int_eq(ask(&length, 2 * i), LH_OK);
        lh_pg_params_reset(&params);
        lh_pg_add_int4(&params, 1000000);
        ck_assert_int_eq(ask(&repeat_text, 2 * i + 1), LH_OK);
    }
    WAIT_FOR(loop, answer_count == 8);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(answers[2 * i].value, 2048000);
        ck_assert_uint_eq(answers[2 * i + 1].size, 1000000);
    }
}
END_TEST

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
    static const struct lh_pg_conn_events events = {on_up, on_down, NULL};
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
    conn = lh_pg_conn_create(loop, &options, &events, NULL);
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
    on_answer(arg, status, result, error);
    if (answer_count == 1)
        lh_pg_conn_close(conn, on_closed, NULL);
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
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, a_thousand_queries_are_answered_in_order);
    tcase_add_test(tcase, the_bound_on_queries_in_flight_refuses);
    tcase_add_test(tcase, others_pass_patient_queries);
    tcase_add_test(tcase, patient_queries_of_a_lost_connection_are_answered);
    tcase_add_test(tcase, errors_in_the_midst_hit_their_own_query_alone);
    tcase_add_test(tcase, two_statements_are_one_transaction);
    tcase_add_test(tcase, two_statements_of_a_lost_connection_are_answered_once);
    tcase_add_test(tcase, a_statement_that_could_not_be_prepared_is_prepared_later);
    tcase_add_test(tcase, an_error_at_commit_is_an_error_of_the_query);
    tcase_add_test(tcase, large_arrays_and_answers_pass_through_small_sockets);
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
