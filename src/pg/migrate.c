/*
 * The story: connect; read leasehold.migration; refuse a schema that must be refused; if no step is pending, done. Else
 * begin a transaction: roles and schema, as the role that logged in; the rest as leasehold_owner: lock the migration
 * table (polled), read it again, because another migration may have run meanwhile, apply the pending steps, commit. Any
 * error undoes all of it. An attempt that met a lock prints a line and is repeated.
 */
#include "pg/migrate.h"

#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "pg/error.h"
#include "pg/migrate_internal.h"

#define POLL_MS 100
#define POLLS_PER_LINE 50 /* a line every 5 s while it waits */

struct migrator {
    struct lh_migrate_session session;
    const struct lh_migration_set *set;
    const char *version;
    struct lh_applied_list applied;
    struct lh_plan plan;
    const char *stage; /* what is being applied; NULL: the lock is not had yet */
    size_t repaired;
};

static enum lh_status pause_for_poll(struct migrator *m)
{
    struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
    struct lh_migrate_output *output = m->session.output;

    if (output->is_stopped != NULL && output->is_stopped(output->arg))
        return lh_error_set(m->session.error, LH_CANCELED, "the migration was told to stop while it waited");
    nanosleep(&pause, NULL);
    return LH_OK;
}

/*
 * Is it worth another try: a lock that was not to be had, or a deadlock? Before the lock is ours two may also meet in
 * making the same role or schema.
 */
static bool is_contention(const struct migrator *m)
{
    const char *sqlstate = m->session.error->sqlstate;
    return lh_pg_is_state(sqlstate, "55P03 40P01") ||
           (m->stage == NULL && lh_pg_is_state(sqlstate, "23505 42710 42P06 42P07 XX000"));
}

/* Roles, schema and the table with its lock; then the plan once more, from what is there now. */
static enum lh_status begin(struct migrator *m)
{
    const char *const steps[] = {"begin isolation level read committed read write", lh_migration_roles_sql,
                                 "set local role leasehold_owner", lh_migration_table_sql};
    struct lh_migrate_session *session = &m->session;
    enum lh_status status = LH_OK;

    m->stage = NULL;
    for (size_t i = 0; status == LH_OK && i < sizeof(steps) / sizeof(steps[0]); i++)
        status = lh_migrate_execute(session, steps[i], NULL);
    if (status == LH_OK)
        status = lh_migrate_read_applied(session, &m->applied);
    if (status == LH_OK)
        status = lh_plan_make(&m->plan, m->set, m->version, &m->applied, session->error);
    return status;
}

/* Commits, or undoes all of the attempt. */
static enum lh_status end(struct migrator *m, enum lh_status status)
{
    if (status == LH_OK)
        return lh_migrate_execute(&m->session, "commit", NULL);
    if (PQstatus(m->session.conn) == CONNECTION_OK)
        PQclear(PQexec(m->session.conn, "rollback"));
    return status;
}

static enum lh_status apply_step(struct migrator *m, const struct lh_step *step)
{
    struct lh_error *error = m->session.error;
    struct lh_buffer record = {0};
    enum lh_status status = LH_OK;

    m->stage = step->name;
    for (size_t i = 0; status == LH_OK && i < step->file_count; i++) {
        status = lh_migrate_execute(&m->session, step->files[i].sql, NULL);
        if (status != LH_OK && !is_contention(m)) {
            char words[sizeof(error->message)];
            memcpy(words, error->message, sizeof(words));
            snprintf(error->message, sizeof(words), "%.64s: %.400s", step->files[i].name, words);
        }
    }
    if (status != LH_OK)
        return status;
    lh_step_record_sql(step, m->version, &record);
    status = lh_migrate_execute(&m->session, (const char *)record.data, NULL);
    lh_buffer_finish(&record);
    return status;
}

static enum lh_status try_pending(struct migrator *m)
{
    enum lh_status status = begin(m);

    for (size_t i = 0; status == LH_OK && i < m->plan.step_count; i++)
        status = apply_step(m, &m->plan.steps[i]);
    return end(m, status);
}

/* Until it met no lock of others. */
static enum lh_status try_again_and_again(struct migrator *m, enum lh_status (*attempt)(struct migrator *))
{
    enum lh_status status;

