/* What a failed call carries: sizes, details, and the sentences; and page tokens, which fail in their own way. */
#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/text.h"
#include "google/rpc/error_details.pb-c.h"
#include "google/rpc/status.pb-c.h"
#include "rpc/grpc.h"
#include "service/edge/failure.h"
#include "service/words_internal.h"
#include "test_service.h"

static Google__Rpc__Status *decode(const struct lh_buffer *details)
{
    ProtobufCMessage *message =
        protobuf_c_message_unpack(&google__rpc__status__descriptor, NULL, details->size, details->data);
    ck_assert_ptr_nonnull(message);
    return (Google__Rpc__Status *)message;
}

/* The bytes of a detail, or NULL. */
static const ProtobufCBinaryData *find_detail(const Google__Rpc__Status *status, const char *type)
{
    for (size_t i = 0; i < status->n_details; i++) {
        const char *name = strrchr(status->details[i]->type_url, '/');
        if (name != NULL && strcmp(name + 1, type) == 0)
            return &status->details[i]->value;
    }
    return NULL;
}

static struct lh_contention contention(void)
{
    return (struct lh_contention){
        .has_holder = true,
        .waiters_ahead = 2,
        .holder = {.ns = "payments",
                   .key = "invoice-42",
                   .token = 7,
                   .owner = "worker-3",
                   .principal = "dns:worker",
                   .labels = "{\"zone\":\"eu\"}",
                   .duration_us = 30 * LH_US_PER_S,
                   .grace_us = LH_US_PER_S,
                   .remaining_us = 29200 * LH_US_PER_MS,
                   .held_us = 35 * LH_US_PER_S,
                   .silent_us = 800 * LH_US_PER_MS,
                   .heartbeats = 12,
                   .liveness = LH_LIVENESS_ALIVE},
    };
}

/* --- sizes --- */

/* As HTTP/2 counts headers: name, value and 32 for each. */
static size_t trailers_size(const struct lh_failure *failure)
{
    struct lh_buffer details = {0}, base64 = {0}, message = {0};
    const char *text = lh_failure_message(failure, &test_arena);
    size_t size;

    lh_failure_encode(failure, &details);
    lh_base64_encode(&base64, details.data, details.size);
    lh_grpc_percent_encode(&message, text, strlen(text));
    size = strlen("grpc-status") + 2 + 32 + strlen("grpc-message") + message.size + 32 +
           strlen("grpc-status-details-bin") + base64.size + 32;
    lh_buffer_finish(&details);
    lh_buffer_finish(&base64);
    lh_buffer_finish(&message);
    return size;
}

static const enum lh_status all_statuses[] = {
#define X(name, grpc, text) LH_##name,
    LH_STATUS_MAP(X)
#undef X
};

START_TEST(trailers_stay_under_6_kib_whatever_the_names_are)
{
    static const char *const units[] = {"x", "ü", "😀", "%", " "};
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        size_t bytes = strlen(units[i]);
        struct lh_contention held = contention();
        struct lh_violations violations = {0};
        struct lh_failure failure = {.status = all_statuses[_i], .contention = &held, .violations = &violations};
        char words[LH_CONTENTION_TEXT_BYTES];

        held.holder.ns = failure.ns = repeated(units[i], 255 / bytes);
        held.holder.key = failure.key = repeated(units[i], 1024 / bytes);
        held.holder.owner = repeated(units[i], 255 / bytes);
        held.holder.principal = repeated("x", i % 2 == 0 ? 128 : 2048);
        held.holder.token = held.holder.heartbeats = INT64_MAX;
        held.holder.deadline_us = held.holder.acquired_at_us = held.holder.heartbeat_at_us = INT64_MAX / 2;
        held.holder.liveness = LH_LIVENESS_SUSPECTED_DEAD;
        failure.field = failure.limit = repeated(units[i], 1024 / bytes);
        lh_contention_wait_timeout(failure.ns, failure.key, INT64_MAX / 2, &held, words);
        failure.message = i % 2 == 0 ? words : repeated(units[i], 4096);
        ck_assert_uint_lt(trailers_size(&failure), LH_TRAILERS_MAX_BYTES);
        for (unsigned j = 0; j < 20; j++) {
            char field[128];
            snprintf(field, sizeof(field), "%u%s", j, repeated(units[i], 100 / bytes));
            lh_violations_add(&violations, field, "%s", repeated(units[i], 1000));
        }
        failure.contention = NULL;
        failure.status = LH_INVALID_ARGUMENT;
        ck_assert_uint_eq(violations.omitted, 12);
        ck_assert_uint_lt(trailers_size(&failure), LH_TRAILERS_MAX_BYTES);
    }
}
END_TEST

