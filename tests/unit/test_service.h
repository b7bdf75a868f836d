/* The suites of src/service, and what they share: requests that are right until a test breaks one field. */
#ifndef LH_TEST_SERVICE_H
#define LH_TEST_SERVICE_H

#include <check.h>

#include "base/memory.h"
#include "leasehold/v1/leasehold.pb-c.h"

Suite *wire_suite(void);
Suite *validate_suite(void);
Suite *failure_suite(void);
Suite *acquire_suite(void);
Suite *batches_suite(void);
Suite *queries_suite(void);
Suite *admin_suite(void);
Suite *shared_suite(void);
Suite *health_suite(void);
Suite *hold_suite(void);
Suite *hold_alive_suite(void);
Suite *watch_suite(void);
Suite *access_suite(void);
Suite *access_lists_suite(void);
Suite *usage_suite(void);
Suite *counts_suite(void);
Suite *slots_suite(void);
Suite *spread_suite(void);

/* Everything of a test lives here; reset by each test's setup. */
extern struct lh_arena test_arena;
void test_arena_reset(void);

/* `count` times `unit`. */
char *repeated(const char *unit, size_t count);
Leasehold__V1__Scope *new_scope(const char *ns, const char *key); /* one segment */
Google__Protobuf__Duration *new_duration(int64_t seconds, int32_t nanos);
Leasehold__V1__AcquireRequest *new_acquire_request(void);
Leasehold__V1__LeaseRef *new_lease_ref(const char *key, const char *lease_key);
void add_label(Leasehold__V1__AcquireRequest *request, const char *name, const char *value);

/* Packed into the arena. */
struct packed {
    const void *data;
    size_t size;
};
struct packed to_bytes(const ProtobufCMessage *message);

#define LEASE_KEY "0f8fad5b-d9cb-469f-a165-70867728950e"

#endif
