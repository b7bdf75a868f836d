/* The console without a daemon: heads of requests, cookies, sessions, parameters. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "admin/http_head.h"
#include "base/clock.h"
#include "console/console_internal.h"
#include "leasehold/v1/console.pb-c.h"
#include "run_tests.h"

/* --- heads --- */

static struct lh_http_head head;
static char text[4096];

static int parse(const char *request)
{
    char *end;

    snprintf(text, sizeof(text), "%s", request);
    end = lh_http_head_end(text);
    ck_assert_ptr_nonnull(end);
    *end = '\0';
    return lh_http_head_parse(text, &head);
}

START_TEST(a_head_is_found_with_either_end_of_a_line)
{
    static const char *const requests[] = {"POST /a/b?c=d#e HTTP/1.1\r\nHOST:  x \r\nContent-Length: 12\r\n\r\nbody",
                                           "POST /a/b?c=d#e HTTP/1.1\nHost: x\nContent-Length:12\n\nbody"};

    for (size_t i = 0; i < 2; i++) {
        ck_assert_int_eq(parse(requests[i]), 0);
        ck_assert_str_eq(head.method, "POST");
        ck_assert_str_eq(head.path, "/a/b");
        ck_assert_str_eq(head.query, "c=d");
        ck_assert_str_eq(lh_http_head_find(&head, "host"), "x");
        ck_assert_ptr_null(lh_http_head_find(&head, "cookie"));
        ck_assert_uint_eq(head.content_length, 12);
    }
    ck_assert_ptr_null(lh_http_head_end((char[]){"GET / HTTP/1.1\r\nHost: x\r\n"}));
}
END_TEST

