/* The methods between a hand-made client, coordinator and store: who is answered when, and what becomes of what is
   answered too late. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "grpc/health/v1/health.pb-c.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "service/service.h"
#include "service/wire.h"
#include "test_service_fakes.h"

static struct fake_store store;
static struct lh_coordinator coordinator;
static struct lh_service *service;

static void setup(void)
{
    struct lh_service_options options;

    fake_store_init(&store);
    memset(&coordinator, 0, sizeof(coordinator));
    coordinator.store = &store.base;
    lh_service_options_init(&options);
    options.version = "1.2.3";
    service = lh_service_create(&coordinator, &options);
}

static void teardown(void)
{
    lh_service_destroy(service);
    test_arena_reset();
}

#define LEASES "/leasehold.v1.LeaseService/"
#define ADMIN "/leasehold.v1.AdminService/"

static struct lh_lease new_lease(const char *key)
{
    struct lh_lease lease = {
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

/* --- Acquire --- */

static struct lh_rpc_call *start_acquire(void)
{
    struct lh_rpc_call *call = fake_call(service, LEASES "Acquire");
    fake_call_message(call, &new_acquire_request()->base);
    return call;
}

static void finish_acquire(enum lh_status status, bool is_renewal)
{
    struct lh_lease lease = new_lease("invoice-42");
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
    ck_assert_str_eq(coordinator.acquire->labels, "{}");
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
        .status = LH_INVALID_ARGUMENT, .field = "duration", .bound = "1 to 86400 s in this namespace"};
    struct lh_rpc_call *call = start_acquire();

    coordinator.acquire->on_done(coordinator.acquire, &result);
    ck_assert_int_eq(call->code, LH_GRPC_INVALID_ARGUMENT);
    ck_assert_str_eq(fake_call_field(call), "duration");
    ck_assert_str_eq(call->message, "duration is out of bounds: 1 to 86400 s in this namespace");
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
    struct lh_release_request *release = coordinator.release;

    ck_assert_ptr_nonnull(release);
    ck_assert_uint_eq(release->count, 1);
    ck_assert_str_eq(release->items[0].item.ns, "payments");
    ck_assert_str_eq(release->items[0].item.key, "invoice-42");
    ck_assert(!release->items[0].item.is_failure);
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

static void answer_look(bool is_held, int64_t token, int64_t heartbeats)
{
    struct lh_scope_answer answer = {.is_held = is_held, .lease = new_lease("invoice-42")};

    answer.lease.token = token;
    answer.lease.heartbeats = heartbeats;
    store.on_scope(store.arg, LH_OK, NULL, &answer);
}

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
    ck_assert(store.on_scope == NULL);
    lh_service_on_late_cancel(service, id);
    ck_assert_str_eq(store.key, "invoice-42");
    answer_look(true, 42, 0);
    finish_release();
    coordinator.release = NULL;
    store.on_scope = NULL;
    lh_service_on_late_cancel(service, id);
    ck_assert(store.on_scope == NULL);
}
END_TEST

/* He asked again with the same lease key, perhaps elsewhere, and was told that it is his. */
START_TEST(grant_that_was_renewed_is_not_released_by_a_late_cancel)
{
    static const struct {
        bool is_held;
        int64_t token, heartbeats;
    } looks[] = {{true, 42, 1}, {true, 43, 0}, {false, 42, 0}};

    for (size_t i = 0; i < 3; i++) {
        struct lh_rpc_call *call = start_acquire();
        uint64_t id = call->id;
        finish_acquire(LH_OK, false);
        fake_call_end(call, LH_RPC_END_FINISHED);
        lh_service_on_late_cancel(service, id);
        answer_look(looks[i].is_held, looks[i].token, looks[i].heartbeats);
        ck_assert_ptr_null(coordinator.release);
    }
}
END_TEST

