/* The embedded PostgreSQL, for real: made, started, killed, adopted, stopped. As root it runs as the user postgres. */
#include <check.h>
#include <ftw.h>
#include <libpq-fe.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "daemon/child.h"
#include "daemon/cluster.h"
#include "daemon/embedded.h"
#include "loop/loop.h"
#include "run_tests.h"

#define PATIENCE_US (60 * LH_US_PER_S)

static char directory[256];
static struct lh_loop *loop;
static struct lh_children *children;
static unsigned ready_count, failed_count, stopped_count;

static void on_ready(void *arg)
{
    ready_count++;
}

static void on_failed(void *arg)
{
    failed_count++;
}

static void on_stopped(void *arg)
{
    stopped_count++;
}

static const struct lh_embedded_events events = {on_ready, on_failed};

static int remove_one(const char *path, const struct stat *found, int type, struct FTW *walk)
{
    return remove(path);
}

static void begin(void)
{
    snprintf(directory, sizeof(directory), "/tmp/leasehold-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    ready_count = failed_count = stopped_count = 0;
    loop = lh_loop_create();
    children = lh_children_create(loop);
}

static void end(void)
{
    lh_children_destroy(children);
    lh_loop_destroy(loop);
    nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void wait_until(const unsigned *count, unsigned wanted)
{
    int64_t until_us = lh_clock_us() + PATIENCE_US;

    while (*count < wanted) {
        ck_assert_msg(lh_clock_us() < until_us, "nothing happened for a minute");
        ck_assert_msg(failed_count == 0 || count == &failed_count, "PostgreSQL could not be started");
        lh_loop_run_once(loop, LH_US_PER_S);
    }
}

static struct lh_embedded *start(void)
{
    struct lh_error error = {0};
    struct lh_embedded *embedded = lh_embedded_create(loop, children, directory, NULL, &events, NULL, &error);

    ck_assert_msg(embedded != NULL, "%s", error.message);
    lh_embedded_start(embedded);
    return embedded;
}

static void stop(struct lh_embedded *embedded)
{
    unsigned before = stopped_count;

    lh_embedded_stop(embedded, on_stopped, NULL);
    wait_until(&stopped_count, before + 1);
    lh_embedded_destroy(embedded);
}

static char *ask(const struct lh_embedded *embedded, const char *question)
{
    PGconn *connection = PQconnectdb(lh_embedded_conninfo(embedded));
    PGresult *result;
    char *answer;

    ck_assert_msg(PQstatus(connection) == CONNECTION_OK, "%s", PQerrorMessage(connection));
    result = PQexec(connection, question);
    ck_assert_msg(PQresultStatus(result) == PGRES_TUPLES_OK, "%s", PQerrorMessage(connection));
    answer = lh_strdup(PQgetvalue(result, 0, 0));
    PQclear(result);
    PQfinish(connection);
    return answer;
}

static void expect(const struct lh_embedded *embedded, const char *question, const char *expected)
{
    char *answer = ask(embedded, question);

    ck_assert_str_eq(answer, expected);
    free(answer);
}

static pid_t postmaster(void)
{
    char path[300];
    FILE *file;
    long pid = 0;

    snprintf(path, sizeof(path), "%s/data/postmaster.pid", directory);
    file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%ld", &pid), 1);
    fclose(file);
    return (pid_t)pid;
}

START_TEST(a_cluster_is_made_with_checksums_utf8_and_no_tcp_port)
{
    struct lh_embedded *embedded = start();

    wait_until(&ready_count, 1);
    expect(embedded, "show data_checksums", "on");
    expect(embedded, "show server_encoding", "UTF8");
    expect(embedded, "show lc_collate", "C");
    expect(embedded, "show min_wal_size", "1GB");
    expect(embedded,
           "select pg_size_bytes(current_setting('shared_buffers')) between pg_size_bytes('128MB') and "
           "pg_size_bytes('1GB')",
           "t");
    /* Where the server knows it. */
    expect(
        embedded,
        "select bool_and('lz4' <> all (enumvals) or setting = 'lz4') from pg_settings where name = 'wal_compression'",
        "t");
    expect(embedded, "show listen_addresses", "");
    expect(embedded, "show fsync", "on");
    expect(embedded, "select current_user || ' ' || current_database()", "leasehold leasehold");
    stop(embedded);
}
END_TEST

START_TEST(data_survives_a_clean_restart)
{
    struct lh_embedded *embedded = start();

    wait_until(&ready_count, 1);
    free(ask(embedded, "create table kept as select 42 as n; select 1"));
    stop(embedded);
    embedded = start();
    wait_until(&ready_count, 2);
    expect(embedded, "select n from kept", "42");
    stop(embedded);
}
END_TEST

START_TEST(postgres_that_dies_is_started_again)
{
    struct lh_embedded *embedded = start();

    wait_until(&ready_count, 1);
    free(ask(embedded, "create table kept as select 42 as n; select 1"));
    ck_assert_int_eq(kill(postmaster(), SIGKILL), 0);
    wait_until(&ready_count, 2);
    expect(embedded, "select n from kept", "42");
    stop(embedded);
}
END_TEST

/* Not merely a corpse that its new parent has not buried yet. */
static bool is_running(pid_t pid)
{
    char cwd[64];
    struct stat found;

    snprintf(cwd, sizeof(cwd), "/proc/%ld/cwd", (long)pid);
    return stat(cwd, &found) == 0;
}

/* Its lock file goes, and with it the promise is kept, a moment before the process itself. */
static void wait_until_gone(pid_t pid)
{
    int64_t end_us = lh_clock_us() + 30 * LH_US_PER_S;
    while (is_running(pid) && lh_clock_us() < end_us)
        usleep(1000);
    ck_assert(!is_running(pid));
}

/* What the kernel leaves of a daemon that got SIGKILL: nothing is run, the lock is gone, PostgreSQL goes on. */
static void run_daemon_and_kill_it(void)
{
    int pipe_ends[2];
    char byte;
    pid_t pid;

    lh_children_destroy(children); /* a loop does not survive a fork */
    lh_loop_destroy(loop);
    ck_assert_int_eq(pipe(pipe_ends), 0);
    pid = fork();
    loop = lh_loop_create();
    children = lh_children_create(loop);
    if (pid == 0) {
        start();
        wait_until(&ready_count, 1);
        if (write(pipe_ends[1], "!", 1) == 1)
            pause();
        _exit(1);
    }
    ck_assert_int_eq(read(pipe_ends[0], &byte, 1), 1);
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

START_TEST(postgres_of_a_killed_daemon_is_adopted_and_stopped)
{
    struct lh_embedded *embedded;
    pid_t before;

    run_daemon_and_kill_it();
    before = postmaster();
    embedded = start();
    wait_until(&ready_count, 1);
    ck_assert_int_eq(postmaster(), before);
    expect(embedded, "select 42", "42");
    stop(embedded);
    wait_until_gone(before);
}
END_TEST

START_TEST(an_adopted_postgres_that_dies_is_started_again)
{
    struct lh_embedded *embedded;

    run_daemon_and_kill_it();
    embedded = start();
    wait_until(&ready_count, 1);
    ck_assert_int_eq(kill(postmaster(), SIGKILL), 0);
    wait_until(&ready_count, 2);
    expect(embedded, "select 42", "42");
    stop(embedded);
}
END_TEST

START_TEST(a_second_daemon_on_the_directory_is_refused)
{
    struct lh_error error = {0};
    struct lh_embedded *embedded = start();
    char expected[64];

    ck_assert_ptr_null(lh_embedded_create(loop, children, directory, NULL, &events, NULL, &error));
    snprintf(expected, sizeof(expected), "another leaseholdd, process %ld", (long)getpid());
    ck_assert_msg(strstr(error.message, expected) != NULL, "%s", error.message);
    stop(embedded);
}
END_TEST

START_TEST(stopped_while_the_cluster_is_made_the_next_start_makes_it)
{
    struct lh_embedded *embedded = start();
    int64_t until_us = lh_clock_us() + PATIENCE_US;
    char fresh[300];

    snprintf(fresh, sizeof(fresh), "%s/data.new/base", directory);
    while (access(fresh, F_OK) != 0) {
        ck_assert(lh_clock_us() < until_us);
        lh_loop_run_once(loop, LH_US_PER_MS);
    }
    stop(embedded);
    ck_assert_uint_eq(ready_count, 0);
    embedded = start();
    wait_until(&ready_count, 1);
    expect(embedded, "select 42", "42");
    stop(embedded);
}
END_TEST

START_TEST(a_long_directory_gets_a_socket_elsewhere)
{
    char base[256];
    struct lh_embedded *embedded;

    memcpy(base, directory, sizeof(base));
    ck_assert_int_eq(chmod(base, 0755), 0);
    snprintf(directory, sizeof(directory), "%.60s/%080d/, 'odd'", base, 1);
    embedded = start();
    wait_until(&ready_count, 1);
    expect(embedded, "select 42", "42");
    stop(embedded);
    memcpy(directory, base, sizeof(base));
}
END_TEST

static void write_script(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
    ck_assert_int_eq(chmod(path, 0755), 0);
}

/* The programs of a cluster, behind an initdb that takes the options of PostgreSQL 13 alone (its manual, "initdb"). */
static char *programs_of_13(const char *programs)
{
    char *old = lh_format("%s/programs", directory), *path, *text;

    ck_assert_int_eq(mkdir(old, 0755), 0);
    path = lh_format("%s/postgres", old);
    text = lh_format("#!/bin/sh\nexec %s/postgres \"$@\"\n", programs);
    write_script(path, text);
    free(path);
    free(text);
    path = lh_format("%s/initdb", old);
    text = lh_format(
        "#!/bin/sh\nfor word; do case $word in\n"
        "--auth=*|--auth-host=*|--auth-local=*|--pgdata=*|--encoding=*|--locale=*|--lc-*=*|--no-locale|"
        "--pwfile=*|--text-search-config=*|--username=*|--pwprompt|--waldir=*|--wal-segsize=*|--debug|"
        "--data-checksums|--no-clean|--no-sync|--show|--sync-only|--allow-group-access|-[ADETUWXdkLnNsSg]) ;;\n"
        "-*) echo \"initdb: unrecognized option '$word'\" >&2; exit 1 ;;\n"
        "esac; done\nexec %s/initdb \"$@\"\n",
        programs);
    write_script(path, text);
    free(path);
    free(text);
    return old;
}

START_TEST(the_initdb_of_postgres_13_makes_the_cluster)
{
    struct lh_cluster cluster = {0};
    struct lh_error error = {0};
    char *programs, *version;
    int wait_status;
    pid_t child;

    ck_assert_msg(lh_cluster_open(&cluster, directory, NULL, &error) == LH_OK, "%s", error.message);
    programs = programs_of_13(cluster.programs);
    free(cluster.programs);
    cluster.programs = programs;
    child = fork(); /* it becomes the cluster's user */
    if (child == 0)
        _exit(lh_cluster_create_data(&cluster));
    ck_assert_int_eq(waitpid(child, &wait_status, 0), child);
    ck_assert_int_eq(wait_status, 0);
    version = lh_format("%s/PG_VERSION", cluster.data);
    ck_assert_int_eq(access(version, F_OK), 0);
    free(version);
    lh_cluster_close(&cluster);
}
END_TEST

START_TEST(a_directory_with_other_things_in_it_is_left_alone)
{
    struct lh_error error = {0};
    char other[300];
    struct stat found;
    FILE *file;

    if (geteuid() != 0)
        return; /* only root could give it away */
    snprintf(other, sizeof(other), "%s/precious", directory);
    file = fopen(other, "w");
    ck_assert_ptr_nonnull(file);
    fclose(file);
    ck_assert_ptr_null(lh_embedded_create(loop, children, directory, NULL, &events, NULL, &error));
    ck_assert_msg(strstr(error.message, "other things") != NULL, "%s", error.message);
    ck_assert_int_eq(stat(directory, &found), 0);
    ck_assert_uint_eq(found.st_uid, 0);
}
END_TEST

START_TEST(data_of_another_version_asks_for_its_programs)
{
    struct lh_error error = {0};
    char path[300];
    FILE *file;

    snprintf(path, sizeof(path), "%s/data", directory);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    if (geteuid() == 0) {
        ck_assert_int_eq(chown(directory, 65534, 65534), 0);
        ck_assert_int_eq(chown(path, 65534, 65534), 0);
    }
    snprintf(path, sizeof(path), "%s/data/PG_VERSION", directory);
    file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs("9\n", file);
    fclose(file);
    ck_assert_ptr_null(lh_embedded_create(loop, children, directory, NULL, &events, NULL, &error));
    ck_assert_msg(strstr(error.message, "made by PostgreSQL 9") != NULL, "%s", error.message);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("daemon_embedded");
    TCase *real = tcase_create("real PostgreSQL");

    tcase_add_checked_fixture(real, begin, end);
    tcase_set_timeout(real, 120);
    tcase_add_test(real, a_cluster_is_made_with_checksums_utf8_and_no_tcp_port);
    tcase_add_test(real, data_survives_a_clean_restart);
    tcase_add_test(real, postgres_that_dies_is_started_again);
    tcase_add_test(real, postgres_of_a_killed_daemon_is_adopted_and_stopped);
    tcase_add_test(real, an_adopted_postgres_that_dies_is_started_again);
    tcase_add_test(real, a_second_daemon_on_the_directory_is_refused);
    tcase_add_test(real, stopped_while_the_cluster_is_made_the_next_start_makes_it);
    tcase_add_test(real, a_long_directory_gets_a_socket_elsewhere);
    tcase_add_test(real, the_initdb_of_postgres_13_makes_the_cluster);
    tcase_add_test(real, a_directory_with_other_things_in_it_is_left_alone);
    tcase_add_test(real, data_of_another_version_asks_for_its_programs);
    suite_add_tcase(suite, real);
    return run_tests(suite, CK_FORK_GETENV);
}
