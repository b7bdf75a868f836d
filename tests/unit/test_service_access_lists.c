/* Rights: pages of what may be read, what a refusal and the log tell, and tokens. */
#include <stdio.h>
#include <string.h>

#include "access/bearer.h"
#include "base/clock.h"
#include "service/call_internal.h"
#include "service/service.h"
#include "service/words_internal.h"
#include "test_service_access.h"
#include "virtual_clock.h"

#define TOKEN "lht_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAabcdef"
#define BEARER "Bearer " TOKEN

/* --- lists --- */

static void load_two(const char *first, const char *second, unsigned rights)
{
    struct lh_access_rule rules[] = {{WORKER, first, rights}, {WORKER, second, rights}};
    access_load_all(rules, 2, NULL);
}

static struct lh_held_lease lease_in(const char *ns, const char *key)
{
    struct lh_held_lease lease = new_lease(key);
    lease.ns = ns;
    return lease;
}

START_TEST(page_of_a_list_is_filled_from_all_that_may_be_read)
{
    struct lh_held_lease first[] = {lease_in("a", "1"), lease_in("b", "2")};
    struct lh_held_lease second[] = {lease_in("c.d", "3"), lease_in("c.d.e", "4")}, third[] = {lease_in("c.e", "5")};
    struct lh_list_answer page = {.leases = first, .lease_count = 2, .has_more = true};
    Leasehold__V1__ListLeasesRequest request;
    Leasehold__V1__ListLeasesResponse *response;
    struct lh_rpc_call *call;

    load_two("a", "c.d", LH_RIGHT_READ);
    leasehold__v1__list_leases_request__init(&request);
    request.page_size = 3;
    call = fake_call_by(service, LEASES "ListLeases", WORKER, NULL);
    fake_call_message(call, &request.base);
    ck_assert_str_eq(store.ns, "");
    ck_assert_str_eq(store.after_ns, "a");
    store.on_list(store.arg, LH_OK, NULL, &page);
    ck_assert_str_eq(store.after_ns, "c.d"); /* over the rest of b */
    ck_assert_str_eq(store.after_key, "");
    page.leases = second;
    store.on_list(store.arg, LH_OK, NULL, &page);
    ck_assert(!call->is_finished); /* the page is full: is there another one to tell of? */
    ck_assert_str_eq(store.after_ns, "c.d.e");
    ck_assert_str_eq(store.after_key, "4");
    page = (struct lh_list_answer){.leases = third, .lease_count = 1};
    store.on_list(store.arg, LH_OK, NULL, &page);
    response = fake_call_reply(call, &leasehold__v1__list_leases_response__descriptor);
    ck_assert_uint_eq(response->n_leases, 3);
    ck_assert_str_eq(response->next_page_token, "");
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(next_page_of_a_list_begins_behind_what_was_told)
{
    struct lh_held_lease held[] = {lease_in("a", "1"), lease_in("b", "2"), lease_in("c", "3")};
    struct lh_list_answer page = {.leases = held, .lease_count = 3};
    Leasehold__V1__ListLeasesRequest request;
    Leasehold__V1__ListLeasesResponse *response;
    struct lh_rpc_call *call;

    load_two("a", "c", LH_RIGHT_READ);
    leasehold__v1__list_leases_request__init(&request);
    request.page_size = 1;
    call = fake_call_by(service, LEASES "ListLeases", WORKER, NULL);
    fake_call_message(call, &request.base);
    store.on_list(store.arg, LH_OK, NULL, &page);
    response = fake_call_reply(call, &leasehold__v1__list_leases_response__descriptor);
    ck_assert_uint_eq(response->n_leases, 1);
    fake_call_end(call, LH_RPC_END_FINISHED);

    call = fake_call_by(service, LEASES "ListLeases", WORKER, NULL);
    request.page_token = response->next_page_token;
    fake_call_message(call, &request.base);
    ck_assert_str_eq(store.after_ns, "a"); /* not b, of which it must not hear */
    ck_assert_str_eq(store.after_key, "1");
    page = (struct lh_list_answer){.leases = held + 1, .lease_count = 2};
    store.on_list(store.arg, LH_OK, NULL, &page);
    response = fake_call_reply(call, &leasehold__v1__list_leases_response__descriptor);
    ck_assert_uint_eq(response->n_leases, 1);
    ck_assert_str_eq(response->leases[0]->scope->key, "3");
    ck_assert_str_eq(response->next_page_token, "");
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(search_goes_on_where_it_stopped_without_a_word_of_what_may_not_be_read)
{
    struct lh_list_answer stopped = {.has_more = true, .stop_ns = "b", .stop_key = "secret"};
    struct lh_held_lease held[] = {lease_in("c", "3")};
    struct lh_list_answer last = {.leases = held, .lease_count = 1};
    Leasehold__V1__ListLeasesRequest request;
    Leasehold__V1__ListLeasesResponse *response;
    struct lh_rpc_call *call;

    load_two("a", "c", LH_RIGHT_READ);
    leasehold__v1__list_leases_request__init(&request);
    request.search = (char *)(uintptr_t) "worker";
    call = fake_call_by(service, LEASES "ListLeases", WORKER, NULL);
    fake_call_message(call, &request.base);
    for (int i = 0; i < 10; i++)
        store.on_list(store.arg, LH_OK, NULL, &stopped);
    response = fake_call_reply(call, &leasehold__v1__list_leases_response__descriptor);
    ck_assert_uint_eq(response->n_leases, 0);
    ck_assert(response->partial);
    ck_assert_str_ne(response->next_page_token, "");
    fake_call_end(call, LH_RPC_END_FINISHED);

    call = fake_call_by(service, LEASES "ListLeases", WORKER, NULL);
    request.page_token = response->next_page_token;
    fake_call_message(call, &request.base);
    ck_assert_str_eq(store.after_ns, "c");
    ck_assert_str_eq(store.after_key, "");
    store.on_list(store.arg, LH_OK, NULL, &last);
    response = fake_call_reply(call, &leasehold__v1__list_leases_response__descriptor);
    ck_assert_uint_eq(response->n_leases, 1);
    ck_assert(!response->partial);
    ck_assert_str_eq(response->next_page_token, "");
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(list_without_a_search_goes_on_until_its_page_is_full)
{
    struct lh_list_answer stopped = {.has_more = true, .stop_ns = "c", .stop_key = "k"};
    struct lh_list_answer last = {0};
    Leasehold__V1__ListLeasesResponse *response;
    struct lh_rpc_call *call;

    load_two("a", "c", LH_RIGHT_READ);
    call = fake_call_by(service, LEASES "ListLeases", WORKER, NULL);
    fake_call_bytes(call, "", 0);
    for (int i = 0; i < 20; i++)
        store.on_list(store.arg, LH_OK, NULL, &stopped);
    ck_assert_str_eq(store.after_ns, "c");
    ck_assert_str_eq(store.after_key, "k");
    store.on_list(store.arg, LH_OK, NULL, &last);
    response = fake_call_reply(call, &leasehold__v1__list_leases_response__descriptor);
    ck_assert_str_eq(response->next_page_token, "");
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(list_ends_when_its_client_is_gone)
{
    struct lh_list_answer none = {0};
    struct lh_rpc_call *call;

    load_two("a", "c", LH_RIGHT_READ);
    call = fake_call_by(service, LEASES "ListLeases", WORKER, NULL);
    fake_call_bytes(call, "", 0);
    fake_call_end(call, LH_RPC_END_DISCONNECTED);
    store.on_list(store.arg, LH_OK, NULL, &none); /* ASan watches */
}
END_TEST

START_TEST(policies_that_may_not_be_read_leave_no_trace)
{
    static const char *const columns[] = {"namespace"}, *const some[] = {"a", "b", "c", "c.d"};
    struct lh_rows first = {.columns = columns, .column_count = 1, .cells = some, .row_count = 4, .has_more = true},
                   last = {.columns = columns, .column_count = 1, .cells = some, .row_count = 2};
    Leasehold__V1__ListPoliciesRequest request;
    Leasehold__V1__ListPoliciesResponse *response;
    struct lh_rpc_call *call;

    access_load("c", LH_RIGHT_READ);
    leasehold__v1__list_policies_request__init(&request);
    request.page_size = 2;
    call = fake_call_by(service, ADMIN "ListPolicies", WORKER, NULL);
    fake_call_message(call, &request.base);
    store.on_rows(store.arg, LH_OK, NULL, &first);
    ck_assert(!call->is_finished); /* the page is full: is there another one to tell of? */
    ck_assert_str_eq(store.after_ns, "c.d");
    store.on_rows(store.arg, LH_OK, NULL, &last);
    response = fake_call_reply(call, &leasehold__v1__list_policies_response__descriptor);
    ck_assert_uint_eq(response->n_policies, 2);
    ck_assert_str_eq(response->policies[0]->namespace_->segments[0], "c");
    ck_assert_str_eq(response->next_page_token, "");
    fake_call_end(call, LH_RPC_END_FINISHED);

    access_load("x", LH_RIGHT_LEASE);
    call = fake_call_by(service, ADMIN "ListPolicies", WORKER, NULL);
    fake_call_message(call, &request.base);
    access_check_denied(call, "read", "");
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(reap_of_everything_is_of_what_the_caller_may_reap)
{
    struct lh_reap_answer nothing = {0};
    struct lh_rpc_call *call;

    load_two("b.x", "c", LH_RIGHT_ADMIN);
    call = fake_call_by(service, ADMIN "Reap", WORKER, NULL);
    fake_call_bytes(call, "", 0);
    ck_assert_uint_eq(coordinator.reap->namespace_count, 2);
    ck_assert_str_eq(coordinator.reap_ns, "b.x");
    ck_assert(coordinator.reap->include_children);
    coordinator.reap->on_done(coordinator.reap, LH_OK, NULL, &nothing);
    fake_call_end(call, LH_RPC_END_FINISHED);

    access_load("", LH_RIGHT_ADMIN);
    call = fake_call_by(service, ADMIN "Reap", WORKER, NULL);
    fake_call_bytes(call, "", 0);
    ck_assert_uint_eq(coordinator.reap->namespace_count, 0);
    coordinator.reap->on_done(coordinator.reap, LH_OK, NULL, &nothing);
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

/* --- what a refusal tells --- */

START_TEST(refusal_without_read_does_not_say_who_holds_it)
{
    struct lh_contention contention = {.has_holder = true, .holder = new_lease("invoice-42"), .waiters_ahead = 4};
    struct lh_acquire_result held = {.status = LH_LEASE_HELD, .contention = &contention};

    for (int may_read = 0; may_read < 2; may_read++) {
        struct lh_rpc_call *call;
        access_load("payments", LH_RIGHT_LEASE | (may_read ? LH_RIGHT_READ : 0));
        call = fake_call_by(service, LEASES "Acquire", WORKER, NULL);
        fake_call_message(call, access_acquire_request());
        coordinator.acquire->on_done(coordinator.acquire, &held);
        ck_assert_str_eq(fake_call_reason(call), "LEASE_HELD");
        ck_assert_int_eq(strstr(call->message, "worker-3") != NULL, may_read);
        ck_assert_int_eq(memmem(call->details.data, call->details.size, "worker-3", 8) != NULL, may_read);
        if (!may_read)
            ck_assert_str_eq(call->message, "lease payments/invoice-42 is held, waiters ahead: 4");
        fake_call_end(call, LH_RPC_END_FINISHED);
    }
}
END_TEST

START_TEST(refusal_without_read_does_not_say_how_many_hold_it_or_what_is_free)
{
    struct lh_contention contention = {.has_holder = _i == 0,
                                       .holder = new_lease("invoice-42"),
                                       .holder_count = 3,
                                       .units_free = 2,
                                       .waiters_ahead = 4};

    for (int may_read = 0; may_read < 2; may_read++) {
        struct lh_access_caller who;
        struct lh_acquire request = {.ns = "payments", .key = "invoice-42"};
        struct lh_contention shown = contention;
        Leasehold__V1__Contention *told;

        access_load("payments", LH_RIGHT_LEASE | (may_read ? LH_RIGHT_READ : 0));
        lh_access_enter(service->access, WORKER, &who);
        lh_acquire_hide_holder(&who, request.ns, request.key, &shown);
        told = lh_message_contention(&shown, &test_arena);
        ck_assert_int_eq(told->holder_count, may_read ? 3 : 0);
        ck_assert_int_eq(told->units_free != NULL, may_read);
        ck_assert_int_eq(told->n_holders, may_read && _i == 0);
        ck_assert_int_eq(told->waiters_ahead, 4);
        lh_access_leave(&who);
    }
}
END_TEST

START_TEST(denials_are_told_once_a_second_with_their_number)
{
    struct lh_service_access_stats stats;
    unsigned calls = 1000;

    virtual_clock_begin();
    access_load("x", LH_RIGHT_READ);
    for (unsigned i = 0; i < calls; i++) {
        struct lh_rpc_call *call = fake_call_by(service, LEASES "GetLease", WORKER, NULL);
        fake_call_message(call, access_get_request());
        fake_call_end(call, LH_RPC_END_FINISHED);
    }
    ck_assert_ptr_nonnull(strstr(access_log, "access denied: no right read principal=" WORKER));
    ck_assert_ptr_nonnull(strstr(access_log, "method=" LEASES "GetLease count=1\n"));
    lh_service_access_stats(service, &stats);
    ck_assert_uint_eq(stats.denials[0], calls);
    virtual_clock_pass(LH_US_PER_S);
    lh_service_tick(service);
    ck_assert_int_eq(store.audit_sum, calls);
    ck_assert_uint_lt(store.audit_count, calls / 10);
}
END_TEST

/* --- tokens --- */

static void load_token(int64_t expires_at_us)
{
    static const struct lh_access_rule rule = {"token:ci", "payments", LH_RIGHT_LEASE};
    struct lh_access_token token = {.id = "abcd1234", .name = "ci", .expires_at_us = expires_at_us};

    lh_bearer_hash(BEARER, token.hash);
    access_load_all(&rule, 1, &token);
}

START_TEST(token_decides_for_its_call)
{
    struct lh_rpc_call *call;

    load_token(INT64_MAX);
    call = fake_call_by(service, LEASES "Acquire", WORKER, BEARER);
    fake_call_message(call, access_acquire_request());
    ck_assert_ptr_nonnull(coordinator.acquire);
    ck_assert_str_eq(lh_rpc_call_principal(call), "token:ci");
    fake_call_end(call, LH_RPC_END_CANCELED);
    access_finish_canceled(coordinator.acquire);
}
END_TEST

START_TEST(token_that_is_not_valid_is_unauthenticated)
{
    static const char *const headers[] = {"Bearer lht_BBBAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAabcdef",
                                          "Basic lht_AAA", "", "Bearer x"};

    lh_service_set_access(service, false, NULL, 0); /* where anonymous may do everything, too */
    load_token(INT64_MAX);
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
        struct lh_rpc_call *call =
            fake_call_by(service, _i == 0 ? LEASES "GetLease" : ADMIN "GetStatus", NULL, headers[i]);
        fake_call_message(call, _i == 0 ? access_get_request()
                                        : &(ProtobufCMessage){&leasehold__v1__get_status_request__descriptor, 0, NULL});
        ck_assert_int_eq(call->code, LH_GRPC_UNAUTHENTICATED);
        ck_assert_str_eq(fake_call_reason(call), "UNAUTHENTICATED");
        fake_call_end(call, LH_RPC_END_FINISHED);
    }
    ck_assert_ptr_null(strstr(access_log, "lht_"));
}
END_TEST

START_TEST(token_is_not_taken_where_strangers_may_read_it)
{
    struct lh_rpc_call *call;

    load_token(INT64_MAX);
    call = fake_call_by(service, LEASES "GetLease", WORKER, BEARER);
    call->is_public = true;
    fake_call_message(call, access_get_request());
    ck_assert_int_eq(call->code, LH_GRPC_UNAUTHENTICATED);
    ck_assert_ptr_null(strstr(access_log, TOKEN));
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(waiter_is_answered_when_its_token_ends)
{
    struct lh_rpc_call *call;

    load_token(lh_clock_us() + (_i == 0 ? 100 * LH_US_PER_S : LH_US_PER_S / 1000));
    call = fake_call_by(service, LEASES "AcquireStream", NULL, BEARER);
    if (_i == 1) {
        ck_assert(!call->is_finished);
        fake_call_message(call, access_acquire_request());
        while (!call->is_finished)
            lh_service_tick(service);
    } else {
        struct lh_access_rule rule = {"token:ci", "payments", LH_RIGHT_LEASE};
        fake_call_message(call, access_acquire_request());
        access_load_all(&rule, 1, NULL);
    }
    access_check_denied(call, "lease", "payments");
    fake_call_end(call, LH_RPC_END_FINISHED);
    access_finish_canceled(coordinator.acquire);
}
END_TEST

static void add_tests(TCase *tcase)
{
    tcase_add_test(tcase, page_of_a_list_is_filled_from_all_that_may_be_read);
    tcase_add_test(tcase, next_page_of_a_list_begins_behind_what_was_told);
    tcase_add_test(tcase, search_goes_on_where_it_stopped_without_a_word_of_what_may_not_be_read);
    tcase_add_test(tcase, list_without_a_search_goes_on_until_its_page_is_full);
    tcase_add_test(tcase, list_ends_when_its_client_is_gone);
    tcase_add_test(tcase, policies_that_may_not_be_read_leave_no_trace);
    tcase_add_test(tcase, reap_of_everything_is_of_what_the_caller_may_reap);
    tcase_add_test(tcase, refusal_without_read_does_not_say_who_holds_it);
    tcase_add_loop_test(tcase, refusal_without_read_does_not_say_how_many_hold_it_or_what_is_free, 0, 2);
    tcase_add_test(tcase, denials_are_told_once_a_second_with_their_number);
    tcase_add_test(tcase, token_decides_for_its_call);
    tcase_add_loop_test(tcase, token_that_is_not_valid_is_unauthenticated, 0, 2);
    tcase_add_test(tcase, token_is_not_taken_where_strangers_may_read_it);
    tcase_add_test(tcase, waiter_is_answered_when_its_token_ends);
}

Suite *access_lists_suite(void)
{
    Suite *suite = suite_create("service: access, lists and tokens");
    TCase *tcase = tcase_create("access_lists");

    tcase_add_checked_fixture(tcase, access_setup, access_teardown);
    add_tests(tcase);
    suite_add_tcase(suite, tcase);
    return suite;
}
