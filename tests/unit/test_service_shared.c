/* Shared leases on the wire: what is asked for and told of several holders, and Downgrade. */
#include <string.h>

#include "base/clock.h"
#include "service/edge/wire.h"
#include "test_service_methods.h"
#include "virtual_clock.h"

#define SHARED LEASEHOLD__V1__MODE__MODE_SHARED
#define EXCLUSIVE LEASEHOLD__V1__MODE__MODE_EXCLUSIVE

static struct lh_held_lease shared_lease(int64_t token, int32_t units)
{
    static const int32_t slots[] = {3, 4};
    struct lh_held_lease lease = new_lease("invoice-42");

    lease.token = token;
    lease.units = units;
    lease.slots = slots;
    lease.slot_count = 2;
    return lease;
}

static struct lh_rpc_call *start_acquire(int32_t units)
{
    struct lh_rpc_call *call = fake_call(service, LEASES "Acquire");
    Leasehold__V1__AcquireRequest *request = new_acquire_request();

    request->mode = SHARED;
    request->units = units;
    fake_call_message(call, &request->base);
    return call;
}

START_TEST(acquire_asks_for_units_and_tells_mode_and_slots)
{
    struct lh_held_lease lease = shared_lease(42, 2);
    struct lh_acquire_result result = {.status = LH_OK, .lease = &lease};
    struct lh_rpc_call *call = start_acquire(2);
    Leasehold__V1__AcquireResponse *response;

    ck_assert_int_eq(coordinator.acquire->units, 2);
    coordinator.acquire->on_done(coordinator.acquire, &result);
    response = fake_call_reply(call, &leasehold__v1__acquire_response__descriptor);
    ck_assert_int_eq(response->lease->mode, SHARED);
    ck_assert_int_eq(response->lease->units, 2);
    ck_assert_uint_eq(response->lease->n_slots, 2);
    ck_assert_int_eq(response->lease->slots[1], 4);
    fake_call_end(call, LH_RPC_END_FINISHED);

    call = start_acquire(0);
    ck_assert_int_eq(coordinator.acquire->units, 1);
    lease = new_lease("invoice-42");
    coordinator.acquire->on_done(coordinator.acquire, &result);
    response = fake_call_reply(call, &leasehold__v1__acquire_response__descriptor);
    ck_assert_int_eq(response->lease->mode, EXCLUSIVE); /* what the coordinator says, never what was asked for */
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

static Leasehold__V1__Contention *contention_of(const struct lh_rpc_call *call)
{
    static const char url[] = "type.googleapis.com/leasehold.v1.Contention";
    const uint8_t *at = memmem(call->details.data, call->details.size, url, sizeof(url) - 1);
    uint64_t size = 0;
    size_t used;

    ck_assert_ptr_nonnull(at);
    at += sizeof(url) - 1;
    ck_assert_int_eq(*at++, 0x12); /* Any.value */
    for (used = 0; (at[used] & 0x80) != 0; used++)
        size |= (uint64_t)(at[used] & 0x7f) << (7 * used);
    size |= (uint64_t)at[used] << (7 * used);
    return (Leasehold__V1__Contention *)lh_wire_unpack(&leasehold__v1__contention__descriptor, at + used + 1, size,
                                                       &test_arena);
}

static void answer_holders(enum lh_status status, int64_t first_token, size_t count, bool has_more)
{
    struct lh_held_lease leases[10];
    struct lh_list_answer answer = {.leases = leases, .lease_count = count, .has_more = has_more};

    ck_assert_int_eq(store.max, 10);
    for (size_t i = 0; i < count; i++)
        leases[i] = shared_lease(first_token + (int64_t)i, 1);
    store.on_list(store.arg, status, NULL, &answer);
}

START_TEST(refusal_tells_how_many_hold_it_and_what_is_free)
{
    struct lh_contention contention = {
        .has_holder = true, .holder = shared_lease(42, 2), .holder_count = 3, .units_free = 1, .waiters_ahead = 2};
    struct lh_acquire_result result = {.status = LH_LEASE_HELD, .contention = &contention};
    struct lh_rpc_call *call = start_acquire(2);
    Leasehold__V1__Contention *told;

    coordinator.acquire->on_done(coordinator.acquire, &result);
    ck_assert_uint_eq(call->details.size, 0); /* who they are is looked up */
    answer_holders(LH_OK, 42, 3, false);
    told = contention_of(call);
    ck_assert_int_eq(told->holder_count, 3);
    ck_assert_int_eq(told->units_free->value, 1);
    ck_assert_uint_eq(told->n_holders, 3);
    ck_assert_int_eq(told->holder->token, 42);
    ck_assert_int_eq(told->holders[0]->token, 42);
    ck_assert_int_eq(told->holders[2]->token, 44);
    ck_assert_uint_eq(told->holder->n_slots, 0);
    ck_assert_ptr_nonnull(strstr(call->message,
                                 "lease payments/invoice-42 is held by worker-3 and 2 others, shared, units free: 1, "
                                 "waiters ahead: 2; the oldest holder, alive"));
    fake_call_end(call, LH_RPC_END_FINISHED);

    contention.units_free = LH_UNITS_UNBOUNDED;
    contention.holder_count = 2;
    call = start_acquire(2);
    coordinator.acquire->on_done(coordinator.acquire, &result);
    answer_holders(LH_OK, 42, 2, false);
    ck_assert_ptr_nonnull(strstr(call->message, "is held by worker-3 and 1 other, shared, waiters ahead: 2;"));
    fake_call_end(call, LH_RPC_END_FINISHED);

    contention.holder_count = 3;
    call = start_acquire(2);
    coordinator.acquire->on_done(coordinator.acquire, &result);
    answer_holders(LH_OK, 43, 10, true); /* the first one is gone, and more came */
    told = contention_of(call);
    ck_assert_ptr_null(told->units_free);
    ck_assert_int_eq(told->holder_count, 3);
    ck_assert_uint_eq(told->n_holders, 10);
    ck_assert_int_eq(told->holder->token, 43);
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

/* 0: the store is away; 1: it fails; 2: all have ended meanwhile; 3: it does not answer; 4: the caller is gone first. */
START_TEST(refusal_names_the_oldest_holder_where_the_others_cannot_be_looked_up)
{
    struct lh_contention contention = {.has_holder = true, .holder = shared_lease(42, 2), .holder_count = 3};
    struct lh_acquire_result result = {.status = LH_LEASE_HELD, .contention = &contention};
    struct lh_rpc_call *call = start_acquire(2);

    virtual_clock_begin();
    store.refuse = _i == 0 ? LH_DATABASE_UNAVAILABLE : LH_OK;
    coordinator.acquire->on_done(coordinator.acquire, &result);
    memset(&contention, 0xff, sizeof(contention)); /* what was told is the coordinator's */
    if (_i == 4) {
        coordinator.canceled = NULL;
        fake_call_end(call, LH_RPC_END_CANCELED);
        ck_assert_ptr_null(coordinator.canceled);
        answer_holders(LH_OK, 42, 3, false); /* ASan watches */
        return;
    }
    if (_i == 1 || _i == 2)
        answer_holders(_i == 1 ? LH_DATABASE_UNAVAILABLE : LH_OK, 42, 0, false);
    if (_i == 3) {
        virtual_clock_pass(LH_US_PER_S);
        lh_service_tick(service);
    }
    ck_assert_int_eq(contention_of(call)->holder_count, 3);
    ck_assert_uint_eq(contention_of(call)->n_holders, 1);
    ck_assert_int_eq(contention_of(call)->holders[0]->token, 42);
    fake_call_end(call, LH_RPC_END_FINISHED);
    if (_i == 3)
        answer_holders(LH_OK, 42, 3, false);
}
END_TEST

START_TEST(lease_key_that_waits_in_another_mode_is_refused)
{
    struct lh_rpc_call *call;

    coordinator.refuse = LH_INVALID_ARGUMENT;
    call = start_acquire(1);
    ck_assert_int_eq(call->code, LH_GRPC_INVALID_ARGUMENT);
    ck_assert_str_eq(fake_call_field(call), "mode");
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

static struct lh_rpc_call *start_get(void)
{
    struct lh_rpc_call *call = fake_call(service, LEASES "GetLease");
    Leasehold__V1__GetLeaseRequest request;

    leasehold__v1__get_lease_request__init(&request);
    request.scope = new_scope("payments", "invoice-42");
    fake_call_message(call, &request.base);
    return call;
}

START_TEST(get_lease_lists_the_holders)
{
    struct lh_scope_answer scope = {
        .is_held = true, .lease = shared_lease(42, 2), .holder_count = 3, .units_free = 4, .waiters = 1};
    struct lh_held_lease leases[2] = {shared_lease(42, 2), shared_lease(43, 1)};
    struct lh_list_answer holders = {.leases = leases, .lease_count = 2, .has_more = true};
    struct lh_rpc_call *call = start_get();
    Leasehold__V1__GetLeaseResponse *response;

    store.on_scope(store.arg, LH_OK, NULL, &scope);
    ck_assert_int_eq(store.max, 100);
    store.on_list(store.arg, LH_OK, NULL, &holders);
    response = fake_call_reply(call, &leasehold__v1__get_lease_response__descriptor);
    ck_assert_int_eq(response->lease->token, 42);
    ck_assert_uint_eq(response->n_holders, 2);
    ck_assert_int_eq(response->holders[1]->token, 43);
    ck_assert_uint_eq(response->holders[1]->n_slots, 2);
    ck_assert_str_eq(response->holders[1]->lease_key, "");
    ck_assert_int_eq(response->holder_count, 3);
    ck_assert_int_eq(response->contention->holder_count, 3);
    ck_assert_uint_eq(response->contention->n_holders, 2);
    ck_assert_int_eq(response->contention->units_free->value, 4);
    fake_call_end(call, LH_RPC_END_FINISHED);

    /* All of them ended between the two questions. */
    scope.waiters = 0;
    holders = (struct lh_list_answer){0};
    call = start_get();
    store.on_scope(store.arg, LH_OK, NULL, &scope);
    store.on_list(store.arg, LH_OK, NULL, &holders);
    ck_assert_str_eq(fake_call_reason(call), "NOT_HELD");
    fake_call_end(call, LH_RPC_END_FINISHED);

    /* The client went away between the two. */
    call = start_get();
    store.on_scope(store.arg, LH_OK, NULL, &scope);
    fake_call_end(call, LH_RPC_END_CANCELED);
    store.on_list(store.arg, LH_OK, NULL, &holders); /* ASan watches */
}
END_TEST

START_TEST(get_lease_of_one_holder_asks_once)
{
    struct lh_scope_answer scope = {
        .is_held = true, .lease = new_lease("invoice-42"), .holder_count = 1, .units_free = LH_UNITS_UNBOUNDED};
    struct lh_rpc_call *call = start_get();
    Leasehold__V1__GetLeaseResponse *response;

    store.on_scope(store.arg, LH_OK, NULL, &scope);
    response = fake_call_reply(call, &leasehold__v1__get_lease_response__descriptor);
    ck_assert_uint_eq(response->n_holders, 1);
    ck_assert_int_eq(response->holder_count, 1);
    ck_assert_int_eq(response->lease->mode, EXCLUSIVE);
    ck_assert_ptr_null(response->contention->units_free);
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(page_goes_on_within_a_scope)
{
    struct lh_held_lease leases[2] = {shared_lease(42, 2), shared_lease(43, 1)};
    struct lh_list_answer answer = {.leases = leases, .lease_count = 2, .has_more = true};
    struct lh_rpc_call *call = fake_call(service, LEASES "ListLeases");
    Leasehold__V1__ListLeasesResponse *response;
    Leasehold__V1__ListLeasesRequest request;

    leasehold__v1__list_leases_request__init(&request);
    request.page_size = 2;
    fake_call_message(call, &request.base);
    ck_assert_int_eq(store.after_token, 0);
    store.on_list(store.arg, LH_OK, NULL, &answer);
    response = fake_call_reply(call, &leasehold__v1__list_leases_response__descriptor);
    fake_call_end(call, LH_RPC_END_FINISHED);

    call = fake_call(service, LEASES "ListLeases");
    request.page_token = response->next_page_token;
    fake_call_message(call, &request.base);
    ck_assert_str_eq(store.after_key, "invoice-42");
    ck_assert_int_eq(store.after_token, 43);
    fake_call_end(call, LH_RPC_END_CANCELED);
    store.on_list(store.arg, LH_OK, NULL, &answer);
}
END_TEST

/* --- Downgrade --- */

static struct lh_rpc_call *start_downgrade(int32_t units)
{
    struct lh_rpc_call *call = fake_call(service, LEASES "Downgrade");
    Leasehold__V1__DowngradeRequest request;

    leasehold__v1__downgrade_request__init(&request);
    request.lease = new_lease_ref("invoice-42", LEASE_KEY);
    request.units = units;
    fake_call_message(call, &request.base);
    return call;
}

static void answer_downgrade(enum lh_outcome outcome, const char *message)
{
    struct lh_holder_request *request = coordinator.downgrade;

    coordinator.downgrade = NULL;
    request->items[0].item.outcome = outcome;
    request->items[0].item.message = message;
    request->on_done(request);
}

START_TEST(downgrade_answers_the_shared_lease)
{
    struct lh_rpc_call *call = start_downgrade(0);
    struct lh_downgrade *downgrade = coordinator.downgrade->items[0].item.downgrade;
    Leasehold__V1__DowngradeResponse *response;

    ck_assert_int_eq(downgrade->units, 1);
    ck_assert_str_eq(downgrade->principal, "anonymous");
    ck_assert_str_eq(coordinator.downgrade->items[0].item.ns, "payments");
    coordinator.downgrade->items[0].own.arrived_us = 1000000;
    coordinator.downgrade->batch.sent_us = 2500000;
    downgrade->lease = shared_lease(43, 1);
    answer_downgrade(LH_OUTCOME_OK, NULL);
    response = fake_call_reply(call, &leasehold__v1__downgrade_response__descriptor);
    ck_assert_str_eq(response->lease->lease_key, LEASE_KEY);
    ck_assert_int_eq(response->lease->token, 43);
    ck_assert_int_eq(response->lease->mode, SHARED);
    ck_assert_int_eq(response->waited->seconds, 1);
    ck_assert_int_eq(response->waited->nanos, 500000000);
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

static const struct {
    enum lh_outcome outcome;
    const char *reason;
    enum lh_grpc_code code;
} downgrade_refusals[] = {
    {LH_OUTCOME_LOST, "NOT_HELD", LH_GRPC_NOT_FOUND},
    {LH_OUTCOME_REJECTED, "HOOK_REJECTED", LH_GRPC_FAILED_PRECONDITION},
    {LH_OUTCOME_INVALID, "INVALID_ARGUMENT", LH_GRPC_INVALID_ARGUMENT},
    {LH_OUTCOME_RETRY, "SCOPE_BUSY", LH_GRPC_ABORTED},
};

START_TEST(downgrade_refusals_have_these_codes_and_reasons)
{
    struct lh_rpc_call *call = start_downgrade(2);

    if (downgrade_refusals[_i].outcome == LH_OUTCOME_INVALID) {
        coordinator.downgrade->items[0].item.downgrade->field = "units";
        coordinator.downgrade->items[0].item.downgrade->bound = "1 to 1, the capacity";
    }
    answer_downgrade(downgrade_refusals[_i].outcome, "an administrator ended it");
    ck_assert_int_eq(call->code, downgrade_refusals[_i].code);
    ck_assert_str_eq(fake_call_reason(call), downgrade_refusals[_i].reason);
    if (downgrade_refusals[_i].outcome == LH_OUTCOME_INVALID)
        ck_assert_str_eq(fake_call_field(call), "units");
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(downgrade_out_of_bounds_never_reaches_the_coordinator)
{
    struct lh_rpc_call *call = start_downgrade(1000001);

    ck_assert_str_eq(fake_call_field(call), "units");
    ck_assert_ptr_null(coordinator.downgrade);
    fake_call_end(call, LH_RPC_END_FINISHED);
    call = start_downgrade(-1);
    ck_assert_str_eq(fake_call_field(call), "units");
    fake_call_end(call, LH_RPC_END_FINISHED);
    coordinator.refuse = LH_OVERLOADED;
    call = start_downgrade(1);
    ck_assert_str_eq(fake_call_reason(call), "OVERLOADED");
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(downgrade_whose_client_is_gone_is_dropped)
{
    struct lh_rpc_call *call = start_downgrade(1);

    fake_call_end(call, LH_RPC_END_CANCELED);
    answer_downgrade(LH_OUTCOME_OK, NULL); /* ASan watches */
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_test(tcase, acquire_asks_for_units_and_tells_mode_and_slots);
    tcase_add_test(tcase, refusal_tells_how_many_hold_it_and_what_is_free);
    tcase_add_loop_test(tcase, refusal_names_the_oldest_holder_where_the_others_cannot_be_looked_up, 0, 5);
    tcase_add_test(tcase, lease_key_that_waits_in_another_mode_is_refused);
    tcase_add_test(tcase, get_lease_lists_the_holders);
    tcase_add_test(tcase, get_lease_of_one_holder_asks_once);
    tcase_add_test(tcase, page_goes_on_within_a_scope);
    tcase_add_test(tcase, downgrade_answers_the_shared_lease);
    tcase_add_loop_test(tcase, downgrade_refusals_have_these_codes_and_reasons, 0,
                        sizeof(downgrade_refusals) / sizeof(downgrade_refusals[0]));
    tcase_add_test(tcase, downgrade_out_of_bounds_never_reaches_the_coordinator);
    tcase_add_test(tcase, downgrade_whose_client_is_gone_is_dropped);
}

Suite *shared_suite(void)
{
    return methods_suite("service: shared leases", add);
}
