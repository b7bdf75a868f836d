/*
 * Messages: what the server checks, unpacks and validates, and what the library and the command line do with an answer.
 */
#include <protobuf-c/protobuf-c.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/lease_text.h"
#include "client/reply.h"
#include "fuzz.h"
#include "google/rpc/status.pb-c.h"
#include "grpc/health/v1/health.pb-c.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "service/call_internal.h"
#include "service/words_internal.h"
#include "json/print.h"

static const ProtobufCMessageDescriptor *const requests[] = {
    &leasehold__v1__acquire_request__descriptor,         &leasehold__v1__heartbeat_request__descriptor,
    &leasehold__v1__release_request__descriptor,         &leasehold__v1__get_lease_request__descriptor,
    &leasehold__v1__list_leases_request__descriptor,     &leasehold__v1__reap_request__descriptor,
    &leasehold__v1__force_release_request__descriptor,   &leasehold__v1__hold_request__descriptor,
    &leasehold__v1__watch_leases_request__descriptor,    &leasehold__v1__set_policy_request__descriptor,
    &grpc__health__v1__health_check_request__descriptor, &grpc__reflection__v1__server_reflection_request__descriptor,
    &leasehold__v1__acquire_all_request__descriptor,
};

static const ProtobufCMessageDescriptor *const answers[] = {
    &leasehold__v1__acquire_response__descriptor,     &leasehold__v1__acquire_event__descriptor,
    &leasehold__v1__hold_event__descriptor,           &leasehold__v1__heartbeat_response__descriptor,
    &leasehold__v1__release_response__descriptor,     &leasehold__v1__get_lease_response__descriptor,
    &leasehold__v1__list_leases_response__descriptor, &leasehold__v1__lease_event__descriptor,
    &leasehold__v1__get_policy_response__descriptor,  &leasehold__v1__get_status_response__descriptor,
};

static FILE *nowhere;

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* As the methods do it. */
static void validate(struct lh_validator *v, unsigned which, void *message)
{
    struct lh_acquire acquire;
    struct lh_holder_item release;
    struct lh_list_request list;
    struct lh_reap_arguments reap;
    struct lh_uuid lease_key;
    const char *ns, *key;
    Leasehold__V1__HeartbeatRequest *beats = message;
    Leasehold__V1__ReleaseRequest *releases = message;
    char path[LH_VIOLATION_FIELD_BYTES];

    if (which == 0)
        lh_validate_acquire(v, message, &acquire);
    for (size_t i = 0; which == 1 && i < beats->n_leases; i++)
        lh_validate_lease_ref(v, beats->leases[i], lh_field_nth(path, "leases", i), &ns, &key, &lease_key);
    for (size_t i = 0; which == 2 && i < releases->n_items; i++)
        lh_validate_release_item(v, releases->items[i], lh_field_nth(path, "items", i), &release);
    if (which == 3)
        lh_validate_scope(v, ((Leasehold__V1__GetLeaseRequest *)message)->scope, "scope", &ns, &key);
    if (which == 4)
        lh_validate_list(v, message, &list);
    if (which == 5)
        lh_validate_reap(v, message, &reap);
    if (which == 6)
        lh_validate_force(v, message);
    if (which == 12)
        lh_validate_acquire_all(v, message, &acquire);
}

static void take_request(unsigned which, const uint8_t *data, size_t size)
{
    struct lh_arena arena = {0};
    struct lh_violations violations = {0};
    struct lh_validator v = {.arena = &arena, .violations = &violations};
    ProtobufCMessage *message = lh_call_unpack_into(requests[which], data, size, &arena, &violations);
    char sentence[200];
    const void *packed;

    FUZZ_CHECK((message == NULL) == (violations.count > 0));
    if (message != NULL) {
        lh_message_pack(message, &arena, &packed);
        validate(&v, which, message);
    }
    lh_violations_sentence(&violations, sentence, sizeof(sentence));
    lh_arena_finish(&arena);
}

/* As people see it. */
static void show(const Leasehold__V1__Lease *lease, const Leasehold__V1__Contention *contention)
{
    struct lh_grid card = {.columns = 2}, table = {.columns = LH_LEASE_TABLE_COLUMNS};

    if (lease != NULL) {
        lh_add_lease_rows(&card, lease);
        lh_add_lease_table_row(&table, lease);
        lh_grid_print(&card, nowhere);
        lh_grid_print(&table, nowhere);
    }
    if (contention != NULL)
        lh_print_contention(nowhere, contention);
    lh_grid_finish(&card);
    lh_grid_finish(&table);
}

static void show_answer(const ProtobufCMessage *message)
{
    const Leasehold__V1__GetLeaseResponse *got = (const void *)message;

    if (message->descriptor == &leasehold__v1__acquire_response__descriptor)
        show(((const Leasehold__V1__AcquireResponse *)(const void *)message)->lease, NULL);
    else if (message->descriptor == &leasehold__v1__get_lease_response__descriptor)
        show(got->lease, got->contention);
}

static void take_answer(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t size)
{
    struct lh_rpc_result result = {.code = LH_GRPC_OK, .delivery = LH_RPC_ANSWERED, .reply = data, .reply_size = size};
    struct lh_reply reply;

    lh_reply_fill(&reply, &result, type);
    FUZZ_CHECK((reply.message != NULL) == (reply.code == LH_GRPC_OK));
    for (int fields = LH_JSON_SET_FIELDS; reply.message != NULL && fields <= LH_JSON_ALL_FIELDS; fields++)
        json_decref(lh_json_from_message(reply.message, (enum lh_json_fields)fields));
    if (reply.message != NULL)
        show_answer(reply.message);
    lh_reply_finish(&reply);
}

static void take_failure(const uint8_t *data, size_t size)
{
    struct lh_rpc_result result = {.code = LH_GRPC_ABORTED,
                                   .delivery = LH_RPC_ANSWERED,
                                   .message = "words",
                                   .details = data,
                                   .details_size = size};
    struct lh_reply reply;

    lh_reply_fill(&reply, &result, &leasehold__v1__acquire_response__descriptor);
    FUZZ_CHECK(reply.words != NULL && reply.message == NULL);
    lh_reply_finish(&reply);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    fuzz_quiet();
    nowhere = fopen("/dev/null", "w");
    return nowhere == NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    uint8_t which = fuzz_byte(&input);

    if (which < 0x80)
        take_request(which % COUNT(requests), input.at, input.left);
    else if (which < 0xf0)
        take_answer(answers[which % COUNT(answers)], input.at, input.left);
    else
        take_failure(input.at, input.left);
    return 0;
}
