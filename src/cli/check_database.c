/*
 * check-database: connects as a daemon would, twice, and tells what it finds, line by line. What one statement answers is in
 * database_checks.c; here is what takes two sessions, a clock or a wait: the pooler, LISTEN, the clock, the schema and how
 * long a lease and a commit take. Writes nothing but a message in the WAL, for the time of a commit; leases are rolled back.
 */
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/database.h"
#include "cli/error.h"
#include "cli/print.h"
#include "embed/query.h"
#include "pg/migrate.h"

#define COMMITS 9
/* A notification takes a millisecond; one that is lost never comes. */
#define NOTICE_WAIT_US (2 * LH_US_PER_S)
/* A statement that is answered at once, where a session is one's own. */
#define SESSION_WAIT_US (2 * LH_US_PER_S)
#define CLOCK_STEP_US (100 * LH_US_PER_MS)
#define CLOCK_APART_US (1 * LH_US_PER_S)
#define SLOW_COMMIT_US (20 * LH_US_PER_MS)

enum level { LEVEL_OK, LEVEL_NOTE, LEVEL_WARNING, LEVEL_FAILED, LEVELS };
static const char *const level_names[] = {"ok", "note", "warning", "failed"};

struct check {
    const struct lh_cli *cli;
    PGconn *a, *b;
    json_t *findings;
    int counts[LEVELS];
};

static enum level level_named(const char *name)
{
    for (int i = 0; i < LEVELS; i++)
        if (strcmp(name, level_names[i]) == 0)
            return (enum level)i;
    return LEVEL_NOTE;
}

/* A finding that is ok needs no advice. */
static void add(struct check *check, const char *name, enum level level, const char *advice, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
static void add(struct check *check, const char *name, enum level level, const char *advice, const char *format, ...)
{
    va_list arguments;
    char found[1024];

    va_start(arguments, format);
    vsnprintf(found, sizeof(found), format, arguments);
    va_end(arguments);
    check->counts[level]++;
    json_array_append_new(check->findings, json_pack("{s:s, s:s, s:s, s:s}", "check", name, "level", level_names[level],
                                                     "found", found, "advice", level == LEVEL_OK ? "" : advice));
}

/* The answer in column `v`; NULL: it failed, or is null. A new string. */
static char *ask(PGconn *session, const char *sql)
{
    struct lh_error error = {0};
    PGresult *result = lh_query(session, sql, NULL, 0, &error);
    const char *value = result != NULL && PQntuples(result) > 0 ? lh_query_text(result, 0, "v") : NULL;
    char *copy = lh_strdup(value);

    PQclear(result);
    return copy;
}

static int64_t ask_number(PGconn *session, const char *sql)
{
    char *text = ask(session, sql);
    int64_t number = text != NULL ? strtoll(text, NULL, 10) : -1;

    free(text);
    return number;
}

/* --- what one statement answers --- */

static void check_statement(struct check *check, const struct lh_database_check *question)
{
    struct lh_error error = {0};
    PGresult *rows = lh_query(check->a, question->sql, NULL, 0, &error);

    for (int i = 0; rows != NULL && i < PQntuples(rows); i++)
        add(check, question->name, level_named(lh_query_text(rows, i, "level")), lh_query_text(rows, i, "advice"), "%s",
            lh_query_text(rows, i, "found"));
    if (rows == NULL && question->hidden != NULL)
        add(check, question->name, LEVEL_FAILED, question->hidden, "%s", error.message);
    else if (rows == NULL)
        add(check, question->name, LEVEL_NOTE, "ask as a role that may see it, for example one of pg_monitor",
            "not known: %s", error.message);
    PQclear(rows);
}

static void check_life(struct check *check)
{
    bool has_function =
        ask_number(check->a,
                   "select count(*) as v from pg_proc p join pg_namespace n on n.oid = p.pronamespace"
                   " where n.nspname = 'leasehold_internal' and p.proname = 'server_identity'"
                   " and has_schema_privilege(n.oid, 'usage') and has_function_privilege(p.oid, 'execute')") > 0;

    check_statement(check, has_function ? &lh_database_life : &lh_database_life_bare);
}

/* --- the schema --- */

static void check_schema(struct check *check)
{
    static const char missing[] = "leasehold migrate installs it, and a daemon does so at its start";
    struct lh_migrate_output output = {0};
    struct lh_error error = {0};
    enum lh_status status;

    if (ask_number(check->a, "select count(*) as v from pg_namespace where nspname = 'leasehold'") == 0) {
        add(check, "schema", LEVEL_NOTE, missing, "the schema leasehold is not installed");
        return;
    }
    status = lh_migrate(check->cli->database, LH_MIGRATE_CHECK, &lh_migrations, LH_VERSION, &output, &error);
    if (status == LH_OK)
        add(check, "schema", LEVEL_OK, "",
            "the schema leasehold is that of this program, or a newer one that suits it");
    else
        add(check, "schema", status == LH_DATABASE_UNAVAILABLE ? LEVEL_WARNING : LEVEL_FAILED,
            "leasehold migrate --status tells what is pending", "%s", error.message);
}

/* --- two sessions --- */

/* Waits until libpq has something to read. False: it is too late, or the connection is broken. */
static bool wait_for_input(PGconn *conn, int64_t until_us)
{
    struct pollfd socket = {.fd = PQsocket(conn), .events = POLLIN};
    int64_t left_us = until_us - lh_clock_us();

    if (left_us <= 0 || socket.fd < 0 || (poll(&socket, 1, (int)(left_us / LH_US_PER_MS) + 1) < 0 && errno != EINTR))
        return false;
    return PQconsumeInput(conn) == 1;
}

/* The number that a statement under way answers, or -1. */
static int64_t take_number(PGconn *conn)
{
    PGresult *result;
    int64_t number = -1;

    while ((result = PQgetResult(conn)) != NULL) {
        if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1)
            number = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
        PQclear(result);
    }
    return number;
}

