/* What the tests of the methods share: a service between a hand-made client, coordinator and store. */
#ifndef LH_TEST_SERVICE_METHODS_H
#define LH_TEST_SERVICE_METHODS_H

#include "service/service.h"
#include "test_service_fakes.h"

#define LEASES "/leasehold.v1.LeaseService/"
#define ADMIN "/leasehold.v1.AdminService/"

extern struct fake_store store;
extern struct lh_coordinator coordinator;
extern struct lh_service *service;

void methods_setup(void);
void methods_teardown(void);
struct lh_held_lease new_lease(const char *key);
/* A suite of one case, to which `add` adds the tests. */
Suite *methods_suite(const char *name, void (*add)(TCase *tcase));

#endif
