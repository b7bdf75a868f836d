/*
 * What went wrong, as "leasehold: <sentence>" on stderr with what to do next, and the exit status that goes with it.
 */
#ifndef LH_CLI_COMPLAIN_H
#define LH_CLI_COMPLAIN_H

#include <stdio.h>

#include "base/status.h"
#include "cli/cli.h"
#include "client/reply.h"

/* "leasehold: " and the sentence; control characters are escaped. */
void lh_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A wrong command line: the sentence, then where to look. LH_EXIT_USAGE. */
enum lh_exit lh_complain_usage(const struct lh_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A value out of bounds, found before anybody was asked. */
enum lh_exit lh_complain_value(const struct lh_cli *cli, const struct lh_error *error);

/* A call that was not answered OK. */
enum lh_exit lh_complain_reply(const struct lh_cli *cli, const struct lh_reply *reply);

/* A lease that its holder does not have (any more): why, as far as it is known, and what that means. */
void lh_complain_lost(Leasehold__V1__EndReason reason, const char *message, const char *advice);

/* A statement that failed, or a database that could not be reached. */
enum lh_exit lh_complain_database(const struct lh_cli *cli, const struct lh_error *error);

/* The exit status of an error, without a word. */
enum lh_exit lh_exit_of_reply(const struct lh_reply *reply);
enum lh_exit lh_exit_of_status(enum lh_status status);

/* Finish with stdout: what could not be written there makes a success a failure. */
enum lh_exit lh_flush(enum lh_exit status);

#endif
