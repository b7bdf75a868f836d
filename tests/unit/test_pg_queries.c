/* The queries of a connection: in order, bounded, patient, in pairs, and each error with its own. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "conn_fixture.h"
#include "pg_fixture.h"
#include "test_pg.h"

static const struct lh_pg_statement divide = {"divide", "select 100 / $1", 1, {LH_PG_INT8}};
static const struct lh_pg_statement absent = {"absent", "select * from no_such_table", 0, {0}};
static const struct lh_pg_statement doze = {"doze", "select $1 from pg_sleep(0.01)", 1, {LH_PG_INT8}};
static const struct lh_pg_statement length = {
    "length", "select sum(length(t)) from unnest($1) as t", 1, {LH_PG_TEXT_ARRAY}};
static const struct lh_pg_statement repeat_text = {"repeat_text", "select repeat('x', $1)", 1, {LH_PG_INT4}};
static const struct lh_pg_statement deferred = {"deferred", "insert into strict values (1), (1)", 0, {0}};

/* The first of two that are one transaction. */
static void begin_int8(const struct lh_pg_statement *statement, int id, int64_t value)
{
    lh_pg_params_reset(&params);
    lh_pg_add_int8(&params, value);
    ids[id] = id;
    ck_assert_int_eq(lh_pg_query_begin(conn, statement, &params, conn_on_answer, &ids[id]), LH_OK);
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
            lh_pg_add_text(&params, text);
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

TCase *test_pg_queries(void)
{
    TCase *tcase = tcase_create("queries");
    tcase_add_checked_fixture(tcase, conn_setup, conn_teardown);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, a_thousand_queries_are_answered_in_order);
    tcase_add_test(tcase, the_bound_on_queries_in_flight_refuses);
    tcase_add_test(tcase, others_pass_patient_queries);
    tcase_add_test(tcase, errors_in_the_midst_hit_their_own_query_alone);
    tcase_add_test(tcase, two_statements_are_one_transaction);
    tcase_add_test(tcase, two_statements_of_a_lost_connection_are_answered_once);
    tcase_add_test(tcase, a_statement_that_could_not_be_prepared_is_prepared_later);
    tcase_add_test(tcase, an_error_at_commit_is_an_error_of_the_query);
    tcase_add_test(tcase, large_arrays_and_answers_pass_through_small_sockets);
    return tcase;
}
