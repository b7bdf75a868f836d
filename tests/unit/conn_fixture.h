/* One connection to the server of the tests, and what came of its queries. */
#ifndef LH_TEST_CONN_FIXTURE_H
#define LH_TEST_CONN_FIXTURE_H

#include <check.h>

#include "pg/conn_internal.h"

#define ANSWERS_MAX 4096

extern struct lh_loop *loop;
extern struct lh_pg_conn *conn;
extern struct lh_pg_params params;
extern unsigned ups, downs, closes;
extern char down_message[512];

/* What came back, in order. */
struct answer {
    int id;
    enum lh_status status;
    char sqlstate[6];
    int64_t value;
    size_t size;
};
extern struct answer answers[ANSWERS_MAX];
extern size_t answer_count;
extern int ids[ANSWERS_MAX];

extern const struct lh_pg_statement echo; /* its int8 */
extern const struct lh_pg_statement nap;  /* 30 s */

extern const struct lh_pg_conn_events conn_events; /* counted */

/* A test's loop and a connection that is up. */
void conn_setup(void);
void conn_teardown(void);
void make_conn(const struct lh_pg_conn_options *wanted);
void close_conn(void);
void conn_on_closed(void *arg);

/* ask sends what is in `params`. The answer goes to `answers`, with this id. */
enum lh_status ask(const struct lh_pg_statement *statement, int id);
enum lh_status ask_int8(const struct lh_pg_statement *statement, int id, int64_t value);
enum lh_status ask_nothing(const struct lh_pg_statement *statement, int id);
void ask_patiently(const struct lh_pg_statement *statement, int id);
void conn_on_answer(void *arg, enum lh_status status, const PGresult *result, const struct lh_error *error);

#endif
