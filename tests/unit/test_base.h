#ifndef LH_TEST_BASE_H
#define LH_TEST_BASE_H

#include <check.h>

TCase *test_base_bounds(void);

#endif
