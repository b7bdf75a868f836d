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
    text = lh_format("  %s--%s%s%s", letter, option->name, option->value != NULL ? " " : "",
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

static void print_options(FILE *out, const char *title, const struct lh_option *options)
{
    fprintf(out, "\n%s\n", title);
    for (; options->name != NULL; options++)
        print_option(out, options);
}

/* Paragraphs are wrapped; lines that begin with a space, and empty ones, are left as they are. */
static void print_description(FILE *out, const char *text)
{
    struct lh_buffer paragraph = {0};

    while (*text != '\0') {
        size_t size = strcspn(text, "\n");
        if (text[0] == ' ' || size == 0) {
            fprintf(out, "%.*s\n", (int)size, text);
        } else {
            lh_buffer_append(&paragraph, text, size);
            lh_buffer_append(&paragraph, " ", 1);
        }
        text += size + (text[size] == '\n');
        if (paragraph.size > 0 && (*text == '\0' || *text == '\n' || *text == ' ')) {
            lh_buffer_append(&paragraph, "", 1);
            lh_print_wrapped(out, (const char *)paragraph.data, 0, WIDTH);
            paragraph.size = 0;
        }
    }
    lh_buffer_finish(&paragraph);
}

static const char exit_statuses[] = "\nExit status\n"
                                    "  0  done\n"
                                    "  1  failed: frozen, vetoed, over quota, denied, or an error on the way\n"
                                    "  2  wrong usage, or a value out of bounds\n"
                                    "  3  somebody else holds it, or the wait has passed\n"
                                    "  4  lost, ended, or not held\n"
                                    "  5  unavailable: no server, no database, or no answer in time\n";

void lh_help_print(FILE *out)
{
    fputs("leasehold takes, renews and gives back leases: exclusive, time-limited rights to\n"
          "a name, kept in PostgreSQL and coordinated by leaseholdd.\n"
          "\n"
          "Usage\n"
          "  leasehold [OPTIONS] COMMAND [WORDS] [OPTIONS]\n"
          "  leasehold COMMAND --help\n"
          "\n"
          "Commands\n",
          out);
    for (size_t i = 0; lh_commands[i] != NULL; i++)
        fprintf(out, "  %-14s %s\n", lh_commands[i]->name, lh_commands[i]->summary);
    print_options(out, "Options of every command, before or after it", lh_global_options);
    fputs("\nA namespace is written with dots: payments.invoices. A key is any text of up to\n"
          "1024 bytes. A duration is a number and a unit, such as 250ms, 30s, 5m or 1h30m.\n"
          "\nExample: hold a lease around a piece of work\n"
          "  eval \"$(leasehold acquire payments invoice-42 --duration 60s -o env)\"\n"
          "  do-the-work --fencing-token \"$LEASEHOLD_TOKEN\"\n"
          "  leasehold release payments invoice-42 \"$LEASEHOLD_LEASE_KEY\"\n",
          out);
    fputs(exit_statuses, out);
}

void lh_help_print_command(FILE *out, const struct lh_command *command)
{
    fprintf(out, "leasehold %s: %s\n\nUsage\n", command->name, command->summary);
    for (size_t i = 0; command->usage[i] != NULL; i++)
        fprintf(out, "  leasehold %s\n", command->usage[i]);
    fputc('\n', out);
    print_description(out, command->description);
    if (command->options != NULL)
        print_options(out, "Options", command->options);
    print_options(out, "Options of every command", lh_global_options);
    fprintf(out, "\nExamples\n%s", command->examples);
    fputs(exit_statuses, out);
}