START_TEST(grant_that_cannot_be_looked_at_is_left_to_its_deadline)
{
    for (int i = 0; i < 2; i++) {
        struct lh_rpc_call *call = start_acquire();
        uint64_t id = call->id;
        finish_acquire(LH_OK, false);
        fake_call_end(call, LH_RPC_END_FINISHED);
        store.refuse = i == 0 ? LH_DATABASE_UNAVAILABLE : LH_OK;
        lh_service_on_late_cancel(service, id);
        if (i == 1)
            store.on_scope(store.arg, LH_DATABASE_UNAVAILABLE, NULL, NULL);
        ck_assert_ptr_null(coordinator.release);
    }
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
    ck_assert(store.on_scope == NULL);
    lh_service_on_late_cancel(service, last);
    answer_look(true, 42, 0);
    finish_release();
}
END_TEST

/* --- Heartbeat and Release --- */

START_TEST(bad_item_of_a_heartbeat_does_not_spoil_the_others)
{
    Leasehold__V1__LeaseRef *refs[] = {new_lease_ref("one", LEASE_KEY), new_lease_ref("two", "no-uuid"),
                                       new_lease_ref("nul", LEASE_KEY), new_lease_ref("four", LEASE_KEY),
                                       new_lease_ref("five", repeated("x", 65))};
    struct lh_rpc_call *call = fake_call(service, LEASES "Heartbeat");
    Leasehold__V1__HeartbeatResponse *response;
    Leasehold__V1__HeartbeatRequest request;
    struct lh_heartbeat_request *asked;
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
    struct lh_release_request *asked;

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

/* --- GetLease, ListLeases --- */

static struct lh_rpc_call *start_get(void)
{
    struct lh_rpc_call *call = fake_call(service, LEASES "GetLease");
    Leasehold__V1__GetLeaseRequest request;

    leasehold__v1__get_lease_request__init(&request);
    request.scope = new_scope("payments", "invoice-42");
    fake_call_message(call, &request.base);
    return call;
}

START_TEST(get_lease_tells_holder_waiters_and_last_hold)
{
    struct lh_scope_answer answer = {.is_held = true, .lease = new_lease("invoice-42"), .waiters = 3};
    struct lh_rpc_call *call = start_get();
    Leasehold__V1__GetLeaseResponse *response;

    ck_assert_str_eq(store.key, "invoice-42");
    store.on_scope(store.arg, LH_OK, NULL, &answer);
    response = fake_call_reply(call, &leasehold__v1__get_lease_response__descriptor);
    ck_assert_str_eq(response->lease->owner, "worker-3");
    ck_assert_str_eq(response->lease->lease_key, ""); /* the credential is its holder's */
    ck_assert_int_eq(response->contention->waiters_ahead, 3);
    ck_assert_ptr_null(response->last);
    fake_call_end(call, LH_RPC_END_FINISHED);

    answer = (struct lh_scope_answer){
        .has_last = true,
        .last = {.token = 41, .owner = "w", .end_reason = LH_END_FAILED, .result = "", .error = "no"}};
    call = start_get();
    store.on_scope(store.arg, LH_OK, NULL, &answer);
    response = fake_call_reply(call, &leasehold__v1__get_lease_response__descriptor);
    ck_assert_ptr_null(response->lease);
    ck_assert_ptr_null(response->contention);
    ck_assert_int_eq(response->last->token, 41);
    ck_assert_int_eq(response->last->end_reason, LEASEHOLD__V1__END_REASON__END_REASON_FAILED);
    ck_assert_str_eq(response->last->error, "no");
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(get_lease_of_an_unknown_scope_is_not_found)
{
    struct lh_scope_answer nothing = {0};
    struct lh_rpc_call *call = start_get();

    store.on_scope(store.arg, LH_OK, NULL, &nothing);
    ck_assert_int_eq(call->code, LH_GRPC_NOT_FOUND);
    ck_assert_str_eq(fake_call_reason(call), "NOT_HELD");
    ck_assert_str_eq(call->message, "lease payments/invoice-42 is not held");
    fake_call_end(call, LH_RPC_END_FINISHED);
    call = start_get();
    store.on_scope(store.arg, LH_NOT_HELD, NULL, NULL);
    ck_assert_str_eq(fake_call_reason(call), "NOT_HELD");
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(store_that_is_gone_fails_the_call)
{
    struct lh_error error = {.status = LH_DATABASE_UNAVAILABLE, .message = "password of role x refused by 10.0.0.1"};
    struct lh_rpc_call *call = start_get();

    store.on_scope(store.arg, LH_DATABASE_UNAVAILABLE, &error, NULL);
    ck_assert_str_eq(fake_call_reason(call), "DATABASE_UNAVAILABLE");
    ck_assert_ptr_null(strstr(call->message, "10.0.0.1"));
    fake_call_end(call, LH_RPC_END_FINISHED);
    store.refuse = LH_DATABASE_UNAVAILABLE;
    call = start_get();
    ck_assert_str_eq(fake_call_reason(call), "DATABASE_UNAVAILABLE");
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(bug_is_told_by_number_alone)
{
    struct lh_error error = {.status = LH_INTERNAL, .message = "column secret does not exist"};
    struct lh_rpc_call *call = start_get();

    store.on_scope(store.arg, LH_INTERNAL, &error, NULL);
    ck_assert_int_eq(call->code, LH_GRPC_INTERNAL);
    ck_assert_ptr_null(strstr(call->message, "secret"));
    ck_assert_int_eq(strncmp(call->message, "internal error ", 15), 0);
    ck_assert_int_gt(strspn(call->message + 15, "0123456789"), 0);
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(answer_of_the_store_that_comes_too_late_is_dropped)
{
    struct lh_scope_answer answer = {.is_held = true, .lease = new_lease("invoice-42")};
    struct lh_rpc_call *call = start_get();

    fake_call_end(call, LH_RPC_END_DISCONNECTED);
    store.on_scope(store.arg, LH_OK, NULL, &answer); /* ASan watches */
}
END_TEST

START_TEST(pages_of_leases_follow_each_other)
{
    struct lh_lease leases[2] = {new_lease("a"), new_lease("b")};
    struct lh_list_answer answer = {.leases = leases, .lease_count = 2, .has_more = true};
    struct lh_rpc_call *call = fake_call(service, LEASES "ListLeases");
    Leasehold__V1__ListLeasesResponse *response;
    Leasehold__V1__ListLeasesRequest request;

    leasehold__v1__list_leases_request__init(&request);
    request.page_size = 2;
    fake_call_message(call, &request.base);
    ck_assert_int_eq(store.page_size, 2);
    store.on_list(store.arg, LH_OK, NULL, &answer);
    response = fake_call_reply(call, &leasehold__v1__list_leases_response__descriptor);
    ck_assert_uint_eq(response->n_leases, 2);
    ck_assert_str_ne(response->next_page_token, "");
    fake_call_end(call, LH_RPC_END_FINISHED);

    call = fake_call(service, LEASES "ListLeases");
    request.page_token = response->next_page_token;
    fake_call_message(call, &request.base);
    ck_assert_str_eq(store.after_ns, "payments");
    ck_assert_str_eq(store.after_key, "b");
    answer.has_more = false;
    store.on_list(store.arg, LH_OK, NULL, &answer);
    response = fake_call_reply(call, &leasehold__v1__list_leases_response__descriptor);
    ck_assert_str_eq(response->next_page_token, "");
    fake_call_end(call, LH_RPC_END_FINISHED);

    call = fake_call(service, LEASES "ListLeases");
    request.include_children = 1;
    fake_call_message(call, &request.base);
    ck_assert_str_eq(fake_call_field(call), "page_token");
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(page_that_would_be_too_large_ends_early)
{
    size_t count = 1000;
    struct lh_lease *leases = calloc(count, sizeof(*leases));
    struct lh_list_answer answer = {.leases = leases, .lease_count = count};
    struct lh_rpc_call *call = fake_call(service, LEASES "ListLeases");
    Leasehold__V1__AcquireRequest *labelled = new_acquire_request();
    Leasehold__V1__ListLeasesResponse *response;

    for (unsigned i = 0; i < 16; i++) {
        char name[64];
        snprintf(name, sizeof(name), "%u%s", i, repeated("n", 60));
        add_label(labelled, name, repeated("v", 255));
    }
    for (size_t i = 0; i < count; i++) {
        leases[i] = new_lease(repeated("k", 1024));
        leases[i].labels = "{}";
    }
    fake_call_bytes(call, "", 0);
    store.on_list(store.arg, LH_OK, NULL, &answer);
    response = fake_call_reply(call, &leasehold__v1__list_leases_response__descriptor);
    ck_assert_uint_eq(response->n_leases, count);
    fake_call_end(call, LH_RPC_END_FINISHED);

    {
        static char json[16 * 400];
        size_t used = (size_t)snprintf(json, sizeof(json), "{");
        for (unsigned i = 0; i < 16; i++)
            used += (size_t)snprintf(json + used, sizeof(json) - used, "%s\"%s\":\"%s\"", i > 0 ? "," : "",
                                     labelled->labels[i]->key, labelled->labels[i]->value);
        snprintf(json + used, sizeof(json) - used, "}");
        for (size_t i = 0; i < count; i++)
            leases[i].labels = json;
    }
    call = fake_call(service, LEASES "ListLeases");
    fake_call_bytes(call, "", 0);
    store.on_list(store.arg, LH_OK, NULL, &answer);
    ck_assert_uint_lt(call->sent.size, 4 * 1024 * 1024);
    response = fake_call_reply(call, &leasehold__v1__list_leases_response__descriptor);
    ck_assert_uint_lt(response->n_leases, count);
    ck_assert_uint_gt(response->n_leases, 100);
    ck_assert_str_ne(response->next_page_token, "");
    fake_call_end(call, LH_RPC_END_FINISHED);
    free(leases);
}
END_TEST

/* --- AdminService --- */

START_TEST(reap_counts_and_tells_failures)
{
    struct lh_reaped reaped[] = {
        {.lease = new_lease("a")},
        {.lease = new_lease("b"), .is_failure = true, .error = repeated("e", 5000), .reap_failures = 2},
        {.lease = new_lease("c")},
        {.lease = new_lease("d"), .is_failure = true, .error = "given up", .next_try_at_us = INT64_MAX},
    };
    struct lh_reap_answer answer = {.leases = reaped, .lease_count = 4, .has_more = true};
    struct lh_rpc_call *call = fake_call(service, ADMIN "Reap");
    Leasehold__V1__ReapResponse *response;
    Leasehold__V1__Namespace ns, *namespaces[] = {&ns};
    Leasehold__V1__ReapRequest request;

    leasehold__v1__namespace__init(&ns);
    ns.segments = (char *[]){(char *)"payments", (char *)"invoices"};
    ns.n_segments = 2;
    leasehold__v1__reap_request__init(&request);
    request.namespaces = namespaces;
    request.n_namespaces = 1;
    fake_call_message(call, &request.base);
    ck_assert_str_eq(coordinator.reap_ns, "payments.invoices");
    ck_assert_int_eq(coordinator.reap->max, 1000);
    coordinator.reap->on_done(coordinator.reap, LH_OK, NULL, &answer);
    response = fake_call_reply(call, &leasehold__v1__reap_response__descriptor);
    ck_assert_int_eq(response->reaped, 2);
    ck_assert_uint_eq(response->n_failures, 2);
    ck_assert_ptr_nonnull(response->failures[0]->next_try_at);
    ck_assert_ptr_null(response->failures[1]->next_try_at);
    ck_assert_str_eq(response->failures[0]->lease->scope->key, "b");
    ck_assert_uint_eq(strlen(response->failures[0]->error), 1024);
    ck_assert_int_eq(response->failures[0]->reap_failures, 2);
    ck_assert(response->more);
    fake_call_end(call, LH_RPC_END_FINISHED);

    call = fake_call(service, ADMIN "Reap");
    fake_call_message(call, &request.base);
    fake_call_end(call, LH_RPC_END_CANCELED);
    coordinator.reap->on_done(coordinator.reap, LH_OK, NULL, &answer); /* too late to be told */

    coordinator.refuse = LH_OVERLOADED;
    call = fake_call(service, ADMIN "Reap");
    fake_call_message(call, &request.base);
    ck_assert_str_eq(fake_call_reason(call), "OVERLOADED");
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(force_release_returns_the_lease_it_ended)
{
    struct lh_error busy = {.status = LH_SCOPE_BUSY, .message = "session 4711 keeps a guard on it"};
    struct lh_scope_answer answer = {.lease = new_lease("invoice-42")};
    Leasehold__V1__ForceReleaseResponse *response;
    Leasehold__V1__ForceReleaseRequest request;
    struct lh_rpc_call *call = fake_call(service, ADMIN "ForceRelease");

    leasehold__v1__force_release_request__init(&request);
    request.scope = new_scope("payments", "invoice-42");
    fake_call_message(call, &request.base);
    ck_assert_str_eq(fake_call_field(call), "reason");
    fake_call_end(call, LH_RPC_END_FINISHED);

    request.reason = (char *)"host is gone";
    request.token = 42;
    call = fake_call(service, ADMIN "ForceRelease");
    fake_call_message(call, &request.base);
    ck_assert_str_eq(store.reason, "host is gone");
    ck_assert_int_eq(store.token, 42);
    store.on_scope(store.arg, LH_OK, NULL, &answer);
    response = fake_call_reply(call, &leasehold__v1__force_release_response__descriptor);
    ck_assert_int_eq(response->lease->token, 42);
    ck_assert_str_eq(response->lease->lease_key, "");
    ck_assert_str_eq(coordinator.woken, "invoice-42");
    fake_call_end(call, LH_RPC_END_FINISHED);

    call = fake_call(service, ADMIN "ForceRelease");
    fake_call_message(call, &request.base);
    store.on_scope(store.arg, LH_NOT_HELD, NULL, NULL);
    ck_assert_int_eq(call->code, LH_GRPC_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(call->message, "not held with token 42"));
    fake_call_end(call, LH_RPC_END_FINISHED);

    call = fake_call(service, ADMIN "ForceRelease");
    fake_call_message(call, &request.base);
    store.on_scope(store.arg, LH_SCOPE_BUSY, &busy, NULL);
    ck_assert_int_eq(call->code, LH_GRPC_ABORTED);
    ck_assert_ptr_nonnull(strstr(call->message, "4711"));
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(policies_go_in_and_out)
{
    struct lh_policy policies[2] = {{.ns = "payments"}, {.ns = "payments"}};
    struct lh_policy_answer answer = {.policies = policies, .policy_count = 2, .has_more = true};
    struct lh_error refused = {.status = LH_INVALID_ARGUMENT, .field = "grace", .bound = "at most 1 h"};
    struct lh_rpc_call *call = fake_call(service, ADMIN "SetPolicy");
    Leasehold__V1__SetPolicyResponse *set;
    Leasehold__V1__GetPolicyResponse *got;
    Leasehold__V1__ListPoliciesResponse *list;
    Leasehold__V1__SetPolicyRequest request;
    Leasehold__V1__Policy policy;

    policies[0].set = policies[1].set = 1u << LH_POLICY_GRACE;
    policies[0].values[LH_POLICY_GRACE].number = policies[1].values[LH_POLICY_GRACE].number = 2 * LH_US_PER_S;
    policies[1].sources[LH_POLICY_GRACE] = "payments";
    leasehold__v1__set_policy_request__init(&request);
    leasehold__v1__policy__init(&policy);
    request.policy = &policy;
    policy.grace = new_duration(2, 0);
    fake_call_message(call, &request.base);
    ck_assert_uint_eq(store.mask, 1u << LH_POLICY_GRACE);
    ck_assert_int_eq(store.policy.values[LH_POLICY_GRACE].number, 2 * LH_US_PER_S);
    store.on_policy(store.arg, LH_OK, NULL, &answer);
    set = fake_call_reply(call, &leasehold__v1__set_policy_response__descriptor);
    ck_assert_int_eq(set->effective->grace->seconds, 2);
    fake_call_end(call, LH_RPC_END_FINISHED);

    call = fake_call(service, ADMIN "SetPolicy");
    fake_call_message(call, &request.base);
    store.on_policy(store.arg, LH_INVALID_ARGUMENT, &refused, NULL);
    ck_assert_str_eq(fake_call_field(call), "policy.grace");
    fake_call_end(call, LH_RPC_END_FINISHED);

    call = fake_call(service, ADMIN "GetPolicy");
    fake_call_bytes(call, "", 0);
    ck_assert_str_eq(store.ns, "");
    store.on_policy(store.arg, LH_OK, NULL, &answer);
    got = fake_call_reply(call, &leasehold__v1__get_policy_response__descriptor);
    ck_assert_int_eq(got->own->grace->seconds, 2);
    ck_assert_uint_eq(got->n_source, 1);
    ck_assert_str_eq(got->source[0]->value, "payments");
    fake_call_end(call, LH_RPC_END_FINISHED);

    call = fake_call(service, ADMIN "ListPolicies");
    fake_call_bytes(call, "", 0);
    ck_assert_int_eq(store.page_size, 100);
    store.on_policy(store.arg, LH_OK, NULL, &answer);
    list = fake_call_reply(call, &leasehold__v1__list_policies_response__descriptor);
    ck_assert_uint_eq(list->n_policies, 2);
    ck_assert_str_ne(list->next_page_token, "");
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(status_says_who_and_where)
{
    struct lh_rpc_call *call = fake_call(service, ADMIN "GetStatus");
    Leasehold__V1__GetStatusResponse *response;

    coordinator.stats.waiters = 12345;
    fake_call_bytes(call, "", 0);
    response = fake_call_reply(call, &leasehold__v1__get_status_response__descriptor);
    ck_assert_str_eq(response->version, "1.2.3");
    ck_assert_int_eq(response->schema_version, 12);
    ck_assert_int_eq(response->timeline, 3);
    ck_assert_str_eq(response->coordinator_id, LEASE_KEY);
    ck_assert_int_eq(response->max_block->seconds, 20);
    ck_assert_int_eq(response->waiters, 12345);
    fake_call_end(call, LH_RPC_END_FINISHED);
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

static void answer_heartbeat(struct lh_heartbeat_request *request, int64_t heartbeats)
{
    request->items[0].item.outcome = LH_OUTCOME_OK;
    request->items[0].item.heartbeats = heartbeats;
    request->on_done(request);
}

START_TEST(keep_alive_answers_in_order_and_ends_when_nothing_is_owed)
{
    struct lh_rpc_call *call = fake_call(service, LEASES "KeepAlive");
    struct lh_heartbeat_request *first, *second;
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
    struct lh_heartbeat_request *requests[64];
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
    struct lh_heartbeat_request *first;

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

/* --- health --- */

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

START_TEST(health_follows_the_database_and_the_shutdown)
{
    ck_assert_int_eq(check_health(""), SERVING);
    ck_assert_int_eq(check_health("leasehold.v1.LeaseService"), SERVING);
    ck_assert_int_eq(check_health("leasehold.v1.AdminService"), SERVING);
    ck_assert_int_eq(check_health("leasehold.v2.LeaseService"), -LH_GRPC_NOT_FOUND);
    store.is_connected = false; /* and never was seen by a tick: no patience yet */
    ck_assert_int_eq(check_health(""), NOT_SERVING);
    store.is_connected = true;
    lh_service_tick(service);
    store.is_connected = false; /* 5 s of patience from now on */
    ck_assert_int_eq(check_health(""), SERVING);
    store.is_connected = true;
    lh_service_drain(service);
    ck_assert_int_eq(check_health(""), NOT_SERVING);
    ck_assert(!lh_service_is_serving(service));
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
    ck_assert_uint_eq(response->list_services_response->n_service, 5);
    for (size_t i = 0; i < 5; i++) {
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

Suite *method_suite(void)
{
    Suite *suite = suite_create("service methods");
    TCase *tcase = tcase_create("methods");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, acquire_that_is_granted_returns_the_lease_with_its_key);
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
    tcase_add_test(tcase, grant_that_was_renewed_is_not_released_by_a_late_cancel);
    tcase_add_test(tcase, grant_that_cannot_be_looked_at_is_left_to_its_deadline);
    tcase_add_test(tcase, grants_that_are_kept_for_a_late_cancel_are_bounded);
    tcase_add_test(tcase, grant_that_nobody_can_take_back_is_left_to_its_deadline);
    tcase_add_test(tcase, bad_item_of_a_heartbeat_does_not_spoil_the_others);
    tcase_add_test(tcase, bad_item_of_a_release_does_not_spoil_the_others);
    tcase_add_test(tcase, batch_that_is_answered_too_late_is_dropped);
    tcase_add_test(tcase, batch_that_is_not_taken_fails_as_a_whole);
    tcase_add_test(tcase, empty_batch_is_answered_empty);
    tcase_add_test(tcase, get_lease_tells_holder_waiters_and_last_hold);
    tcase_add_test(tcase, get_lease_of_an_unknown_scope_is_not_found);
    tcase_add_test(tcase, store_that_is_gone_fails_the_call);
    tcase_add_test(tcase, bug_is_told_by_number_alone);
    tcase_add_test(tcase, answer_of_the_store_that_comes_too_late_is_dropped);
    tcase_add_test(tcase, pages_of_leases_follow_each_other);
    tcase_add_test(tcase, page_that_would_be_too_large_ends_early);
    tcase_add_test(tcase, reap_counts_and_tells_failures);
    tcase_add_test(tcase, force_release_returns_the_lease_it_ended);
    tcase_add_test(tcase, policies_go_in_and_out);
    tcase_add_test(tcase, status_says_who_and_where);
    tcase_add_test(tcase, acquire_stream_tells_queued_then_granted_then_ok);
    tcase_add_test(tcase, acquire_stream_whose_grant_was_not_sent_is_released);
    tcase_add_test(tcase, keep_alive_answers_in_order_and_ends_when_nothing_is_owed);
    tcase_add_test(tcase, keep_alive_reads_no_more_than_it_can_answer);
    tcase_add_test(tcase, keep_alive_tells_what_is_owed_before_it_fails);
    tcase_add_test(tcase, keep_alive_that_is_gone_goes_with_its_last_answer);
    tcase_add_test(tcase, keep_alive_ends_at_shutdown_and_does_not_begin);
    tcase_add_test(tcase, health_follows_the_database_and_the_shutdown);
    tcase_add_test(tcase, health_watchers_hear_each_change_once);
    tcase_add_test(tcase, health_watchers_are_bounded);
    tcase_add_loop_test(tcase, reflection_lists_services_and_files, 0, 2);
    tcase_add_loop_test(tcase, reflection_finds_symbols, 0, sizeof(symbols) / sizeof(symbols[0]));
    tcase_add_test(tcase, reflection_answers_what_it_does_not_have);
    suite_add_tcase(suite, tcase);
    return suite;
}