START_TEST(long_messages_are_cut_between_characters)
{
    struct lh_failure failure = {.status = LH_HOOK_REJECTED, .message = repeated("😀", 1000)};
    const char *message = lh_failure_message(&failure, &test_arena);

    ck_assert_uint_gt(strlen(message), 300);
    ck_assert_uint_eq(strlen(message) % 4, 0);
    ck_assert(lh_utf8_is_valid(message, strlen(message)));
    failure.message = "not \xff text";
    ck_assert_str_eq(lh_failure_message(&failure, &test_arena), lh_status_text(LH_HOOK_REJECTED));
}
END_TEST

/* --- details --- */

START_TEST(held_carries_reason_scope_and_contention)
{
    struct lh_contention held = contention();
    struct lh_failure failure = {
        .status = LH_LEASE_HELD, .message = "words", .ns = "payments", .key = "invoice-42", .contention = &held};
    struct lh_buffer details = {0};
    const ProtobufCBinaryData *data;
    Leasehold__V1__Contention *told;
    Google__Rpc__ErrorInfo *info;
    Google__Rpc__Status *status;

    lh_failure_encode(&failure, &details);
    status = decode(&details);
    ck_assert_int_eq(status->code, LH_GRPC_ABORTED);
    ck_assert_str_eq(status->message, "words");
    data = find_detail(status, "google.rpc.ErrorInfo");
    info = google__rpc__error_info__unpack(NULL, data->len, data->data);
    ck_assert_str_eq(info->reason, "LEASE_HELD");
    ck_assert_str_eq(info->domain, "leasehold");
    ck_assert_uint_eq(info->n_metadata, 2);
    ck_assert_str_eq(info->metadata[0]->key, "namespace");
    ck_assert_str_eq(info->metadata[0]->value, "payments");
    ck_assert_str_eq(info->metadata[1]->value, "invoice-42");
    data = find_detail(status, "leasehold.v1.Contention");
    told = leasehold__v1__contention__unpack(NULL, data->len, data->data);
    ck_assert_int_eq(told->waiters_ahead, 2);
    ck_assert_int_eq(told->liveness, LEASEHOLD__V1__LIVENESS__LIVENESS_ALIVE);
    ck_assert_str_eq(told->holder->owner, "worker-3");
    ck_assert_str_eq(told->holder->principal, "dns:worker");
    ck_assert_str_eq(told->holder->lease_key, "");
    ck_assert_uint_eq(told->holder->n_labels, 0);
    ck_assert_ptr_null(find_detail(status, "google.rpc.RetryInfo"));
    google__rpc__error_info__free_unpacked(info, NULL);
    leasehold__v1__contention__free_unpacked(told, NULL);
    google__rpc__status__free_unpacked(status, NULL);
    lh_buffer_finish(&details);
}
END_TEST

START_TEST(retry_info_comes_with_what_can_be_repeated)
{
    enum lh_status code = all_statuses[_i];
    bool is_expected = code == LH_BLOCKING_TIMEOUT || code == LH_DATABASE_UNAVAILABLE || code == LH_SHUTTING_DOWN;
    struct lh_failure failure = {.status = code};
    struct lh_buffer details = {0};
    Google__Rpc__Status *status;

    lh_failure_encode(&failure, &details);
    status = decode(&details);
    ck_assert_int_eq(status->code, lh_status_grpc(code));
    ck_assert_int_eq(find_detail(status, "google.rpc.RetryInfo") != NULL, is_expected);
    google__rpc__status__free_unpacked(status, NULL);
    lh_buffer_finish(&details);
}
END_TEST

START_TEST(bad_request_names_fields_and_limits)
{
    struct lh_violations violations = {0};
    struct lh_failure failure = {.status = LH_INVALID_ARGUMENT, .violations = &violations};
    struct lh_buffer details = {0};
    const ProtobufCBinaryData *data;
    Google__Rpc__BadRequest *request;
    Google__Rpc__Status *status;

    lh_violations_add(&violations, "scope.key", "must be 1 to %d bytes", 1024);
    lh_violations_add(&violations, "scope.key", "is told once");
    lh_violations_add(&violations, "duration", "must be given");
    lh_failure_encode(&failure, &details);
    status = decode(&details);
    data = find_detail(status, "google.rpc.BadRequest");
    request = google__rpc__bad_request__unpack(NULL, data->len, data->data);
    ck_assert_uint_eq(request->n_field_violations, 2);
    ck_assert_str_eq(request->field_violations[0]->field, "scope.key");
    ck_assert_str_eq(request->field_violations[0]->description, "must be 1 to 1024 bytes");
    ck_assert_str_eq(request->field_violations[1]->field, "duration");
    google__rpc__bad_request__free_unpacked(request, NULL);
    google__rpc__status__free_unpacked(status, NULL);
    lh_buffer_finish(&details);
}
END_TEST

/* --- sentences --- */

