/* The options of an acquire: parsed from the command line, and checked. */
#ifndef LH_CLI_ACQUIRE_OPTIONS_H
#define LH_CLI_ACQUIRE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/uuid.h"
#include "cli/args.h"
#include "cli/arguments.h"
#include "cli/cli.h"
#include "leasehold.h"

struct lh_cli_acquire {
    Leasehold__V1__Scope *scope;
    char lease_key[LH_UUID_TEXT_BYTES];
    bool is_own_key; /* made here: no other process knows the key */
    char owner[256];
    int64_t duration_us;
    struct lh_acquire_options options; /* owner, lease_key and labels borrow from this and from the arguments */
    const char *labels[LH_LABELS_MAX + 1];
    size_t label_count;
};

/* Rows of the options of a command, one for each of LH_ACQUIRE_NUMBERS. */
#define LH_CLI_ACQUIRE_NUMBERS                                                                                         \
    {                                                                                                                  \
        "priority", 0, "NUMBER",                                                                                       \
            "Go before waiters of a lower priority, as far as the policy's ageing says: 0 to its max_priority, or to " \
            "1000 with the right admin. Default: 0."                                                                   \
    }

/* Returns the name of the first of these options that was given, or NULL. */
const char *lh_cli_given_number(const struct lh_args *args);

/* Takes the options; `asked` is zero-initialised before. Leave it in place. Borrows from `cli`. LH_INVALID_ARGUMENT: `error`
   names the word. */
enum lh_status lh_cli_acquire_take(struct lh_cli_acquire *asked, struct lh_cli *cli, struct lh_error *error);

/* Moves the options that lh_acquire_all has for each scope to the scopes. */
void lh_cli_acquire_share_out(struct lh_acquire_options *options, struct lh_acquire_scope *scopes, size_t count);

#endif
