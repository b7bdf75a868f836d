/* The suites of test_pg. */
#ifndef LH_TEST_PG_H
#define LH_TEST_PG_H

#include <check.h>

TCase *test_pg_values(void);
TCase *test_pg_conn(void);
TCase *test_pg_queries(void);
TCase *test_pg_listener(void);
TCase *test_pg_migrate(void);
TCase *test_pg_servers(void);

#endif
