/* The migration runner, with small sets of its own. */
#include <libpq-fe.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "pg/migrate.h"
#include "pg_fixture.h"
#include "test_pg.h"

static const char *conninfo;
static char lines[64][16384];
static size_t line_count;
static struct lh_error error;

static void on_line(void *arg, const char *line)
{
    if (line_count < 64)
        snprintf(lines[line_count++], sizeof(lines[0]), "%s", line);
}

static void on_script_line(void *arg, const char *line)
{
    lh_buffer_append(arg, line, strlen(line));
    lh_buffer_append(arg, "\n", 1);
}

static bool is_told(const char *part)
{
    for (size_t i = 0; i < line_count; i++)
        if (strstr(lines[i], part) != NULL)
            return true;
    return false;
}

static const struct lh_migration one = {1, "0001_first", "c1", "",
                                        "create table leasehold.a (n integer);"
                                        "insert into leasehold.a values (1)"};
static const struct lh_migration one_changed = {1, "0001_first", "c1x", "", "select 1"};
static const struct lh_migration two = {2, "0002_second", "c2", "0.2", "alter table leasehold.a add column m integer"};
static const struct lh_migration two_broken = {2, "0002_second", "c2", "",
                                               "insert into leasehold.a values (2); select 1 / 0"};
static const struct lh_migration functions_1[] = {
    {0, "f", "f1", "", "create or replace function leasehold.f() returns integer language sql as 'select 1'"},
    {0, "g", "g1", "",
     "create or replace function leasehold.g() returns integer language sql as 'select leasehold.f()'"},
};
static const struct lh_migration functions_2[] = {
    {0, "f", "f2", "", "create or replace function leasehold.f() returns integer language sql as 'select 2'"},
};

/* Up to two migrations. */
static struct lh_migration set_files[2];

static struct lh_migration_set set_of(const struct lh_migration *a, const struct lh_migration *b,
                                      const struct lh_migration *functions, size_t function_count,
                                      const char *functions_checksum)
{
    set_files[0] = *a;
    if (b != NULL)
        set_files[1] = *b;
    return (struct lh_migration_set){set_files, b == NULL ? 1 : 2, functions, function_count, functions_checksum, 0,
                                     NULL};
}

static enum lh_status migrate(enum lh_migrate_mode mode, const struct lh_migration_set *set, const char *version,
                              size_t *pending)
{
    struct lh_migrate_output output = {.on_line = on_line};
    enum lh_status status;

    line_count = 0;
    status = lh_migrate(conninfo, mode, set, version, &output, &error);
    if (pending != NULL)
        *pending = output.pending_count;
    return status;
}

static void setup(void)
{
    conninfo = pg_fixture_create_database("migrating");
}

static const char *value(const char *sql)
{
    return pg_fixture_value(conninfo, sql);
}

START_TEST(each_migration_runs_once)
{
    struct lh_migration_set set = set_of(&one, &two, functions_1, 2, "fs1");
    size_t pending;

    ck_assert_int_eq(migrate(LH_MIGRATE_STATUS, &set, "0.2.0", &pending), LH_OK);
    ck_assert_uint_eq(pending, 3);
    ck_assert(is_told("0001_first: pending"));
    ck_assert_str_eq(value("select to_regclass('leasehold.migration') is null"), "t");
    ck_assert_int_eq(migrate(LH_MIGRATE_RUN, &set, "0.2.0", NULL), LH_OK);
    ck_assert(is_told("applied 0002_second"));
    ck_assert_int_eq(migrate(LH_MIGRATE_RUN, &set, "0.2.0", NULL), LH_OK);
    ck_assert_uint_eq(line_count, 0);
    ck_assert_str_eq(value("select count(n) || ',' || leasehold.g() from leasehold.a"), "1,1");
    ck_assert_str_eq(value("select string_agg(concat_ws(' ', number, name, checksum, oldest_daemon, version), ','"
                           " order by number) from leasehold.migration"),
                     "0 functions fs1  0.2.0,1 0001_first c1  0.2.0,2 0002_second c2 0.2 0.2.0");
    ck_assert_int_eq(migrate(LH_MIGRATE_STATUS, &set, "0.2.0", &pending), LH_OK);
    ck_assert_uint_eq(pending, 0);
    ck_assert(is_told("0001_first: applied "));
}
END_TEST