static const struct {
    const char *request;
    int code;
} heads[] = {
    {"GET / HTTP/1.0\n\n", 0},
    {"GET / HTTP/1.1\r\nA: 1\r\nA: 2\r\n\r\n", 0},
    {"GET /\r\n\r\n", 400},
    {"GET x HTTP/1.1\r\n\r\n", 400},
    {"GET / HTTP/2\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\n: empty\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: x\r\nhost: y\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nCookie: x\r\nCookie: y\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nContent-Length: 0x1\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411},
};

START_TEST(a_head_that_is_no_request_is_refused)
{
    ck_assert_int_eq(parse(heads[_i].request), heads[_i].code);
}
END_TEST

START_TEST(headers_are_bounded)
{
    char *end = text + sprintf(text, "GET / HTTP/1.1\n");

    for (size_t i = 0; i <= LH_HTTP_HEADERS_MAX; i++)
        end += sprintf(end, "A%zu: b\n", i);
    ck_assert_int_eq(lh_http_head_parse(text, &head), 431);
}
END_TEST

/* --- cookies and sessions --- */

static struct session_table table;

static void finish_table(void)
{
    lh_session_finish(&table);
}

START_TEST(a_cookie_is_found_among_others)
{
    char value[8];

    ck_assert(lh_session_cookie("a=1; leasehold_session=xyz; b=2", SESSION_COOKIE, value, sizeof(value)));
    ck_assert_str_eq(value, "xyz");
    ck_assert(lh_session_cookie("leasehold_session=", SESSION_COOKIE, value, sizeof(value)));
    ck_assert_str_eq(value, "");
    ck_assert(!lh_session_cookie("xleasehold_session=abc; leasehold_sessions=b", SESSION_COOKIE, value, sizeof(value)));
    ck_assert(!lh_session_cookie("leasehold_session=12345678", SESSION_COOKIE, value, sizeof(value)));
    ck_assert(!lh_session_cookie(NULL, SESSION_COOKIE, value, sizeof(value)));
}
END_TEST

START_TEST(a_session_is_found_by_its_cookie_until_it_ends)
{
    struct session *session = lh_session_create(&table, "Bearer a", 1000),
                   *other = lh_session_create(&table, "Bearer b", 1000);
    char id[SESSION_SECRET_BYTES], csrf[SESSION_SECRET_BYTES];

    memcpy(id, session->id, sizeof(id));
    memcpy(csrf, session->csrf, sizeof(csrf));
    ck_assert_str_ne(id, other->id);
    ck_assert_str_ne(id, csrf);
    ck_assert_ptr_eq(lh_session_find(&table, id, 1000 + SESSION_LIFE_US - 1), session);
    ck_assert_ptr_eq(lh_session_find_number(&table, session->number, 1000), session);
    ck_assert(lh_session_is_csrf(session, csrf) && !lh_session_is_csrf(other, csrf) &&
              !lh_session_is_csrf(session, ""));
    csrf[3] ^= 1;
    ck_assert(!lh_session_is_csrf(session, csrf));
    ck_assert_ptr_null(lh_session_find(&table, "", 1000));
    lh_session_end(&table, other);
    ck_assert_uint_eq(table.count, 1);
    ck_assert_ptr_null(lh_session_find(&table, id, 1000 + SESSION_LIFE_US));
    ck_assert_uint_eq(table.count, 0);
}
END_TEST

START_TEST(the_oldest_session_gives_way)
{
    uint64_t first = lh_session_create(&table, "Bearer first", 0)->number;

    for (size_t i = 1; i < SESSIONS_MAX; i++)
        lh_session_create(&table, "Bearer x", 0);
    ck_assert_ptr_nonnull(lh_session_find_number(&table, first, 0));
    lh_session_create(&table, "Bearer last", 0);
    ck_assert_ptr_null(lh_session_find_number(&table, first, 0));
    ck_assert_ptr_nonnull(lh_session_find_number(&table, first + 1, 0));
    ck_assert_uint_eq(table.count, SESSIONS_MAX);
}
END_TEST

START_TEST(attempts_of_an_address_are_bounded_and_come_back)
{
    int64_t now_us = 50 * LH_US_PER_S;

    for (int i = 0; i < SIGN_IN_BURST; i++)
        ck_assert(lh_session_may_sign_in(&table, i % 2 == 0 ? "[2001:db8::1]:5" : "[2001:db8::2]:6", now_us));
    ck_assert(!lh_session_may_sign_in(&table, "[2001:db8::3]:7", now_us));
    ck_assert(lh_session_may_sign_in(&table, "[2001:db8:0:1::1]:7", now_us));
    ck_assert(lh_session_may_sign_in(&table, "192.0.2.1:7", now_us));
    ck_assert(lh_session_may_sign_in(&table, "[2001:db8::3]:7", now_us + LH_US_PER_S));
    ck_assert(!lh_session_may_sign_in(&table, "[2001:db8::3]:7", now_us + LH_US_PER_S));
}
END_TEST

/* --- parameters --- */

static struct lh_arena arena;
static struct lh_json_problem problem;

static void finish_arena(void)
{
    lh_arena_finish(&arena);
}

static void *message(const ProtobufCMessageDescriptor *type, json_t *parameters)
{
    ProtobufCMessage *result = lh_request_message(type, parameters, false, &arena, &problem);

    json_decref(parameters);
    return result;
}

static json_t *body(const char *json)
{
    json_t *parameters = lh_request_body(json, strlen(json));
    ck_assert_ptr_nonnull(parameters);
    return parameters;
}

START_TEST(a_query_becomes_a_request)
{
    const Leasehold__V1__ListLeasesRequest *list =
        message(&leasehold__v1__list_leases_request__descriptor,
                lh_request_query("namespace=a.b&include_children=true&page_size=7&owner=x%20y%2B+z&page_token="));
    const Leasehold__V1__GetLeaseRequest *get =
        message(&leasehold__v1__get_lease_request__descriptor, lh_request_query("key=k.%C3%A9&namespace=a"));

    ck_assert_uint_eq(list->n_namespace_, 2);
    ck_assert_str_eq(list->namespace_[1], "b");
    ck_assert(list->include_children);
    ck_assert_int_eq(list->page_size, 7);
    ck_assert_str_eq(list->owner, "x y+ z");
    ck_assert_str_eq(get->scope->key, "k.\xc3\xa9");
    ck_assert_str_eq(get->scope->namespace_[0], "a");
}
END_TEST

START_TEST(a_malformed_query_is_refused)
{
    static const char *const queries[] = {"a=1&a=2", "a=%ff", "%ff=a", "a=%00"};

    for (size_t i = 0; i < sizeof(queries) / sizeof(queries[0]); i++)
        ck_assert_ptr_null(lh_request_query(queries[i]));
    ck_assert_ptr_null(message(&leasehold__v1__list_leases_request__descriptor, lh_request_query("page_size=x")));
    ck_assert_str_eq(problem.field, "page_size");
    ck_assert_str_eq(problem.words, "must be a whole number");
}
END_TEST

START_TEST(a_policy_is_masked_by_what_it_names)
{
    const Leasehold__V1__SetPolicyRequest *set =
        message(&leasehold__v1__set_policy_request__descriptor,
                body("{\"namespace\": \"a.b\", \"frozen\": false, \"grace\": \"1.5s\", \"max_leases\": null, "
                     "\"expiry\": \"EXPIRY_MANUAL\", \"max_waiters\": \"9\"}"));

    ck_assert_uint_eq(set->policy->namespace_->n_segments, 2);
    ck_assert_uint_eq(set->update_mask->n_paths, 5);
    ck_assert(set->policy->frozen != NULL && !set->policy->frozen->value);
    ck_assert_int_eq(set->policy->grace->seconds, 1);
    ck_assert_int_eq(set->policy->grace->nanos, 500000000);
    ck_assert_ptr_null(set->policy->max_leases);
    ck_assert_int_eq(set->policy->max_waiters->value, 9);
    ck_assert_int_eq(set->policy->expiry, LEASEHOLD__V1__POLICY__EXPIRY__EXPIRY_MANUAL);
}
END_TEST

static const struct {
    const char *json;
    const char *field;
} refused[] = {
    {"{\"namespace\": 1}", "namespace"},
    {"{\"frozen\": 1}", "frozen"},
    {"{\"frozen\": {}}", "frozen"},
    {"{\"grace\": \"5\"}", "grace"},
    {"{\"grace\": \"1.1234567890s\"}", "grace"},
    {"{\"grace\": \".5s\"}", "grace"},
    {"{\"max_leases\": \"9223372036854775808\"}", "max_leases"},
    {"{\"max_leases\": 1.5}", "max_leases"},
    {"{\"max_leases\": \" 1\"}", "max_leases"},
    {"{\"max_reap_failures\": 2147483648}", "max_reap_failures"},
    {"{\"expiry\": \"EXPIRY_NEVER\"}", "expiry"},
    {"{\"expiry\": 3}", "expiry"},
};

START_TEST(a_value_of_another_type_is_refused_by_its_name)
{
    ck_assert_ptr_null(message(&leasehold__v1__set_policy_request__descriptor, body(refused[_i].json)));
    ck_assert_str_eq(problem.field, refused[_i].field);
    ck_assert_uint_gt(strlen(problem.words), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("console");
    TCase *tests = tcase_create("console");

    tcase_add_checked_fixture(tests, NULL, finish_table);
    tcase_add_checked_fixture(tests, NULL, finish_arena);
    tcase_add_test(tests, a_head_is_found_with_either_end_of_a_line);
    tcase_add_loop_test(tests, a_head_that_is_no_request_is_refused, 0, sizeof(heads) / sizeof(heads[0]));
    tcase_add_test(tests, headers_are_bounded);
    tcase_add_test(tests, a_cookie_is_found_among_others);
    tcase_add_test(tests, a_session_is_found_by_its_cookie_until_it_ends);
    tcase_add_test(tests, the_oldest_session_gives_way);
    tcase_add_test(tests, attempts_of_an_address_are_bounded_and_come_back);
    tcase_add_test(tests, a_query_becomes_a_request);
    tcase_add_test(tests, a_malformed_query_is_refused);
    tcase_add_test(tests, a_policy_is_masked_by_what_it_names);
    tcase_add_loop_test(tests, a_value_of_another_type_is_refused_by_its_name, 0, sizeof(refused) / sizeof(refused[0]));
    suite_add_tcase(suite, tests);
    return run_tests(suite, CK_FORK_GETENV);
}
