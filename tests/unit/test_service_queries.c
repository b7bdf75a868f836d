/* GetLease and ListLeases, and what any call of the store may meet. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "service/words_internal.h"
#include "test_service_methods.h"

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

START_TEST(get_lease_tells_how_long_the_scope_rests)
{
    struct lh_scope_answer answer = {.rests_in_us = 48500000};
    struct lh_rpc_call *call = start_get();
    Leasehold__V1__GetLeaseResponse *response;

    store.on_scope(store.arg, LH_OK, NULL, &answer);
    response = fake_call_reply(call, &leasehold__v1__get_lease_response__descriptor);
    ck_assert_ptr_null(response->lease);
    ck_assert_ptr_null(response->contention->holder);
    ck_assert_int_eq(response->contention->rests->seconds, 48);
    ck_assert_int_eq(response->contention->rests->nanos, 500000000);
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
    struct lh_held_lease leases[2] = {new_lease("a"), new_lease("b")};
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

START_TEST(page_token_with_a_key_that_is_too_long_is_refused)
{
    static const struct {
        size_t key_size;
        const char *place, *field;
    } tokens[] = {{1024, "", ""}, {1024, "\n43", ""}, {1025, "", "page_token"}, {1025, "\n43", "page_token"}};
    uint64_t filter = 0;
    char key[1100];
    struct lh_rpc_call *call = fake_call(service, LEASES "ListLeases");
    Leasehold__V1__ListLeasesRequest request;

    leasehold__v1__list_leases_request__init(&request);
    request.include_children = true;
    memset(key, 'k', sizeof(key));
    strcpy(key + tokens[_i].key_size, tokens[_i].place);
    for (int i = 0; i < 4; i++)
        filter = lh_page_filter(filter, i == 2 ? "children" : "");
    request.page_token = lh_page_token_make(LH_PAGE_LEASES, filter, "payments", key, &test_arena);
    fake_call_message(call, &request.base);
    if (tokens[_i].field[0] != '\0') {
        ck_assert_str_eq(fake_call_field(call), tokens[_i].field);
        ck_assert_ptr_nonnull(strstr(call->message, "names a key of 1025 bytes; a key has at most 1024"));
    } else {
        struct lh_list_answer nothing = {0};
        ck_assert_uint_eq(strlen(store.after_key), 1024);
        store.on_list(store.arg, LH_OK, NULL, &nothing);
    }
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(page_that_would_be_too_large_ends_early)
{
    size_t count = 1000;
    struct lh_held_lease *leases = calloc(count, sizeof(*leases));
    struct lh_list_answer answer = {.leases = leases, .lease_count = count};
    struct lh_rpc_call *call = fake_call(service, LEASES "ListLeases");
    Leasehold__V1__AcquireRequest *labelled = new_acquire_request();
    Leasehold__V1__ListLeasesRequest request;
    Leasehold__V1__ListLeasesResponse *response;

    leasehold__v1__list_leases_request__init(&request);
    request.page_size = (int32_t)count;
    for (unsigned i = 0; i < 16; i++) {
        char name[64];
        snprintf(name, sizeof(name), "%u%s", i, repeated("n", 60));
        add_label(labelled, name, repeated("v", 255));
    }
    for (size_t i = 0; i < count; i++) {
        leases[i] = new_lease(repeated("k", 1024));
        leases[i].labels = "{}";
    }
    fake_call_message(call, &request.base);
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
    fake_call_message(call, &request.base);
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

static void add(TCase *tcase)
{
    tcase_add_test(tcase, get_lease_tells_holder_waiters_and_last_hold);
    tcase_add_test(tcase, get_lease_tells_how_long_the_scope_rests);
    tcase_add_test(tcase, get_lease_of_an_unknown_scope_is_not_found);
    tcase_add_test(tcase, store_that_is_gone_fails_the_call);
    tcase_add_test(tcase, bug_is_told_by_number_alone);
    tcase_add_test(tcase, answer_of_the_store_that_comes_too_late_is_dropped);
    tcase_add_test(tcase, pages_of_leases_follow_each_other);
    tcase_add_loop_test(tcase, page_token_with_a_key_that_is_too_long_is_refused, 0, 4);
    tcase_add_test(tcase, page_that_would_be_too_large_ends_early);
}

Suite *queries_suite(void)
{
    return methods_suite("service: queries", add);
}