START_TEST(a_migration_that_fails_leaves_nothing)
{
    struct lh_migration_set set = set_of(&one, &two_broken, NULL, 0, "");

    ck_assert_int_eq(migrate(LH_MIGRATE_RUN, &set, "0.1.0", NULL), LH_INTERNAL);
    ck_assert_ptr_nonnull(strstr(error.message, "0002_second: division by zero"));
    ck_assert_str_eq(value("select to_regnamespace('leasehold') is null"), "t");
    set = set_of(&one, NULL, NULL, 0, "");
    ck_assert_int_eq(migrate(LH_MIGRATE_RUN, &set, "0.1.0", NULL), LH_OK);
    set = set_of(&one, &two_broken, NULL, 0, "");
    ck_assert_int_eq(migrate(LH_MIGRATE_RUN, &set, "0.1.0", NULL), LH_INTERNAL);
    ck_assert_str_eq(value("select count(*) || ',' || (select max(number) from leasehold.migration) from leasehold.a"),
                     "1,1");
}
END_TEST

START_TEST(a_changed_migration_is_refused)
{
    struct lh_migration_set set = set_of(&one, NULL, functions_1, 2, "fs1");
    struct lh_migration_set changed = set_of(&one, NULL, functions_2, 1, "fs2");

    ck_assert_int_eq(migrate(LH_MIGRATE_RUN, &set, "0.1.0", NULL), LH_OK);
    changed.migrations = &one_changed;
    ck_assert_int_eq(migrate(LH_MIGRATE_RUN, &changed, "0.1.0", NULL), LH_INTERNAL);
    ck_assert_ptr_nonnull(strstr(error.message, "0001_first differs"));
    ck_assert_ptr_nonnull(strstr(error.message, "new migration"));
    ck_assert_str_eq(value("select leasehold.f()"), "1");
}
END_TEST

START_TEST(a_migration_below_the_newest_is_refused)
{
    struct lh_migration_set late = {&two, 1, NULL, 0, "", 0, NULL};
    struct lh_migration_set both = set_of(&one, &two, NULL, 0, "");

    pg_fixture_execute(conninfo, "create schema leasehold create table a (n integer)"); /* a superuser's: adopted */
    ck_assert_int_eq(migrate(LH_MIGRATE_RUN, &late, "0.2.0", NULL), LH_OK);
    ck_assert_int_eq(migrate(LH_MIGRATE_RUN, &both, "0.2.0", NULL), LH_INTERNAL);
    ck_assert_ptr_nonnull(strstr(error.message, "forward only"));
}
END_TEST

START_TEST(a_daemon_that_is_too_old_is_refused)
{
    struct lh_migration_set set = set_of(&one, &two, NULL, 0, "");
    struct lh_migration_set old = {&one, 1, NULL, 0, "", 0, NULL};

    ck_assert_int_eq(migrate(LH_MIGRATE_RUN, &set, "0.2.0", NULL), LH_OK);
    ck_assert_int_eq(migrate(LH_MIGRATE_RUN, &old, "0.1.9", NULL), LH_INTERNAL);
    ck_assert_ptr_nonnull(strstr(error.message, "version 0.2 or later"));
    ck_assert_int_eq(migrate(LH_MIGRATE_RUN, &old, "0.10.0", NULL), LH_OK);
}
END_TEST

