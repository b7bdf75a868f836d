#include "test_service_methods.h"

#include <string.h>

#include "base/clock.h"
#include "virtual_clock.h"

struct fake_store store;
struct lh_coordinator coordinator;
struct lh_service *service;

void methods_setup(void)
{
    struct lh_service_options options;

    fake_store_init(&store);
    memset(&coordinator, 0, sizeof(coordinator));
    coordinator.store = &store.base;
    coordinator.readiness.is_ready = true;
    lh_service_options_init(&options);
    options.version = "1.2.3";
    service = lh_service_create(&coordinator, &options);
}

void methods_teardown(void)
{
    fake_client_gone(service);
    lh_service_destroy(service);
    test_arena_reset();
    virtual_clock_end();
}

struct lh_held_lease new_lease(const char *key)
{
    struct lh_held_lease lease = {
        .ns = "payments",
        .key = key,
        .token = 42,
        .owner = "worker-3",
        .labels = "{\"zone\":\"eu\"}",
        .duration_us = 30 * LH_US_PER_S,
        .grace_us = LH_US_PER_S,
        .remaining_us = 29 * LH_US_PER_S,
        .deadline_us = INT64_C(1700000000500000),
        .acquired_at_us = INT64_C(1700000000000000),
        .heartbeat_at_us = INT64_C(1700000000000000),
        .liveness = LH_LIVENESS_ALIVE,
    };
    lh_uuid_parse(LEASE_KEY, &lease.lease_key);
    return lease;
}

Suite *methods_suite(const char *name, void (*add)(TCase *tcase))
{
    Suite *suite = suite_create(name);
    TCase *tcase = tcase_create(name);

    tcase_add_checked_fixture(tcase, methods_setup, methods_teardown);
    add(tcase);
    suite_add_tcase(suite, tcase);
    return suite;
}
