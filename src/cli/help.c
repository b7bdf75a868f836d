#include "cli/help.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cli/command.h"
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

static const char lh_help_introduction[] =
    "leasehold acquires, renews and releases leases: exclusive, time-limited rights\n"
    "to a name, kept in PostgreSQL and coordinated by leaseholdd.\n";

static const char lh_help_words[] = "A namespace is written with dots: payments.invoices. A key is any text of up to\n"
                                    "1024 bytes. A duration is a number and a unit, such as 250ms, 30s, 5m or 1h30m;\n"
                                    "a number without a unit is seconds.\n";

static const char lh_help_exit_statuses[] = "\nExit status\n"
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
    fprintf(out,
            "\n`leasehold verify` loads daemons and judges what clients saw: it is\n"
            "leasehold-verify of the Python package.\n\n%s",
            lh_help_words);
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

/* --- the man page and the completions --- */

static const struct lh_option no_options[] = {{0}};

static const struct lh_option *own_options(const struct lh_command *command)
{
    return command->options != NULL ? command->options : no_options;
}

/* --- man(7) --- */

/* Text of one line or more; a line may not begin with a dot or a quote, a backslash begins an escape. */
static void print_roff(FILE *out, const char *text)
{
    bool is_at_start = true;

    for (; *text != '\0'; text++) {
        if (is_at_start && (*text == '.' || *text == '\''))
            fputs("\\&", out);
        if (*text == '\\')
            fputs("\\e", out);
        else if (*text == '-')
            fputs("\\-", out);
        else
            fputc(*text, out);
        is_at_start = *text == '\n';
    }
}

/* Paragraphs; lines that begin with a space keep their layout. */
static void print_roff_paragraphs(FILE *out, const char *text)
{
    bool is_verbatim = false;

    for (size_t size; *text != '\0'; text += size + (text[size] == '\n')) {
        char line[128] = "";
        size = strcspn(text, "\n");
        strncat(line, text, size < sizeof(line) ? size : sizeof(line) - 1);
        if ((line[0] == ' ') != is_verbatim)
            fputs(is_verbatim ? ".fi\n" : ".nf\n", out);
        is_verbatim = line[0] == ' ';
        if (size == 0)
            fputs(".PP", out);
        print_roff(out, line);
        fputc('\n', out);
    }
    if (is_verbatim)
        fputs(".fi\n", out);
}

static void print_roff_options(FILE *out, const struct lh_option *option)
{
    for (; option->name != NULL; option++) {
        fputs(".TP\n\\fB", out);
        if (option->letter != 0)
            fprintf(out, "\\-%c\\fR, \\fB", option->letter);
        fputs("\\-\\-", out);
        print_roff(out, option->name);
        fputs("\\fR", out);
        if (option->value != NULL)
            fprintf(out, "%s\\fI%s\\fR", lh_option_is_optional(option) ? "" : " ", option->value);
        fputc('\n', out);
        print_roff(out, option->help);
        fputc('\n', out);
    }
}

static void print_man(FILE *out)
{
    fprintf(out,
            ".TH LEASEHOLD 1 \"\" \"leasehold %s\"\n.SH NAME\nleasehold \\- acquire, renew and release leases\n"
            ".SH SYNOPSIS\n\\fBleasehold\\fR [\\fIOPTIONS\\fR] \\fICOMMAND\\fR [\\fIARGUMENTS\\fR] [\\fIOPTIONS\\fR]\n"
            ".SH DESCRIPTION\n",
            LH_VERSION);
    print_roff_paragraphs(out, lh_help_introduction);
    fputs(".PP\n", out);
    print_roff_paragraphs(out, lh_help_words);
    fputs(".SH OPTIONS OF EVERY COMMAND\n", out);
    print_roff_options(out, lh_global_options);
    fputs(".SH COMMANDS\n", out);
    for (size_t i = 0; lh_commands[i] != NULL; i++) {
        const struct lh_command *command = lh_commands[i];
        fprintf(out, ".SS %s: %s\n.nf\n", command->name, command->summary);
        for (size_t j = 0; command->usage[j] != NULL; j++) {
            fputs("leasehold ", out);
            print_roff(out, command->usage[j]);
            fputc('\n', out);
        }
        fputs(".fi\n.PP\n", out);
        print_roff_paragraphs(out, command->description);
        print_roff_options(out, own_options(command));
        fputs(".PP\nExamples:\n", out);
        print_roff_paragraphs(out, command->examples);
    }
    fputs(".SH EXIT STATUS\n", out);
    print_roff_paragraphs(out, lh_help_exit_statuses + strlen("\nExit status\n"));
    fputs(".SH ENVIRONMENT\n\\fBLEASEHOLD_SERVER\\fR, \\fBLEASEHOLD_DATABASE\\fR, \\fBLEASEHOLD_LEASE_KEY\\fR, "
          "\\fBLEASEHOLD_TLS\\fR, \\fBLEASEHOLD_CA\\fR, \\fBLEASEHOLD_CRL\\fR, \\fBLEASEHOLD_CERT\\fR, "
          "\\fBLEASEHOLD_KEY\\fR, "
          "\\fBLEASEHOLD_SERVER_NAME\\fR, \\fBLEASEHOLD_TOKEN_FILE\\fR: see above.\n"
          ".SH SEE ALSO\n\\fBleaseholdd\\fR(8)\n",
          out);
}

