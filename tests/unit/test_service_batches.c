/* Heartbeat, Release and KeepAlive: batches in which one bad item does not spoil the others. */
#include <string.h>

#include "base/clock.h"
#include "test_service_methods.h"

START_TEST(bad_item_of_a_heartbeat_does_not_spoil_the_others)
{
    Leasehold__V1__LeaseRef *refs[] = {new_lease_ref("one", LEASE_KEY), new_lease_ref("two", "no-uuid"),
                                       new_lease_ref("nul", LEASE_KEY), new_lease_ref("four", LEASE_KEY),
                                       new_lease_ref("five", repeated("x", 65))};
    struct lh_rpc_call *call = fake_call(service, LEASES "Heartbeat");
    Leasehold__V1__HeartbeatResponse *response;
    Leasehold__V1__HeartbeatRequest request;
    struct lh_holder_request *asked;
    struct packed packed;

    leasehold__v1__heartbeat_request__init(&request);
    request.leases = refs;
    request.n_leases = 5;
    packed = to_bytes(&request.base);
    memcpy(memmem(packed.data, packed.size, "nul", 3), "n\0l", 3);
    fake_call_bytes(call, packed.data, packed.size);
    asked = coordinator.heartbeat;
    ck_assert_uint_eq(asked->count, 5);
    ck_assert(!asked->items[0].skip && asked->items[1].skip && asked->items[2].skip && !asked->items[3].skip);
    ck_assert_str_eq(asked->items[3].item.key, "four");
    asked->items[0].item.outcome = LH_OUTCOME_OK;
    asked->items[0].item.remaining_us = 30 * LH_US_PER_S;
    asked->items[0].item.heartbeats = 7;
    asked->items[3].item.outcome = LH_OUTCOME_LOST;
    asked->items[3].item.end_reason = LH_END_FORCED;
    asked->items[3].item.message = "ended by an administrator: host is gone";
    asked->on_done(asked);
    response = fake_call_reply(call, &leasehold__v1__heartbeat_response__descriptor);
    ck_assert_uint_eq(response->n_results, 5);
    ck_assert_int_eq(response->results[0]->outcome, LEASEHOLD__V1__OUTCOME__OUTCOME_OK);
    ck_assert_int_eq(response->results[0]->remaining->seconds, 30);
    ck_assert_int_eq(response->results[0]->heartbeats, 7);
    ck_assert_str_eq(response->results[0]->lease_key, LEASE_KEY);
    ck_assert_int_eq(response->results[1]->outcome, LEASEHOLD__V1__OUTCOME__OUTCOME_INVALID);
    ck_assert_ptr_nonnull(strstr(response->results[1]->message, "leases[1].lease_key must be a UUID"));
    ck_assert_str_eq(response->results[1]->lease_key, "no-uuid"); /* the caller finds its item again */
    ck_assert_str_eq(response->results[4]->lease_key, "");
    ck_assert_int_eq(response->results[2]->outcome, LEASEHOLD__V1__OUTCOME__OUTCOME_INVALID);
    ck_assert_ptr_nonnull(strstr(response->results[2]->message, "leases[2].scope.key must not contain a NUL"));
    ck_assert_int_eq(response->results[3]->outcome, LEASEHOLD__V1__OUTCOME__OUTCOME_LOST);
    ck_assert_int_eq(response->results[3]->end_reason, LEASEHOLD__V1__END_REASON__END_REASON_FORCED);
    ck_assert_ptr_nonnull(strstr(response->results[3]->message, "host is gone"));
    ck_assert_ptr_null(response->results[3]->remaining);
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(bad_item_of_a_release_does_not_spoil_the_others)
{
    Leasehold__V1__ReleaseItem items[4], *pointers[4] = {&items[0], &items[1], &items[2], &items[3]};
    struct lh_rpc_call *call = fake_call(service, LEASES "Release");
    Leasehold__V1__ReleaseResponse *response;
    Leasehold__V1__ReleaseRequest request;
    struct lh_holder_request *asked;

    for (int i = 0; i < 4; i++) {
        leasehold__v1__release_item__init(&items[i]);
        items[i].lease = new_lease_ref("key", LEASE_KEY);
    }
    items[0].result_case = LEASEHOLD__V1__RELEASE_ITEM__RESULT_SUCCESS;
    items[0].success = (char *)"{\"rows\": 3}";
    items[1].result_case = LEASEHOLD__V1__RELEASE_ITEM__RESULT_SUCCESS;
    items[1].success = (char *)"{rows: 3}";
    items[2].result_case = LEASEHOLD__V1__RELEASE_ITEM__RESULT_FAILURE;
    items[2].failure = (char *)"disk full";
    leasehold__v1__release_request__init(&request);
    request.items = pointers;
    request.n_items = 4;
    fake_call_message(call, &request.base);
    asked = coordinator.release;
    ck_assert(!asked->items[0].skip && asked->items[1].skip && !asked->items[2].skip);
    ck_assert_str_eq(asked->items[0].item.value, "{\"rows\": 3}");
    ck_assert(asked->items[2].item.is_failure);
    ck_assert_str_eq(asked->items[2].item.value, "disk full");
    asked->items[0].item.outcome = LH_OUTCOME_OK;
    asked->items[2].item.outcome = LH_OUTCOME_RETRY;
    asked->items[2].item.message = repeated("ü", 400);
    asked->items[3].item.outcome = LH_OUTCOME_INVALID;
    asked->items[3].item.message = "success: value overflows numeric format";
    asked->on_done(asked);
    response = fake_call_reply(call, &leasehold__v1__release_response__descriptor);
    ck_assert_int_eq(response->results[0]->outcome, LEASEHOLD__V1__OUTCOME__OUTCOME_OK);
    ck_assert_int_eq(response->results[1]->outcome, LEASEHOLD__V1__OUTCOME__OUTCOME_INVALID);
    ck_assert_ptr_nonnull(strstr(response->results[1]->message, "items[1].success must be JSON"));
    ck_assert_int_eq(response->results[2]->outcome, LEASEHOLD__V1__OUTCOME__OUTCOME_RETRY);
    ck_assert_uint_eq(strlen(response->results[2]->message), 256);
    ck_assert_str_eq(response->results[3]->message, "items[3].success: value overflows numeric format");
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(batch_that_is_answered_too_late_is_dropped)
{
    Leasehold__V1__LeaseRef *refs[] = {new_lease_ref("one", LEASE_KEY)};
    struct lh_rpc_call *call = fake_call(service, LEASES "Heartbeat");
    Leasehold__V1__HeartbeatRequest request;

    leasehold__v1__heartbeat_request__init(&request);
    request.leases = refs;
    request.n_leases = 1;
    fake_call_message(call, &request.base);
    fake_call_end(call, LH_RPC_END_CANCELED);
    coordinator.heartbeat->on_done(coordinator.heartbeat); /* ASan watches */
}
END_TEST

START_TEST(batch_that_is_not_taken_fails_as_a_whole)
{
    struct lh_rpc_call *call = fake_call(service, LEASES "Release");
    Leasehold__V1__ReleaseRequest request;

    coordinator.refuse = LH_SHUTTING_DOWN;
    leasehold__v1__release_request__init(&request);
    fake_call_message(call, &request.base);
    ck_assert_str_eq(fake_call_reason(call), "SHUTTING_DOWN");
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(empty_batch_is_answered_empty)
{
    struct lh_rpc_call *call = fake_call(service, LEASES "Heartbeat");
    Leasehold__V1__HeartbeatResponse *response;

    fake_call_bytes(call, "", 0);
    ck_assert_uint_eq(coordinator.heartbeat->count, 0);
    coordinator.heartbeat->on_done(coordinator.heartbeat);
    response = fake_call_reply(call, &leasehold__v1__heartbeat_response__descriptor);
    ck_assert_uint_eq(response->n_results, 0);
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(empty_batch_outlives_its_client)
{
    struct lh_rpc_call *call = fake_call(service, LEASES "Heartbeat");

    fake_call_bytes(call, "", 0);
    fake_call_end(call, LH_RPC_END_DISCONNECTED);
    fake_client_gone(service);
    coordinator.heartbeat->on_done(coordinator.heartbeat); /* ASan watches */
}
END_TEST

/* --- KeepAlive --- */

static void send_heartbeat(struct lh_rpc_call *call)
{
    Leasehold__V1__HeartbeatRequest request;
    Leasehold__V1__LeaseRef *refs[] = {new_lease_ref("a", LEASE_KEY)};

    leasehold__v1__heartbeat_request__init(&request);
    request.n_leases = 1;
    request.leases = refs;
    fake_call_message(call, &request.base);
}

static void answer_heartbeat(struct lh_holder_request *request, int64_t heartbeats)
{
    request->items[0].item.outcome = LH_OUTCOME_OK;
    request->items[0].item.heartbeats = heartbeats;
    request->on_done(request);
}

START_TEST(keep_alive_answers_in_order_and_ends_when_nothing_is_owed)
{
    struct lh_rpc_call *call = fake_call(service, LEASES "KeepAlive");
    struct lh_holder_request *first, *second;
    Leasehold__V1__HeartbeatResponse *response;

    send_heartbeat(call);
    first = coordinator.heartbeat;
    send_heartbeat(call);
    second = coordinator.heartbeat;
    answer_heartbeat(second, 2);
    ck_assert_uint_eq(call->sent_count, 0);
    call->method->on_half_close(call);
    ck_assert(!call->is_finished);
    answer_heartbeat(first, 1);
    ck_assert_uint_eq(call->sent_count, 2);
    response = fake_call_reply(call, &leasehold__v1__heartbeat_response__descriptor);
    ck_assert_int_eq(response->results[0]->heartbeats, 2);
    ck_assert(call->is_finished);
    ck_assert_int_eq(call->code, LH_GRPC_OK);
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(keep_alive_reads_no_more_than_it_can_answer)
{
    struct lh_rpc_call *call = fake_call(service, LEASES "KeepAlive");
    struct lh_holder_request *requests[64];
    int count = 0;

    while (!call->is_paused) {
        ck_assert_int_lt(count, 64);
        send_heartbeat(call);
        requests[count++] = coordinator.heartbeat;
    }
    call->is_over_mark = true; /* and the client does not read */
    for (int i = 0; i < count; i++)
        answer_heartbeat(requests[i], i);
    ck_assert(call->is_paused);
    call->is_over_mark = false;
    call->method->on_writable(call);
    ck_assert(!call->is_paused);
    fake_call_end(call, LH_RPC_END_CANCELED);
}
END_TEST

START_TEST(keep_alive_tells_what_is_owed_before_it_fails)
{
    struct lh_rpc_call *call = fake_call(service, LEASES "KeepAlive");

    send_heartbeat(call);
    fake_call_bytes(call, "\xff\xff", 2);
    ck_assert(!call->is_finished);
    send_heartbeat(call); /* too late */
    answer_heartbeat(coordinator.heartbeat, 1);
    ck_assert_uint_eq(call->sent_count, 1);
    ck_assert_int_eq(call->code, LH_GRPC_INVALID_ARGUMENT);
    ck_assert_str_eq(fake_call_reason(call), "INVALID_ARGUMENT");
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(keep_alive_that_is_gone_goes_with_its_last_answer)
{
    struct lh_rpc_call *call = fake_call(service, LEASES "KeepAlive");
    struct lh_holder_request *first;

    send_heartbeat(call);
    first = coordinator.heartbeat;
    send_heartbeat(call);
    fake_call_end(call, LH_RPC_END_DISCONNECTED);
    answer_heartbeat(coordinator.heartbeat, 2);
    answer_heartbeat(first, 1); /* ASan watches */
}
END_TEST

START_TEST(keep_alive_ends_at_shutdown_and_does_not_begin)
{
    struct lh_rpc_call *call = fake_call(service, LEASES "KeepAlive"), *late;

    send_heartbeat(call);
    lh_service_drain(service);
    ck_assert(!call->is_finished);
    answer_heartbeat(coordinator.heartbeat, 1);
    ck_assert_uint_eq(call->sent_count, 1);
    ck_assert_str_eq(fake_call_reason(call), "SHUTTING_DOWN");
    fake_call_end(call, LH_RPC_END_FINISHED);
    late = fake_call(service, LEASES "KeepAlive");
    ck_assert_str_eq(fake_call_reason(late), "SHUTTING_DOWN");
    fake_call_end(late, LH_RPC_END_FINISHED);
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_test(tcase, bad_item_of_a_heartbeat_does_not_spoil_the_others);
    tcase_add_test(tcase, bad_item_of_a_release_does_not_spoil_the_others);
    tcase_add_test(tcase, batch_that_is_answered_too_late_is_dropped);
    tcase_add_test(tcase, batch_that_is_not_taken_fails_as_a_whole);
    tcase_add_test(tcase, empty_batch_is_answered_empty);
    tcase_add_test(tcase, empty_batch_outlives_its_client);
    tcase_add_test(tcase, keep_alive_answers_in_order_and_ends_when_nothing_is_owed);
    tcase_add_test(tcase, keep_alive_reads_no_more_than_it_can_answer);
    tcase_add_test(tcase, keep_alive_tells_what_is_owed_before_it_fails);
    tcase_add_test(tcase, keep_alive_that_is_gone_goes_with_its_last_answer);
    tcase_add_test(tcase, keep_alive_ends_at_shutdown_and_does_not_begin);
}

Suite *batches_suite(void)
{
    return methods_suite("service: batches", add);
}
