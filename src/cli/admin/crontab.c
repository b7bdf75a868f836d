/*
 * schedule import: the entries of a crontab as schedules, each with the line of its worker.
 *
 * A crontab of a user has five fields and a command, one of the system a user before the command: /etc/crontab and files
 * of /etc/cron.d are those, others with --system. NAME=value is the environment of the entries behind it; CRON_TZ is their
 * time zone. A % in a command begins its standard input, and stands for a newline there (crontab(5)).
 *
 * A schedule's name is the last part of the command's path, as in cron.backup; where that is taken, with a number behind
 * it.
 */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bounds.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/admin/admin_internal.h"
#include "cli/arguments.h"
#include "cli/error.h"
#include "cli/print.h"

#define ENTRIES_MAX 1000
#define STEM_MAX_BYTES 48

struct import {
    struct lh_cli *cli;
    const char *below;
    bool is_system;    /* entries name a user */
    char *time_zone;   /* of CRON_TZ, of --time-zone, or the machine's; NULL: not known */
    char *environment; /* "A='1' B='2' ": assignments in front of a command */
    char *names[ENTRIES_MAX];
    size_t count;
    size_t refused;
    enum lh_exit status;
};

/* --- words --- */

static char *skip_blanks(char *text)
{
    return text + strspn(text, " \t");
}

/* Cuts the next word off, or NULL at the end. */
static char *next_word(char **rest)
{
    char *word = skip_blanks(*rest), *end = word + strcspn(word, " \t");

    if (*word == '\0')
        return NULL;
    *rest = *end == '\0' ? end : end + 1;
    *end = '\0';
    return word;
}