/*
 * Sessions of a pooler: while b is in a transaction, a gets another backend than before, or waits. One backend for all:
 * both see the same one. A pooler keeps a statement waiting for longer than any time-out of the server's.
 */
static void check_pooler(struct check *check)
{
    static const char pid[] = "select pg_backend_pid() as v";
    static const char direct[] =
        "let daemons connect to PostgreSQL itself, or through a pooler in session mode; clients "
        "in SQL work behind it, and poll instead of LISTEN";
    PGconn *a = check->a, *b = check->b;
    struct lh_error error = {0};
    int64_t before = ask_number(check->a, pid), until_us = lh_clock_us() + SESSION_WAIT_US, other, after;
    bool waits;

    lh_query_run(b, "begin", &error);
    other = ask_number(check->b, pid);
    PQsendQuery(a, pid);
    while (PQisBusy(a) && wait_for_input(a, until_us))
        ;
    waits = PQisBusy(a);
    lh_query_run(b, "commit", &error);
    after = take_number(a);
    if (waits || after < 0)
        add(check, "pooler", LEVEL_FAILED, direct, "a second session waits while the first is in a transaction");
    else if (after == other)
        add(check, "pooler", LEVEL_FAILED, direct, "all connections share one backend");
    else if (after != before)
        add(check, "pooler", LEVEL_FAILED, direct, "a pooler gives each transaction another session");
    else if (before != PQbackendPID(a))
        add(check, "pooler", LEVEL_OK, "", "a pooler is between, in session mode");
    else
        add(check, "pooler", LEVEL_OK, "", "the connection is direct");
}

/* Waits for a notification at session a. Returns when it came (lh_clock_us), or -1. */
static int64_t notified_at(struct check *check, int64_t until_us)
{
    PGconn *conn = check->a;
    PGnotify *notify;

    while ((notify = PQnotifies(conn)) == NULL)
        if (!wait_for_input(conn, until_us))
            return -1;
    PQfreemem(notify);
    return lh_clock_us();
}

static void check_listen(struct check *check)
{
    static const char advice[] =
        "waiters of daemons and of clients in SQL then poll, once a second: use a direct connection";
    struct lh_error error = {0};
    int64_t sent_us, came_us = -1;

    if (lh_query_run(check->a, "listen leasehold_check", &error) == LH_OK) {
        sent_us = lh_clock_us();
        if (lh_query_run(check->b, "notify leasehold_check", &error) == LH_OK)
            came_us = notified_at(check, sent_us + NOTICE_WAIT_US);
        lh_query_run(check->a, "unlisten leasehold_check", &error);
    }
    if (came_us >= 0)
        add(check, "listen", LEVEL_OK, "", "a notification came after %.1f ms",
            (double)(came_us - sent_us) / (double)LH_US_PER_MS);
    else
        add(check, "listen", LEVEL_FAILED, advice, "a notification of another session never came%s%s",
            error.message[0] != '\0' ? ": " : "", error.message);
}

/* --- clocks and commits --- */

