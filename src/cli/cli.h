/* One run of the program: what was asked for, and where it is to be asked. Handed to every command. */
#ifndef LH_CLI_CLI_H
#define LH_CLI_CLI_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/args.h"
#include "cli/command.h"

enum lh_output {
    LH_OUTPUT_TEXT,
    LH_OUTPUT_JSON,
    LH_OUTPUT_ENV,
};

struct lh_cli {
    const struct lh_command *command;
    struct lh_args args;
    enum lh_output output;
    int64_t timeout_us;   /* for an answer, beyond any wait */
    const char *server;   /* never NULL */
    const char *database; /* NULL: none was named */
    bool uses_database;   /* of a command that could use either: it was told the database */
};

/* Understand the global options and the environment; false: already complained about. */
bool lh_cli_configure(struct lh_cli *cli);

#endif
