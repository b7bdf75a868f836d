/*
 * leasehold: the command line. The words are taken apart, the command is found, asked for its help or run; what it
 * returns is the exit status.
 */
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/cli.h"
#include "cli/complain.h"
#include "cli/help.h"

static bool options_of(const char *name, const struct lh_option **options)
{
    static const struct lh_option none[] = {{0}};
    const struct lh_command *command = lh_command_find(name);

    *options = command != NULL && command->options != NULL ? command->options : none;
    return command != NULL || strcmp(name, "help") == 0;
}

static enum lh_exit refuse(const struct lh_cli *cli, const struct lh_error *error)
{
    const char *names[32];
    size_t count = 0;
    const char *near;

    if (cli->args.command == NULL || cli->command != NULL)
        return lh_complain_usage(cli->command, "%s", error->message);
    for (; lh_commands[count] != NULL && count < 31; count++)
        names[count] = lh_commands[count]->name;
    names[count] = NULL;
    near = lh_nearest(cli->args.command, names);
    if (near != NULL)
        return lh_complain_usage(NULL, "%s; did you mean %s?", error->message, near);
    return lh_complain_usage(NULL, "%s", error->message);
}

/* "leasehold help", "leasehold help COMMAND", "leasehold COMMAND --help". */
static enum lh_exit help(const struct lh_cli *cli)
{
    const struct lh_command *command = cli->command;

    if (command == NULL && cli->args.word_count > 0) {
        command = lh_command_find(cli->args.words[0]);
        if (command == NULL)
            return lh_complain_usage(NULL, "there is no command %s", cli->args.words[0]);
    }
    if (command != NULL)
        lh_help_print_command(stdout, command);
    else
        lh_help_print(stdout);
    return LH_EXIT_DONE;
}

static enum lh_exit run(struct lh_cli *cli)
{
    const struct lh_command *command = cli->command;
    size_t words = cli->args.word_count;

    if (lh_args_has(&cli->args, "help"))
        return help(cli);
    if (lh_args_has(&cli->args, "version")) {
        printf("leasehold %s\n", LH_VERSION);
        return LH_EXIT_DONE;
    }
    if (cli->args.command == NULL) {
        lh_help_print(stderr);
        return LH_EXIT_USAGE;
    }
    if (command == NULL)
        return help(cli);
    if (words < (size_t)command->words_min)
        return lh_complain_usage(command, "%s needs more words: leasehold %s", command->name, command->usage[0]);
    if (command->words_max >= 0 && words > (size_t)command->words_max)
        return lh_complain_usage(command, "there is a word too many: %s", cli->args.words[command->words_max]);
    if (!lh_cli_configure(cli))
        return LH_EXIT_USAGE;
    return command->run(cli);
}

int main(int argc, char **argv)
{
    struct lh_cli cli = {0};
    struct lh_error error = {0};
    enum lh_exit status;
    bool is_understood;

    setlocale(LC_TIME, "");
    signal(SIGPIPE, SIG_IGN);       /* a write tells */
    lh_log_set_level(LH_LOG_ERROR); /* what matters to the user is said in sentences */

    is_understood = lh_args_parse(&cli.args, argc, argv, lh_global_options, options_of, &error);
    if (cli.args.command != NULL)
        cli.command = lh_command_find(cli.args.command);
    status = is_understood ? run(&cli) : refuse(&cli, &error);
    status = lh_flush(status);
    lh_args_finish(&cli.args);
    return (int)status;
}
