#ifndef LH_TEST_CLIENT_H
#define LH_TEST_CLIENT_H

#include <check.h>

TCase *tcase_client_header(void);
TCase *tcase_client_leases(void);
TCase *tcase_client_renewals(void);
TCase *tcase_client_releases(void);
TCase *tcase_client_shared(void);
TCase *tcase_client_all(void);
TCase *tcase_client_hand_over(void);
TCase *tcase_client_retry(void);
TCase *tcase_client_hostile(void);
TCase *tcase_client_blocking(void);

#endif
