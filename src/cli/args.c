#include "cli/args.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define NAMES_MAX 64
#define NEAREST_MAX_BYTES 24

struct parser {
    struct lh_args *args;
    int argc;
    char **argv;
    int at; /* the next word to look at */
    const struct lh_option *global;
    const struct lh_option *own; /* of the command, once it is known */
    struct lh_error *error;
};

static const struct lh_option *find_long(const struct lh_option *options, const char *name, size_t size)
{
    for (; options != NULL && options->name != NULL; options++)
        if (strlen(options->name) == size && memcmp(options->name, name, size) == 0)
            return options;
    return NULL;
}

static const struct lh_option *find_letter(const struct lh_option *options, char letter)
{
    for (; options != NULL && options->name != NULL; options++)
        if (options->letter == letter)
            return options;
    return NULL;
}

static void add_given(struct lh_args *args, const struct lh_option *option, const char *value)
{
    args->given = lh_realloc(args->given, args->given_count + 1, sizeof(*args->given));
    args->given[args->given_count++] = (struct lh_given){option, value};
}

static void add_word(struct lh_args *args, const char *word)
{
    args->words = lh_realloc(args->words, args->word_count + 1, sizeof(*args->words));
    args->words[args->word_count++] = word;
}

static bool refuse_unknown(struct parser *parser, const char *name, size_t size)
{
    const char *names[NAMES_MAX + 1];
    char word[NEAREST_MAX_BYTES + 1] = "";
    const char *near = NULL;
    size_t count = 0;

    for (const struct lh_option *o = parser->own; o != NULL && o->name != NULL && count < NAMES_MAX; o++)
        names[count++] = o->name;
    for (const struct lh_option *o = parser->global; o->name != NULL && count < NAMES_MAX; o++)
        names[count++] = o->name;
    names[count] = NULL;
    if (size <= NEAREST_MAX_BYTES) {
        memcpy(word, name, size);
        near = lh_nearest(word, names);
    }
    if (near != NULL)
        lh_error_set(parser->error, LH_INVALID_ARGUMENT, "unknown option --%.*s; did you mean --%s?", (int)size, name,
                     near);
    else if (parser->args->command == NULL)
        lh_error_set(parser->error, LH_INVALID_ARGUMENT,
                     "unknown option --%.*s before the command; a command's own options go after it", (int)size, name);
    else
        lh_error_set(parser->error, LH_INVALID_ARGUMENT, "unknown option --%.*s", (int)size, name);
    return false;
}

/* Take `value`, or the next word where there is none. */
static bool take_option(struct parser *parser, const struct lh_option *option, const char *value)
{
    if (option->value == NULL && value != NULL) {
        lh_error_set(parser->error, LH_INVALID_ARGUMENT, "option --%s takes no value", option->name);
        return false;
    }
    if (option->value != NULL && value == NULL) {
        if (parser->at >= parser->argc) {
            lh_error_set(parser->error, LH_INVALID_ARGUMENT, "option --%s needs a value: --%s %s", option->name,
                         option->name, option->value);
            return false;
        }
        value = parser->argv[parser->at++];
    }
    add_given(parser->args, option, value);
    return true;
}

static bool on_long(struct parser *parser, const char *name)
{
    const char *equals = strchr(name, '=');
    size_t size = equals != NULL ? (size_t)(equals - name) : strlen(name);
    const struct lh_option *option = find_long(parser->own, name, size);

    if (option == NULL)
        option = find_long(parser->global, name, size);
    if (option == NULL)
        return refuse_unknown(parser, name, size);
    return take_option(parser, option, equals != NULL ? equals + 1 : NULL);
}

/* "-vh" are two switches, "-ojson" is an option with its value. */
static bool on_letters(struct parser *parser, const char *letters)
{
    for (; *letters != '\0'; letters++) {
        const struct lh_option *option = find_letter(parser->own, *letters);
        if (option == NULL)
            option = find_letter(parser->global, *letters);
        if (option == NULL) {
            lh_error_set(parser->error, LH_INVALID_ARGUMENT, "unknown option -%c", *letters);
            return false;
        }
        if (option->value != NULL)
            return take_option(parser, option, letters[1] != '\0' ? letters + 1 : NULL);
        add_given(parser->args, option, NULL);
    }
    return true;
}

static bool on_word(struct parser *parser, const char *word, lh_args_options_of *options_of)
{
    if (parser->args->command != NULL) {
        add_word(parser->args, word);
        return true;
    }
    parser->args->command = word;
    if (!options_of(word, &parser->own)) {
        lh_error_set(parser->error, LH_INVALID_ARGUMENT, "there is no command %s", word);
        return false;
    }
    return true;
}

bool lh_args_parse(struct lh_args *args, int argc, char **argv, const struct lh_option *global,
                   lh_args_options_of *options_of, struct lh_error *error)
{
    struct parser parser = {.args = args, .argc = argc, .argv = argv, .at = 1, .global = global, .error = error};
    bool is_past_options = false;

    *args = (struct lh_args){0};
    while (parser.at < argc) {
        const char *word = argv[parser.at++];
        bool is_understood;

        if (is_past_options || word[0] != '-' || word[1] == '\0') {
            is_understood = on_word(&parser, word, options_of);
        } else if (strcmp(word, "--") == 0) {
            is_past_options = true;
            continue;
        } else if (word[1] == '-') {
            is_understood = on_long(&parser, word + 2);
        } else {
            is_understood = on_letters(&parser, word + 1);
        }
        if (!is_understood)
            return false;
    }
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

const char *lh_args_value(const struct lh_args *args, const char *name)
{
    const char *value, *last = NULL;
    size_t at = 0;
    while ((value = lh_args_next_value(args, name, &at)) != NULL)
        last = value;
    return last;
}

bool lh_args_has(const struct lh_args *args, const char *name)
{
    for (size_t i = 0; i < args->given_count; i++)
        if (strcmp(args->given[i].option->name, name) == 0)
            return true;
    return false;
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
