/* The help texts, from the same tables that the parser reads. Nothing in them is wider than 80 columns. */
#ifndef LH_CLI_HELP_H
#define LH_CLI_HELP_H

#include <stdio.h>

#include "cli/command.h"

/* Parts of the help that the man page has too. */
extern const char lh_help_introduction[];
extern const char lh_help_words[];
extern const char lh_help_exit_statuses[];

void lh_help_print(FILE *out);
void lh_help_print_command(FILE *out, const struct lh_command *command);

#endif