/* The server's clock less ours, in the middle of the question. */
static int64_t clock_offset_us(struct check *check, int64_t *asked_us)
{
    int64_t begun_us = lh_clock_us(), theirs_us, ours_us;
    struct timespec now;

    theirs_us = ask_number(check->a, "select (extract(epoch from clock_timestamp()) * 1000000)::bigint as v");
    *asked_us = (begun_us + lh_clock_us()) / 2;
    clock_gettime(CLOCK_REALTIME, &now);
    ours_us = now.tv_sec * LH_US_PER_S + now.tv_nsec / 1000 - (lh_clock_us() - *asked_us);
    return theirs_us - ours_us;
}

/* `first_us` and `at_us` are of a question at the beginning; a step in between is one of the two clocks. */
static void check_clock(struct check *check, int64_t first_us, int64_t at_us)
{
    int64_t now_us, offset_us = clock_offset_us(check, &now_us);
    int64_t step_us = offset_us - first_us;

    if (step_us > CLOCK_STEP_US || step_us < -CLOCK_STEP_US)
        add(check, "clock", LEVEL_WARNING, "find out which of the two machines steps its clock: slew it instead",
            "within %.1f s the server's clock moved by %.1f s against the one here",
            (double)(now_us - at_us) / (double)LH_US_PER_S, (double)step_us / (double)LH_US_PER_S);
    else if (offset_us > CLOCK_APART_US || offset_us < -CLOCK_APART_US)
        add(check, "clock", LEVEL_NOTE,
            "leases go by the server's clock alone; logs of the two machines are hard to compare",
            "the server's clock is %.1f s %s the one here",
            (double)(offset_us < 0 ? -offset_us : offset_us) / (double)LH_US_PER_S,
            offset_us < 0 ? "behind" : "ahead of");
    else
        add(check, "clock", LEVEL_OK, "", "the server's clock and the one here are within a second");
}

static int compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* How long an acquire and its release take, or -1 where this role may not, or there is no schema. It is rolled back: no
 * row stays, and no notification is sent. */
static int64_t pair_us(struct check *check)
{
    static const char acquire[] =
        "select token as v from leasehold.acquire('leasehold_check', 'pair of ' || pg_backend_pid(), '30 s',"
        " owner => 'check-database', lease_key => '00000000-0000-4000-8000-0000000000cd')";
    static const char release[] = "select leasehold.release_ok('leasehold_check', 'pair of ' || pg_backend_pid(),"
                                  " '00000000-0000-4000-8000-0000000000cd')::integer as v";
    struct lh_error error = {0};
    int64_t begun_us, took_us = -1;

    if (lh_query_run(check->a, "begin", &error) != LH_OK)
        return -1;
    begun_us = lh_clock_us();
    if (ask_number(check->a, acquire) > 0 && ask_number(check->a, release) == 1)
        took_us = lh_clock_us() - begun_us;
    lh_query_run(check->a, "rollback", &error);
    return took_us;
}

static double median_ms(int64_t times_us[COMMITS])
{
    qsort(times_us, COMMITS, sizeof(*times_us), compare_times);
    return (double)times_us[COMMITS / 2] / (double)LH_US_PER_MS;
}

/* A message in the WAL is the least that a commit waits for, whatever the role may write. */
static void check_latency(struct check *check)
{
    static const char advice[] =
        "each acquire and release waits for one: look at the disk, and at the way to synchronous standbys";
    int64_t asks_us[COMMITS], commits_us[COMMITS], pairs_us[COMMITS], begun_us;
    double ask_ms, commit_ms, pair_ms;

    for (int i = 0; i < COMMITS; i++) {
        begun_us = lh_clock_us();
        free(ask(check->a, "select 1 as v"));
        asks_us[i] = lh_clock_us() - begun_us;
        begun_us = lh_clock_us();
        if (ask_number(check->a, "select 1 as v from pg_logical_emit_message(true, 'leasehold', 'check-database')") < 0)
            return; /* a standby, or a role that may not: told elsewhere */
        commits_us[i] = lh_clock_us() - begun_us;
        pairs_us[i] = pair_us(check);
    }
    ask_ms = median_ms(asks_us);
    commit_ms = median_ms(commits_us);
    pair_ms = median_ms(pairs_us);
    add(check, "latency", commit_ms * LH_US_PER_MS > SLOW_COMMIT_US ? LEVEL_WARNING : LEVEL_OK, advice,
        "a question takes %.2f ms, a commit %.2f ms", ask_ms, commit_ms);
    if (pair_ms >= 0)
        add(check, "pair", LEVEL_OK, "", "an acquire and its release take %.2f ms, and two commits: %.2f ms in all",
            pair_ms, pair_ms + 2 * commit_ms);
    else
        add(check, "pair", LEVEL_NOTE,
            "ask as a member of leasehold_client or leasehold_coordinator, with the schema there",
            "this role cannot acquire a lease in SQL here, so that it was not measured");
}

