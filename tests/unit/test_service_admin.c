/* AdminService: what goes to the store, and what comes back. */
#include <string.h>

#include "base/clock.h"
#include "test_service_methods.h"

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
    ck_assert_str_eq(coordinator.reap_principal, "anonymous");
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
    struct lh_scope_answer answer = {.is_held = true, .lease = new_lease("invoice-42")};
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
    call->principal = "user:admin";
    fake_call_message(call, &request.base);
    ck_assert_str_eq(store.reason, "host is gone");
    ck_assert_str_eq(store.principal, "user:admin");
    ck_assert_str_eq(store.peer, "127.0.0.1:4242");
    ck_assert_int_eq(store.token, 42);
    answer.holders = &answer.lease;
    answer.listed = 1;
    store.on_scope(store.arg, LH_OK, NULL, &answer);
    response = fake_call_reply(call, &leasehold__v1__force_release_response__descriptor);
    ck_assert_int_eq(response->lease->token, 42);
    ck_assert_uint_eq(response->n_leases, 1);
    ck_assert_str_eq(response->lease->lease_key, "");
    ck_assert_str_eq(coordinator.woken, "invoice-42");
    fake_call_end(call, LH_RPC_END_FINISHED);

    answer = (struct lh_scope_answer){0}; /* it rested, and nobody held it */
    call = fake_call(service, ADMIN "ForceRelease");
    fake_call_message(call, &request.base);
    store.on_scope(store.arg, LH_OK, NULL, &answer);
    response = fake_call_reply(call, &leasehold__v1__force_release_response__descriptor);
    ck_assert_ptr_null(response->lease);
    fake_call_end(call, LH_RPC_END_FINISHED);

    call = fake_call(service, ADMIN "ForceRelease");
    fake_call_message(call, &request.base);
    ck_assert_str_eq(store.principal, "anonymous");
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

