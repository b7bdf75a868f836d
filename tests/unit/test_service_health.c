/* grpc.health and server reflection, as stock clients ask for them. */
#include <string.h>

#include "grpc/health/v1/health.pb-c.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "test_service_methods.h"

static int check_health(const char *name)
{
    struct lh_rpc_call *call = fake_call(service, "/grpc.health.v1.Health/Check");
    Grpc__Health__V1__HealthCheckRequest request;
    Grpc__Health__V1__HealthCheckResponse *response;
    int result;

    grpc__health__v1__health_check_request__init(&request);
    request.service = (char *)name;
    fake_call_message(call, &request.base);
    if (call->code != 0) {
        result = -call->code;
    } else {
        response = fake_call_reply(call, &grpc__health__v1__health_check_response__descriptor);
        result = (int)response->status;
    }
    fake_call_end(call, LH_RPC_END_FINISHED);
    return result;
}

#define SERVING GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
#define NOT_SERVING GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING
#define SERVICE_UNKNOWN GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN

START_TEST(health_follows_readiness_and_the_shutdown)
{
    ck_assert_int_eq(check_health(""), SERVING);
    ck_assert_int_eq(check_health("leasehold.v1.LeaseService"), SERVING);
    ck_assert_int_eq(check_health("leasehold.v1.AdminService"), SERVING);
    ck_assert_int_eq(check_health("leasehold.v2.LeaseService"), -LH_GRPC_NOT_FOUND);
    coordinator.readiness.is_ready = false;
    ck_assert_int_eq(check_health(""), NOT_SERVING);
    coordinator.readiness.is_ready = true;
    ck_assert_int_eq(check_health(""), SERVING);
    lh_service_drain(service);
    ck_assert_int_eq(check_health(""), NOT_SERVING);
}
END_TEST

static int watched_status(const struct lh_rpc_call *call)
{
    Grpc__Health__V1__HealthCheckResponse *response =
        fake_call_reply(call, &grpc__health__v1__health_check_response__descriptor);
    return (int)response->status;
}

START_TEST(health_watchers_hear_each_change_once)
{
    struct lh_rpc_call *known = fake_call(service, "/grpc.health.v1.Health/Watch");
    struct lh_rpc_call *unknown = fake_call(service, "/grpc.health.v1.Health/Watch");
    Grpc__Health__V1__HealthCheckRequest request;

    lh_service_tick(service);
    grpc__health__v1__health_check_request__init(&request);
    fake_call_message(known, &request.base);
    ck_assert_int_eq(watched_status(known), SERVING);
    request.service = (char *)"no.such.Service";
    fake_call_message(unknown, &request.base);
    ck_assert_int_eq(watched_status(unknown), SERVICE_UNKNOWN);
    lh_service_tick(service);
    lh_service_tick(service);
    ck_assert_uint_eq(known->sent_count, 1);
    lh_service_drain(service);
    lh_service_tick(service);
    ck_assert_uint_eq(known->sent_count, 2);
    ck_assert_int_eq(watched_status(known), NOT_SERVING);
    ck_assert_uint_eq(unknown->sent_count, 1);
    ck_assert_str_eq(fake_call_reason(known), "SHUTTING_DOWN"); /* or the shutdown would wait for them */
    ck_assert_str_eq(fake_call_reason(unknown), "SHUTTING_DOWN");
    fake_call_end(known, LH_RPC_END_CANCELED);
    fake_call_end(unknown, LH_RPC_END_CANCELED);
    lh_service_tick(service); /* nobody is left to tell: ASan watches */
}
END_TEST

START_TEST(health_watchers_are_bounded)
{
    struct lh_service_options options;
    struct lh_rpc_call *first, *second;

    lh_service_destroy(service);
    lh_service_options_init(&options);
    options.max_health_watchers = 1;
    service = lh_service_create(&coordinator, &options);
    first = fake_call(service, "/grpc.health.v1.Health/Watch");
    second = fake_call(service, "/grpc.health.v1.Health/Watch");
    fake_call_bytes(first, "", 0);
    fake_call_bytes(second, "", 0);
    ck_assert(!first->is_finished);
    ck_assert_str_eq(fake_call_reason(second), "OVERLOADED");
    fake_call_end(second, LH_RPC_END_FINISHED);
    fake_call_end(first, LH_RPC_END_CANCELED);
}
END_TEST

/* --- reflection --- */

typedef Grpc__Reflection__V1__ServerReflectionRequest reflection_request;
typedef Grpc__Reflection__V1__ServerReflectionResponse reflection_response;
#define ASK(kind) GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##kind
#define ANSWER(kind) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##kind

static reflection_response *reflect(struct lh_rpc_call *call, int kind, const char *text)
{
    reflection_request request;

    grpc__reflection__v1__server_reflection_request__init(&request);
    request.host = (char *)"here";
    request.message_request_case = (Grpc__Reflection__V1__ServerReflectionRequest__MessageRequestCase)kind;
    request.list_services = (char *)text; /* all of them are strings in one union */
    fake_call_message(call, &request.base);
    return fake_call_reply(call, &grpc__reflection__v1__server_reflection_response__descriptor);
}

