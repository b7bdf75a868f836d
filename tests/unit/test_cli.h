#ifndef LH_TEST_CLI_H
#define LH_TEST_CLI_H

#include <check.h>

TCase *test_cli_args(void);
TCase *test_cli_bounds(void);
TCase *test_cli_print(void);
TCase *test_cli_json(void);
TCase *test_cli_run(void);

/* Reads a packed message of that name from stdin; an exit status. */
int print_message_as_json(const char *name);

#endif
