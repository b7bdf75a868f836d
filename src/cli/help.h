/* The help texts, the man page and the completions of shells, from the same tables that the parser reads. Nothing in the
   help is wider than 80 columns. */
#ifndef LH_CLI_HELP_H
#define LH_CLI_HELP_H

#include <stdbool.h>
#include <stdio.h>

#include "cli/command.h"

void lh_help_print(FILE *out);
void lh_help_print_command(FILE *out, const struct lh_command *command);

/* Writes the man page or the completions of a shell, as leasehold --generate man|bash|zsh|fish does. Returns false if there is no such format. */
bool lh_generate(FILE *out, const char *format);

#endif