static void refuse(struct import *import, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void refuse(struct import *import, int line, const char *format, ...)
{
    va_list arguments;
    char *words;

    va_start(arguments, format);
    if (vasprintf(&words, format, arguments) < 0)
        abort();
    va_end(arguments);
    fflush(stdout);
    lh_error_print("line %d: %s", line, words);
    free(words);
    import->refused++;
}

/* --- assignments --- */

/* True: the line is NAME=value, with blanks around and quotes as cron takes them. */
static bool take_assignment(struct import *import, char *line)
{
    size_t name_size = strspn(line, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
    char *equals = skip_blanks(line + name_size), *value, *quoted, *longer;
    size_t size;

    if (name_size == 0 || isdigit((unsigned char)line[0]) || *equals != '=')
        return false;
    value = skip_blanks(equals + 1);
    size = strlen(value);
    if (size > 1 && (value[0] == '"' || value[0] == '\'') && value[size - 1] == value[0]) {
        value[size - 1] = '\0';
        value++;
    }
    line[name_size] = '\0';
    if (strcmp(line, "CRON_TZ") == 0) {
        free(import->time_zone);
        import->time_zone = lh_strdup(value);
    }
    if (strcmp(line, "CRON_TZ") == 0 || strcmp(line, "MAILTO") == 0 || strcmp(line, "MAILFROM") == 0 ||
        strcmp(line, "RANDOM_DELAY") == 0)
        return true;
    quoted = lh_shell_quote(value);
    longer = lh_format("%s%s=%s ", import->environment, line, quoted);
    free(quoted);
    free(import->environment);
    import->environment = longer;
    return true;
}

/* --- entries --- */

/* "@daily" or five fields, as one string; NULL: the line has no more. A new string. */
static char *take_expression(char **rest)
{
    char *expression = NULL;

    *rest = skip_blanks(*rest);
    for (int i = 0; i < (**rest == '@' && i == 0 ? 1 : 5); i++) {
        char *word = next_word(rest), *longer;
        if (word == NULL) {
            free(expression);
            return NULL;
        }
        longer = expression == NULL ? lh_strdup(word) : lh_format("%s %s", expression, word);
        free(expression);
        expression = longer;
        if (expression[0] == '@')
            break;
    }
    return expression;
}

/* The part of a command by which people know it: of "/usr/bin/flock -n x /opt/backup.sh --all" that is "flock". */
static void stem_of(const char *command, char stem[STEM_MAX_BYTES])
{
    size_t size = strcspn(command, " \t;&|<>(%"), used = 0;
    const char *begin = command + size;

    while (begin > command && begin[-1] != '/')
        begin--;
    for (; begin < command + size && *begin != '.' && used + 1 < STEM_MAX_BYTES; begin++)
        if (isalnum((unsigned char)*begin) || *begin == '-' || *begin == '_')
            stem[used++] = (char)tolower((unsigned char)*begin);
    if (used == 0)
        used = (size_t)snprintf(stem, STEM_MAX_BYTES, "entry");
    stem[used] = '\0';
}

static bool is_taken(const struct import *import, const char *name)
{
    for (size_t i = 0; i < import->count; i++)
        if (strcmp(import->names[i], name) == 0)
            return true;
    return false;
}

static const char *name_entry(struct import *import, const char *command)
{
    char stem[STEM_MAX_BYTES];
    char *name;

    stem_of(command, stem);
    name = lh_format("%s.%s", import->below, stem);
    for (int i = 2; is_taken(import, name); i++) {
        free(name);
        name = lh_format("%s.%s-%d", import->below, stem, i);
    }
    return import->names[import->count++] = name;
}

/* The command and its standard input: an unescaped % ends the one, each further one is a newline. Two new strings; *input
   NULL: none. */
static char *split_input(const char *command, char **input)
{
    struct lh_buffer parts[2] = {{0}, {0}};
    int part = 0;

    for (; *command != '\0'; command++) {
        if (*command == '\\' && command[1] == '%')
            lh_buffer_append(&parts[part], ++command, 1);
        else if (*command != '%')
            lh_buffer_append(&parts[part], command, 1);
        else if (part++ > 0)
            lh_buffer_append(&parts[part = 1], "\n", 1);
    }
    for (int i = 0; i < 2; i++)
        lh_buffer_append(&parts[i], "", 1);
    *input = NULL;
    if (part > 0)
        *input = (char *)parts[1].data;
    else
        lh_buffer_finish(&parts[1]);
    return (char *)parts[0].data;
}

static void print_worker(const struct import *import, const char *name, const char *user, const char *command)
{
    char *input, *own = split_input(command, &input), *line, *quoted, *fed;

    line = lh_format("%s%s", import->environment, own);
    if (input != NULL) {
        char *text = lh_shell_quote(input);
        fed = lh_format("printf '%%s\\n' %s | { %s; }", text, line);
        free(text);
        free(line);
        line = fed;
    }
    quoted = lh_shell_quote(line);
    printf("  leasehold run --schedule %s -c %s%s%s\n", name, quoted, user != NULL ? "   # as " : "",
           user != NULL ? user : "");
    free(quoted);
    free(line);
    free(own);
    free(input);
}

/* Returns false where the server refused it. */
static bool set_entry(struct import *import, int line, const char *name, const char *expression)
{
    const char *zone = import->time_zone;
    enum lh_exit status;

    if (!lh_args_has(&import->cli->args, "apply")) {
        char *quoted = lh_shell_quote(expression);
        printf("leasehold schedule add %s %s%s%s\n", name, quoted, zone != NULL ? " --time-zone " : "",
               zone != NULL ? zone : "");
        free(quoted);
        return true;
    }
    status = lh_schedule_set(import->cli, name, expression, zone);
    if (status == LH_EXIT_DONE)
        return true;
    refuse(import, line, "was not set: see above");
    import->status = status;
    return false;
}

static void take_entry(struct import *import, int line, char *rest)
{
    char *expression = take_expression(&rest), *user = NULL;
    const char *name;

    if (expression == NULL) {
        refuse(import, line, "is neither an entry of five fields and a command nor NAME=value");
    } else if (strcmp(expression, "@reboot") == 0) {
        refuse(import, line, "@reboot is about one machine: leave it to that machine's init, such as a systemd unit");
    } else if (import->is_system && (user = next_word(&rest)) == NULL) {
        refuse(import, line, "has no user; is it the crontab of a user? Then leave out --system");
    } else if (*(rest = skip_blanks(rest)) == '\0') {
        refuse(import, line, "has no command");
    } else if (import->count == ENTRIES_MAX) {
        refuse(import, line, "is one too many: at most %d entries are imported", ENTRIES_MAX);
    } else {
        name = name_entry(import, rest);
        if (set_entry(import, line, name, expression))
            print_worker(import, name, user, rest);
    }
    free(expression);
}

static void take_line(struct import *import, int number, char *line)
{
    size_t size = strlen(line);

    while (size > 0 && isspace((unsigned char)line[size - 1]))
        line[--size] = '\0';
    line = skip_blanks(line);
    if (*line == '\0' || *line == '#')
        return;
    if (!lh_utf8_is_valid(line, strlen(line)))
        refuse(import, number, "is not UTF-8");
    else if (!take_assignment(import, line))
        take_entry(import, number, line);
}

/* --- the command --- */

/* TZ, or where /etc/localtime leads: the zone in which cron(8) reads a crontab here. A new string; NULL: not known. */
static char *local_zone(void)
{
    const char *variable = getenv("TZ"), *zone;
    char path[256];
    ssize_t size;

    if (variable != NULL && variable[0] != '\0')
        return lh_strdup(variable[0] == ':' ? variable + 1 : variable);
    size = readlink("/etc/localtime", path, sizeof(path) - 1);
    if (size < 0)
        return NULL;
    path[size] = '\0';
    zone = strstr(path, "zoneinfo/");
    return zone != NULL ? lh_strdup(zone + strlen("zoneinfo/")) : NULL;
}

static bool is_of_system(const char *path)
{
    return strcmp(path, "/etc/crontab") == 0 || strncmp(path, "/etc/cron.d/", 12) == 0;
}

static void read_lines(struct import *import, FILE *file)
{
    char *line = NULL;
    size_t room = 0;
    int number = 0;
    ssize_t size;

    while ((size = getline(&line, &room, file)) >= 0) {
        number++;
        if (strlen(line) != (size_t)size)
            refuse(import, number, "has a NUL character");
        else
            take_line(import, number, line);
    }
    free(line);
}

enum lh_exit lh_schedule_import(struct lh_cli *cli)
{
    const char *path = cli->args.words[1], *below = lh_args_value(&cli->args, "below");
    struct import *import;
    struct lh_error error = {0};
    enum lh_exit status;
    FILE *file;

    if (below != NULL && lh_check_namespace(below, &error) != LH_OK)
        return lh_error_value(cli, &error);
    file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    if (file == NULL)
        return lh_error_print("cannot read %s: %s", path, strerror(errno));
    import = lh_alloc_zero(1, sizeof(*import));
    import->cli = cli;
    import->below = below != NULL ? below : "cron";
    import->is_system = lh_args_has(&cli->args, "system") || is_of_system(path);
    import->environment = lh_strdup("");
    import->time_zone =
        lh_args_has(&cli->args, "time-zone") ? lh_strdup(lh_args_value(&cli->args, "time-zone")) : local_zone();
    read_lines(import, file);
    if (ferror(file)) {
        lh_error_print("cannot read %s: %s", path, strerror(errno));
        import->status = LH_EXIT_FAILED;
    }
    if (file != stdin)
        fclose(file);
    status = import->status != LH_EXIT_DONE ? import->status : import->refused > 0 ? LH_EXIT_FAILED : LH_EXIT_DONE;
    for (size_t i = 0; i < import->count; i++)
        free(import->names[i]);
    free(import->time_zone);
    free(import->environment);
    free(import);
    return status;
}