START_TEST(functions_follow_the_newest_version)
{
    struct lh_migration_set first = {&one, 1, functions_1, 2, "fs1", 0, NULL};
    struct lh_migration_set second = {&one, 1, functions_2, 1, "fs2", 0, NULL};
    size_t pending;

    ck_assert_int_eq(migrate(LH_MIGRATE_RUN, &first, "0.9.0", NULL), LH_OK);
    ck_assert_int_eq(migrate(LH_MIGRATE_STATUS, &second, "0.10.0", &pending), LH_OK);
    ck_assert_uint_eq(pending, 1);
    ck_assert(is_told("changed since, pending"));
    ck_assert_int_eq(migrate(LH_MIGRATE_RUN, &second, "0.10.0", NULL), LH_OK);
    ck_assert_str_eq(value("select leasehold.g()"), "2");
    ck_assert_int_eq(migrate(LH_MIGRATE_RUN, &first, "0.9.0", NULL), LH_OK);
    ck_assert_str_eq(value("select leasehold.g()"), "2");
    ck_assert_int_eq(migrate(LH_MIGRATE_STATUS, &first, "0.9.0", NULL), LH_OK);
    ck_assert(is_told("newer version's"));
}
END_TEST

START_TEST(functions_of_a_newer_revision_are_left_alone)
{
    struct lh_migration_set older = {&one, 1, functions_1, 2, "fs1", 7, NULL};
    struct lh_migration_set newer = {&one, 1, functions_2, 1, "fs2", 8, NULL};

    /* Builds of the same version. */
    ck_assert_int_eq(migrate(LH_MIGRATE_RUN, &older, "0.9.0", NULL), LH_OK);
    ck_assert_int_eq(migrate(LH_MIGRATE_RUN, &newer, "0.9.0", NULL), LH_OK);
    ck_assert_str_eq(value("select leasehold.g()"), "2");
    ck_assert_int_eq(migrate(LH_MIGRATE_RUN, &older, "0.9.0", NULL), LH_OK);
    ck_assert_str_eq(value("select leasehold.g()"), "2");
    ck_assert_str_eq(value("select revision from leasehold.migration where number = 0"), "8");
    ck_assert_int_eq(migrate(LH_MIGRATE_STATUS, &older, "0.9.0", NULL), LH_OK);
    ck_assert(is_told("newer version's"));
}
END_TEST

static void *migrate_in_thread(void *arg)
{
    struct lh_migration_set *set = arg;
    struct lh_error words;
    enum lh_status status = lh_migrate(conninfo, LH_MIGRATE_RUN, set, "0.2.0", NULL, &words);
    if (status != LH_OK)
        fprintf(stderr, "%s: %s\n", words.sqlstate, words.message);
    return status == LH_OK ? arg : NULL;
}

START_TEST(many_at_once_apply_each_step_once)
{
    struct lh_migration_set set = set_of(&one, &two, functions_1, 2, "fs1");
    pthread_t threads[6];
    size_t done_count = 0;

    for (size_t i = 0; i < 6; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, migrate_in_thread, &set), 0);
    for (size_t i = 0; i < 6; i++) {
        void *done;
        pthread_join(threads[i], &done);
        done_count += done != NULL;
    }
    ck_assert_uint_eq(done_count, 6);
    ck_assert_str_eq(value("select count(*) from leasehold.a"), "1");
}
END_TEST

/* Somebody holds the table; the first words about it make him let go. */
static PGconn *holder;

static void on_line_let_go(void *arg, const char *line)
{
    on_line(arg, line);
    if (PQtransactionStatus(holder) == PQTRANS_INTRANS)
        PQclear(PQexec(holder, "commit"));
}

