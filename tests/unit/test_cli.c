#include "test_cli.h"
#include "run_tests.h"

#include <stdlib.h>
#include <string.h>

/*
 * "test_cli json MESSAGE < packed" prints a message instead: tests/integration/test_cli.py holds it against the
 * mapping of stock Python.
 */

int main(int argc, char **argv)
{
    Suite *suite;

    if (argc == 3 && strcmp(argv[1], "json") == 0)
        return print_message_as_json(argv[2]);
    suite = suite_create("cli");
    suite_add_tcase(suite, test_cli_args());
    suite_add_tcase(suite, test_cli_bounds());
    suite_add_tcase(suite, test_cli_print());
    suite_add_tcase(suite, test_cli_json());
    suite_add_tcase(suite, test_cli_run());
    return run_tests(suite, CK_FORK_GETENV);
}