    for (unsigned tries = 0;; tries++) {
        status = attempt(m);
        if (status == LH_OK || status == LH_DATABASE_UNAVAILABLE || !is_contention(m))
            break;
        if (tries % POLLS_PER_LINE == 0 && m->stage == NULL)
            lh_migrate_say(&m->session, "waiting for another migration that is going on");
        else if (tries % POLLS_PER_LINE == 0)
            lh_migrate_say(&m->session, "%s waits for another session's transaction (%s); trying again", m->stage,
                           m->session.error->message);
        status = pause_for_poll(m);
        if (status != LH_OK)
            break;
    }
    return status;
}

static enum lh_status apply_pending(struct migrator *m)
{
    enum lh_status status = m->plan.step_count == 0 ? LH_OK : try_again_and_again(m, try_pending);

    for (size_t i = 0; status == LH_OK && i < m->plan.step_count; i++)
        lh_migrate_say(&m->session, "applied %s", m->plan.steps[i].name);
    return status;
}

static enum lh_status try_repair(struct migrator *m)
{
    struct lh_migrate_session *session = &m->session;
    enum lh_status status = lh_migrate_execute(session, "begin isolation level read committed read write", NULL);

    m->stage = "the repair of owners and rights";
    m->repaired = 0;
    if (status == LH_OK)
        status = lh_migrate_execute(session, lh_migration_roles_sql, NULL);
    if (status == LH_OK)
        status = lh_migrate_repair_privileges(session, m->set->privileges_sql, &m->repaired);
    return end(m, status);
}

static enum lh_status repair(struct migrator *m)
{
    enum lh_status status = apply_pending(m);

    if (status == LH_OK && m->plan.newer_functions != NULL)
        return lh_error_set(m->session.error, LH_INTERNAL,
                            "the functions are those of version %s, which is newer: its owners and rights are for its "
                            "own leasehold migrate --repair",
                            m->plan.newer_functions);
    if (status == LH_OK)
        status = try_again_and_again(m, try_repair);
    if (status == LH_OK)
        lh_migrate_say(&m->session, "%zu owners and rights were put right", m->repaired);
    return status;
}

/* With migrations that are not applied, functions that we call may not be there. */
static enum lh_status check(struct migrator *m)
{
    struct lh_error *error = m->session.error;

    if (!m->applied.is_table_there)
        lh_error_set(error, LH_DATABASE_UNAVAILABLE,
                     "the database has no schema leasehold: run leasehold migrate, or set migrate = yes");
    else if (m->plan.step_count > 0)
        lh_error_set(error, LH_DATABASE_UNAVAILABLE,
                     "the schema leasehold is older than this program (pending: %s and %zu more): run leasehold "
                     "migrate, or set migrate = yes",
                     m->plan.steps[0].name, m->plan.step_count - 1);
    else
        return LH_OK;
    memcpy(error->sqlstate, LH_PG_NO_SCHEMA, sizeof(error->sqlstate));
    return error->status;
}

static enum lh_status act(struct migrator *m, enum lh_migrate_mode mode)
{
    struct lh_migrate_output *output = m->session.output;

    output->pending_count = m->plan.step_count;
    if (mode == LH_MIGRATE_CHECK)
        return check(m);
    if (mode == LH_MIGRATE_RUN)
        return apply_pending(m);
    if (mode == LH_MIGRATE_REPAIR)
        return repair(m);
    if (output->on_line != NULL && mode == LH_MIGRATE_STATUS)
        lh_plan_say_status(&m->plan, m->set, &m->applied, output);
    else if (output->on_line != NULL)
        lh_plan_say_script(&m->plan, m->version, output);
    return LH_OK;
}

/* Those of functions that are not ours are not known. A role that may not even look at the schema hears why. */
static void tell_of_privileges(struct migrator *m, enum lh_migrate_mode mode, enum lh_status status)
{
    struct lh_error *error = m->session.error;
    bool is_ours = m->plan.newer_functions == NULL && (mode == LH_MIGRATE_RUN || m->plan.step_count == 0);
    size_t used = strlen(error->message);
    char words[LH_PRIVILEGES_BYTES];

    if (m->session.conn == NULL || mode == LH_MIGRATE_PRINT || mode == LH_MIGRATE_REPAIR ||
        !(status == LH_OK ? is_ours : status == LH_ACCESS_DENIED))
        return;
    lh_migrate_look_at_privileges(&m->session, m->set->privileges_sql, words);
    if (words[0] == '\0')
        return;
    if (status == LH_OK)
        lh_migrate_say(&m->session, "warning: %s", words);
    else
        snprintf(error->message + used, sizeof(error->message) - used, "; %s", words);
}

