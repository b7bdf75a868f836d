/* The holder that Hold asks for a sign of life: when its lease is renewed, and when it is not. */
#include "base/clock.h"
#include "test_service_hold.h"

START_TEST(hold_asks_when_a_third_has_passed_and_renews_at_the_answer)
{
    hold(29 * LH_US_PER_S);
    ck_assert_int_ge(call->alarm_us, lh_clock_us() + 8 * LH_US_PER_S);
    ring(); /* too early */
    ck_assert(!call->is_asking);
    fake_call_end(call, LH_RPC_END_SHUTDOWN);

    hold(20 * LH_US_PER_S);
    ring();
    ck_assert_ptr_null(coordinator.heartbeat);
    answer_ping();
    ring(); /* one at a time */
    ck_assert(!call->is_asking);
    answer_heartbeat(LH_OUTCOME_OK, 30 * LH_US_PER_S);
    ck_assert_int_eq(event()->event_case, LEASEHOLD__V1__HOLD_EVENT__EVENT_RENEWED);
    ck_assert_int_eq(event()->renewed->heartbeats, 9);
    ck_assert_int_eq(event()->renewed->remaining->seconds, 30);
    ck_assert_int_eq(event()->renewed->token, 42);
    ck_assert_ptr_null(coordinator.heartbeat);
    fake_call_end(call, LH_RPC_END_SHUTDOWN);
}
END_TEST

/* However often it looks, and whatever it heard before: another renewal would let the others wait for longer. */
START_TEST(hold_of_a_client_that_does_not_answer_is_not_renewed)
{
    hold(20 * LH_US_PER_S);
    ring();
    answer_ping();
    answer_heartbeat(LH_OUTCOME_OK, 20 * LH_US_PER_S); /* due again at once */
    send_alive(1);
    ring();
    ck_assert_int_ge(held()->look_us, lh_clock_us() + 20 * LH_US_PER_S); /* until then it only waits */
    ring();
    ck_assert_ptr_null(coordinator.heartbeat);
    answer_ping(); /* late, and before its deadline */
    answer_heartbeat(LH_OUTCOME_OK, 30 * LH_US_PER_S);
    fake_call_end(call, LH_RPC_END_SHUTDOWN);
}
END_TEST

START_TEST(hold_asks_again_before_it_tries_again)
{
    hold(20 * LH_US_PER_S);
    ring();
    answer_ping();
    answer_heartbeat(LH_OUTCOME_RETRY, 0);
    ck_assert_int_le(call->alarm_us, lh_clock_us() + LH_US_PER_S);
    held()->next_us = 0; /* that time has passed */
    ring();
    ck_assert_ptr_null(coordinator.heartbeat);
    answer_ping();
    answer_heartbeat(LH_OUTCOME_OK, 30 * LH_US_PER_S);
    fake_call_end(call, LH_RPC_END_SHUTDOWN);
}
END_TEST

/* Each alive is good for one renewal: a proxy answers PINGs for a client that is stopped. */
START_TEST(hold_is_renewed_only_while_its_client_says_alive)
{
    hold_in_silence(20 * LH_US_PER_S);
    ring();
    ck_assert(!call->is_asking);
    call->method->on_peer_alive(call);
    ck_assert_ptr_null(coordinator.heartbeat);
    send_alive(1);
    answer_ping();
    answer_heartbeat(LH_OUTCOME_OK, 20 * LH_US_PER_S);
    ck_assert_int_eq(event()->alive_sequence, 1);
    ring();
    ck_assert(!call->is_asking);
    send_alive(2);
    answer_ping();
    answer_heartbeat(LH_OUTCOME_OK, 30 * LH_US_PER_S);
    ck_assert_int_eq(event()->alive_sequence, 2);
    fake_call_end(call, LH_RPC_END_SHUTDOWN);
}
END_TEST

START_TEST(hold_by_ping_is_renewed_without_alive)
{
    asks_by_ping = true;
    hold_in_silence(20 * LH_US_PER_S);
    asks_by_ping = false;
    ring();
    answer_ping();
    answer_heartbeat(LH_OUTCOME_OK, 30 * LH_US_PER_S);
    fake_call_end(call, LH_RPC_END_SHUTDOWN);
}
END_TEST

/* Its `alive` may come from a timer that works on. */
START_TEST(hold_of_a_client_that_does_not_read_is_not_renewed)
{
    for (int by_ping = 0; by_ping < 2; by_ping++) {
        asks_by_ping = by_ping;
        hold_in_silence(20 * LH_US_PER_S);
        asks_by_ping = false;
        call->is_over_mark = true;
        send_alive(1);
        ring();
        ck_assert(!call->is_asking);
        call->is_over_mark = false;
        call->method->on_writable(call);
        answer_ping();
        answer_heartbeat(LH_OUTCOME_OK, 30 * LH_US_PER_S);
        fake_call_end(call, LH_RPC_END_SHUTDOWN);
    }
}
END_TEST

static void grant(void)
{
    struct lh_held_lease lease = lease_for(20 * LH_US_PER_S);
    struct lh_acquire_result result = {.status = LH_OK, .lease = &lease};

    coordinator.acquire->on_done(coordinator.acquire, &result);
}

START_TEST(hold_of_a_client_that_was_alive_while_it_waited_only_is_not_renewed)
{
    open_stream();
    send_alive(1);
    grant();
    ring();
    ck_assert(!call->is_asking);
    send_alive(2);
    answer_ping();
    answer_heartbeat(LH_OUTCOME_OK, 30 * LH_US_PER_S);
    fake_call_end(call, LH_RPC_END_SHUTDOWN);
}
END_TEST

