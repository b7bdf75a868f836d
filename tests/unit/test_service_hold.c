/* Hold between a hand-made client, coordinator and store: what is told of its lease, and what its end gives back. */
#include <stdlib.h>

#include "base/clock.h"
#include "test_service_hold.h"

struct lh_rpc_call *call;
bool asks_by_ping;
int32_t lease_units;

void open_stream(void)
{
    Leasehold__V1__HoldRequest request;

    call = fake_call(service, "/leasehold.v1.LeaseService/Hold");
    call->principal = "token:ci";
    leasehold__v1__hold_request__init(&request);
    request.request_case = LEASEHOLD__V1__HOLD_REQUEST__REQUEST_ACQUIRE;
    request.acquire = new_acquire_request();
    request.by_ping = asks_by_ping;
    fake_call_message(call, &request.base);
    ck_assert_ptr_nonnull(coordinator.acquire);
    ck_assert_str_eq(coordinator.acquire->terms.principal, "token:ci");
}

struct lh_held_lease lease_for(int64_t remaining_us)
{
    struct lh_held_lease lease = {
        .ns = "payments",
        .key = "invoice-42",
        .token = 42,
        .owner = "worker-3",
        .labels = "{}",
        .duration_us = 30 * LH_US_PER_S,
        .grace_us = LH_US_PER_S,
        .remaining_us = remaining_us,
        .liveness = LH_LIVENESS_ALIVE,
        .units = lease_units,
    };
    return lease;
}

void send_alive(int64_t sequence)
{
    Leasehold__V1__HoldRequest request;
    Leasehold__V1__Alive alive;

    leasehold__v1__hold_request__init(&request);
    leasehold__v1__alive__init(&alive);
    alive.sequence = sequence;
    request.request_case = LEASEHOLD__V1__HOLD_REQUEST__REQUEST_ALIVE;
    request.alive = &alive;
    fake_call_message(call, &request.base);
}

void hold_in_silence(int64_t remaining_us)
{
    struct lh_held_lease lease = lease_for(remaining_us);
    struct lh_acquire_result result = {.status = LH_OK, .lease = &lease};

    open_stream();
    coordinator.acquire->on_done(coordinator.acquire, &result);
    ck_assert_uint_eq(call->sent_count, 1);
}

void hold(int64_t remaining_us)
{
    hold_in_silence(remaining_us);
    send_alive(0);
}

struct hold *held(void)
{
    return lh_rpc_call_data(call);
}

void ring(void)
{
    call->method->on_alarm(call);
}

void answer_ping(void)
{
    ck_assert(call->is_asking);
    call->is_asking = false;
    call->method->on_peer_alive(call);
}

Leasehold__V1__HoldEvent *event(void)
{
    return fake_call_reply(call, &leasehold__v1__hold_event__descriptor);
}

void answer_heartbeat(enum lh_outcome outcome, int64_t remaining_us)
{
    struct lh_holder_request *request = coordinator.heartbeat;

    ck_assert_ptr_nonnull(request);
    coordinator.heartbeat = NULL;
    request->items[0].item.outcome = outcome;
    request->items[0].item.remaining_us = remaining_us;
    request->items[0].item.heartbeats = 9;
    request->items[0].item.end_reason = outcome == LH_OUTCOME_LOST ? LH_END_FORCED : LH_END_UNSPECIFIED;
    request->on_done(request);
}

static void answer_release(enum lh_outcome outcome)
{
    struct lh_holder_request *request = coordinator.release;

    ck_assert_ptr_nonnull(request);
    coordinator.release = NULL;
    request->items[0].item.outcome = outcome;
    request->on_done(request);
}

static void send_release(void)
{
    Leasehold__V1__HoldRequest request;
    Leasehold__V1__ReleaseItem item;

    leasehold__v1__hold_request__init(&request);
    leasehold__v1__release_item__init(&item);
    request.request_case = LEASEHOLD__V1__HOLD_REQUEST__REQUEST_RELEASE;
    request.release = &item;
    fake_call_message(call, &request.base);
}

