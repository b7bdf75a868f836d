#include "pg_fixture.h"

#include <fcntl.h>
#include <grp.h>
#include <libpq-fe.h>
#include <pwd.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CONNINFO_MAX 32

static char root[64];
static char bindir[256];
static pid_t postmaster;
static pid_t owner;
static char *conninfos[CONNINFO_MAX];
static size_t conninfo_count;

static void die(const char *what)
{
    fprintf(stderr, "the test cluster: %s\n", what);
    exit(1);
}

static void pause_briefly(void)
{
    struct timespec pause = {.tv_nsec = 20000000};
    nanosleep(&pause, NULL);
}

/* PostgreSQL refuses to run as root. */
static void become_postgres(void)
{
    struct passwd *user;
    if (geteuid() != 0)
        return;
    user = getpwnam("postgres");
    if (user == NULL || initgroups("postgres", user->pw_gid) != 0 || setgid(user->pw_gid) != 0 ||
        setuid(user->pw_uid) != 0)
        _exit(126);
}

static pid_t spawn(const char *program, const char *const argv[], int death_signal)
{
    char path[512];
    pid_t parent = getpid();
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    char log[96];
    int fd;
    snprintf(path, sizeof(path), "%s/%s", bindir, program);
    snprintf(log, sizeof(log), "%s/log", root);
    become_postgres();
    if (chdir("/") != 0)
        _exit(126);
    fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    prctl(PR_SET_PDEATHSIG, death_signal);
    if (getppid() != parent)
        _exit(126);
    setenv("PATH", bindir, 1); /* where initdb looks for itself */
    execv(path, (char *const *)(uintptr_t)argv);
    _exit(127);
}

static void run(const char *program, const char *const argv[])
{
    int status;
    pid_t pid = spawn(program, argv, SIGKILL);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "%s failed; see %s/log\n", program, root);
        die("is PostgreSQL installed?");
    }
}

static void find_bindir(void)
{
    FILE *pipe = popen("pg_config --bindir", "r");
    if (pipe == NULL || fgets(bindir, sizeof(bindir), pipe) == NULL)
        die("pg_config is missing");
    pclose(pipe);
    bindir[strcspn(bindir, "\n")] = '\0';
}

static void configure(void)
{
    char path[96];
    FILE *file;
    snprintf(path, sizeof(path), "%s/data/postgresql.auto.conf", root);
    file = fopen(path, "a");
    if (file == NULL)
        die("no configuration");
    fprintf(file,
            "listen_addresses = ''\nunix_socket_directories = '%s'\nfsync = off\nmax_connections = 60\n"
            "shared_buffers = 32MB\nlog_min_messages = warning\nautovacuum_naptime = 5\n",
            root);
    fclose(file);
}

static void at_exit(void)
{
    char command[128];
    if (getpid() != owner)
        return;
    if (postmaster > 0)
        pg_fixture_stop();
    snprintf(command, sizeof(command), "rm -rf %s", root);
    if (system(command) != 0)
        fprintf(stderr, "%s is left behind\n", root);
}

static void make_cluster(void)
{
    char data[80];
    const char *place = getenv("LEASEHOLD_TEST_PLACE"); /* of the run (tests/lib/rundir.py), which removes it */
    struct passwd *user = getpwnam("postgres");

    find_bindir();
    snprintf(root, sizeof(root), "%s/leasehold-test-XXXXXX", place != NULL ? place : "/tmp");
    if (mkdtemp(root) == NULL || chmod(root, 0755) != 0)
        die("no directory");
    if (geteuid() == 0 && (user == NULL || chown(root, user->pw_uid, user->pw_gid) != 0))
        die("there is no user postgres");
    owner = getpid();
    atexit(at_exit);
    snprintf(data, sizeof(data), "%s/data", root);
    run("initdb", (const char *const[]){"initdb", "-D", data, "-A", "trust", "-U", "postgres", "-E", "UTF8",
                                        "--locale=C.UTF-8", "--no-sync", NULL});
    configure();
    pg_fixture_start();
}

void pg_fixture_start(void)
{
    char data[80];
    int64_t until_us = lh_clock_us() + 60 * LH_US_PER_S;

    snprintf(data, sizeof(data), "%s/data", root);
    postmaster = spawn("postgres", (const char *const[]){"postgres", "-D", data, NULL}, SIGQUIT);
    if (postmaster < 0)
        die("no server");
    while (PQping(pg_fixture_conninfo()) != PQPING_OK) {
        if (lh_clock_us() > until_us || waitpid(postmaster, NULL, WNOHANG) == postmaster)
            die("the server does not start");
        pause_briefly();
    }
}

/* A backend that a failed test left stopped would hold up a fast shutdown for ever; an immediate one kills it. */
void pg_fixture_stop(void)
{
    int64_t until_us = lh_clock_us() + 15 * LH_US_PER_S;

    kill(postmaster, SIGINT);
    while (waitpid(postmaster, NULL, WNOHANG) == 0) {
        if (lh_clock_us() > until_us) {
            kill(postmaster, SIGQUIT);
            waitpid(postmaster, NULL, 0);
            break;
        }
        pause_briefly();
    }
    postmaster = 0;
}

void pg_fixture_crash(int backend_pid)
{
    ck_assert_int_gt(backend_pid, 1);
    ck_assert_int_eq(kill(backend_pid, SIGKILL), 0);
}

static const char *conninfo_of(const char *database)
{
    char text[160];
    snprintf(text, sizeof(text), "host=%s dbname=%s user=postgres", root, database);
    for (size_t i = 0; i < conninfo_count; i++)
        if (strcmp(conninfos[i], text) == 0)
            return conninfos[i];
    if (conninfo_count == CONNINFO_MAX)
        die("too many databases");
    conninfos[conninfo_count] = strdup(text);
    return conninfos[conninfo_count++];
}

const char *pg_fixture_conninfo(void)
{
    if (root[0] == '\0')
        make_cluster();
    return conninfo_of("postgres");
}

const char *pg_fixture_create_database(const char *name)
{
    char sql[160];
    snprintf(sql, sizeof(sql), "drop database if exists %s with (force)", name);
    pg_fixture_execute(pg_fixture_conninfo(), sql);
    /* An autovacuum worker may be in template1 for longer than PostgreSQL waits for it; nobody is ever in template0. */
    snprintf(sql, sizeof(sql), "create database %s template template0", name);
    pg_fixture_execute(pg_fixture_conninfo(), sql);
    return conninfo_of(name);
}

static void ignore_notice(void *arg, const PGresult *result)
{
}

const char *pg_fixture_value(const char *conninfo, const char *sql)
{
    static char value[4096];
    PGconn *conn = PQconnectdb(conninfo);
    PGresult *result;
    ExecStatusType status;

    PQsetNoticeReceiver(conn, ignore_notice, NULL);
    PQclear(PQexec(conn, "set lock_timeout = '20s'; set statement_timeout = '30s'"));
    result = PQexec(conn, sql);
    status = PQresultStatus(result);
    value[0] = '\0';
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
        snprintf(value, sizeof(value), "%s", PQerrorMessage(conn));
    else if (PQntuples(result) > 0)
        snprintf(value, sizeof(value), "%s", PQgetvalue(result, 0, 0));
    PQclear(result);
    PQfinish(conn);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
        ck_abort_msg("%s: %s", sql, value);
    return value;
}

void pg_fixture_execute(const char *conninfo, const char *sql)
{
    pg_fixture_value(conninfo, sql);
}
