/* Acquire and AcquireStream: who is answered what, and what becomes of a grant that comes too late. */
#include <string.h>

#include "test_service_methods.h"

static struct lh_rpc_call *start_acquire(void)
{
    struct lh_rpc_call *call = fake_call(service, LEASES "Acquire");
    fake_call_message(call, &new_acquire_request()->base);
    return call;
}

static void finish_acquire(enum lh_status status, bool is_renewal)
{
    struct lh_held_lease lease = new_lease("invoice-42");
    struct lh_acquire_result result = {
        .status = status, .lease = status == LH_OK ? &lease : NULL, .is_renewal = is_renewal, .waited_us = 1500000};
    coordinator.acquire->on_done(coordinator.acquire, &result);
}

START_TEST(acquire_that_is_granted_returns_the_lease_with_its_key)
{
    struct lh_rpc_call *call = start_acquire();
    Leasehold__V1__AcquireResponse *response;

    ck_assert(!call->is_finished);
    ck_assert_str_eq(coordinator.acquire->ns, "payments");
    ck_assert_str_eq(coordinator.acquire->terms.labels, "{}");
    finish_acquire(LH_OK, false);
    response = fake_call_reply(call, &leasehold__v1__acquire_response__descriptor);
    ck_assert_int_eq(call->code, 0);
    ck_assert_str_eq(response->lease->lease_key, LEASE_KEY);
    ck_assert_int_eq(response->lease->token, 42);
    ck_assert_str_eq(response->lease->scope->namespace_[0], "payments");
    ck_assert_str_eq(response->lease->labels[0]->value, "eu");
    ck_assert_int_eq(response->lease->deadline->seconds, 1700000000);
    ck_assert_int_eq(response->lease->deadline->nanos, 500000000);
    ck_assert_int_eq(response->waited->seconds, 1);
    ck_assert_int_eq(response->waited->nanos, 500000000);
    fake_call_end(call, LH_RPC_END_FINISHED);
    ck_assert_ptr_null(coordinator.canceled);
    ck_assert_ptr_null(coordinator.release);
}
END_TEST

