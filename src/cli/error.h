/*
 * Errors as "leasehold: <sentence>" on stderr, with advice, and the exit status that goes with each.
 */
#ifndef LH_CLI_ERROR_H
#define LH_CLI_ERROR_H

#include <stdio.h>

#include "base/status.h"
#include "cli/cli.h"
#include "client/reply.h"

/* Prints "leasehold: " and the sentence; control characters are escaped. Returns LH_EXIT_FAILED. */
enum lh_exit lh_error_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints that the command line is wrong: the sentence, then where to look. Returns LH_EXIT_USAGE. */
enum lh_exit lh_error_usage(const struct lh_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Prints that a value is out of bounds, found before any call. */
enum lh_exit lh_error_value(const struct lh_cli *cli, const struct lh_error *error);

/* Prints that the server refuses a field: its words, and where its bounds are set. Returns LH_EXIT_USAGE. */
enum lh_exit lh_error_field(const struct lh_cli *cli, const char *field, const char *words);

/* Prints the failure of a call. */
enum lh_exit lh_error_reply(const struct lh_cli *cli, const struct lh_reply *reply);

/* Prints that the lease is not held (any more): the reason as far as it is known, and its consequence. */
void lh_error_lost(Leasehold__V1__EndReason reason, const char *message, const char *advice);

/* Reports an item of a batch that was neither done nor lost. `undone` and `advice` are for one that may be repeated. */
void lh_error_outcome(enum lh_status status, const char *message, const char *undone, const char *advice);

/* Prints that a statement failed, or that a database could not be reached. */
enum lh_exit lh_error_database(const struct lh_cli *cli, const struct lh_error *error);
enum lh_exit lh_exit_of_status(enum lh_status status);

/* Finishes with stdout: an unwritten rest makes a success a failure. */
enum lh_exit lh_flush(enum lh_exit status);

#endif
