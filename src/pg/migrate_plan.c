#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pg/migrate_internal.h"

/* Around SQL in the printed script; no file has them. */
#define QUOTE "$leasehold_script$"
#define FILE_QUOTE "$leasehold_file$"

int lh_version_compare(const char *a, const char *b)
{
    for (;;) {
        unsigned long x = isdigit((unsigned char)*a) ? strtoul(a, (char **)&a, 10) : 0;
        unsigned long y = isdigit((unsigned char)*b) ? strtoul(b, (char **)&b, 10) : 0;
        bool a_goes_on, b_goes_on;

        if (x != y)
            return x < y ? -1 : 1;
        a_goes_on = a[0] == '.' && isdigit((unsigned char)a[1]);
        b_goes_on = b[0] == '.' && isdigit((unsigned char)b[1]);
        if (!a_goes_on && !b_goes_on)
            return 0;
        /* "0.1" and "0.1.0" are the same: what is missing counts as 0. */
        a = a_goes_on ? a + 1 : "";
        b = b_goes_on ? b + 1 : "";
    }
}

void lh_applied_list_fill(struct lh_applied_list *applied, const PGresult *result)
{
    applied->count = (size_t)PQntuples(result);
    applied->rows = lh_alloc_zero(applied->count + 1, sizeof(applied->rows[0]));
    for (size_t i = 0; i < applied->count; i++) {
        struct lh_applied *row = &applied->rows[i];
        row->number = atoi(PQgetvalue(result, (int)i, 0));
        row->name = lh_strdup(PQgetvalue(result, (int)i, 1));
        row->checksum = lh_strdup(PQgetvalue(result, (int)i, 2));
        row->oldest_daemon = lh_strdup(PQgetvalue(result, (int)i, 3));
        row->version = lh_strdup(PQgetvalue(result, (int)i, 4));
        row->applied_at = lh_strdup(PQgetvalue(result, (int)i, 5));
        row->revision = atoi(PQgetvalue(result, (int)i, 6));
    }
}

void lh_applied_list_clear(struct lh_applied_list *applied)
{
    for (size_t i = 0; i < applied->count; i++) {
        free(applied->rows[i].name);
        free(applied->rows[i].checksum);
        free(applied->rows[i].oldest_daemon);
        free(applied->rows[i].version);
        free(applied->rows[i].applied_at);
    }
    free(applied->rows);
    memset(applied, 0, sizeof(*applied));
}

static const struct lh_applied *find_applied(const struct lh_applied_list *applied, int number)
{
    for (size_t i = 0; i < applied->count; i++)
        if (applied->rows[i].number == number)
            return &applied->rows[i];
    return NULL;
}

/* Does the database ask for a newer program? The most demanding of its migrations is named. */
static enum lh_status check_oldest_daemon(const char *version, const struct lh_applied_list *applied,
                                          struct lh_error *error)
{
    const struct lh_applied *most = NULL;
    for (size_t i = 0; i < applied->count; i++) {
        const struct lh_applied *row = &applied->rows[i];
        if (lh_version_compare(row->oldest_daemon, most == NULL ? version : most->oldest_daemon) > 0)
            most = row;
    }
    if (most == NULL)
        return LH_OK;
    return lh_error_set(error, LH_INTERNAL,
                        "the database needs version %s or later (since migration %s); this is version %s: upgrade "
                        "this program",
                        most->oldest_daemon, most->name, version);
}

static enum lh_status check_unchanged(const struct lh_migration *migration, const struct lh_applied *row,
                                      struct lh_error *error)
{
    if (strcmp(row->name, migration->name) == 0 && strcmp(row->checksum, migration->checksum) == 0)
        return LH_OK;
    return lh_error_set(
        error, LH_INTERNAL,
        "migration %s differs from the %s that was applied at %s by version %s: a released migration "
        "is never edited; use a program with the original file, and put the change into a new migration",
        migration->name, row->name, row->applied_at, row->version);
}

static void add_step(struct lh_plan *plan, const struct lh_step *step)
{
    plan->steps[plan->step_count++] = *step;
}

