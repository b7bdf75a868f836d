#include "cli/args.h"

#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define OPTIONS_MAX 64 /* of a command and the global ones, synonyms included */
#define NEAREST_MAX_BYTES 24
#define PLAIN_WORD 1    /* getopt_long's answer for a word that is no option, where the letters begin with '-' */
#define LONG_OPTION 256 /* its answer is this + the option's place, or a letter */

/* One call's worth of options, as getopt_long wants them. */
struct table {
    const struct lh_option *options[OPTIONS_MAX];
    struct option names[OPTIONS_MAX + 1];
    char letters[3 * OPTIONS_MAX + 3];
    size_t count;
};

bool lh_option_is_optional(const struct lh_option *option)
{
    return option->value != NULL && option->value[0] == '[';
}

/* no_argument ... of getopt_long: 0, 1 or 2 */
static int argument_of(const struct lh_option *option)
{
    if (option->value == NULL)
        return no_argument;
    return lh_option_is_optional(option) ? optional_argument : required_argument;
}

static void add_options(struct table *table, const struct lh_option *options)
{
    for (; options != NULL && options->name != NULL && table->count < OPTIONS_MAX; options++) {
        static const char *const colons[] = {"", ":", "::"};
        int argument = argument_of(options);
        table->names[table->count] = (struct option){options->name, argument, NULL, LONG_OPTION + (int)table->count};
        table->options[table->count++] = options;
        if (options->letter != 0) {
            strncat(table->letters, &options->letter, 1);
            strcat(table->letters, colons[argument]);
        }
    }
}

static const struct lh_option *find(const struct table *table, int answer)
{
    if (answer >= LONG_OPTION)
        return table->options[answer - LONG_OPTION];
    for (size_t i = 0; i < table->count; i++)
        if (table->options[i]->letter == answer && answer != 0)
            return table->options[i];
    return NULL;
}

/* Names that people try, and what they mean by them: suggested, never accepted. */
static const char *const synonyms[][2] = {{"length", "duration"}, {"ttl", "duration"}, {"lease-time", "duration"},
                                          {"host", "server"},     {"dsn", "database"}, {"format", "output"},
                                          {"name", "owner"},      {"error", "fail"},   {"recursive", "children"},
                                          {"units", "shared"}};

static const char *nearest_option(const struct table *table, const char *word)
{
    const char *names[OPTIONS_MAX + 1] = {NULL}, *meant[OPTIONS_MAX + 1], *near;
    size_t count = 0;

    for (size_t i = 0; i < table->count; i++) {
        meant[count] = names[count] = table->options[i]->name;
        count++;
        for (size_t j = 0; j < sizeof(synonyms) / sizeof(synonyms[0]) && count < OPTIONS_MAX; j++)
            if (strcmp(synonyms[j][1], table->options[i]->name) == 0) {
                names[count] = synonyms[j][0];
                meant[count++] = synonyms[j][1];
            }
    }
    near = lh_nearest(word, names);
    for (size_t i = 0; near != NULL && i < count; i++)
        if (names[i] == near)
            return meant[i];
    return NULL;
}

static bool is_ambiguous(const struct table *table, const char *name)
{
    size_t matches = 0;
    for (size_t i = 0; i < table->count; i++)
        matches += strncmp(table->options[i]->name, name, strlen(name)) == 0;
    return matches > 1;
}

/* What getopt_long answered with '?' or ':'; `word` is the one it stopped at. */
static void refuse(const struct table *table, int answer, const char *word, bool has_command, struct lh_error *error)
{
    const struct lh_option *option = find(table, optopt);
    const char *near;
    char name[NEAREST_MAX_BYTES * 4];

    if (answer == ':' && option != NULL) {
        lh_error_set(error, LH_INVALID_ARGUMENT, "option --%s needs a value: --%s %s", option->name, option->name,
                     option->value);
    } else if (option != NULL) {
        lh_error_set(error, LH_INVALID_ARGUMENT, "option --%s takes no value", option->name);
    } else if (optopt != 0) {
        lh_error_set(error, LH_INVALID_ARGUMENT, "unknown option -%c", optopt);
    } else {
        snprintf(name, sizeof(name), "%s", word + 2);
        name[strcspn(name, "=")] = '\0';
        near = nearest_option(table, name);
        if (is_ambiguous(table, name))
            lh_error_set(error, LH_INVALID_ARGUMENT, "option --%s is ambiguous", name);
        else if (near != NULL)
            lh_error_set(error, LH_INVALID_ARGUMENT, "unknown option --%s; did you mean --%s?", name, near);
        else
            lh_error_set(error, LH_INVALID_ARGUMENT, "unknown option --%s%s", name,
                         has_command ? "" : " before the command; a command's own options go after it");
    }
}