START_TEST(force_release_of_several_holders_wants_a_token_or_all)
{
    struct lh_held_lease ended[2] = {new_lease("invoice-42"), new_lease("invoice-42")};
    struct lh_scope_answer answer = {.is_held = true, .lease = ended[0], .holders = ended, .listed = 2};
    struct lh_error several = {.status = LH_INVALID_ARGUMENT, .message = "held by 2"};
    Leasehold__V1__ForceReleaseResponse *response;
    Leasehold__V1__ForceReleaseRequest request;
    struct lh_rpc_call *call = fake_call(service, ADMIN "ForceRelease");

    leasehold__v1__force_release_request__init(&request);
    request.scope = new_scope("payments", "invoice-42");
    request.reason = (char *)"host is gone";
    fake_call_message(call, &request.base);
    ck_assert(!store.all);
    store.on_scope(store.arg, LH_INVALID_ARGUMENT, &several, NULL);
    ck_assert_int_eq(call->code, LH_GRPC_INVALID_ARGUMENT);
    ck_assert_str_eq(fake_call_field(call), "token");
    fake_call_end(call, LH_RPC_END_FINISHED);

    request.all = true;
    ended[1].token = 43;
    call = fake_call(service, ADMIN "ForceRelease");
    fake_call_message(call, &request.base);
    ck_assert(store.all);
    store.on_scope(store.arg, LH_OK, NULL, &answer);
    response = fake_call_reply(call, &leasehold__v1__force_release_response__descriptor);
    ck_assert_uint_eq(response->n_leases, 2);
    ck_assert_int_eq(response->lease->token, ended[0].token);
    ck_assert_int_eq(response->leases[1]->token, 43);
    fake_call_end(call, LH_RPC_END_FINISHED);

    request.token = 43;
    call = fake_call(service, ADMIN "ForceRelease");
    fake_call_message(call, &request.base);
    ck_assert_str_eq(fake_call_field(call), "all");
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(policies_go_in_and_out)
{
    Leasehold__V1__ListPoliciesRequest page;
    static const char *const columns[] = {"namespace", "grace_us", "source_lines"};
    static const char *const cells[] = {"payments", "2000000", NULL, "payments", "2000000", "payments"};
    struct lh_rows answer = {.columns = columns, .column_count = 3, .cells = cells, .row_count = 2, .has_more = true};
    struct lh_error refused = {.status = LH_INVALID_ARGUMENT, .field = "grace", .bound = "at most 1 h"};
    struct lh_rpc_call *call = fake_call(service, ADMIN "SetPolicy");
    Leasehold__V1__SetPolicyResponse *set;
    Leasehold__V1__GetPolicyResponse *got;
    Leasehold__V1__ListPoliciesResponse *list;
    Leasehold__V1__SetPolicyRequest request;
    Leasehold__V1__Policy policy;

    leasehold__v1__set_policy_request__init(&request);
    leasehold__v1__policy__init(&policy);
    request.policy = &policy;
    policy.grace = new_duration(2, 0);
    fake_call_message(call, &request.base);
    ck_assert_uint_eq(store.setting_count, 1);
    ck_assert_str_eq(store.setting, "grace");
    ck_assert_str_eq(store.value, "2000000");
    ck_assert_str_eq(store.principal, "anonymous");
    store.on_rows(store.arg, LH_OK, NULL, &answer);
    set = fake_call_reply(call, &leasehold__v1__set_policy_response__descriptor);
    ck_assert_int_eq(set->effective->grace->seconds, 2);
    fake_call_end(call, LH_RPC_END_FINISHED);

    call = fake_call(service, ADMIN "SetPolicy");
    fake_call_message(call, &request.base);
    store.on_rows(store.arg, LH_INVALID_ARGUMENT, &refused, NULL);
    ck_assert_str_eq(fake_call_field(call), "policy.grace");
    fake_call_end(call, LH_RPC_END_FINISHED);

    call = fake_call(service, ADMIN "GetPolicy");
    fake_call_bytes(call, "", 0);
    ck_assert_str_eq(store.ns, "");
    store.on_rows(store.arg, LH_OK, NULL, &answer);
    got = fake_call_reply(call, &leasehold__v1__get_policy_response__descriptor);
    ck_assert_int_eq(got->own->grace->seconds, 2);
    ck_assert_uint_eq(got->n_source, 1);
    ck_assert_str_eq(got->source[0]->value, "payments");
    fake_call_end(call, LH_RPC_END_FINISHED);

    leasehold__v1__list_policies_request__init(&page);
    page.page_size = 2;
    call = fake_call(service, ADMIN "ListPolicies");
    fake_call_message(call, &page.base);
    ck_assert_int_eq(store.page_size, 2);
    store.on_rows(store.arg, LH_OK, NULL, &answer);
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
    ck_assert_str_eq(response->trouble, "");
    ck_assert_str_eq(response->server, "db1:5432");
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

static const char *trouble_now(void)
{
    struct lh_rpc_call *call = fake_call(service, ADMIN "GetStatus");
    Leasehold__V1__GetStatusResponse *response;

    fake_call_bytes(call, "", 0);
    response = fake_call_reply(call, &leasehold__v1__get_status_response__descriptor);
    fake_call_end(call, LH_RPC_END_FINISHED);
    return response->trouble;
}

START_TEST(status_says_why_it_cannot_serve)
{
    coordinator.readiness.is_ready = false;
    ck_assert_str_eq(trouble_now(), "the database is unavailable");
    strcpy(coordinator.readiness.cause, "the database that the daemon is configured for does not exist");
    ck_assert_str_eq(trouble_now(), "the database that the daemon is configured for does not exist");
    lh_service_drain(service);
    ck_assert_str_eq(trouble_now(), "the daemon is shutting down");
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_test(tcase, reap_counts_and_tells_failures);
    tcase_add_test(tcase, force_release_returns_the_lease_it_ended);
    tcase_add_test(tcase, force_release_of_several_holders_wants_a_token_or_all);
    tcase_add_test(tcase, policies_go_in_and_out);
    tcase_add_test(tcase, status_says_who_and_where);
    tcase_add_test(tcase, status_says_why_it_cannot_serve);
}

Suite *admin_suite(void)
{
    return methods_suite("service: administration", add);
}
