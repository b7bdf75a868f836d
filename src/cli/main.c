/*
 * leasehold: the command line. Parse the arguments, find the command, print its help or run it; what it returns is the
 * exit status.
 */
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/standard.h"
#include "cli/cli.h"
#include "cli/error.h"
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
    const char *names[32] = {NULL}, *near = NULL;

    for (size_t i = 0; lh_commands[i] != NULL && i < 31; i++)
        names[i] = lh_commands[i]->name;
    if (cli->args.command != NULL && cli->command == NULL)
        near = lh_nearest(cli->args.command, names);
    return lh_error_usage(cli->command, "%s%s%s%s", error->message, near != NULL ? "; did you mean " : "",
                          near != NULL ? near : "", near != NULL ? "?" : "");
}

/* "leasehold help", "leasehold help COMMAND", "leasehold COMMAND --help". */
static enum lh_exit help(const struct lh_cli *cli)
{
    const struct lh_command *command = cli->command;

    if (command == NULL && cli->args.word_count > 0) {
        command = lh_command_find(cli->args.words[0]);
        if (command == NULL)
            return lh_error_usage(NULL, "unknown command: %s", cli->args.words[0]);
    }
    if (command != NULL)
        lh_help_print_command(stdout, command);
    else
        lh_help_print(stdout);
    return LH_EXIT_DONE;
}

static bool is_option_of(const struct lh_verb *verb, const struct lh_option *option)
{
    size_t size = strlen(option->name);

    for (const char *at = verb->options; at != NULL && (at = strstr(at, option->name)) != NULL; at += size)
        if (at[-1] == ' ' && at[size] == ' ')
            return true;
    return false;
}

static enum lh_exit run_verb(struct lh_cli *cli, const struct lh_verb *verb)
{
    const struct lh_command *command = cli->command;
    size_t words = cli->args.word_count;

    for (const struct lh_verb *other = command->verbs; other->name != NULL; other++)
        for (const struct lh_option *option = command->options; other != verb && option != NULL && option->name;
             option++)
            if (is_option_of(other, option) && lh_args_has(&cli->args, option->name))
                return lh_error_usage(command, "--%s is for %s %s only", option->name, command->name, other->name);
    if (words < verb->least)
        return lh_error_usage(command, "missing argument; usage: leasehold %s %s %s", command->name, verb->name,
                              verb->usage);
    if (verb->most > 0 && words > verb->most)
        return lh_error_usage(command, "unexpected argument: %s", cli->args.words[verb->most]);
    return verb->run(cli);
}

static enum lh_exit run(struct lh_cli *cli)
{
    const struct lh_command *command = cli->command;
    size_t words = cli->args.word_count;
    const struct lh_verb *verb = NULL;
    struct lh_error error = {0};

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
        return lh_error_usage(command, "missing argument; usage: leasehold %.*s", (int)strcspn(command->usage[0], "\n"),
                              command->usage[0]);
    if (command->words_max >= 0 && words > (size_t)command->words_max)
        return lh_error_usage(command, "unexpected argument: %s", cli->args.words[command->words_max]);
    if (command->verbs != NULL && (verb = lh_command_verb(command, cli->args.words[0], &error)) == NULL)
        return lh_error_value(cli, &error);
    if (!lh_cli_configure(cli))
        return LH_EXIT_USAGE;
    return verb != NULL ? run_verb(cli, verb) : command->run(cli);
}

/* A program of the Python package, which loads daemons as its clients do. */
static enum lh_exit verify(char **argv)
{
    execvp("leasehold-verify", argv);
    return lh_error_usage(NULL,
                          "verify runs leasehold-verify, which is not in PATH: pip install leasehold-client brings it");
}

int main(int argc, char **argv)
{
    struct lh_cli cli = {0};
    struct lh_error error = {0};
    enum lh_exit status;
    bool is_understood;

    lh_standard_open();
    setlocale(LC_TIME, "");
    signal(SIGPIPE, SIG_IGN);                            /* a write tells */
    lh_log_set_level(LH_LOG_ERROR);                      /* what matters to the user is said in sentences */
    if (argc == 3 && strcmp(argv[1], "--generate") == 0) /* for the build: not an option in help */
        return (int)lh_flush(lh_generate(stdout, argv[2]) ? LH_EXIT_DONE : LH_EXIT_USAGE);

    if (argc > 1 && strcmp(argv[1], "verify") == 0)
        return (int)verify(argv + 1);
    is_understood = lh_args_parse(&cli.args, argc, argv, lh_global_options, options_of, &error);
    if (cli.args.command != NULL)
        cli.command = lh_command_find(cli.args.command);
    status = is_understood ? run(&cli) : refuse(&cli, &error);
    status = lh_flush(status);
    free(cli.database);
    lh_reply_finish(&cli.reply);
    lh_arena_finish(&cli.arena);
    lh_args_finish(&cli.args);
    return (int)status;
}
