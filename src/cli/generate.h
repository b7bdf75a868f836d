/* The man page and the completions of shells, from the tables of help: leasehold --generate man|bash|zsh|fish. */
#ifndef LH_CLI_GENERATE_H
#define LH_CLI_GENERATE_H

#include <stdbool.h>
#include <stdio.h>

/* Writes the text. Returns false if there is no such format. */
bool lh_generate(FILE *out, const char *format);

#endif