START_TEST(hold_tries_again_until_the_deadline_and_is_lost_then)
{
    hold(10 * LH_US_PER_S);
    ring();
    answer_ping();
    answer_heartbeat(LH_OUTCOME_RETRY, 0);
    ck_assert_uint_eq(call->sent_count, 1);
    ck_assert(!call->is_finished);
    fake_call_end(call, LH_RPC_END_SHUTDOWN);

    hold(-1);
    ring();
    answer_ping();
    answer_heartbeat(LH_OUTCOME_RETRY, 0);
    ck_assert_int_eq(event()->event_case, LEASEHOLD__V1__HOLD_EVENT__EVENT_LOST);
    ck_assert_int_eq(event()->lost->end_reason, LEASEHOLD__V1__END_REASON__END_REASON_UNKNOWN);
    ck_assert(call->is_finished);
    ck_assert_int_eq(call->code, LH_GRPC_OK);
    fake_call_end(call, LH_RPC_END_FINISHED);
    answer_release(LH_OUTCOME_OK); /* it was told lost, so it must not live on */
}
END_TEST

START_TEST(hold_that_is_lost_says_why_and_releases_nothing)
{
    hold(20 * LH_US_PER_S);
    ring();
    answer_ping();
    answer_heartbeat(LH_OUTCOME_LOST, 0);
    ck_assert_int_eq(event()->lost->outcome, LEASEHOLD__V1__OUTCOME__OUTCOME_LOST);
    ck_assert_int_eq(event()->lost->end_reason, LEASEHOLD__V1__END_REASON__END_REASON_FORCED);
    ck_assert_str_eq(event()->lost->lease_key, LEASE_KEY);
    ck_assert_int_eq(call->code, LH_GRPC_OK);
    fake_call_end(call, LH_RPC_END_FINISHED);
    ck_assert_ptr_null(coordinator.release);
}
END_TEST

static const struct {
    enum lh_rpc_end reason;
    bool is_peer_lost;
    bool has_proxy;
    bool is_released;
} ends[] = {
    {LH_RPC_END_CANCELED, false, false, true},  {LH_RPC_END_DISCONNECTED, false, false, true},
    {LH_RPC_END_DEADLINE, false, false, true},  {LH_RPC_END_REFUSED, false, false, false},
    {LH_RPC_END_SHUTDOWN, false, false, false}, {LH_RPC_END_DISCONNECTED, true, false, false},
    {LH_RPC_END_CANCELED, false, true, false},  {LH_RPC_END_DISCONNECTED, false, true, false},
    {LH_RPC_END_DEADLINE, false, true, false},  {LH_RPC_END_REFUSED, false, true, false},
};

START_TEST(hold_that_ends_is_released_unless_its_client_may_not_know)
{
    hold(29 * LH_US_PER_S);
    call->is_peer_lost = ends[_i].is_peer_lost;
    call->forwarded_for = ends[_i].has_proxy ? "192.0.2.1" : NULL;
    fake_call_end(call, ends[_i].reason);
    ck_assert_int_eq(coordinator.release != NULL, ends[_i].is_released);
    if (coordinator.release != NULL) {
        ck_assert(coordinator.release->items[0].item.is_failure);
        ck_assert_str_eq(coordinator.release->items[0].item.key, "invoice-42");
        answer_release(LH_OUTCOME_OK);
    }
}
END_TEST

START_TEST(hold_whose_half_is_closed_is_released_unless_a_proxy_may_have_done_it)
{
    hold(29 * LH_US_PER_S);
    call->forwarded_for = _i == 1 ? "192.0.2.1" : NULL;
    call->method->on_half_close(call);
    ck_assert_int_eq(coordinator.release == NULL, _i);
    if (_i == 1)
        ck_assert_int_eq(call->code, LH_GRPC_CANCELLED);
    else
        answer_release(LH_OUTCOME_OK);
    fake_call_end(call, LH_RPC_END_FINISHED);
    ck_assert_ptr_null(coordinator.release);
}
END_TEST

START_TEST(hold_that_ends_while_it_waits_is_cancelled_and_a_crossing_grant_given_back)
{
    struct lh_held_lease lease = lease_for(29 * LH_US_PER_S);
    struct lh_acquire_result result = {.status = LH_OK, .lease = &lease};

    open_stream();
    fake_call_end(call, LH_RPC_END_CANCELED);
    ck_assert_ptr_eq(coordinator.canceled, coordinator.acquire);
    coordinator.acquire->on_done(coordinator.acquire, &result);
    answer_release(LH_OUTCOME_OK);
}
END_TEST

