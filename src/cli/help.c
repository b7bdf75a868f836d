#include "cli/help.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cli/print.h"

#define WIDTH 79
#define OPTION_COLUMN 26

static void print_option(FILE *out, const struct lh_option *option)
{
    char letter[8] = "    ";
    char *text;
    size_t width;

    if (option->letter != '\0')
        snprintf(letter, sizeof(letter), "-%c, ", option->letter);
    text = lh_format("  %s--%s%s%s", letter, option->name,
                     option->value != NULL && !lh_option_is_optional(option) ? " " : "",
                     option->value != NULL ? option->value : "");
    width = strlen(text);
    fputs(text, out);
    free(text);
    if (width + 2 > OPTION_COLUMN)
        fprintf(out, "\n%*s", OPTION_COLUMN, "");
    else
        fprintf(out, "%*s", (int)(OPTION_COLUMN - width), "");
    lh_print_wrapped(out, option->help, OPTION_COLUMN, WIDTH);
}

/* `command` NULL: all of them. */
static void print_options(FILE *out, const char *title, const struct lh_option *options,
                          const struct lh_command *command)
{
    fprintf(out, "\n%s\n", title);
    for (; options->name != NULL; options++)
        if (command == NULL || lh_command_takes(command, options))
            print_option(out, options);
}

const char lh_help_introduction[] = "leasehold acquires, renews and releases leases: exclusive, time-limited rights\n"
                                    "to a name, kept in PostgreSQL and coordinated by leaseholdd.\n";

const char lh_help_words[] = "A namespace is written with dots: payments.invoices. A key is any text of up to\n"
                             "1024 bytes. A duration is a number and a unit, such as 250ms, 30s, 5m or 1h30m;\n"
                             "a number without a unit is seconds.\n";

const char lh_help_exit_statuses[] = "\nExit status\n"
                                     "  0  done\n"
                                     "  1  failed: frozen, vetoed, over quota, denied, or another error\n"
                                     "  2  wrong usage, or a value out of bounds\n"
                                     "  3  another holder has the lease, or the wait has timed out\n"
                                     "  4  the lease is lost, ended or not held\n"
                                     "  5  unavailable: no server, no database, or no answer in time\n";

void lh_help_print(FILE *out)
{
    char *with_database = lh_commands_with_database();

    fputs(lh_help_introduction, out);
    fputs("\nUsage\n"
          "  leasehold [OPTIONS] COMMAND [ARGUMENTS] [OPTIONS]\n"
          "  leasehold COMMAND --help\n"
          "\n"
          "Commands\n",
          out);
    for (size_t i = 0; lh_commands[i] != NULL; i++)
        fprintf(out, "  %-14s %s\n", lh_commands[i]->name, lh_commands[i]->summary);
    print_options(out, "Options of every command, before or after it", lh_global_options, NULL);
    fputs("\nCommands that work with --database\n  ", out);
    lh_print_wrapped(out, with_database, 2, WIDTH);
    fprintf(out, "\n%s", lh_help_words);
    fputs("\nExample: hold a lease during a piece of work\n"
          "  eval \"$(leasehold acquire payments invoice-42 --duration 60s -o env)\"\n"
          "  do-the-work --fencing-token \"$LEASEHOLD_TOKEN\"\n"
          "  leasehold release payments invoice-42 \"$LEASEHOLD_LEASE_KEY\"\n",
          out);
    fputs(lh_help_exit_statuses, out);
    free(with_database);
}

void lh_help_print_command(FILE *out, const struct lh_command *command)
{
    fprintf(out, "leasehold %s: %s\n\nUsage\n", command->name, command->summary);
    for (size_t i = 0; command->usage[i] != NULL; i++)
        fprintf(out, "  leasehold %s\n", command->usage[i]);
    fprintf(out, "\n%s", command->description);
    if (command->options != NULL)
        print_options(out, "Options", command->options, NULL);
    print_options(out, "Options of every command", lh_global_options, command);
    fprintf(out, "\nExamples\n%s", command->examples);
    fputs(lh_help_exit_statuses, out);
}