static const char *const reflection_paths[] = {
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
};

START_TEST(reflection_lists_services_and_files)
{
    struct lh_rpc_call *call = fake_call(service, reflection_paths[_i]);
    reflection_response *response = reflect(call, ASK(LIST_SERVICES), "");
    bool has_lease_service = false;

    ck_assert_str_eq(response->valid_host, "here");
    ck_assert_int_eq(response->message_response_case, ANSWER(LIST_SERVICES_RESPONSE));
    ck_assert_uint_eq(response->list_services_response->n_service, 7);
    for (size_t i = 0; i < 7; i++) {
        const char *name = response->list_services_response->service[i]->name;
        reflection_response *file = reflect(call, ASK(FILE_CONTAINING_SYMBOL), name);
        ck_assert_int_eq(file->message_response_case, ANSWER(FILE_DESCRIPTOR_RESPONSE));
        has_lease_service |= strcmp(name, "leasehold.v1.LeaseService") == 0;
    }
    ck_assert(has_lease_service);
    response = reflect(call, ASK(FILE_BY_FILENAME), "leasehold/v1/leasehold.proto");
    /* itself, duration, field_mask, timestamp, wrappers */
    ck_assert_uint_eq(response->file_descriptor_response->n_file_descriptor_proto, 5);
    ck_assert_ptr_nonnull(memmem(response->file_descriptor_response->file_descriptor_proto[0].data,
                                 response->file_descriptor_response->file_descriptor_proto[0].len,
                                 "leasehold/v1/leasehold.proto", 28));
    call->method->on_half_close(call);
    ck_assert(call->is_finished);
    ck_assert_int_eq(call->code, 0);
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

static const struct {
    const char *symbol;
    bool is_known;
} symbols[] = {
    {"leasehold.v1.LeaseService", true},
    {"leasehold.v1.LeaseService.Acquire", true},
    {"leasehold.v1.Lease", true},
    {"leasehold.v1.Lease.token", true},
    {"leasehold.v1.Lease.LabelsEntry", true},
    {"leasehold.v1.Policy.Expiry", true},
    {"leasehold.v1.Policy.EXPIRY_MANUAL", true},
    {"leasehold.v1.OUTCOME_LOST", true},
    {"google.protobuf.Duration", true},
    {"google.rpc.ErrorInfo", true},
    {"leasehold.v1", false},
    {"leasehold.v1.Leas", false},
    {".leasehold.v1.Lease", false},
    {"", false},
};

START_TEST(reflection_finds_symbols)
{
    struct lh_rpc_call *call = fake_call(service, reflection_paths[0]);
    reflection_response *response = reflect(call, ASK(FILE_CONTAINING_SYMBOL), symbols[_i].symbol);

    ck_assert_int_eq(response->message_response_case,
                     symbols[_i].is_known ? ANSWER(FILE_DESCRIPTOR_RESPONSE) : ANSWER(ERROR_RESPONSE));
    if (!symbols[_i].is_known)
        ck_assert_int_eq(response->error_response->error_code, LH_GRPC_NOT_FOUND);
    fake_call_end(call, LH_RPC_END_CANCELED);
}
END_TEST

START_TEST(reflection_answers_what_it_does_not_have)
{
    struct lh_rpc_call *call = fake_call(service, reflection_paths[0]);
    reflection_response *response = reflect(call, ASK(FILE_BY_FILENAME), "no/such.proto");

    ck_assert_int_eq(response->error_response->error_code, LH_GRPC_NOT_FOUND);
    response = reflect(call, ASK(ALL_EXTENSION_NUMBERS_OF_TYPE), "leasehold.v1.Lease");
    ck_assert_int_eq(response->message_response_case, ANSWER(ALL_EXTENSION_NUMBERS_RESPONSE));
    response = reflect(call, ASK(ALL_EXTENSION_NUMBERS_OF_TYPE), "leasehold.v1.Nothing");
    ck_assert_int_eq(response->error_response->error_code, LH_GRPC_NOT_FOUND);
    fake_call_bytes(call, "", 0);
    response = fake_call_reply(call, &grpc__reflection__v1__server_reflection_response__descriptor);
    ck_assert_int_eq(response->error_response->error_code, LH_GRPC_INVALID_ARGUMENT);
    fake_call_end(call, LH_RPC_END_CANCELED);
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_test(tcase, health_follows_readiness_and_the_shutdown);
    tcase_add_test(tcase, health_watchers_hear_each_change_once);
    tcase_add_test(tcase, health_watchers_are_bounded);
    tcase_add_loop_test(tcase, reflection_lists_services_and_files, 0, 2);
    tcase_add_loop_test(tcase, reflection_finds_symbols, 0, sizeof(symbols) / sizeof(symbols[0]));
    tcase_add_test(tcase, reflection_answers_what_it_does_not_have);
}

Suite *health_suite(void)
{
    return methods_suite("service: health", add);
}