static void plan_functions(struct lh_plan *plan, const struct lh_migration_set *set, const char *version,
                           const struct lh_applied *row)
{
    struct lh_step step = {.name = LH_FUNCTIONS_NAME,
                           .checksum = set->functions_checksum,
                           .oldest_daemon = "",
                           .files = set->functions,
                           .file_count = set->function_count,
                           .revision = set->functions_revision};

    if (set->function_count == 0)
        return;
    if (row != NULL && strcmp(row->checksum, set->functions_checksum) == 0)
        return;
    /* Builds of one version may differ: the revision decides, and the version between sets without one. */
    if (row != NULL && (set->functions_revision < row->revision ||
                        (set->functions_revision == row->revision && lh_version_compare(version, row->version) < 0)))
        plan->newer_functions = row->version;
    else
        add_step(plan, &step);
}

enum lh_status lh_plan_make(struct lh_plan *plan, const struct lh_migration_set *set, const char *version,
                            const struct lh_applied_list *applied, struct lh_error *error)
{
    int newest = applied->count == 0 ? 0 : applied->rows[applied->count - 1].number;
    enum lh_status status = check_oldest_daemon(version, applied, error);

    lh_plan_finish(plan);
    plan->steps = lh_alloc_zero(set->migration_count + 1, sizeof(plan->steps[0]));
    for (size_t i = 0; status == LH_OK && i < set->migration_count; i++) {
        const struct lh_migration *migration = &set->migrations[i];
        const struct lh_applied *row = find_applied(applied, migration->number);
        struct lh_step step = {
            migration->number, migration->name, migration->checksum, migration->oldest_daemon, migration, 1, 0};
        if (row != NULL)
            status = check_unchanged(migration, row, error);
        else if (migration->number < newest)
            status = lh_error_set(error, LH_INTERNAL,
                                  "migration %s was never applied, but number %d was: migrations go forward only; "
                                  "give it the next number",
                                  migration->name, newest);
        else
            add_step(plan, &step);
    }
    if (status == LH_OK)
        plan_functions(plan, set, version, find_applied(applied, 0));
    return status;
}

void lh_plan_finish(struct lh_plan *plan)
{
    free(plan->steps);
    memset(plan, 0, sizeof(*plan));
}

static void append_text(struct lh_buffer *sql, const char *text)
{
    lh_buffer_append(sql, text, strlen(text));
}

/* As a standard-conforming string literal. */
static void append_literal(struct lh_buffer *sql, const char *text)
{
    append_text(sql, "'");
    for (; *text != '\0'; text++)
        lh_buffer_append(sql, *text == '\'' ? "''" : text, *text == '\'' ? 2 : 1);
    append_text(sql, "'");
}

void lh_step_record_sql(const struct lh_step *step, const char *version, struct lh_buffer *sql)
{
    const char *const columns[] = {step->name, step->checksum, step->oldest_daemon, version};
    char number[32];

    snprintf(number, sizeof(number), "%d, %d", step->number, step->revision);
    append_text(
        sql,
        "insert into leasehold.migration as m (number, revision, name, checksum, oldest_daemon, version)\nvalues (");
    append_text(sql, number);
    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
        append_text(sql, ", ");
        append_literal(sql, columns[i]);
    }
    append_text(sql, ")\n"
                     "on conflict (number) do update set checksum = excluded.checksum, version = excluded.version,\n"
                     "  revision = excluded.revision,\n"
                     "  applied_at = pg_catalog.clock_timestamp() where m.number = 0;\n");
    lh_buffer_append(sql, "", 1);
}

static bool is_pending(const struct lh_plan *plan, int number)
{
    for (size_t i = 0; i < plan->step_count; i++)
        if (plan->steps[i].number == number)
            return true;
    return false;
}

static void say_row(const char *name, bool pending, const struct lh_applied *row, struct lh_migrate_output *output)
{
    char line[256];
    if (row == NULL)
        snprintf(line, sizeof(line), "%s: pending", name);
    else
        snprintf(line, sizeof(line), "%s: applied %s by version %s%s", name, row->applied_at, row->version,
                 pending ? "; changed since, pending" : "");
    output->on_line(output->arg, line);
}

