#include "pg/migrate.h"

#include <stdio.h>

#include "cli/complain.h"

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
    bool has_said = prints || tells;
    struct lh_migrate_output output = {.on_line = has_said ? on_line : on_progress, .arg = &has_said};
    struct lh_error error = {0};
    enum lh_migrate_mode mode = prints ? LH_MIGRATE_PRINT : tells ? LH_MIGRATE_STATUS : LH_MIGRATE_RUN;

    if (prints && tells)
        return lh_complain_usage(cli->command, "--print and --status exclude each other");
    if (cli->output != LH_OUTPUT_TEXT)
        return lh_complain_usage(cli->command, "migrate prints text only");
    if (cli->database == NULL && !prints)
        return lh_complain_usage(cli->command, "migrate needs the database: --database URL, or LEASEHOLD_DATABASE");
    if (lh_migrate(cli->database, mode, &lh_migrations, LH_VERSION, &output, &error) != LH_OK)
        return lh_complain_database(cli, &error);
    if (!has_said)
        puts("nothing to do: the schema is up to date");
    return LH_EXIT_DONE;
}

static const struct lh_option options[] = {
    {"print", 0, NULL,
     "Print the SQL that is pending, for psql or for review, and run nothing; all of it when no database is named."},
    {"status", 0, NULL, "Say for each migration when it was applied, or that it is pending."},
    {0},
};

const struct lh_command lh_command_migrate = {
    .name = "migrate",
    .summary = "bring the schema leasehold in a database up to date",
    .usage = (const char *const[]){"migrate --database URL [--print | --status]", NULL},
    .description = "Applies what this program brings along and the database does not have yet: each\n"
                   "migration once, in a transaction of its own. Running it again does nothing. It\n"
                   "never waits behind other sessions' locks for more than a second at a time. A\n"
                   "daemon does the same when it starts, unless it was told not to.\n",
    .options = options,
    .examples = "  leasehold migrate --database postgresql:///leasehold\n"
                "  leasehold migrate --print > leasehold.sql\n",
    .words_min = 0,
    .words_max = 0,
    .takes_database = true,
    .run = run,
};
