/* The end of a test program's main. */
#ifndef LH_TEST_RUN_TESTS_H
#define LH_TEST_RUN_TESTS_H

#include <check.h>
#include <stdlib.h>

/* `how`: CK_FORK_GETENV, or CK_NOFORK where all tests share what one process has. Returns main's status. */
static inline int run_tests(Suite *suite, enum fork_status how)
{
    SRunner *runner = srunner_create(suite);
    int failed;

    srunner_set_fork_status(runner, how);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
