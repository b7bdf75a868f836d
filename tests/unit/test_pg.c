#include "test_pg.h"

#include "base/log.h"
#include "pg_fixture.h"
#include "run_tests.h"

int main(void)
{
    Suite *suite = suite_create("pg");

    lh_log_set_level(LH_LOG_ERROR);
    pg_fixture_conninfo();
    suite_add_tcase(suite, test_pg_values());
    suite_add_tcase(suite, test_pg_conn());
    suite_add_tcase(suite, test_pg_queries());
    suite_add_tcase(suite, test_pg_listener());
    suite_add_tcase(suite, test_pg_migrate());
    suite_add_tcase(suite, test_pg_servers());
    return run_tests(suite, CK_NOFORK);
}
