/* The client against a coordinator of the test's own: answers that are lost, late, or not what was hoped for. */
#include "test_client.h"
#include "run_tests.h"

#include <stdlib.h>

int main(void)
{
    Suite *suite = suite_create("client");

    suite_add_tcase(suite, tcase_client_header());
    suite_add_tcase(suite, tcase_client_leases());
    suite_add_tcase(suite, tcase_client_renewals());
    suite_add_tcase(suite, tcase_client_releases());
    suite_add_tcase(suite, tcase_client_shared());
    suite_add_tcase(suite, tcase_client_all());
    suite_add_tcase(suite, tcase_client_hand_over());
    suite_add_tcase(suite, tcase_client_retry());
    suite_add_tcase(suite, tcase_client_hostile());
    suite_add_tcase(suite, tcase_client_blocking());
    return run_tests(suite, CK_FORK_GETENV);
}