START_TEST(hold_release_is_tried_again_and_told)
{
    hold(29 * LH_US_PER_S);
    send_release();
    answer_release(LH_OUTCOME_RETRY);
    ck_assert_uint_eq(call->sent_count, 1);
    ring();
    answer_release(LH_OUTCOME_OK);
    ck_assert_int_eq(event()->event_case, LEASEHOLD__V1__HOLD_EVENT__EVENT_RELEASED);
    ck_assert_int_eq(event()->released->outcome, LEASEHOLD__V1__OUTCOME__OUTCOME_OK);
    ck_assert_int_eq(call->code, LH_GRPC_OK);
    fake_call_end(call, LH_RPC_END_FINISHED);
    ck_assert_ptr_null(coordinator.release);
}
END_TEST

START_TEST(hold_whose_client_goes_between_two_tries_is_released_all_the_same)
{
    hold(29 * LH_US_PER_S);
    send_release();
    answer_release(LH_OUTCOME_RETRY);
    fake_call_end(call, LH_RPC_END_DISCONNECTED);
    answer_release(LH_OUTCOME_OK);

    hold(29 * LH_US_PER_S);
    send_release();
    fake_call_end(call, LH_RPC_END_DISCONNECTED); /* while it is out: ASan watches */
    answer_release(LH_OUTCOME_RETRY);
    ck_assert_ptr_null(coordinator.release);
}
END_TEST

START_TEST(hold_released_before_it_was_granted_ends)
{
    struct lh_acquire_result result = {.status = LH_CANCELED};

    open_stream();
    send_release();
    ck_assert_int_eq(event()->released->outcome, LEASEHOLD__V1__OUTCOME__OUTCOME_LOST);
    ck_assert_int_eq(call->code, LH_GRPC_OK);
    ck_assert_ptr_eq(coordinator.canceled, coordinator.acquire);
    fake_call_end(call, LH_RPC_END_FINISHED);
    coordinator.acquire->on_done(coordinator.acquire, &result);
}
END_TEST

static void downgrade(struct lh_uuid key, int64_t token)
{
    static const int32_t slots[] = {1, 2};
    Leasehold__V1__DowngradeRequest request;
    struct lh_rpc_call *other = fake_call(service, LEASES "Downgrade");
    struct lh_holder_entry *entry;
    char lease_key[LH_UUID_TEXT_BYTES];

    lh_uuid_format(&key, lease_key);
    leasehold__v1__downgrade_request__init(&request);
    request.lease = new_lease_ref("invoice-42", lease_key);
    request.units = 2;
    fake_call_message(other, &request.base);
    entry = &coordinator.downgrade->items[0];
    entry->item.outcome = LH_OUTCOME_OK;
    entry->item.downgrade->lease = lease_for(30 * LH_US_PER_S);
    entry->item.downgrade->lease.lease_key = key;
    entry->item.downgrade->lease.principal = "token:other";
    entry->item.downgrade->lease.token = token;
    entry->item.downgrade->lease.units = 2;
    entry->item.downgrade->lease.slots = slots;
    entry->item.downgrade->lease.slot_count = 2;
    coordinator.downgrade->on_done(coordinator.downgrade);
    fake_call_end(other, LH_RPC_END_FINISHED);
}

START_TEST(hold_tells_the_lease_as_a_downgrade_left_it)
{
    struct lh_uuid key;

    hold(20 * LH_US_PER_S);
    key = coordinator.acquire->lease_key;
    downgrade(key, 43);
    ck_assert_uint_eq(call->sent_count, 2);
    ck_assert_int_eq(event()->event_case, LEASEHOLD__V1__HOLD_EVENT__EVENT_RENEWED);
    ck_assert_int_eq(event()->renewed->token, 43);
    ck_assert_int_eq(event()->renewed->mode, LEASEHOLD__V1__MODE__MODE_SHARED);
    ck_assert_int_eq(event()->renewed->units, 2);
    ck_assert_int_eq(event()->renewed->slots[1], 2);
    ck_assert_str_eq(event()->renewed->principal, "token:other");
    ck_assert_int_ge(call->alarm_us, lh_clock_us() + 9 * LH_US_PER_S); /* it was renewed */
    downgrade(key, 42);                                                /* an answer that was late */
    ck_assert_uint_eq(call->sent_count, 2);

    fake_call_end(call, LH_RPC_END_CANCELED);
    answer_release(LH_OUTCOME_OK);
    downgrade(key, 44); /* nobody holds it here: ASan watches */
}
END_TEST

