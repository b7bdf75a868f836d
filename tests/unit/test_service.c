#include "test_service.h"

#include <stdlib.h>
#include <string.h>

#include "service/words_internal.h"

struct lh_arena test_arena;

void test_arena_reset(void)
{
    lh_arena_finish(&test_arena);
}

char *repeated(const char *unit, size_t count)
{
    size_t size = strlen(unit);
    char *text = lh_arena_alloc(&test_arena, size * count + 1);

    for (size_t i = 0; i < count; i++)
        memcpy(text + i * size, unit, size);
    text[size * count] = '\0';
    return text;
}

Leasehold__V1__Scope *new_scope(const char *ns, const char *key)
{
    Leasehold__V1__Scope *scope = lh_arena_alloc(&test_arena, sizeof(*scope));

    leasehold__v1__scope__init(scope);
    scope->n_namespace_ = 1;
    /* Room for the tests that add segments. */
    scope->namespace_ = lh_arena_alloc(&test_arena, 32 * sizeof(char *));
    scope->namespace_[0] = lh_arena_strdup(&test_arena, ns);
    scope->key = lh_arena_strdup(&test_arena, key);
    return scope;
}

Google__Protobuf__Duration *new_duration(int64_t seconds, int32_t nanos)
{
    Google__Protobuf__Duration *duration = lh_arena_alloc(&test_arena, sizeof(*duration));

    google__protobuf__duration__init(duration);
    duration->seconds = seconds;
    duration->nanos = nanos;
    return duration;
}

Leasehold__V1__AcquireRequest *new_acquire_request(void)
{
    Leasehold__V1__AcquireRequest *request = lh_arena_alloc(&test_arena, sizeof(*request));

    leasehold__v1__acquire_request__init(request);
    request->scope = new_scope("payments", "invoice-42");
    request->duration = new_duration(30, 0);
    request->owner = (char *)"worker-3";
    request->lease_key = (char *)LEASE_KEY;
    request->labels = lh_arena_alloc(&test_arena, 32 * sizeof(*request->labels));
    return request;
}

Leasehold__V1__LeaseRef *new_lease_ref(const char *key, const char *lease_key)
{
    Leasehold__V1__LeaseRef *ref = lh_arena_alloc(&test_arena, sizeof(*ref));

    leasehold__v1__lease_ref__init(ref);
    ref->scope = new_scope("payments", key);
    ref->lease_key = lh_arena_strdup(&test_arena, lease_key);
    return ref;
}

void add_label(Leasehold__V1__AcquireRequest *request, const char *name, const char *value)
{
    Leasehold__V1__AcquireRequest__LabelsEntry *entry = lh_arena_alloc(&test_arena, sizeof(*entry));

    leasehold__v1__acquire_request__labels_entry__init(entry);
    entry->key = lh_arena_strdup(&test_arena, name);
    entry->value = lh_arena_strdup(&test_arena, value);
    request->labels[request->n_labels++] = entry;
}

struct packed to_bytes(const ProtobufCMessage *message)
{
    struct packed packed;
    packed.size = lh_message_pack(message, &test_arena, &packed.data);
    return packed;
}

int main(void)
{
    SRunner *runner = srunner_create(wire_suite());
    int failed;

    srunner_add_suite(runner, validate_suite());
    srunner_add_suite(runner, failure_suite());
    srunner_add_suite(runner, acquire_suite());
    srunner_add_suite(runner, batches_suite());
    srunner_add_suite(runner, queries_suite());
    srunner_add_suite(runner, admin_suite());
    srunner_add_suite(runner, shared_suite());
    srunner_add_suite(runner, health_suite());
    srunner_add_suite(runner, hold_suite());
    srunner_add_suite(runner, hold_alive_suite());
    srunner_add_suite(runner, watch_suite());
    srunner_add_suite(runner, access_suite());
    srunner_add_suite(runner, access_lists_suite());
    srunner_add_suite(runner, usage_suite());
    srunner_add_suite(runner, counts_suite());
    srunner_add_suite(runner, slots_suite());
    srunner_add_suite(runner, spread_suite());
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