START_TEST(a_locked_table_is_waited_for_in_short_tries)
{
    struct lh_migration_set first = {&one, 1, NULL, 0, "", 0, NULL};
    struct lh_migration_set both = set_of(&one, &two, NULL, 0, "");
    struct lh_migrate_output output = {.on_line = on_line_let_go};

    ck_assert_int_eq(migrate(LH_MIGRATE_RUN, &first, "0.2.0", NULL), LH_OK);
    holder = PQconnectdb(conninfo);
    PQclear(PQexec(holder, "begin; select * from leasehold.a"));
    line_count = 0;
    ck_assert_int_eq(lh_migrate(conninfo, LH_MIGRATE_RUN, &both, "0.2.0", &output, &error), LH_OK);
    PQfinish(holder);
    ck_assert(is_told("0002_second waits for another session's transaction"));
    ck_assert(is_told("applied 0002_second"));
}
END_TEST

static bool is_stopped(void *arg)
{
    return true;
}

START_TEST(waiting_for_another_migration_can_be_stopped)
{
    struct lh_migration_set set = {&one, 1, NULL, 0, "", 0, NULL};
    struct lh_migration_set both = {(const struct lh_migration[]){one, two}, 2, NULL, 0, "", 0, NULL};
    struct lh_migrate_output output = {.on_line = on_line, .is_stopped = is_stopped};

    ck_assert_int_eq(migrate(LH_MIGRATE_RUN, &set, "0.1.0", NULL), LH_OK);
    holder = PQconnectdb(conninfo);
    PQclear(PQexec(holder, "begin; lock table leasehold.migration in exclusive mode"));
    line_count = 0;
    ck_assert_int_eq(lh_migrate(conninfo, LH_MIGRATE_RUN, &both, "0.2.0", &output, &error), LH_CANCELED);
    PQfinish(holder);
    ck_assert(is_told("waiting for another migration"));
    ck_assert_str_eq(value("select max(number) from leasehold.migration"), "1");
}
END_TEST

/* Every role with CONNECT can take advisory locks: none of them is waited for. */
START_TEST(advisory_locks_of_others_hold_up_nothing)
{
    struct lh_migration_set set = {&one, 1, NULL, 0, "", 0, NULL};

    holder = PQconnectdb(conninfo);
    PQclear(PQexec(holder, "select pg_advisory_lock(7810756276994469740)"));
    ck_assert_int_eq(migrate(LH_MIGRATE_RUN, &set, "0.1.0", NULL), LH_OK);
    PQfinish(holder);
}
END_TEST

/* What `leasehold migrate --print` prints, sent by a client that is not psql. */
static void run_script(const struct lh_migration_set *set)
{
    struct lh_buffer script = {0};

    ck_assert_int_eq(lh_migrate(NULL, LH_MIGRATE_PRINT, set, "0.2.0",
                                &(struct lh_migrate_output){.on_line = on_script_line, .arg = &script}, &error),
                     LH_OK);
    lh_buffer_append(&script, "", 1);
    pg_fixture_execute(conninfo, (const char *)script.data);
    lh_buffer_finish(&script);
}

START_TEST(the_printed_script_does_the_same)
{
    struct lh_migration_set set = set_of(&one, &two, functions_1, 2, "fs1");
    size_t pending;

    run_script(&set);
    ck_assert_int_eq(migrate(LH_MIGRATE_STATUS, &set, "0.2.0", &pending), LH_OK);
    ck_assert_uint_eq(pending, 0);
}
END_TEST

START_TEST(a_script_that_runs_again_changes_nothing)
{
    struct lh_migration_set older = {&one, 1, functions_1, 2, "fs1", 7, NULL};
    struct lh_migration_set newer = set_of(&one, &two, functions_2, 1, "fs2");

    newer.functions_revision = 8;
    run_script(&older);
    run_script(&older);
    ck_assert_str_eq(value("select count(n) || ',' || leasehold.f() from leasehold.a"), "1,1");
    run_script(&newer);
    run_script(&older);
    ck_assert_str_eq(value("select count(m.number) || ',' || leasehold.f() from leasehold.migration m"), "3,2");
}
END_TEST