/* As after a downgrade at another daemon, or in SQL. */
static void renew_as(int64_t token, int32_t units)
{
    send_alive(0);
    ring();
    answer_ping();
    coordinator.heartbeat->items[0].item.shared =
        (struct lh_shared_terms){.token = token, .units = units, .has_slots = units > 0};
    answer_heartbeat(LH_OUTCOME_OK, LH_US_PER_S);
}

START_TEST(hold_tells_what_a_renewal_says_of_a_downgrade)
{
    int64_t granted;

    lease_units = 0;
    hold(LH_US_PER_S);
    granted = event()->granted->token;
    renew_as(0, 0);
    ck_assert_int_eq(event()->renewed->token, granted);
    ck_assert_int_eq(event()->renewed->mode, LEASEHOLD__V1__MODE__MODE_EXCLUSIVE);
    for (int32_t units = 3; units >= 2; units--) {
        renew_as(43, units);
        ck_assert_int_eq(event()->renewed->token, 43);
        ck_assert_int_eq(event()->renewed->mode, LEASEHOLD__V1__MODE__MODE_SHARED);
        ck_assert_int_eq(event()->renewed->units, units);
        ck_assert_uint_eq(event()->renewed->n_slots, units);
        for (int32_t i = 0; i < units; i++)
            ck_assert_int_eq(event()->renewed->slots[i], i + 1);
    }
    fake_call_end(call, LH_RPC_END_CANCELED);
    answer_release(LH_OUTCOME_OK);
}
END_TEST

START_TEST(hold_is_left_to_its_deadline_at_shutdown)
{
    hold(29 * LH_US_PER_S);
    lh_service_drain(service);
    ck_assert_int_eq(call->code, LH_GRPC_UNAVAILABLE);
    ck_assert_str_eq(fake_call_reason(call), "SHUTTING_DOWN");
    fake_call_end(call, LH_RPC_END_FINISHED);
    ck_assert_ptr_null(coordinator.release);
}
END_TEST

START_TEST(hold_with_the_same_lease_key_takes_over_and_the_older_one_releases_nothing)
{
    struct lh_rpc_call *older;

    hold(29 * LH_US_PER_S);
    older = call;
    hold(29 * LH_US_PER_S);
    ck_assert(older->is_finished);
    ck_assert_int_eq(older->code, LH_GRPC_CANCELLED);
    fake_call_end(older, LH_RPC_END_DISCONNECTED);
    ck_assert_ptr_null(coordinator.release);
    ck_assert(!call->is_finished);
    fake_call_end(call, LH_RPC_END_CANCELED);
    answer_release(LH_OUTCOME_OK);
}
END_TEST

Suite *hold_suite(void)
{
    Suite *suite = suite_create("service: hold");
    TCase *tcase = tcase_create("hold");

    tcase_add_checked_fixture(tcase, methods_setup, methods_teardown);
    tcase_add_test(tcase, hold_tries_again_until_the_deadline_and_is_lost_then);
    tcase_add_test(tcase, hold_that_is_lost_says_why_and_releases_nothing);
    tcase_add_loop_test(tcase, hold_that_ends_is_released_unless_its_client_may_not_know, 0,
                        (int)(sizeof(ends) / sizeof(ends[0])));
    tcase_add_loop_test(tcase, hold_whose_half_is_closed_is_released_unless_a_proxy_may_have_done_it, 0, 2);
    tcase_add_test(tcase, hold_that_ends_while_it_waits_is_cancelled_and_a_crossing_grant_given_back);
    tcase_add_test(tcase, hold_release_is_tried_again_and_told);
    tcase_add_test(tcase, hold_whose_client_goes_between_two_tries_is_released_all_the_same);
    tcase_add_test(tcase, hold_released_before_it_was_granted_ends);
    tcase_add_test(tcase, hold_tells_the_lease_as_a_downgrade_left_it);
    tcase_add_test(tcase, hold_tells_what_a_renewal_says_of_a_downgrade);
    tcase_add_test(tcase, hold_is_left_to_its_deadline_at_shutdown);
    tcase_add_test(tcase, hold_with_the_same_lease_key_takes_over_and_the_older_one_releases_nothing);
    suite_add_tcase(suite, tcase);
    return suite;
}