/* --- the report --- */

static const char *verdict(const struct check *check)
{
    return check->counts[LEVEL_FAILED] > 0    ? "this database cannot carry leases as it is"
           : check->counts[LEVEL_WARNING] > 0 ? "this database can carry leases; read the warnings first"
                                              : "this database can carry leases";
}

static void print_text(const struct check *check)
{
    size_t i;
    json_t *finding;

    json_array_foreach(check->findings, i, finding)
    {
        char *found = lh_clean(json_string_value(json_object_get(finding, "found")));
        char *advice = lh_clean(json_string_value(json_object_get(finding, "advice")));

        printf("%-8s %-22s ", json_string_value(json_object_get(finding, "level")),
               json_string_value(json_object_get(finding, "check")));
        lh_print_wrapped(stdout, found, 32, 100);
        if (advice[0] != '\0') {
            printf("%32s", "-> ");
            lh_print_wrapped(stdout, advice, 32, 100);
        }
        free(found);
        free(advice);
    }
    printf("%s\n", verdict(check));
}

static void print_json(const struct check *check)
{
    json_t *all = json_pack("{s:O, s:i, s:i, s:b, s:s}", "findings", check->findings, "failed",
                            check->counts[LEVEL_FAILED], "warnings", check->counts[LEVEL_WARNING], "can_serve",
                            check->counts[LEVEL_FAILED] == 0, "verdict", verdict(check));

    json_dumpf(all, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(all);
}

/* Switches off what could cut the session before the report is made, as a daemon does (pg/session.c). */
static enum lh_exit open_session(PGconn **session, const struct lh_cli *cli)
{
    static const char settings[] =
        "select count(set_config(s.name, s.value, false))"
        "  from (values ('lock_timeout', '5s'), ('idle_in_transaction_session_timeout', '10s'),"
        "               ('idle_session_timeout', '0'), ('transaction_timeout', '0')) s (name, value)"
        " where current_setting(s.name, true) <> s.value";
    enum lh_exit status = lh_database_open(session, cli, LH_DATABASE_READ);

    if (status == LH_EXIT_DONE)
        PQclear(lh_database_query(*session, cli, settings, NULL, 0, &status));
    return status;
}

static enum lh_exit run(struct lh_cli *cli)
{
    struct check check = {.cli = cli, .findings = json_array()};
    enum lh_exit status = open_session(&check.a, cli);
    int64_t first_us, at_us;

    if (status == LH_EXIT_DONE)
        status = open_session(&check.b, cli);
    if (status == LH_EXIT_DONE) {
        first_us = clock_offset_us(&check, &at_us);
        for (const struct lh_database_check *question = lh_database_checks; question->name != NULL; question++)
            check_statement(&check, question);
        check_life(&check);
        check_schema(&check);
        check_pooler(&check);
        check_listen(&check);
        check_latency(&check);
        check_clock(&check, first_us, at_us);
        if (cli->output == LH_OUTPUT_JSON)
            print_json(&check);
        else
            print_text(&check);
        status = check.counts[LEVEL_FAILED] > 0 ? LH_EXIT_FAILED : LH_EXIT_DONE;
    }
    PQfinish(check.b);
    PQfinish(check.a);
    json_decref(check.findings);
    return status;
}

const struct lh_command lh_command_check_database = {
    .name = "check-database",
    .summary = "tell whether a database can carry leases",
    .usage = (const char *const[]){"check-database --database URL", NULL},
    .description = "Connects as a daemon would, and tells line by line what it finds and what to do:\n"
                   "version, rights, schema, a pooler in between, notifications, standbys,\n"
                   "time-outs, publications, old transactions, disk, the clock, the time of a\n"
                   "commit and of a lease, which is rolled back.\n"
                   "It needs no schema and writes no row. Use the role of the daemon, or of the\n"
                   "clients in SQL; a role of pg_monitor sees more.\n"
                   "\n"
                   "A line is ok, a note, a warning, or failed: then a promise cannot be kept there,\n"
                   "and the exit status is 1.\n",
    .examples = "  leasehold check-database --database postgresql:///leasehold\n"
                "  leasehold check-database --json | jq '.findings[] | select(.level != \"ok\")'\n",
    .words_min = 0,
    .words_max = 0,
    .reach = LH_REACH_DATABASE,
    .run = run,
};