START_TEST(held_is_told_in_one_sentence)
{
    struct lh_contention held = contention();
    char words[LH_CONTENTION_TEXT_BYTES];

    lh_contention_held("payments", "invoice-42", &held, words);
    ck_assert_str_eq(words, "lease payments/invoice-42 is held by worker-3, alive: 12 heartbeats, the last 0.8 s ago; "
                            "held for 35 s");
    held.holder.heartbeats = 0;
    held.holder.owner = "";
    lh_contention_held("payments", "invoice-42", &held, words);
    ck_assert_str_eq(words,
                     "lease payments/invoice-42 is held by an unnamed owner, alive: no heartbeat yet; held for 35 s");
    held.has_holder = false;
    lh_contention_held("payments", "invoice-42", &held, words);
    ck_assert_str_eq(words, "lease payments/invoice-42 is free, but 2 other waiters come first");
    lh_contention_held("payments", "invoice-42", NULL, words);
    ck_assert_str_eq(words, "lease payments/invoice-42 is held");
    lh_contention_held("payments/eu", "42", NULL, words);
    ck_assert_str_eq(words, "lease \"payments/eu\"/42 is held");
    lh_contention_held("payments", repeated("k", 1024), NULL, words);
    ck_assert_uint_eq(strlen(words), strlen("lease payments/") + 128 + strlen("... is held"));
}
END_TEST

START_TEST(wait_timeout_says_what_can_be_done)
{
    struct lh_contention held = contention();
    char words[LH_CONTENTION_TEXT_BYTES];

    lh_contention_wait_timeout("payments", "invoice-42", 5 * LH_US_PER_S, &held, words);
    ck_assert_ptr_nonnull(strstr(words, "the wait of 5.0 s has passed"));
    ck_assert_ptr_nonnull(strstr(words, "alive: 12 heartbeats"));
    held.holder.liveness = LH_LIVENESS_SUSPECTED_DEAD;
    held.holder.remaining_us = 11 * LH_US_PER_S;
    held.holder.silent_us = 19 * LH_US_PER_S;
    lh_contention_wait_timeout("payments", "invoice-42", 5 * LH_US_PER_S, &held, words);
    ck_assert_ptr_nonnull(strstr(words, "suspected dead: silent for 19 s"));
    ck_assert_ptr_nonnull(strstr(words, "expires in 12 s"));
    ck_assert_ptr_nonnull(strstr(words, "leasehold force-release payments invoice-42 --reason TEXT"));
    held.holder.is_manual = true;
    lh_contention_wait_timeout("payments", "invoice-42", 5 * LH_US_PER_S, &held, words);
    ck_assert_ptr_nonnull(strstr(words, "an administrator alone"));
    ck_assert_ptr_null(strstr(words, "expires in"));
    held.holder.liveness = LH_LIVENESS_OVERDUE;
    lh_contention_wait_timeout("payments", "invoice-42", 5 * LH_US_PER_S, &held, words);
    ck_assert_ptr_nonnull(strstr(words, "unreasonably long"));
    held.holder.liveness = LH_LIVENESS_EXPIRED;
    held.holder.is_manual = false;
    lh_contention_wait_timeout("payments", "invoice-42", 5 * LH_US_PER_S, &held, words);
    ck_assert_ptr_nonnull(strstr(words, "the reaper has not ended it yet"));
    lh_contention_blocking_timeout("payments", "invoice-42", 20 * LH_US_PER_S, &held, words);
    ck_assert_ptr_nonnull(strstr(words, "at most 20 s"));
    ck_assert_ptr_nonnull(strstr(words, "same lease key"));
}
END_TEST

START_TEST(refusals_name_what_they_are_about)
{
    char words[LH_CONTENTION_TEXT_BYTES];

    lh_contention_refused(LH_NAMESPACE_FROZEN, "payments", "k", NULL, words);
    ck_assert_ptr_nonnull(strstr(words, "namespace payments is frozen"));
    lh_contention_refused(LH_QUOTA_EXCEEDED, "payments", "k", "max_leases is 3", words);
    ck_assert_str_eq(words, "namespace payments has used up its quota: max_leases is 3");
    lh_contention_refused(LH_SCOPE_BUSY, "payments", "k", NULL, words);
    ck_assert_ptr_nonnull(strstr(words, "lease payments/k is busy"));
    lh_contention_refused(LH_LEASE_ENDED, "payments", "k", NULL, words);
    ck_assert_ptr_nonnull(strstr(words, "acquire it with a new one"));
    lh_contention_refused(LH_OVERLOADED, "payments", "k", NULL, words);
    ck_assert_str_eq(words, lh_status_text(LH_OVERLOADED));
}
END_TEST

/* --- page tokens --- */