/* --- completions --- */

/* " --duration -d ..." */
static void print_names(FILE *out, const struct lh_command *command, const struct lh_option *option, bool with_value)
{
    for (; option->name != NULL; option++) {
        if ((command != NULL && !lh_command_takes(command, option)) ||
            (with_value && (option->value == NULL || lh_option_is_optional(option))))
            continue;
        fprintf(out, " --%s", option->name);
        if (option->letter != 0)
            fprintf(out, " -%c", option->letter);
    }
}

static void print_verbs(FILE *out, const struct lh_command *command)
{
    for (size_t i = 0; command->verbs != NULL && command->verbs[i].name != NULL; i++)
        fprintf(out, " %s", command->verbs[i].name);
}

static void print_bash(FILE *out)
{
    fputs("# bash completion for leasehold, made by: leasehold --generate bash\n"
          "_leasehold() {\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} last=${COMP_WORDS[COMP_CWORD-1]} command= words= i\n"
          "    local with_value=\"",
          out);
    print_names(out, NULL, lh_global_options, true);
    fputs(" \"\n"
          "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
          "        case ${COMP_WORDS[i]} in\n"
          "            -*) [[ $with_value == *\" ${COMP_WORDS[i]} \"* ]] && ((i++)) ;;\n"
          "            *) command=${COMP_WORDS[i]}; break ;;\n"
          "        esac\n"
          "    done\n"
          "    case $command in\n",
          out);
    for (size_t i = 0; lh_commands[i] != NULL; i++) {
        const struct lh_command *command = lh_commands[i];
        fprintf(out, "        %s) with_value+=\"", command->name);
        print_names(out, NULL, own_options(command), true);
        fputs(" \"; words=\"", out);
        print_verbs(out, command);
        print_names(out, NULL, own_options(command), false);
        print_names(out, command, lh_global_options, false);
        fputs("\" ;;\n", out);
    }
    fputs("        '') words=\"help", out);
    for (size_t i = 0; lh_commands[i] != NULL; i++)
        fprintf(out, " %s", lh_commands[i]->name);
    print_names(out, NULL, lh_global_options, false);
    fputs("\" ;;\n"
          "    esac\n"
          "    case $last in\n"
          "        -o | --output) COMPREPLY=($(compgen -W 'text json env' -- \"$word\")) ;;\n"
          "        --plugin) COMPREPLY=($(compgen -f -- \"$word\")) ;;\n"
          "        --) COMPREPLY=($(compgen -c -- \"$word\")) ;;\n"
          "        *) [[ $with_value == *\" $last \"* ]] || COMPREPLY=($(compgen -W \"$words\" -- \"$word\")) ;;\n"
          "    esac\n"
          "}\n"
          "complete -o default -F _leasehold leasehold\n",
          out);
}

/* In single quotes, where zsh's and fish's descriptions stand; brackets and colons mean something to _arguments. */
static void print_quoted(FILE *out, const char *text, const char *escaped)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            fputs("'\\''", out);
        else if (strchr(escaped, *text) != NULL)
            fprintf(out, "\\%c", *text);
        else
            fputc(*text, out);
    }
}

