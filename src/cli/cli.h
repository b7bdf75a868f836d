/* One run of the program: the command, its arguments and its server or database. Handed to every command. */
#ifndef LH_CLI_CLI_H
#define LH_CLI_CLI_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"
#include "cli/args.h"
#include "cli/command.h"
#include "client/reply.h"
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
    int64_t timeout_us; /* limit of an answer, beyond any wait */
    const char *server; /* never NULL; several are separated by commas */
    /* lh_client_options.tls, for a command that uses a server. */
    struct lh_client_tls tls;
    char *database; /* NULL: none was named */
    /* The database answers, for a command that can use either. */
    bool uses_database;
    struct lh_arena arena; /* memory that lives as long as the run */
    /* The last answer of lh_ask, and whether that was one. */
    struct lh_reply reply;
    enum lh_exit status;
};

/* Reads the global options and the environment. Returns false if an error was printed. Hides the database's password
   from ps. */
bool lh_cli_configure(struct lh_cli *cli);

#endif