/* "--exec -- rm": the value was forgotten. */
static bool is_value_forgotten(const struct lh_option *option, const char *last)
{
    return option->value != NULL && optarg == last && strcmp(last, "--") == 0;
}

/* False: refused. Leaves optind behind the options, and behind "--". */
static bool take_options(struct lh_args *args, struct table *table, int argc, char **argv, struct lh_error *error)
{
    int answer;

    opterr = 0;
    optind = 0; /* begin anew (glibc) */
    while ((answer = getopt_long(argc, argv, table->letters, table->names, NULL)) != -1) {
        const struct lh_option *option;
        if (answer == PLAIN_WORD) {
            args->words[args->word_count++] = optarg;
            continue;
        }
        option = find(table, answer);
        if (option == NULL || is_value_forgotten(option, argv[optind - 1])) {
            if (option != NULL)
                optopt = answer;
            refuse(table, option != NULL ? ':' : answer, argv[optind - 1], args->command != NULL, error);
            return false;
        }
        args->given = lh_realloc(args->given, args->given_count + 1, sizeof(*args->given));
        args->given[args->given_count++] = (struct lh_given){option, option->value != NULL ? optarg : NULL};
    }
    return true;
}

bool lh_args_parse(struct lh_args *args, int argc, char **argv, const struct lh_option *global,
                   lh_args_options_of *options_of, struct lh_error *error)
{
    struct table before = {.letters = "+:"}, after = {.letters = "-:"};
    const struct lh_option *own;

    *args = (struct lh_args){0};
    add_options(&before, global);
    if (!take_options(args, &before, argc, argv, error))
        return false;
    if (optind >= argc)
        return true;
    argc -= optind;
    argv += optind;
    args->command = argv[0];
    if (!options_of(args->command, &own)) {
        lh_error_set(error, LH_INVALID_ARGUMENT, "unknown command: %s", args->command);
        return false;
    }
    add_options(&after, own);
    add_options(&after, global);
    args->words = lh_alloc_zero((size_t)argc, sizeof(*args->words));
    if (!take_options(args, &after, argc, argv, error))
        return false;
    args->plain_count = args->word_count;
    while (optind < argc)
        args->words[args->word_count++] = argv[optind++];
    return true;
}

void lh_args_finish(struct lh_args *args)
{
    free(args->words);
    free(args->given);
    *args = (struct lh_args){0};
}

const char *lh_args_next_value(const struct lh_args *args, const char *name, size_t *at)
{
    while (*at < args->given_count) {
        const struct lh_given *given = &args->given[(*at)++];
        if (strcmp(given->option->name, name) == 0)
            return given->value;
    }
    return NULL;
}

static const struct lh_given *last_given(const struct lh_args *args, const char *name)
{
    for (size_t i = args->given_count; i > 0; i--)
        if (strcmp(args->given[i - 1].option->name, name) == 0)
            return &args->given[i - 1];
    return NULL;
}

const char *lh_args_value(const struct lh_args *args, const char *name)
{
    const struct lh_given *given = last_given(args, name);
    return given != NULL ? given->value : NULL;
}

bool lh_args_has(const struct lh_args *args, const char *name)
{
    return last_given(args, name) != NULL;
}

/* The least number of characters to insert, delete or replace to make one of the other (Levenshtein). */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[NEAREST_MAX_BYTES + 1];
    size_t a_size = strlen(a), b_size = strlen(b);

    if (a_size > NEAREST_MAX_BYTES || b_size > NEAREST_MAX_BYTES)
        return SIZE_MAX;
    for (size_t j = 0; j <= b_size; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_size; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_size; j++) {
            size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
            if (replaced < row[j])
                row[j] = replaced;
        }
    }
    return row[b_size];
}

enum lh_status lh_check_word(const char *kind, const char *word, const char *const *words, size_t *index,
                             struct lh_error *error)
{
    const char *near = lh_nearest(word, words);
    char list[128] = "";

    for (*index = 0; words[*index] != NULL; (*index)++) {
        const char *before = *index == 0 ? "" : words[*index + 1] == NULL ? " or " : ", ";
        size_t size = strlen(list);
        if (strcmp(words[*index], word) == 0)
            return LH_OK;
        snprintf(list + size, sizeof(list) - size, "%s%s", before, words[*index]);
    }
    return lh_error_set(error, LH_INVALID_ARGUMENT, "unknown %s%s; use %s%s%s%s", kind, word, list,
                        near != NULL ? "; did you mean " : "", near != NULL ? near : "", near != NULL ? "?" : "");
}

const char *lh_nearest(const char *word, const char *const *names)
{
    const char *nearest = NULL;
    size_t least = strlen(word) / 3 + 2; /* further off it is another word, not a slip */

    for (; *names != NULL; names++) {
        size_t distance = edit_distance(word, *names);
        if (distance < least) {
            least = distance;
            nearest = *names;
        }
    }
    return nearest;
}
