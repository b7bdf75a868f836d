/* The library over a PGconn: verbs, their repetition, waiting, reaping; on a real PostgreSQL. */
#include "test_embed.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "pg/migrate.h"
#include "pg_fixture.h"
#include "run_tests.h"

const char *conninfo;
PGconn *conn;
struct lh_error test_error;

static void on_line(void *arg, const char *line)
{
}

static void ignore_notice(void *arg, const PGresult *result)
{
}

void execute(const char *sql)
{
    pg_fixture_execute(conninfo, sql);
}

const char *value(const char *sql)
{
    return pg_fixture_value(conninfo, sql);
}

void check_value(const char *sql, const char *expected)
{
    ck_assert_str_eq(value(sql), expected);
}

static void setup(void)
{
    execute("truncate leasehold.scope, leasehold.waiter, public.note");
    conn = PQconnectdb(conninfo);
    PQsetNoticeReceiver(conn, ignore_notice, NULL);
    ck_assert_int_eq(PQstatus(conn), CONNECTION_OK);
    memset(&test_error, 0, sizeof(test_error));
}

static void teardown(void)
{
    PQfinish(conn);
}

static void prepare(void)
{
    struct lh_migrate_output output = {.on_line = on_line};

    conninfo = pg_fixture_create_database("embed");
    ck_assert_int_eq(lh_migrate(conninfo, LH_MIGRATE_RUN, &lh_migrations, "0.1.0", &output, &test_error), LH_OK);
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

int note(void *arg, PGconn *on, const struct lh_embed_lease *lease, const char *words, struct lh_error *err)
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

struct lh_embed_options calling(struct script *script)
{
    return (struct lh_embed_options){
        .will_insert = note,
        .will_heartbeat = note,
        .will_release_ok = note,
        .will_release_fail = note,
        .arg = script,
    };
}

enum lh_status acquire(struct script *script, const char *key, struct lh_embed_lease *lease)
{
    struct lh_embed_acquire_options options = {.embed = calling(script)};
    return lh_embed_acquire(conn, "embed", key, &options, lease, &test_error);
}

int main(void)
{
    Suite *suite = suite_create("embed");
    TCase *tests = tcase_create("embed");

    lh_log_set_level(LH_LOG_ERROR + 1);
    tcase_add_unchecked_fixture(tests, prepare, NULL);
    tcase_add_checked_fixture(tests, setup, teardown);
    add_embed_verbs(tests);
    add_embed_repeats(tests);
    add_embed_waiting(tests);
    add_embed_reaping(tests);
    suite_add_tcase(suite, tests);
    return run_tests(suite, CK_NOFORK);
}
