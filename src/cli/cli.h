/* One run of the program: the command, its arguments and where to send it. Handed to every command. */
#ifndef LH_CLI_CLI_H
#define LH_CLI_CLI_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/args.h"
#include "cli/command.h"
#include "leasehold.h"

enum lh_output {
    LH_OUTPUT_TEXT,
    LH_OUTPUT_JSON,
    LH_OUTPUT_ENV,
};

struct lh_cli {
    const struct lh_command *command;
    struct lh_args args;
    enum lh_output output;
    int64_t timeout_us;       /* for an answer, beyond any wait */
    const char *server;       /* never NULL; several are separated by commas */
    struct lh_client_tls tls; /* for lh_client_options.tls, of a command that uses a server */
    char *database;           /* NULL: none was named */
    bool uses_database;       /* of a command that can use either */
};

/* Read the global options and the environment; false: an error was printed. Hides the database's password from ps. */
bool lh_cli_configure(struct lh_cli *cli);
void lh_cli_finish(struct lh_cli *cli);

#endif
