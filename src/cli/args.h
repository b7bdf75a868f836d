/*
 * The command line, taken apart with getopt_long(3).
 *
 * Global options stand before or after the command, a command's own after it; "--" ends them, and is no value of one
 * unless it is joined to it. Long options may be abbreviated as far as they stay unique. An option given twice has its
 * last value, unless it says that it repeats.
 *
 *     if (!lh_args_parse(&args, argc, argv, global, options_of, &error))
 *         fprintf(stderr, "%s\n", error.message);
 *     const char *owner = lh_args_value(&args, "owner");
 */
#ifndef LH_CLI_ARGS_H
#define LH_CLI_ARGS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct lh_option {
    const char *name; /* without the dashes */
    char letter;      /* 0: none */
    /* Name of its value in the help; NULL: a switch, which takes none; "[=UNITS]": may be left out. */
    const char *value;
    const char *help; /* one sentence or two; help wraps it */
};

struct lh_args {
    const char *command; /* the first word that is no option; NULL: no command */
    const char **words;  /* the words after the command that are no options */
    size_t word_count;
    size_t plain_count; /* number of them before "--": all, without a "--" */
    struct lh_given {
        const struct lh_option *option;
        const char *value; /* NULL: no value was given */
    } * given;
    size_t given_count;
};

/* Returns the options of a command, ending in a row without name; false: there is no such command. */
typedef bool lh_args_options_of(const char *command, const struct lh_option **options);

/* Parses the command line; returns false, with `error`, at a mistake. `args` borrows from argv and from the tables;
   it must be finished in any case, and holds the words understood so far. */
bool lh_args_parse(struct lh_args *args, int argc, char **argv, const struct lh_option *global,
                   lh_args_options_of *options_of, struct lh_error *error);
void lh_args_finish(struct lh_args *args);

/* Returns true for an option whose value stands after "=" or not at all: --shared, --shared=2. */
bool lh_option_is_optional(const struct lh_option *option);

bool lh_args_has(const struct lh_args *args, const char *name);

/* Returns the last value given, or NULL: also if the last one had none. */
const char *lh_args_value(const struct lh_args *args, const char *name);

/* Returns all values given, one a call, in order: start with *at = 0; NULL at the end. */
const char *lh_args_next_value(const struct lh_args *args, const char *name, size_t *at);

/* Returns the entry of `names` (ending in NULL) that `word` was most likely meant to be, or NULL when none is near. */
const char *lh_nearest(const char *word, const char *const *names);

/* Finds a word among `words` (ending in NULL). LH_INVALID_ARGUMENT: `error` lists them; `kind` is as in "right: ". */
enum lh_status lh_check_word(const char *kind, const char *word, const char *const *words, size_t *index,
                             struct lh_error *error);

#endif
