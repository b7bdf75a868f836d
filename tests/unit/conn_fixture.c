#include "conn_fixture.h"

#include <stdio.h>
#include <string.h>

#include "pg/values.h"
#include "pg_fixture.h"

struct lh_loop *loop;
struct lh_pg_conn *conn;
struct lh_pg_params params;
unsigned ups, downs, closes;
char down_message[512];
struct answer answers[ANSWERS_MAX];
size_t answer_count;
int ids[ANSWERS_MAX];

const struct lh_pg_statement echo = {"echo", "select $1", 1, {LH_PG_INT8}};
const struct lh_pg_statement nap = {"nap", "select 1::bigint from pg_sleep(30)", 0, {0}};

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

const struct lh_pg_conn_events conn_events = {on_up, on_down, NULL};

void conn_on_closed(void *arg)
{
    closes++;
}

void conn_on_answer(void *arg, enum lh_status status, const PGresult *result, const struct lh_error *error)
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

enum lh_status ask(const struct lh_pg_statement *statement, int id)
{
    ids[id] = id;
    return lh_pg_query(conn, statement, &params, conn_on_answer, &ids[id]);
}

enum lh_status ask_int8(const struct lh_pg_statement *statement, int id, int64_t value)
{
    lh_pg_params_reset(&params);
    lh_pg_add_int8(&params, value);
    return ask(statement, id);
}

enum lh_status ask_nothing(const struct lh_pg_statement *statement, int id)
{
    lh_pg_params_reset(&params);
    return ask(statement, id);
}

void ask_patiently(const struct lh_pg_statement *statement, int id)
{
    ids[id] = id;
    ck_assert_int_eq(lh_pg_query_patiently(conn, statement, &params, conn_on_answer, &ids[id]), LH_OK);
}

void make_conn(const struct lh_pg_conn_options *wanted)
{
    struct lh_pg_conn_options options = *wanted;

    options.conninfo = pg_fixture_conninfo();
    options.name = "test";
    conn = lh_pg_conn_create(loop, &options, &conn_events, NULL);
    lh_pg_conn_start(conn);
    ck_assert_int_eq(ask_nothing(&nap, 0), LH_DATABASE_UNAVAILABLE);
    WAIT_FOR(loop, ups == 1);
}

void conn_setup(void)
{
    struct lh_pg_conn_options options;

    ups = downs = closes = 0;
    answer_count = 0;
    loop = lh_loop_create();
    lh_pg_conn_options_init(&options);
    make_conn(&options);
}

void close_conn(void)
{
    lh_pg_conn_close(conn, conn_on_closed, NULL);
    ck_assert_uint_eq(closes, 0);
    WAIT_FOR(loop, closes == 1);
    conn = NULL;
}

void conn_teardown(void)
{
    if (conn != NULL)
        close_conn();
    lh_pg_params_finish(&params);
    lh_loop_destroy(loop);
}