enum lh_status lh_migrate(const char *conninfo, enum lh_migrate_mode mode, const struct lh_migration_set *set,
                          const char *version, struct lh_migrate_output *output, struct lh_error *error)
{
    struct lh_migrate_output silent = {0};
    struct lh_error ignored;
    struct migrator m = {
        .session = {.output = output != NULL ? output : &silent, .error = error != NULL ? error : &ignored},
        .set = set,
        .version = version};
    enum lh_status status = LH_OK;

    memset(m.session.error, 0, sizeof(*m.session.error));
    if (conninfo != NULL || mode != LH_MIGRATE_PRINT) {
        bool writes = mode != LH_MIGRATE_STATUS && mode != LH_MIGRATE_PRINT;
        status = lh_migrate_session_open(&m.session, conninfo, writes);
        if (status == LH_OK)
            status = lh_migrate_look(&m.session, &m.applied);
    }
    if (status == LH_OK)
        status = lh_plan_make(&m.plan, set, version, &m.applied, m.session.error);
    if (status == LH_OK)
        status = act(&m, mode);
    tell_of_privileges(&m, mode, status);
    lh_plan_finish(&m.plan);
    lh_applied_list_clear(&m.applied);
    lh_migrate_session_close(&m.session);
    return status;
}

enum lh_status lh_migrate_serving_role(const char *conninfo, const char *role, struct lh_error *error)
{
    struct lh_migrate_output silent = {0};
    struct lh_migrate_session session = {.output = &silent, .error = error};
    enum lh_status status = lh_migrate_session_open(&session, conninfo, true);
    char *name = session.conn == NULL ? NULL : PQescapeIdentifier(session.conn, role, strlen(role));
    char *sql = lh_format("do $$ begin create role %s login; exception when duplicate_object then null; end $$;"
                          "grant leasehold_coordinator to %s; grant pg_monitor, pg_signal_backend to leasehold_owner;"
                          /* pg_ident.conf may be newer than the server's last look at it. */
                          "select pg_reload_conf()",
                          name, name);

    if (status == LH_OK)
        status = lh_migrate_execute(&session, sql, NULL);
    free(sql);
    PQfreemem(name);
    lh_migrate_session_close(&session);
    return status;
}

static bool has_extension(struct lh_migrate_session *session)
{
    PGresult *result = NULL;
    bool is_there = lh_migrate_execute(session, "select 1 from pg_available_extensions where name = 'leasehold_core'",
                                       &result) == LH_OK &&
                    PQntuples(result) == 1;
    PQclear(result);
    return is_there;
}

/* The extension's script, with the module's path in place of the word that CREATE EXTENSION replaces. */
static char *core_script(PGconn *conn, const char *module)
{
    static const char word[] = "'MODULE_PATHNAME'";
    char *path = PQescapeLiteral(conn, module, strlen(module));
    struct lh_buffer script = {0};
    const char *rest = lh_migration_core_sql;

    for (const char *at; path != NULL && (at = strstr(rest, word)) != NULL; rest = at + strlen(word)) {
        lh_buffer_append(&script, rest, (size_t)(at - rest));
        lh_buffer_append(&script, path, strlen(path));
    }
    lh_buffer_append(&script, rest, strlen(rest) + 1);
    PQfreemem(path);
    return (char *)script.data;
}

enum lh_status lh_migrate_core(const char *conninfo, const char *module, struct lh_error *error)
{
    /* Without the extension these functions were made by an earlier start, perhaps of a module that is gone. */
    static const char drop[] =
        "do $$ begin if not exists (select from pg_extension where extname = 'leasehold_core') then "
        "drop schema if exists leasehold_core cascade; end if; end $$;";
    struct lh_migrate_output silent = {0};
    struct lh_migrate_session session = {.output = &silent, .error = error};
    enum lh_status status = lh_migrate_session_open(&session, conninfo, true);
    char *script = NULL, *sql = NULL;

    if (status == LH_OK && has_extension(&session)) {
        sql = lh_format("begin; %s create extension if not exists leasehold_core;"
                        "alter extension leasehold_core update; commit",
                        drop);
    } else if (status == LH_OK && module != NULL) {
        script = core_script(session.conn, module);
        sql = lh_format("begin; %s create schema if not exists leasehold_core; %s commit", drop, script);
    } else if (status == LH_OK) {
        status = lh_error_set(error, LH_INTERNAL, "neither the server nor this build has it for this PostgreSQL");
    }
    if (sql != NULL)
        status = lh_migrate_execute(&session, sql, NULL);
    free(script);
    free(sql);
    lh_migrate_session_close(&session);
    return status;
}
