/*
 * The story: connect; read what leasehold.migration says; refuse what must be refused; if nothing is pending, done.
 * Else take the advisory lock (polled), read again, for another may have done it meanwhile, and apply what is
 * pending, one transaction each. A transaction that meets a locked table rolls back, says so, and is tried again.
 */
#include "pg/migrate.h"

#include <libpq-fe.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "pg/error.h"
#include "pg/migrate_plan.h"

#define ADVISORY_KEY                                                                                                   \
    "7810756276994469740" /* "leasehol" as a big-endian number, so that it is nobody else's by chance */
#define POLL_MS 100
#define POLLS_PER_LINE 50 /* a line every 5 s while it waits */
#define OLDEST_SERVER 130000

static const char session_sql[] = "set search_path = pg_catalog, pg_temp;"
                                  "set lock_timeout = '1s';"
                                  "set statement_timeout = 0;"
                                  "set idle_in_transaction_session_timeout = 0;"
                                  "set client_min_messages = warning";

struct migrator {
    PGconn *conn;
    const struct lh_migration_set *set;
    const char *version;
    struct lh_migrate_output *output;
    struct lh_error *error;
};

static void say(struct migrator *m, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(struct migrator *m, const char *format, ...)
{
    char line[512];
    va_list arguments;

    if (m->output->on_line == NULL)
        return;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    m->output->on_line(m->output->arg, line);
}

static bool is_stopped(struct migrator *m)
{
    return m->output->is_stopped != NULL && m->output->is_stopped(m->output->arg);
}

static enum lh_status pause_for_poll(struct migrator *m)
{
    struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
    if (is_stopped(m))
        return lh_error_set(m->error, LH_CANCELED, "the migration was told to stop while it waited");
    nanosleep(&pause, NULL);
    return LH_OK;
}

static void on_notice(void *arg, const PGresult *result)
{
    struct migrator *m = arg;
    struct lh_error words;
    lh_pg_error_of_result(result, &words);
    say(m, "the database says: %s", words.message);
}

/* One query or several; the last result is `*result` when that is not NULL. */
static enum lh_status execute(struct migrator *m, const char *sql, PGresult **result)
{
    PGresult *answer = PQexec(m->conn, sql);
    enum lh_status status = LH_OK;

    if (answer == NULL)
        status = lh_pg_error_of_conn(m->conn, m->error);
    else if (PQresultStatus(answer) != PGRES_COMMAND_OK && PQresultStatus(answer) != PGRES_TUPLES_OK)
        status = lh_pg_error_of_result(answer, m->error);
    if (status == LH_OK && result != NULL)
        *result = answer;
    else
        PQclear(answer);
    return status;
}

static enum lh_status connect_now(struct migrator *m, const char *conninfo)
{
    const char *names[] = {"fallback_application_name", "connect_timeout", "dbname", "client_encoding", NULL};
    const char *values[] = {"leasehold migrate", "10", conninfo, "UTF8", NULL};

    m->conn = PQconnectdbParams(names, values, 1);
    if (m->conn == NULL)
        return lh_error_set(m->error, LH_DATABASE_UNAVAILABLE, "libpq could not allocate a connection");
    if (PQstatus(m->conn) != CONNECTION_OK)
        return lh_pg_error_of_conn(m->conn, m->error);
    if (PQserverVersion(m->conn) < OLDEST_SERVER)
        return lh_error_set(m->error, LH_INTERNAL, "PostgreSQL 13 or later is needed; this server is version %d",
                            PQserverVersion(m->conn) / 10000);
    PQsetNoticeReceiver(m->conn, on_notice, m);
    return execute(m, session_sql, NULL);
}

/* What the database says was applied; an empty list when there is no schema yet. */
static enum lh_status read_applied(struct migrator *m, struct lh_applied_list *applied)
{
    PGresult *result;
    enum lh_status status = execute(m, "select to_regclass('leasehold.migration') is not null", &result);

    lh_applied_list_clear(applied);
    if (status != LH_OK)
        return status;
    applied->is_table_there = PQgetvalue(result, 0, 0)[0] == 't';
    PQclear(result);
    if (!applied->is_table_there)
        return LH_OK;
    status = execute(m,
                     "select number, name, checksum, oldest_daemon, version,"
                     " to_char(applied_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC'"
                     " from leasehold.migration order by number",
                     &result);
    if (status != LH_OK)
        return status;
    lh_applied_list_fill(applied, result);
    PQclear(result);
    return LH_OK;
}

static enum lh_status take_lock(struct migrator *m)
{
    for (unsigned polls = 0;; polls++) {
        PGresult *result;
        enum lh_status status = execute(m, "select pg_try_advisory_lock(" ADVISORY_KEY ")", &result);
        bool is_ours;

        if (status != LH_OK)
            return status;
        is_ours = PQgetvalue(result, 0, 0)[0] == 't';
        PQclear(result);
        if (is_ours)
            return LH_OK;
        if (polls % POLLS_PER_LINE == 0)
            say(m, "waiting for another migration that is going on");
        status = pause_for_poll(m);
        if (status != LH_OK)
            return status;
    }
}

/* Is it worth another try: a lock that was not to be had, or a deadlock? */
static bool is_contention(const struct lh_error *error)
{
    return strcmp(error->sqlstate, "55P03") == 0 || strcmp(error->sqlstate, "40P01") == 0;
}

/* One step, in one transaction with its row. */
static enum lh_status try_step(struct migrator *m, const struct lh_step *step)
{
    struct lh_buffer sql = {0};
    enum lh_status status = execute(m, "begin isolation level read committed", NULL);

    for (size_t i = 0; status == LH_OK && i < step->file_count; i++) {
        status = execute(m, step->files[i].sql, NULL);
        if (status != LH_OK && !is_contention(m->error)) {
            char words[sizeof(m->error->message)];
            memcpy(words, m->error->message, sizeof(words));
            snprintf(m->error->message, sizeof(words), "%.64s: %.400s", step->files[i].name, words);
        }
    }
    if (status == LH_OK) {
        lh_step_record_sql(step, m->version, &sql);
        status = execute(m, (const char *)sql.data, NULL);
        lh_buffer_finish(&sql);
    }
    if (status == LH_OK)
        return execute(m, "commit", NULL);
    if (PQstatus(m->conn) == CONNECTION_OK)
        PQclear(PQexec(m->conn, "rollback"));
    return status;
}

static enum lh_status apply_step(struct migrator *m, const struct lh_step *step)
{
    for (unsigned tries = 0;; tries++) {
        enum lh_status status = try_step(m, step);
        if (status == LH_OK) {
            say(m, "applied %s", step->name);
            return LH_OK;
        }
        if (status == LH_DATABASE_UNAVAILABLE || !is_contention(m->error))
            return status;
        if (tries % POLLS_PER_LINE == 0)
            say(m, "%s waits for somebody else's transaction (%s); trying again", step->name, m->error->message);
        status = pause_for_poll(m);
        if (status != LH_OK)
            return status;
    }
}

static enum lh_status apply_pending(struct migrator *m, struct lh_applied_list *applied, struct lh_plan *plan)
{
    enum lh_status status = take_lock(m);

    if (status == LH_OK)
        status = read_applied(m, applied);
    if (status == LH_OK)
        status = lh_plan_make(plan, m->set, m->version, applied, m->error);
    if (status == LH_OK && !applied->is_table_there)
        status = execute(m, lh_migration_table_sql, NULL);
    for (size_t i = 0; status == LH_OK && i < plan->step_count; i++)
        status = apply_step(m, &plan->steps[i]);
    if (PQstatus(m->conn) == CONNECTION_OK)
        PQclear(PQexec(m->conn, "select pg_advisory_unlock(" ADVISORY_KEY ")"));
    return status;
}

enum lh_status lh_migrate(const char *conninfo, enum lh_migrate_mode mode, const struct lh_migration_set *set,
                          const char *version, struct lh_migrate_output *output, struct lh_error *error)
{
    struct lh_migrate_output silent = {0};
    struct lh_error ignored;
    struct migrator m = {.set = set,
                         .version = version,
                         .output = output != NULL ? output : &silent,
                         .error = error != NULL ? error : &ignored};
    struct lh_applied_list applied = {0};
    struct lh_plan plan = {0};
    enum lh_status status = LH_OK;

    memset(m.error, 0, sizeof(*m.error));
    if (conninfo != NULL || mode != LH_MIGRATE_PRINT) {
        status = connect_now(&m, conninfo);
        if (status == LH_OK)
            status = read_applied(&m, &applied);
    }
    if (status == LH_OK)
        status = lh_plan_make(&plan, set, version, &applied, m.error);
    if (status != LH_OK)
        goto out;
    m.output->pending_count = plan.step_count;
    if (mode == LH_MIGRATE_RUN && plan.step_count > 0)
        status = apply_pending(&m, &applied, &plan);
    else if (m.output->on_line != NULL && mode == LH_MIGRATE_STATUS)
        lh_plan_say_status(&plan, set, &applied, m.output);
    else if (m.output->on_line != NULL && mode == LH_MIGRATE_PRINT)
        lh_plan_say_script(&plan, version, &applied, m.output);
out:
    lh_plan_finish(&plan);
    lh_applied_list_clear(&applied);
    PQfinish(m.conn);
    return status;
}