START_TEST(a_schema_is_checked_before_it_is_served)
{
    struct lh_migration_set set = set_of(&one, &two, NULL, 0, "");
    struct lh_migration_set old = {&one, 1, NULL, 0, "", 0, NULL};

    ck_assert_int_eq(migrate(LH_MIGRATE_CHECK, &old, "0.1.9", NULL), LH_DATABASE_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(error.message, "no schema leasehold"));
    ck_assert_int_eq(migrate(LH_MIGRATE_RUN, &old, "0.1.9", NULL), LH_OK);
    ck_assert_int_eq(migrate(LH_MIGRATE_CHECK, &old, "0.1.9", NULL), LH_OK);
    ck_assert_int_eq(migrate(LH_MIGRATE_CHECK, &set, "0.2.0", NULL), LH_DATABASE_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(error.message, "0002_second"));
    ck_assert_int_eq(migrate(LH_MIGRATE_RUN, &set, "0.2.0", NULL), LH_OK);
    ck_assert_int_eq(migrate(LH_MIGRATE_CHECK, &old, "0.1.9", NULL), LH_INTERNAL);
    ck_assert_ptr_nonnull(strstr(error.message, "version 0.2 or later"));
    ck_assert_int_eq(migrate(LH_MIGRATE_CHECK, &old, "0.3", NULL), LH_OK);
}
END_TEST

START_TEST(everything_belongs_to_the_owner_role)
{
    struct lh_migration_set set = set_of(&one, &two, functions_1, 2, "fs1");
    const char *foreign =
        "select count(*) from (select relowner from pg_class where relnamespace = 'leasehold'::regnamespace"
        " union all select proowner from pg_proc where pronamespace in ('leasehold'::regnamespace, "
        "'leasehold_internal'::regnamespace)"
        " union all select nspowner from pg_namespace where nspname = 'leasehold') o (owner)"
        " where owner <> 'leasehold_owner'::regrole";

    ck_assert_int_eq(migrate(LH_MIGRATE_RUN, &set, "0.2.0", NULL), LH_OK);
    ck_assert_str_eq(value(foreign), "0");
    ck_assert_str_eq(value("select rolcanlogin or rolsuper from pg_roles where rolname = 'leasehold_owner'"), "f");
    /* An installation from before there was that role. */
    pg_fixture_execute(conninfo, "drop schema leasehold cascade; create schema leasehold;"
                                 "create table leasehold.a (n integer, m integer generated always as identity);"
                                 "create function leasehold.g() returns integer language sql as 'select 0';"
                                 "create view leasehold.v as select n from leasehold.a; create sequence leasehold.s;"
                                 "create type leasehold.t as (n integer)");
    set = (struct lh_migration_set){&two, 1, functions_1, 2, "fs1", 0, NULL};
    pg_fixture_execute(conninfo, "alter table leasehold.a drop column m");
    ck_assert_int_eq(migrate(LH_MIGRATE_RUN, &set, "0.2.0", NULL), LH_OK);
    ck_assert_str_eq(value(foreign), "0");
}
END_TEST

static const char *const schemas[] = {"leasehold", "leasehold_internal"};

START_TEST(a_schema_of_a_stranger_is_refused)
{
    struct lh_migration_set set = {&one, 1, NULL, 0, "", 0, NULL};
    char sql[300], words[100];

    snprintf(sql, sizeof(sql),
             "do $$ begin create role stranger; exception when duplicate_object then null; end $$;"
             "create schema %s authorization stranger",
             schemas[_i]);
    pg_fixture_execute(conninfo, sql);
    ck_assert_int_eq(migrate(LH_MIGRATE_RUN, &set, "0.1.0", NULL), LH_ACCESS_DENIED);
    snprintf(words, sizeof(words), "the schema %s belongs to stranger", schemas[_i]);
    ck_assert_ptr_nonnull(strstr(error.message, words));
    snprintf(words, sizeof(words), "alter schema %s owner to leasehold_owner", schemas[_i]);
    ck_assert_ptr_nonnull(strstr(error.message, words));
    ck_assert_str_eq(value("select count(*) from pg_class where relnamespace = any (array(select oid from pg_namespace"
                           " where nspname like 'leasehold%'))"),
                     "0");
    pg_fixture_execute(conninfo, words);
    ck_assert_int_eq(migrate(LH_MIGRATE_RUN, &set, "0.1.0", NULL), LH_OK);
}
END_TEST

