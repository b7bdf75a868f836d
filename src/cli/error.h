/*
 * Errors as "leasehold: <sentence>" on stderr, with what to do next, and the exit status that goes with each.
 */
#ifndef LH_CLI_ERROR_H
#define LH_CLI_ERROR_H

#include <stdio.h>

#include "base/status.h"
#include "cli/cli.h"
#include "client/reply.h"

/* "leasehold: " and the sentence; control characters are escaped. Returns LH_EXIT_FAILED. */
enum lh_exit lh_error_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A wrong command line: the sentence, then where to look. LH_EXIT_USAGE. */
enum lh_exit lh_error_usage(const struct lh_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A value out of bounds, found before any call. */
enum lh_exit lh_error_value(const struct lh_cli *cli, const struct lh_error *error);

/* A field that the server refuses: its words, and where its bounds are set. LH_EXIT_USAGE. */
enum lh_exit lh_error_field(const struct lh_cli *cli, const char *field, const char *words);

/* A call that was not answered OK. */
enum lh_exit lh_error_reply(const struct lh_cli *cli, const struct lh_reply *reply);

/* A lease that its holder does not have (any more): why, as far as it is known, and what that means. */
void lh_error_lost(Leasehold__V1__EndReason reason, const char *message, const char *advice);

/* A statement that failed, or a database that could not be reached. */
enum lh_exit lh_error_database(const struct lh_cli *cli, const struct lh_error *error);
enum lh_exit lh_exit_of_status(enum lh_status status);

/* Finish with stdout: what could not be written there makes a success a failure. */
enum lh_exit lh_flush(enum lh_exit status);

#endif