START_TEST(hold_of_a_waiter_that_falls_silent_loses_its_place)
{
    struct lh_acquire_result result = {.status = LH_CANCELED};

    open_stream();
    ring();
    ck_assert(!call->is_finished); /* older clients say nothing while they wait */
    send_alive(1);
    ck_assert_int_le(call->alarm_us, lh_clock_us() + 15 * LH_US_PER_S);
    held()->alive_us -= 45 * LH_US_PER_S;
    ring();
    ck_assert_int_eq(call->code, LH_GRPC_CANCELLED);
    ck_assert_ptr_eq(coordinator.canceled, coordinator.acquire);
    fake_call_end(call, LH_RPC_END_FINISHED);
    coordinator.acquire->on_done(coordinator.acquire, &result);
}
END_TEST

START_TEST(hold_that_is_quiet_says_alive)
{
    hold_in_silence(29 * LH_US_PER_S);
    held()->told_us -= 15 * LH_US_PER_S;
    ring();
    ck_assert_uint_eq(call->sent_count, 1); /* an older client may not know what it is */
    send_alive(7);
    ring();
    ck_assert_uint_eq(call->sent_count, 2);
    ck_assert_int_eq(event()->event_case, LEASEHOLD__V1__HOLD_EVENT__EVENT_ALIVE);
    ck_assert_int_eq(event()->alive->sequence, 7);
    ring();
    ck_assert_uint_eq(call->sent_count, 2);
    ck_assert_int_ge(call->alarm_us, lh_clock_us() + 8 * LH_US_PER_S); /* the renewal */
    fake_call_end(call, LH_RPC_END_SHUTDOWN);
}
END_TEST

START_TEST(hold_names_the_alive_that_came_before_the_renewal_was_sent)
{
    hold(20 * LH_US_PER_S);
    send_alive(7);
    answer_ping();
    send_alive(8);
    answer_heartbeat(LH_OUTCOME_OK, 20 * LH_US_PER_S);
    ck_assert_int_eq(event()->alive_sequence, 7);
    ring();
    answer_ping();
    answer_heartbeat(LH_OUTCOME_OK, 30 * LH_US_PER_S);
    ck_assert_int_eq(event()->alive_sequence, 8);
    fake_call_end(call, LH_RPC_END_SHUTDOWN);
}
END_TEST

static void answer_look(bool is_held, int64_t token, enum lh_liveness liveness, bool is_manual)
{
    struct lh_held_lease lease = lease_for(-5 * LH_US_PER_S);
    void *arg = store.arg;

    ck_assert_ptr_nonnull(arg);
    store.arg = NULL;
    lease.token = token;
    lease.liveness = liveness;
    lease.is_manual = is_manual;
    if (lease_units == 0) {
        store.on_scope(arg, LH_OK, NULL, &(struct lh_scope_answer){.is_held = is_held, .lease = lease});
        return;
    }
    ck_assert_int_eq(store.after_token, 41); /* from its own on: of a shared scope it is one of many */
    store.on_list(arg, LH_OK, NULL, &(struct lh_list_answer){.leases = &lease, .lease_count = is_held});
}

START_TEST(hold_of_a_silent_client_is_not_revived_but_found_lost)
{
    lease_units = _i;
    hold_in_silence(-2 * LH_US_PER_S); /* past deadline and grace */
    ring();
    answer_look(true, 42, LH_LIVENESS_SUSPECTED_DEAD, false); /* a new life of the database gave it more time */
    ck_assert_ptr_null(coordinator.heartbeat);
    ring();
    answer_look(true, 42, LH_LIVENESS_EXPIRED, true); /* an administrator's to decide */
    ck_assert_ptr_null(coordinator.heartbeat);
    ring();
    answer_look(true, 42, LH_LIVENESS_EXPIRED, false);
    answer_heartbeat(LH_OUTCOME_LOST, 0);
    ck_assert_int_eq(event()->event_case, LEASEHOLD__V1__HOLD_EVENT__EVENT_LOST);
    fake_call_end(call, LH_RPC_END_FINISHED);

    hold_in_silence(-2 * LH_US_PER_S);
    ring();
    answer_look(true, 43, LH_LIVENESS_ALIVE, false); /* another's */
    ck_assert_ptr_nonnull(coordinator.heartbeat);
    fake_call_end(call, LH_RPC_END_SHUTDOWN);
    answer_heartbeat(LH_OUTCOME_LOST, 0);
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_test(tcase, hold_asks_when_a_third_has_passed_and_renews_at_the_answer);
    tcase_add_test(tcase, hold_of_a_client_that_does_not_answer_is_not_renewed);
    tcase_add_test(tcase, hold_asks_again_before_it_tries_again);
    tcase_add_test(tcase, hold_is_renewed_only_while_its_client_says_alive);
    tcase_add_test(tcase, hold_by_ping_is_renewed_without_alive);
    tcase_add_test(tcase, hold_of_a_client_that_does_not_read_is_not_renewed);
    tcase_add_test(tcase, hold_of_a_client_that_was_alive_while_it_waited_only_is_not_renewed);
    tcase_add_test(tcase, hold_of_a_waiter_that_falls_silent_loses_its_place);
    tcase_add_test(tcase, hold_that_is_quiet_says_alive);
    tcase_add_test(tcase, hold_names_the_alive_that_came_before_the_renewal_was_sent);
    tcase_add_loop_test(tcase, hold_of_a_silent_client_is_not_revived_but_found_lost, 0, 2);
}

Suite *hold_alive_suite(void)
{
    return methods_suite("service: hold alive", add);
}