START_TEST(acquire_is_made_for_the_principal_of_its_call)
{
    struct lh_rpc_call *call = fake_call(service, LEASES "Acquire");
    char principal[] = "token:ci";

    call->principal = principal;
    fake_call_message(call, &new_acquire_request()->base);
    memset(principal, 'x', sizeof(principal) - 1); /* the call may end before the acquire does */
    ck_assert_str_eq(coordinator.acquire->terms.principal, "token:ci");
    finish_acquire(LH_LEASE_HELD, false);
    fake_call_end(call, LH_RPC_END_FINISHED);
    call = start_acquire();
    ck_assert_str_eq(coordinator.acquire->terms.principal, "anonymous");
    finish_acquire(LH_LEASE_HELD, false);
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(acquire_that_is_refused_is_an_error_with_contention)
{
    struct lh_contention contention = {.has_holder = true, .holder = new_lease("invoice-42"), .waiters_ahead = 1};
    struct lh_acquire_result result = {.status = LH_LEASE_HELD, .contention = &contention};
    struct lh_rpc_call *call = start_acquire();

    contention.holder.ns = contention.holder.key = NULL; /* a store may leave out what is known */
    coordinator.acquire->on_done(coordinator.acquire, &result);
    ck_assert_int_eq(call->code, LH_GRPC_ABORTED);
    ck_assert_str_eq(fake_call_reason(call), "LEASE_HELD");
    ck_assert_ptr_nonnull(strstr(call->message, "lease payments/invoice-42 is held by worker-3, alive"));
    fake_call_end(call, LH_RPC_END_FINISHED);

    contention = (struct lh_contention){.rests_us = 48500000};
    call = start_acquire();
    coordinator.acquire->on_done(coordinator.acquire, &result);
    ck_assert_str_eq(fake_call_reason(call), "LEASE_HELD");
    ck_assert_str_eq(call->message, "lease payments/invoice-42 is not held, but rests for 48 s more: its minimum "
                                    "hold has not passed");
    ck_assert_ptr_nonnull(memmem(call->details.data, call->details.size, "leasehold.v1.Contention", 23));
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

static const struct {
    enum lh_status status;
    const char *reason;
    enum lh_grpc_code code;
} refusals[] = {
    {LH_WAIT_TIMEOUT, "WAIT_TIMEOUT", LH_GRPC_DEADLINE_EXCEEDED},
    {LH_BLOCKING_TIMEOUT, "BLOCKING_TIMEOUT", LH_GRPC_ABORTED},
    {LH_SCOPE_BUSY, "SCOPE_BUSY", LH_GRPC_ABORTED},
    {LH_NAMESPACE_FROZEN, "NAMESPACE_FROZEN", LH_GRPC_FAILED_PRECONDITION},
    {LH_HOOK_REJECTED, "HOOK_REJECTED", LH_GRPC_FAILED_PRECONDITION},
    {LH_LEASE_ENDED, "LEASE_ENDED", LH_GRPC_FAILED_PRECONDITION},
    {LH_QUOTA_EXCEEDED, "QUOTA_EXCEEDED", LH_GRPC_RESOURCE_EXHAUSTED},
    {LH_DATABASE_UNAVAILABLE, "DATABASE_UNAVAILABLE", LH_GRPC_UNAVAILABLE},
    {LH_SHUTTING_DOWN, "SHUTTING_DOWN", LH_GRPC_UNAVAILABLE},
    {LH_CANCELED, "SHUTTING_DOWN", LH_GRPC_UNAVAILABLE}, /* of a store that is stopping */
    {LH_INTERNAL, "INTERNAL", LH_GRPC_INTERNAL},
};

START_TEST(acquire_refusals_have_these_codes_and_reasons)
{
    struct lh_contention contention = {.has_holder = true, .holder = new_lease("invoice-42")};
    struct lh_acquire_result result = {.status = refusals[_i].status, .contention = &contention};
    struct lh_rpc_call *call = start_acquire();
    bool is_contended = result.status == LH_WAIT_TIMEOUT || result.status == LH_BLOCKING_TIMEOUT;

    coordinator.acquire->on_done(coordinator.acquire, &result);
    ck_assert_int_eq(call->code, refusals[_i].code);
    ck_assert_str_eq(fake_call_reason(call), refusals[_i].reason);
    ck_assert_int_eq(memmem(call->details.data, call->details.size, "leasehold.v1.Contention", 23) != NULL,
                     is_contended);
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(acquire_that_the_database_finds_invalid_names_the_field)
{
    struct lh_acquire_result result = {
        .status = LH_INVALID_ARGUMENT, .field = "duration", .bound = "1 to 86400 s in this namespace, is 500 ms"};
    struct lh_rpc_call *call = start_acquire();

    coordinator.acquire->on_done(coordinator.acquire, &result);
    ck_assert_int_eq(call->code, LH_GRPC_INVALID_ARGUMENT);
    ck_assert_str_eq(fake_call_field(call), "duration");
    ck_assert_str_eq(call->message, "duration must be 1 to 86400 s in this namespace, is 500 ms");
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(acquire_out_of_bounds_never_reaches_the_coordinator)
{
    struct lh_rpc_call *call = fake_call(service, LEASES "Acquire");
    Leasehold__V1__AcquireRequest *request = new_acquire_request();

    request->scope->key = (char *)"";
    fake_call_message(call, &request->base);
    ck_assert_int_eq(call->code, LH_GRPC_INVALID_ARGUMENT);
    ck_assert_str_eq(fake_call_field(call), "scope.key");
    ck_assert_ptr_null(coordinator.acquire);
    fake_call_end(call, LH_RPC_END_FINISHED);
    call = fake_call(service, LEASES "Acquire");
    fake_call_bytes(call, "\x0a\x05x", 3);
    ck_assert_int_eq(call->code, LH_GRPC_INVALID_ARGUMENT);
    ck_assert_ptr_null(coordinator.acquire);
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(acquire_with_nul_in_its_key_is_refused_whole)
{
    struct lh_rpc_call *call = fake_call(service, LEASES "Acquire");
    struct packed packed = to_bytes(&new_acquire_request()->base);

    *(char *)memmem(packed.data, packed.size, "-42", 3) = '\0';
    fake_call_bytes(call, packed.data, packed.size);
    ck_assert_int_eq(call->code, LH_GRPC_INVALID_ARGUMENT);
    ck_assert_str_eq(fake_call_field(call), "scope.key");
    ck_assert_ptr_null(coordinator.acquire);
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(acquire_that_is_not_taken_fails_at_once)
{
    struct lh_rpc_call *call;

    coordinator.refuse = LH_OVERLOADED;
    call = start_acquire();
    ck_assert_int_eq(call->code, LH_GRPC_RESOURCE_EXHAUSTED);
    ck_assert_str_eq(fake_call_reason(call), "OVERLOADED");
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

static const enum lh_rpc_end early_ends[] = {LH_RPC_END_CANCELED, LH_RPC_END_DISCONNECTED, LH_RPC_END_DEADLINE,
                                             LH_RPC_END_SHUTDOWN};
#define EARLY_ENDS ((int)(sizeof(early_ends) / sizeof(early_ends[0])))

START_TEST(call_that_ends_takes_its_waiter_along)
{
    struct lh_rpc_call *call = start_acquire();

    fake_call_end(call, early_ends[_i]);
    ck_assert_ptr_nonnull(coordinator.acquire);
    ck_assert_ptr_eq(coordinator.canceled, coordinator.acquire);
    finish_acquire(LH_CANCELED, false);
    ck_assert_ptr_null(coordinator.release);
}
END_TEST

static void finish_release(void)
{
    struct lh_holder_request *release = coordinator.release;

    ck_assert_ptr_nonnull(release);
    ck_assert_uint_eq(release->count, 1);
    ck_assert_str_eq(release->items[0].item.ns, "payments");
    ck_assert_str_eq(release->items[0].item.key, "invoice-42");
    ck_assert(!release->items[0].item.is_failure);
    ck_assert(release->items[0].item.is_unheard);
    release->items[0].item.outcome = LH_OUTCOME_OK;
    release->on_done(release);
}

START_TEST(grant_that_was_on_its_way_when_the_call_ended_is_released)
{
    struct lh_rpc_call *call = start_acquire();

    fake_call_end(call, early_ends[_i]);
    finish_acquire(LH_OK, false);
    finish_release();
}
END_TEST

START_TEST(grant_whose_reply_did_not_leave_is_released)
{
    struct lh_rpc_call *call = start_acquire();

    finish_acquire(LH_OK, false);
    ck_assert_ptr_null(coordinator.release);
    fake_call_end(call, early_ends[_i]);
    ck_assert_ptr_null(coordinator.canceled);
    finish_release();
}
END_TEST

START_TEST(renewal_is_never_released_behind_its_holder)
{
    struct lh_rpc_call *call = start_acquire();

    finish_acquire(LH_OK, true);
    fake_call_end(call, early_ends[_i]);
    ck_assert_ptr_null(coordinator.release);
    call = start_acquire();
    fake_call_end(call, early_ends[_i]);
    finish_acquire(LH_OK, true);
    ck_assert_ptr_null(coordinator.release);
}
END_TEST

START_TEST(grant_that_nobody_can_take_back_is_left_to_its_deadline)
{
    struct lh_rpc_call *call = start_acquire();

    finish_acquire(LH_OK, false);
    coordinator.refuse = LH_SHUTTING_DOWN;
    fake_call_end(call, LH_RPC_END_DISCONNECTED);
    ck_assert_ptr_null(coordinator.release);
}
END_TEST

START_TEST(grant_whose_reply_crossed_a_cancel_is_released)
{
    struct lh_rpc_call *call = start_acquire(), *other;
    uint64_t id = call->id;

    finish_acquire(LH_OK, false);
    fake_call_end(call, LH_RPC_END_FINISHED);
    other = start_acquire();
    finish_acquire(LH_OK, false);
    fake_call_end(other, LH_RPC_END_FINISHED);
    lh_service_tick(service); /* two seconds have not passed */
    lh_service_on_late_cancel(service, id + 1000);
    ck_assert_ptr_null(coordinator.release);
    lh_service_on_late_cancel(service, id);
    finish_release();
    coordinator.release = NULL;
    lh_service_on_late_cancel(service, id);
    ck_assert_ptr_null(coordinator.release);
}
END_TEST

START_TEST(grants_that_are_kept_for_a_late_cancel_are_bounded)
{
    uint64_t first = 0, last = 0;

    for (int i = 0; i < 5000; i++) {
        struct lh_rpc_call *call = start_acquire();
        first = first == 0 ? call->id : first;
        last = call->id;
        finish_acquire(LH_OK, false);
        fake_call_end(call, LH_RPC_END_FINISHED);
        test_arena_reset();
    }
    lh_service_on_late_cancel(service, first);
    ck_assert_ptr_null(coordinator.release);
    lh_service_on_late_cancel(service, last);
    finish_release();
}
END_TEST

/* --- AcquireStream --- */

static Leasehold__V1__AcquireEvent *last_event(struct lh_rpc_call *call)
{
    return fake_call_reply(call, &leasehold__v1__acquire_event__descriptor);
}

START_TEST(acquire_stream_tells_queued_then_granted_then_ok)
{
    struct lh_contention contention = {.has_holder = true, .holder = new_lease("invoice-42"), .waiters_ahead = 7};
    struct lh_rpc_call *call = fake_call(service, LEASES "AcquireStream");

    fake_call_message(call, &new_acquire_request()->base);
    coordinator.acquire->on_progress(coordinator.acquire, &contention);
    ck_assert_int_eq(last_event(call)->event_case, LEASEHOLD__V1__ACQUIRE_EVENT__EVENT_QUEUED);
    ck_assert_int_eq(last_event(call)->queued->waiters_ahead, 7);
    ck_assert_str_eq(last_event(call)->queued->holder->lease_key, "");
    call->is_over_mark = true; /* a client that does not read gets no more of these */
    coordinator.acquire->on_progress(coordinator.acquire, &contention);
    ck_assert_uint_eq(call->sent_count, 1);
    ck_assert(!call->is_finished);
    finish_acquire(LH_OK, false);
    ck_assert_int_eq(last_event(call)->event_case, LEASEHOLD__V1__ACQUIRE_EVENT__EVENT_GRANTED);
    ck_assert_str_eq(last_event(call)->granted->lease_key, LEASE_KEY);
    ck_assert_int_eq(last_event(call)->waited->seconds, 1);
    ck_assert_int_eq(call->code, LH_GRPC_OK);
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(acquire_stream_whose_grant_was_not_sent_is_released)
{
    struct lh_rpc_call *call = fake_call(service, LEASES "AcquireStream");

    fake_call_message(call, &new_acquire_request()->base);
    finish_acquire(LH_OK, false);
    fake_call_end(call, LH_RPC_END_DISCONNECTED);
    ck_assert_ptr_nonnull(coordinator.release);
    coordinator.release->on_done(coordinator.release);
}
END_TEST

START_TEST(acquire_stream_that_is_cancelled_at_its_grant_keeps_the_lease)
{
    struct lh_rpc_call *call = fake_call(service, LEASES "AcquireStream");
    uint64_t id = call->id;

    fake_call_message(call, &new_acquire_request()->base);
    finish_acquire(LH_OK, false);
    fake_call_end(call, LH_RPC_END_FINISHED);
    lh_service_on_late_cancel(service, id);
    ck_assert_ptr_null(coordinator.release);
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_test(tcase, acquire_stream_that_is_cancelled_at_its_grant_keeps_the_lease);
    tcase_add_test(tcase, acquire_that_is_granted_returns_the_lease_with_its_key);
    tcase_add_test(tcase, acquire_is_made_for_the_principal_of_its_call);
    tcase_add_test(tcase, acquire_that_is_refused_is_an_error_with_contention);
    tcase_add_loop_test(tcase, acquire_refusals_have_these_codes_and_reasons, 0,
                        sizeof(refusals) / sizeof(refusals[0]));
    tcase_add_test(tcase, acquire_that_the_database_finds_invalid_names_the_field);
    tcase_add_test(tcase, acquire_out_of_bounds_never_reaches_the_coordinator);
    tcase_add_test(tcase, acquire_with_nul_in_its_key_is_refused_whole);
    tcase_add_test(tcase, acquire_that_is_not_taken_fails_at_once);
    tcase_add_loop_test(tcase, call_that_ends_takes_its_waiter_along, 0, EARLY_ENDS);
    tcase_add_loop_test(tcase, grant_that_was_on_its_way_when_the_call_ended_is_released, 0, EARLY_ENDS);
    tcase_add_loop_test(tcase, grant_whose_reply_did_not_leave_is_released, 0, EARLY_ENDS);
    tcase_add_loop_test(tcase, renewal_is_never_released_behind_its_holder, 0, EARLY_ENDS);
    tcase_add_test(tcase, grant_whose_reply_crossed_a_cancel_is_released);
    tcase_add_test(tcase, grants_that_are_kept_for_a_late_cancel_are_bounded);
    tcase_add_test(tcase, grant_that_nobody_can_take_back_is_left_to_its_deadline);
    tcase_add_test(tcase, acquire_stream_tells_queued_then_granted_then_ok);
    tcase_add_test(tcase, acquire_stream_whose_grant_was_not_sent_is_released);
}

Suite *acquire_suite(void)
{
    return methods_suite("service: acquire", add);
}