void lh_plan_say_status(const struct lh_plan *plan, const struct lh_migration_set *set,
                        const struct lh_applied_list *applied, struct lh_migrate_output *output)
{
    int newest = set->migration_count == 0 ? 0 : set->migrations[set->migration_count - 1].number;

    for (size_t i = 0; i < set->migration_count; i++)
        say_row(set->migrations[i].name, false, find_applied(applied, set->migrations[i].number), output);
    for (size_t i = 0; i < applied->count; i++)
        if (applied->rows[i].number > newest)
            say_row(applied->rows[i].name, false, &applied->rows[i], output);
    if (set->function_count > 0)
        say_row(LH_FUNCTIONS_NAME, is_pending(plan, 0), find_applied(applied, 0), output);
    if (plan->newer_functions != NULL)
        output->on_line(output->arg, "functions are a newer version's and are left alone");
}

static void say_file(const char *sql, struct lh_migrate_output *output)
{
    output->on_line(output->arg, "execute " FILE_QUOTE);
    output->on_line(output->arg, sql);
    output->on_line(output->arg, FILE_QUOTE ";");
}

/*
 * A step whose row is there already does nothing, so a script may be run again. It asks the database and not psql, so
 * any client may send the script.
 */
static void say_step(const struct lh_step *step, const char *version, struct lh_migrate_output *output)
{
    struct lh_buffer checksum = {0}, record = {0};
    char *condition;

    append_literal(&checksum, step->checksum);
    lh_buffer_append(&checksum, "", 1);
    condition = lh_format("if not exists (select from leasehold.migration m where m.number = %d\n"
                          "               and (m.checksum = %s or (m.number = 0 and m.revision > %d))) then",
                          step->number, (const char *)checksum.data, step->revision);
    output->on_line(output->arg, condition);
    for (size_t i = 0; i < step->file_count; i++)
        say_file(step->files[i].sql, output);
    lh_step_record_sql(step, version, &record);
    output->on_line(output->arg, (const char *)record.data);
    output->on_line(output->arg, "end if;");
    free(condition);
    lh_buffer_finish(&checksum);
    lh_buffer_finish(&record);
}

/* As a block of the script, not as a DO in it: an error that it raises then has a context of one line. */
static void say_roles(struct lh_migrate_output *output)
{
    static const char begin[] = "do $leasehold$\n", end[] = "\n$leasehold$";
    const char *block = strstr(lh_migration_roles_sql, begin) + strlen(begin);
    char *text = lh_format("%.*s;", (int)(strstr(block, end) - block), block);

    output->on_line(output->arg, text);
    free(text);
}

/*
 * One statement, so it is all or nothing with and without a transaction around it, and never ends one of another's. What
 * it sets is as before when that transaction goes on.
 */
void lh_plan_say_script(const struct lh_plan *plan, const char *version, struct lh_migrate_output *output)
{
    static const char begin[] =
        "do " QUOTE "\n"
        "declare\n"
        "  v_path_before constant pg_catalog.text := pg_catalog.current_setting('search_path');\n"
        "  v_strings_before constant pg_catalog.text := pg_catalog.current_setting('standard_conforming_strings');\n"
        "  v_memory_before constant pg_catalog.text := pg_catalog.current_setting('work_mem');\n"
        "  v_messages_before constant pg_catalog.text := pg_catalog.current_setting('client_min_messages');\n"
        "  v_role_before constant pg_catalog.text := pg_catalog.current_setting('role');\n"
        "begin\n"
        "set local search_path = pg_catalog, pg_temp;\n"
        "set local standard_conforming_strings = on;\n"
        "set local work_mem = '64MB';\n"
        "set local client_min_messages = warning;\n"
        "if current_setting('transaction_isolation') <> 'read committed' then\n"
        "  raise exception 'the schema cannot be installed in a transaction that is %',\n"
        "    upper(current_setting('transaction_isolation'))\n"
        "    using hint = 'run this script READ COMMITTED: set default_transaction_isolation to that first';\n"
        "end if;";
    static const char end[] =
        "perform set_config('role', v_role_before, true), set_config('work_mem', v_memory_before, true),\n"
        "  set_config('client_min_messages', v_messages_before, true),\n"
        "  set_config('standard_conforming_strings', v_strings_before, true),\n"
        "  set_config('search_path', v_path_before, true);\n"
        "end\n" QUOTE ";";

    if (plan->step_count == 0)
        return;
    output->on_line(output->arg, begin);
    say_roles(output);
    output->on_line(output->arg, "set local role leasehold_owner;");
    say_file(lh_migration_table_sql, output);
    for (size_t i = 0; i < plan->step_count; i++)
        say_step(&plan->steps[i], version, output);
    output->on_line(output->arg, end);
}
