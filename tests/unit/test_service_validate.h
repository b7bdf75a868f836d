/* What the suites of src/service/validate.h share: a validator, and what it complained of. */
#ifndef LH_TEST_SERVICE_VALIDATE_H
#define LH_TEST_SERVICE_VALIDATE_H

#include "service/edge/validate.h"
#include "test_service.h"

extern struct lh_violations violations; /* of the last validator */

struct lh_validator *validator(void);
/* `field` is named first, with its limit; NULL: nothing is wrong. */
void expect_violation(const char *name, bool is_valid, const char *field);

TCase *tcase_validate_acquire(void);
TCase *tcase_validate_release(void);
TCase *tcase_validate_admin(void);
TCase *tcase_validate_schedule(void);

#endif
