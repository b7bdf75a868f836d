#include "test_cli.h"

#include <stdlib.h>
#include <string.h>

/*
 * "test_cli json MESSAGE < packed" prints a message instead: tests/integration/test_cli.py holds it against the
 * mapping of stock Python.
 */

int main(int argc, char **argv)
{
    SRunner *runner;
    Suite *suite;
    int failed;

    if (argc == 3 && strcmp(argv[1], "json") == 0)
        return print_message_as_json(argv[2]);
    suite = suite_create("cli");
    suite_add_tcase(suite, test_cli_args());
    suite_add_tcase(suite, test_cli_bounds());
    suite_add_tcase(suite, test_cli_print());
    suite_add_tcase(suite, test_cli_json());
    suite_add_tcase(suite, test_cli_run());
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