START_TEST(settings_of_a_database_do_not_matter)
{
    struct lh_migration_set set = set_of(&one, &two, functions_1, 2, "fs1");
    /* ALTER DATABASE takes no expression. */
    pg_fixture_execute(conninfo, "do $$ declare v text; begin"
                                 "  foreach v in array array['default_transaction_isolation = serializable',"
                                 "    'default_transaction_deferrable = on', 'standard_conforming_strings = off'] loop"
                                 "    execute format('alter database %I set ', current_database()) || v;"
                                 "  end loop; end $$");
    ck_assert_int_eq(migrate(LH_MIGRATE_RUN, &set, "0.2.0", NULL), LH_OK);
    ck_assert_int_eq(migrate(LH_MIGRATE_CHECK, &set, "0.2.0", NULL), LH_OK);
}
END_TEST

START_TEST(versions_compare_by_number)
{
    ck_assert_int_lt(lh_version_compare("0.9.9", "0.10"), 0);
    ck_assert_int_eq(lh_version_compare("1.2", "1.2.0"), 0);
    ck_assert_int_gt(lh_version_compare("1.2.1", "1.2"), 0);
    ck_assert_int_eq(lh_version_compare("1.2.0-rc1", "1.2.0"), 0);
    ck_assert_int_lt(lh_version_compare("", "0.1"), 0);
    ck_assert_int_eq(lh_version_compare("", ""), 0);
}
END_TEST

START_TEST(a_server_that_is_not_there_is_unavailable)
{
    struct lh_migration_set set = {&one, 1, NULL, 0, "", 0, NULL};
    ck_assert_int_eq(lh_migrate("host=/nonexistent", LH_MIGRATE_RUN, &set, "0.1.0", NULL, &error),
                     LH_DATABASE_UNAVAILABLE);
    ck_assert_ptr_null(strchr(error.message, '\n'));
}
END_TEST

TCase *test_pg_migrate(void)
{
    TCase *tcase = tcase_create("migrate");
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, each_migration_runs_once);
    tcase_add_test(tcase, a_migration_that_fails_leaves_nothing);
    tcase_add_test(tcase, a_changed_migration_is_refused);
    tcase_add_test(tcase, a_migration_below_the_newest_is_refused);
    tcase_add_test(tcase, a_daemon_that_is_too_old_is_refused);
    tcase_add_test(tcase, functions_follow_the_newest_version);
    tcase_add_test(tcase, functions_of_a_newer_revision_are_left_alone);
    tcase_add_test(tcase, many_at_once_apply_each_step_once);
    tcase_add_test(tcase, a_locked_table_is_waited_for_in_short_tries);
    tcase_add_test(tcase, waiting_for_another_migration_can_be_stopped);
    tcase_add_test(tcase, advisory_locks_of_others_hold_up_nothing);
    tcase_add_test(tcase, a_schema_is_checked_before_it_is_served);
    tcase_add_test(tcase, everything_belongs_to_the_owner_role);
    tcase_add_loop_test(tcase, a_schema_of_a_stranger_is_refused, 0, 2);
    tcase_add_test(tcase, settings_of_a_database_do_not_matter);
    tcase_add_test(tcase, the_printed_script_does_the_same);
    tcase_add_test(tcase, a_script_that_runs_again_changes_nothing);
    tcase_add_test(tcase, versions_compare_by_number);
    tcase_add_test(tcase, a_server_that_is_not_there_is_unavailable);
    return tcase;
}