static void print_zsh_options(FILE *out, const struct lh_command *command, const struct lh_option *option)
{
    for (; option->name != NULL; option++) {
        if (!lh_command_takes(command, option))
            continue;
        for (int is_letter = 0; is_letter <= (option->letter != 0); is_letter++) {
            if (is_letter)
                fprintf(out, " \\\n                '*-%c[", option->letter);
            else
                fprintf(out, " \\\n                '*--%s%s[", option->name, lh_option_is_optional(option) ? "=-" : "");
            print_quoted(out, option->help, "[]:\\");
            fputc(']', out);
            if (lh_option_is_optional(option))
                fprintf(out, "::%.*s:", (int)strcspn(option->value + 2, "]"), option->value + 2);
            else if (option->value != NULL)
                fprintf(out, ":%s:%s", option->value,
                        strcmp(option->name, "output") == 0   ? "(text json env)"
                        : strcmp(option->name, "plugin") == 0 ? "_files"
                                                              : "");
            fputc('\'', out);
        }
    }
}

static void print_zsh(FILE *out)
{
    fputs("#compdef leasehold\n"
          "# zsh completion for leasehold, made by: leasehold --generate zsh\n"
          "_leasehold() {\n"
          "    local context state line\n"
          "    _arguments -C '1:command:->command' '*::argument:->argument'\n"
          "    case $state in\n"
          "        command)\n"
          "            local -a commands=(\n",
          out);
    for (size_t i = 0; lh_commands[i] != NULL; i++) {
        fprintf(out, "                '%s:", lh_commands[i]->name);
        print_quoted(out, lh_commands[i]->summary, ":\\");
        fputs("'\n", out);
    }
    fputs("            )\n"
          "            _describe command commands ;;\n"
          "        argument) case $words[1] in\n",
          out);
    for (size_t i = 0; lh_commands[i] != NULL; i++) {
        const struct lh_command *command = lh_commands[i];
        fprintf(out, "            %s) _arguments", command->name);
        print_zsh_options(out, command, own_options(command));
        print_zsh_options(out, command, lh_global_options);
        if (command->verbs != NULL) {
            fputs(" \\\n                '1:subcommand:(", out);
            print_verbs(out, command);
            fputs(")'", out);
        }
        fputs(" \\\n                '*:argument:_default' ;;\n", out);
    }
    fputs("        esac ;;\n"
          "    esac\n"
          "}\n"
          "_leasehold \"$@\"\n",
          out);
}

static void print_fish_options(FILE *out, const char *condition, const struct lh_option *option)
{
    for (; option->name != NULL; option++) {
        fprintf(out, "complete -c leasehold %s -l %s", condition, option->name);
        if (option->letter != 0)
            fprintf(out, " -s %c", option->letter);
        if (option->value != NULL && !lh_option_is_optional(option))
            fputs(strcmp(option->name, "output") == 0 ? " -x -a 'text json env'" : " -r", out);
        fputs(" -d '", out);
        print_quoted(out, option->help, "\\");
        fputs("'\n", out);
    }
}

static void print_fish(FILE *out)
{
    fputs("# fish completion for leasehold, made by: leasehold --generate fish\n"
          "complete -c leasehold -f\n",
          out);
    print_fish_options(out, "", lh_global_options);
    for (size_t i = 0; lh_commands[i] != NULL; i++) {
        const struct lh_command *command = lh_commands[i];
        char condition[96];

        fprintf(out, "complete -c leasehold -n __fish_use_subcommand -a %s -d '", command->name);
        print_quoted(out, command->summary, "\\");
        fputs("'\n", out);
        snprintf(condition, sizeof(condition), "-n '__fish_seen_subcommand_from %s'", command->name);
        if (command->verbs != NULL) {
            fprintf(out, "complete -c leasehold %s -a '", condition);
            print_verbs(out, command);
            fputs("'\n", out);
        }
        print_fish_options(out, condition, own_options(command));
    }
}

bool lh_generate(FILE *out, const char *format)
{
    static const struct {
        const char *format;
        void (*print)(FILE *out);
    } formats[] = {{"man", print_man}, {"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};

    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        if (strcmp(formats[i].format, format) == 0) {
            formats[i].print(out);
            return true;
        }
    }
    return false;
}
