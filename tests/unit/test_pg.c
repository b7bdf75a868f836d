#include "test_pg.h"

#include "base/log.h"
#include "pg_fixture.h"

int main(void)
{
    Suite *suite = suite_create("pg");
    SRunner *runner = srunner_create(suite);
    int failed;

    lh_log_set_level(LH_LOG_ERROR);
    pg_fixture_conninfo();
    suite_add_tcase(suite, test_pg_values());
    suite_add_tcase(suite, test_pg_conn());
    suite_add_tcase(suite, test_pg_listener());
    suite_add_tcase(suite, test_pg_migrate());
    suite_add_tcase(suite, test_pg_servers());
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