START_TEST(page_token_returns_where_it_was_made)
{
    uint64_t filter = lh_page_filter(lh_page_filter(0, "payments"), "worker");
    char *token = lh_page_token_make(LH_PAGE_LEASES, filter, "payments.invoices", "ü 42", &test_arena);
    const char *ns, *key;

    ck_assert(lh_page_token_parse(token, LH_PAGE_LEASES, filter, &test_arena, &ns, &key));
    ck_assert_str_eq(ns, "payments.invoices");
    ck_assert_str_eq(key, "ü 42");
    ck_assert(!lh_page_token_parse(token, LH_PAGE_POLICIES, filter, &test_arena, &ns, &key));
    ck_assert(!lh_page_token_parse(token, LH_PAGE_LEASES, filter + 1, &test_arena, &ns, &key));
    token = lh_page_token_make(LH_PAGE_LEASES, filter, repeated("n", 255), repeated("k", 1024), &test_arena);
    ck_assert(lh_page_token_parse(token, LH_PAGE_LEASES, filter, &test_arena, &ns, &key));
    ck_assert_uint_eq(strlen(key), 1024);
    /* Of a queue: a database's name, a namespace, a key, a ticket and what stands between them. */
    token = lh_page_token_make(LH_PAGE_VIEW, filter, "", repeated("x", 32 + 255 + 1024 + 19 + 3), &test_arena);
    ck_assert(lh_page_token_parse(token, LH_PAGE_VIEW, filter, &test_arena, &ns, &key));
}
END_TEST

START_TEST(page_token_that_was_touched_is_refused)
{
    char *token = lh_page_token_make(LH_PAGE_LEASES, 0, "payments", "invoice-42", &test_arena);
    const char *ns, *key;
    size_t size = strlen(token);

    for (size_t i = 0; i < size; i++) {
        char *copy = lh_arena_strdup(&test_arena, token);
        copy[i] = copy[i] == 'A' ? 'B' : 'A';
        /* The last character may hold bits that count for nothing. */
        ck_assert_msg(i + 1 == size || !lh_page_token_parse(copy, LH_PAGE_LEASES, 0, &test_arena, &ns, &key),
                      "character %zu changed", i);
        copy[i] = '\0';
        ck_assert(!lh_page_token_parse(copy, LH_PAGE_LEASES, 0, &test_arena, &ns, &key));
    }
    ck_assert(!lh_page_token_parse("?", LH_PAGE_LEASES, 0, &test_arena, &ns, &key));
    ck_assert(!lh_page_token_parse(repeated("A", 100000), LH_PAGE_LEASES, 0, &test_arena, &ns, &key));
}
END_TEST

START_TEST(what_the_transport_finds_carries_a_reason_too)
{
    struct lh_buffer details = {0};
    Google__Rpc__Status *status;
    Google__Rpc__ErrorInfo *info;
    const ProtobufCBinaryData *detail;

    lh_failure_encode_transport(NULL, LH_TIMED_OUT, "the deadline of the call has passed", &details);
    status = decode(&details);
    ck_assert_int_eq(status->code, LH_GRPC_DEADLINE_EXCEEDED);
    ck_assert_str_eq(status->message, "the deadline of the call has passed");
    detail = find_detail(status, "google.rpc.ErrorInfo");
    ck_assert_ptr_nonnull(detail);
    info = google__rpc__error_info__unpack(NULL, detail->len, detail->data);
    ck_assert_str_eq(info->reason, "TIMED_OUT");
    ck_assert_str_eq(info->domain, "leasehold");
    google__rpc__error_info__free_unpacked(info, NULL);
    google__rpc__status__free_unpacked(status, NULL);
    lh_buffer_finish(&details);
}
END_TEST

Suite *failure_suite(void)
{
    Suite *suite = suite_create("service failure");
    TCase *tcase = tcase_create("failure");
    int statuses = sizeof(all_statuses) / sizeof(all_statuses[0]);

    tcase_add_checked_fixture(tcase, NULL, test_arena_reset);
    tcase_add_loop_test(tcase, trailers_stay_under_6_kib_whatever_the_names_are, 0, statuses);
    tcase_add_test(tcase, long_messages_are_cut_between_characters);
    tcase_add_test(tcase, held_carries_reason_scope_and_contention);
    tcase_add_loop_test(tcase, retry_info_comes_with_what_can_be_repeated, 0, statuses);
    tcase_add_test(tcase, what_the_transport_finds_carries_a_reason_too);
    tcase_add_test(tcase, bad_request_names_fields_and_limits);
    tcase_add_test(tcase, held_is_told_in_one_sentence);
    tcase_add_test(tcase, wait_timeout_says_what_can_be_done);
    tcase_add_test(tcase, refusals_name_what_they_are_about);
    tcase_add_test(tcase, page_token_returns_where_it_was_made);
    tcase_add_test(tcase, page_token_that_was_touched_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
