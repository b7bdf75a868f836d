#include "pg/migrate.h"

#include <stdio.h>

#include "cli/error.h"

static void on_line(void *arg, const char *line)
{
    puts(line);
}

/* What is done or waited for should be seen at once, also through a pipe. */
static void on_progress(void *arg, const char *line)
{
    bool *has_said = arg;
    puts(line);
    fflush(stdout);
    *has_said = true;
}

static enum lh_exit run(struct lh_cli *cli)
{
    bool prints = lh_args_has(&cli->args, "print");
    bool tells = lh_args_has(&cli->args, "status");
    bool repairs = lh_args_has(&cli->args, "repair");
    bool has_said = prints || tells;
    struct lh_migrate_output output = {.on_line = has_said ? on_line : on_progress, .arg = &has_said};
    struct lh_error error = {0};
    enum lh_migrate_mode mode = prints    ? LH_MIGRATE_PRINT
                                : tells   ? LH_MIGRATE_STATUS
                                : repairs ? LH_MIGRATE_REPAIR
                                          : LH_MIGRATE_RUN;

    if (prints + tells + repairs > 1)
        return lh_error_usage(cli->command, "--print, --status and --repair cannot be combined");
    if (cli->output != LH_OUTPUT_TEXT)
        return lh_error_usage(cli->command, "migrate prints text only");
    if (cli->database == NULL && !prints)
        return lh_error_usage(cli->command, "migrate works on a database: --database URL, or LEASEHOLD_DATABASE");
    if (lh_migrate(cli->database, mode, &lh_migrations, LH_VERSION, &output, &error) != LH_OK)
        return lh_error_database(cli, &error);
    if (!has_said)
        puts("the schema is up to date");
    return LH_EXIT_DONE;
}

static const struct lh_option options[] = {
    {"print", 0, NULL,
     "Print the pending SQL, for psql or for review, and run nothing. Without a database: all of the SQL."},
    {"status", 0, NULL, "Print for each migration when it was applied, or that it is pending."},
    {"repair", 0, NULL,
     "Give everything in the schemas to leasehold_owner again, and its rights to the roles that need them and to no "
     "other role of Leasehold: after a restore with --no-owner or --no-privileges."},
    {0},
};

const struct lh_command lh_command_migrate = {
    .name = "migrate",
    .summary = "bring the schema leasehold of a database up to date",
    .usage = (const char *const[]){"migrate --database URL [--print | --status | --repair]", NULL},
    .description = "Applies the migrations that the database does not have yet, each once and in a\n"
                   "transaction of its own. It can be run again at any time. It never waits for\n"
                   "other sessions' locks for more than a second at a time. A daemon does the same\n"
                   "at its start, unless its configuration says migrate = no.\n",
    .options = options,
    .examples = "  leasehold migrate --database postgresql:///leasehold\n"
                "  leasehold migrate --print > leasehold.sql\n",
    .words_min = 0,
    .words_max = 0,
    .reach = LH_REACH_DATABASE,
    .run = run,
};
