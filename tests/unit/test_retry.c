/*
 * Retries on a virtual clock: what comes of each stage, code and reason for each kind of request under each kind of
 * strategy; how long each delay is, to the microsecond; and circuit breakers.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "client/breaker.h"
#include "client/retry.h"

#define MS LH_US_PER_MS
#define START_US (1000 * LH_US_PER_S)
#define ATTEMPTS_MAX 100

struct lh_request {
    struct retry retry;
    int64_t armed_at_us; /* LH_FOREVER: not */
    unsigned verdicts;
    enum retry_verdict verdict;
    int64_t verdict_at_us;
};

static int64_t clock_us;
static struct retrier retrier;
static char log_text[64 * 1024];
static size_t log_lines;

static int64_t virtual_now_us(void *arg)
{
    return clock_us;
}

static void arm(void *arg, struct retry *retry, int64_t at_us)
{
    ((struct lh_request *)(void *)retry)->armed_at_us = at_us;
}

static void on_verdict(struct retry *retry, enum retry_verdict verdict)
{
    struct lh_request *request = (void *)retry;

    request->verdicts++;
    request->verdict = verdict;
    request->verdict_at_us = clock_us;
}

static void on_line(void *arg, enum lh_log_level level, const char *line)
{
    size_t used = strlen(log_text);

    log_lines++;
    snprintf(log_text + used, sizeof(log_text) - used, "%s\n", line);
}

static void setup(void)
{
    static const struct retry_port port = {.now_us = virtual_now_us, .arm = arm};

    clock_us = START_US;
    log_text[0] = '\0';
    log_lines = 0;
    lh_log_set_sink(on_line, NULL);
    retrier_init(&retrier, &port);
}

static void teardown(void)
{
    retrier_finish(&retrier);
    lh_log_set_sink(NULL, NULL);
}

static void begin(struct lh_request *request, bool is_idempotent, int64_t timeout_us)
{
    int64_t deadline_us = timeout_us == LH_FOREVER ? LH_FOREVER : clock_us + timeout_us;

    memset(request, 0, sizeof(*request));
    retry_init(&request->retry, &retrier, is_idempotent, deadline_us, on_verdict);
    request->retry.verb = "Acquire";
    request->retry.name = "db/7";
    request->armed_at_us = LH_FOREVER;
}

static enum retry_answer failed_for(struct lh_request *request, unsigned reason)
{
    return retry_consider(&request->retry, &(struct retry_failure){.reason = reason, .message = "no luck"});
}

/* Lets its timer fire; how long that took. */
static int64_t wait_for_timer(struct lh_request *request)
{
    int64_t from_us = clock_us;

    ck_assert_int_ne(request->armed_at_us, LH_FOREVER);
    ck_assert_int_ge(request->armed_at_us, clock_us);
    clock_us = request->armed_at_us;
    request->armed_at_us = LH_FOREVER;
    retry_on_due(&request->retry);
    return clock_us - from_us;
}

/* --- strategies of all kinds --- */

static int64_t fail_fast(const struct lh_strategy *strategy, const struct lh_request *request,
                         enum lh_retry_reason reason)
{
    return LH_RETRY_REFUSE;
}

static int64_t even_when_held(const struct lh_strategy *strategy, const struct lh_request *request,
                              enum lh_retry_reason reason)
{
    return reason == LH_RETRY_LEASE_HELD ? 7 * MS : lh_best_effort(strategy, request, reason);
}

static int64_t later(const struct lh_strategy *strategy, const struct lh_request *request, enum lh_retry_reason reason)
{
    return LH_RETRY_DEFER;
}

static int64_t three_ms_each(void *arg, uint32_t failures)
{
    return 3 * MS * failures;
}

enum strategy_kind { BEST_EFFORT, CALCULATED, FAIL_FAST, EVEN_WHEN_HELD, NEVER_ANSWERS, STRATEGY_COUNT };

static const struct lh_strategy strategies[STRATEGY_COUNT] = {
    [BEST_EFFORT] = {0},
    [CALCULATED] = {.backoff = three_ms_each},
    [FAIL_FAST] = {.decide = fail_fast},
    [EVEN_WHEN_HELD] = {.decide = even_when_held},
    [NEVER_ANSWERS] = {.decide = later},
};

/* --- the matrix --- */

/* Written down again, from the contract: a slip in the code's table does not repeat itself here. */
static const struct {
    enum lh_retry_reason reason;
    bool if_not_idempotent;
    bool always;
} contract[] = {
    {LH_RETRY_UNKNOWN, false, false},
    {LH_RETRY_SOCKET_NOT_AVAILABLE, true, false},
    {LH_RETRY_ENDPOINT_NOT_AVAILABLE, true, false},
    {LH_RETRY_SOCKET_CLOSED_WHILE_IN_FLIGHT, false, false},
    {LH_RETRY_CIRCUIT_BREAKER_OPEN, true, false},
    {LH_RETRY_BLOCKING_TIMEOUT, true, true},
    {LH_RETRY_SHUTTING_DOWN, true, true},
    {LH_RETRY_DATABASE_UNAVAILABLE, true, false},
    {LH_RETRY_OVERLOADED, true, false},
    {LH_RETRY_SCOPE_BUSY, true, false},
    {LH_RETRY_OUTCOME_RETRY, true, false},
    {LH_RETRY_LEASE_HELD, true, false},
    {LH_RETRY_RETRY_INFO, true, false},
};

#define ANY_CODE (-1)
#define FINAL RETRY_NO_REASON

/* For each stage the first line that fits; `info` RETRY_NO_INFO: none came. */
static const struct {
    enum lh_rpc_delivery stage;
    int code;
    int info;
    bool retry_info;
    unsigned reason;
    enum lh_status status;
} stages[] = {
    {LH_RPC_NOT_SENT, LH_GRPC_CANCELLED, RETRY_NO_INFO, false, FINAL, LH_UNAVAILABLE},
    {LH_RPC_NOT_SENT, LH_GRPC_DEADLINE_EXCEEDED, RETRY_NO_INFO, false, FINAL, LH_TIMED_OUT},
    {LH_RPC_NOT_SENT, LH_GRPC_RESOURCE_EXHAUSTED, RETRY_NO_INFO, false, FINAL, LH_OVERLOADED},
    {LH_RPC_NOT_SENT, LH_GRPC_UNAVAILABLE, RETRY_NO_INFO, false, LH_RETRY_SOCKET_NOT_AVAILABLE, LH_UNAVAILABLE},
    {LH_RPC_NOT_SENT, LH_GRPC_INTERNAL, RETRY_NO_INFO, false, LH_RETRY_SOCKET_NOT_AVAILABLE, LH_INTERNAL},

    {LH_RPC_IN_FLIGHT, LH_GRPC_CANCELLED, RETRY_NO_INFO, false, LH_RETRY_SOCKET_CLOSED_WHILE_IN_FLIGHT, LH_UNAVAILABLE},
    {LH_RPC_IN_FLIGHT, LH_GRPC_UNKNOWN, RETRY_NO_INFO, false, LH_RETRY_UNKNOWN, LH_UNAVAILABLE},
    {LH_RPC_IN_FLIGHT, LH_GRPC_DEADLINE_EXCEEDED, RETRY_NO_INFO, false, FINAL, LH_TIMED_OUT},
    {LH_RPC_IN_FLIGHT, LH_GRPC_PERMISSION_DENIED, RETRY_NO_INFO, false, FINAL, LH_ACCESS_DENIED},
    {LH_RPC_IN_FLIGHT, LH_GRPC_RESOURCE_EXHAUSTED, RETRY_NO_INFO, false, LH_RETRY_UNKNOWN, LH_OVERLOADED},
    {LH_RPC_IN_FLIGHT, LH_GRPC_INTERNAL, RETRY_NO_INFO, false, LH_RETRY_UNKNOWN, LH_INTERNAL},
    {LH_RPC_IN_FLIGHT, LH_GRPC_UNAVAILABLE, RETRY_NO_INFO, false, LH_RETRY_SOCKET_CLOSED_WHILE_IN_FLIGHT,
     LH_UNAVAILABLE},

    {LH_RPC_ANSWERED, LH_GRPC_ABORTED, LH_LEASE_HELD, false, LH_RETRY_LEASE_HELD, LH_LEASE_HELD},
    {LH_RPC_ANSWERED, LH_GRPC_ABORTED, LH_SCOPE_BUSY, false, LH_RETRY_SCOPE_BUSY, LH_SCOPE_BUSY},
    {LH_RPC_ANSWERED, LH_GRPC_ABORTED, LH_BLOCKING_TIMEOUT, true, LH_RETRY_BLOCKING_TIMEOUT, LH_BLOCKING_TIMEOUT},
    {LH_RPC_ANSWERED, LH_GRPC_ABORTED, LH_WATCH_LAGGED, false, FINAL, LH_WATCH_LAGGED},
    {LH_RPC_ANSWERED, LH_GRPC_UNAVAILABLE, LH_DATABASE_UNAVAILABLE, true, LH_RETRY_DATABASE_UNAVAILABLE,
     LH_DATABASE_UNAVAILABLE},
    {LH_RPC_ANSWERED, LH_GRPC_UNAVAILABLE, LH_SHUTTING_DOWN, true, LH_RETRY_SHUTTING_DOWN, LH_SHUTTING_DOWN},
    {LH_RPC_ANSWERED, LH_GRPC_RESOURCE_EXHAUSTED, LH_OVERLOADED, false, LH_RETRY_OVERLOADED, LH_OVERLOADED},
    {LH_RPC_ANSWERED, LH_GRPC_RESOURCE_EXHAUSTED, LH_QUOTA_EXCEEDED, false, FINAL, LH_QUOTA_EXCEEDED},
    {LH_RPC_ANSWERED, LH_GRPC_RESOURCE_EXHAUSTED, LH_MESSAGE_TOO_LARGE, false, FINAL, LH_MESSAGE_TOO_LARGE},
    {LH_RPC_ANSWERED, LH_GRPC_FAILED_PRECONDITION, LH_NAMESPACE_FROZEN, false, FINAL, LH_NAMESPACE_FROZEN},
    {LH_RPC_ANSWERED, LH_GRPC_FAILED_PRECONDITION, LH_HOOK_REJECTED, false, FINAL, LH_HOOK_REJECTED},
    {LH_RPC_ANSWERED, LH_GRPC_FAILED_PRECONDITION, LH_LEASE_ENDED, false, FINAL, LH_LEASE_ENDED},
    {LH_RPC_ANSWERED, LH_GRPC_DEADLINE_EXCEEDED, LH_WAIT_TIMEOUT, false, FINAL, LH_WAIT_TIMEOUT},
    {LH_RPC_ANSWERED, LH_GRPC_INVALID_ARGUMENT, LH_INVALID_ARGUMENT, false, FINAL, LH_INVALID_ARGUMENT},
    {LH_RPC_ANSWERED, LH_GRPC_NOT_FOUND, LH_NOT_HELD, false, FINAL, LH_NOT_HELD},
    {LH_RPC_ANSWERED, LH_GRPC_UNAUTHENTICATED, LH_UNAUTHENTICATED, false, FINAL, LH_UNAUTHENTICATED},
    {LH_RPC_ANSWERED, LH_GRPC_PERMISSION_DENIED, LH_ACCESS_DENIED, false, FINAL, LH_ACCESS_DENIED},
    {LH_RPC_ANSWERED, LH_GRPC_INTERNAL, LH_INTERNAL, true, FINAL, LH_INTERNAL},

    {LH_RPC_ANSWERED, LH_GRPC_OK, RETRY_NO_INFO, false, FINAL, LH_INTERNAL},
    {LH_RPC_ANSWERED, LH_GRPC_CANCELLED, RETRY_NO_INFO, false, FINAL, LH_UNAVAILABLE},
    {LH_RPC_ANSWERED, LH_GRPC_UNKNOWN, RETRY_NO_INFO, false, LH_RETRY_UNKNOWN, LH_UNAVAILABLE},
    {LH_RPC_ANSWERED, LH_GRPC_INVALID_ARGUMENT, RETRY_NO_INFO, false, FINAL, LH_INVALID_ARGUMENT},
    {LH_RPC_ANSWERED, LH_GRPC_DEADLINE_EXCEEDED, RETRY_NO_INFO, false, FINAL, LH_TIMED_OUT},
    {LH_RPC_ANSWERED, LH_GRPC_NOT_FOUND, RETRY_NO_INFO, false, FINAL, LH_NOT_HELD},
    {LH_RPC_ANSWERED, LH_GRPC_ALREADY_EXISTS, RETRY_NO_INFO, false, FINAL, LH_INTERNAL},
    {LH_RPC_ANSWERED, LH_GRPC_PERMISSION_DENIED, RETRY_NO_INFO, false, FINAL, LH_ACCESS_DENIED},
    {LH_RPC_ANSWERED, LH_GRPC_RESOURCE_EXHAUSTED, RETRY_NO_INFO, false, FINAL, LH_OVERLOADED},
    {LH_RPC_ANSWERED, LH_GRPC_FAILED_PRECONDITION, RETRY_NO_INFO, false, FINAL, LH_INTERNAL},
    {LH_RPC_ANSWERED, LH_GRPC_ABORTED, RETRY_NO_INFO, false, FINAL, LH_INTERNAL},
    {LH_RPC_ANSWERED, LH_GRPC_OUT_OF_RANGE, RETRY_NO_INFO, false, FINAL, LH_INTERNAL},
    {LH_RPC_ANSWERED, LH_GRPC_UNIMPLEMENTED, RETRY_NO_INFO, false, FINAL, LH_UNIMPLEMENTED},
    {LH_RPC_ANSWERED, LH_GRPC_INTERNAL, RETRY_NO_INFO, false, FINAL, LH_INTERNAL},
    {LH_RPC_ANSWERED, LH_GRPC_UNAVAILABLE, RETRY_NO_INFO, false, LH_RETRY_UNKNOWN, LH_UNAVAILABLE},
    {LH_RPC_ANSWERED, LH_GRPC_DATA_LOSS, RETRY_NO_INFO, false, FINAL, LH_INTERNAL},
    {LH_RPC_ANSWERED, LH_GRPC_UNAUTHENTICATED, RETRY_NO_INFO, false, FINAL, LH_UNAUTHENTICATED},
    /* A reason of a later server's, and a time to come back at. */
    {LH_RPC_ANSWERED, LH_GRPC_ABORTED, RETRY_NO_INFO, true, LH_RETRY_RETRY_INFO, LH_INTERNAL},
    {LH_RPC_ANSWERED, LH_GRPC_UNAVAILABLE, RETRY_NO_INFO, true, LH_RETRY_RETRY_INFO, LH_UNAVAILABLE},
    {LH_RPC_ANSWERED, LH_GRPC_RESOURCE_EXHAUSTED, RETRY_NO_INFO, true, LH_RETRY_RETRY_INFO, LH_OVERLOADED},
};
#define STAGE_COUNT (sizeof(stages) / sizeof(stages[0]))

/* What the contract has this strategy say to the first failure: a delay, or -1. LH_FOREVER: at the timeout. */
static int64_t expected_us(unsigned reason, bool is_idempotent, enum strategy_kind kind)
{
    if (reason == FINAL)
        return -1;
    if (contract[reason].always)
        return 1 * MS;
    switch (kind) {
    case FAIL_FAST:
        return -1;
    case NEVER_ANSWERS:
        return LH_FOREVER;
    case EVEN_WHEN_HELD:
        if (reason == LH_RETRY_LEASE_HELD)
            return 7 * MS;
        break;
    default:
        break;
    }
    if (reason == LH_RETRY_LEASE_HELD || (!is_idempotent && !contract[reason].if_not_idempotent))
        return -1;
    return kind == CALCULATED ? 3 * MS : 1 * MS;
}

static void try_one(unsigned reason, bool is_idempotent, enum strategy_kind kind)
{
    int64_t expected = expected_us(reason, is_idempotent, kind);
    struct lh_request request;
    enum retry_answer answer;

    begin(&request, is_idempotent, 60 * LH_US_PER_S);
    request.retry.strategy = strategies[kind];
    answer = failed_for(&request, reason);
    ck_assert_int_eq(request.verdicts, 0);
    ck_assert_uint_eq(lh_request_attempts(&request), 1);
    ck_assert_uint_eq(lh_request_reasons(&request), reason == FINAL ? 0 : 1u << reason);
    if (expected < 0) {
        ck_assert_int_eq(answer, RETRY_REFUSED);
        ck_assert_int_eq(request.armed_at_us, LH_FOREVER);
        ck_assert_uint_eq(retrier.count, 0);
        return;
    }
    ck_assert_int_eq(answer, RETRY_LATER);
    ck_assert_int_eq(wait_for_timer(&request), expected == LH_FOREVER ? 60 * LH_US_PER_S : expected);
    ck_assert_uint_eq(request.verdicts, 1);
    ck_assert_int_eq(request.verdict, expected == LH_FOREVER ? RETRY_TIMED_OUT : RETRY_AGAIN);
    ck_assert_uint_eq(retrier.count, 0);
}

START_TEST(every_stage_code_and_reason_comes_to_what_the_table_says)
{
    struct retry_evidence evidence = {
        .stage = stages[_i].stage,
        .code = (enum lh_grpc_code)stages[_i].code,
        .info = stages[_i].info,
        .has_retry_info = stages[_i].retry_info,
    };
    unsigned reason = retry_reason_of(&evidence);

    ck_assert_uint_eq(reason, stages[_i].reason);
    ck_assert_int_eq(retry_status_of(&evidence), stages[_i].status);
    for (int is_idempotent = 0; is_idempotent <= 1; is_idempotent++) {
        for (int kind = 0; kind < STRATEGY_COUNT; kind++)
            try_one(reason, is_idempotent, (enum strategy_kind)kind);
    }
}
END_TEST

START_TEST(every_reason_has_its_two_properties_under_every_strategy)
{
    ck_assert_uint_eq(sizeof(contract) / sizeof(contract[0]), LH_RETRY_REASON_COUNT);
    ck_assert_uint_eq(contract[_i].reason, (unsigned)_i);
    ck_assert(lh_retry_reason_allows_non_idempotent(contract[_i].reason) == contract[_i].if_not_idempotent);
    ck_assert(lh_retry_reason_is_always(contract[_i].reason) == contract[_i].always);
    ck_assert_str_ne(lh_retry_reason_name(contract[_i].reason), "NONE");
    for (int is_idempotent = 0; is_idempotent <= 1; is_idempotent++) {
        for (int kind = 0; kind < STRATEGY_COUNT; kind++)
            try_one(contract[_i].reason, is_idempotent, (enum strategy_kind)kind);
    }
}
END_TEST

START_TEST(a_number_that_is_no_reason_is_harmless)
{
    struct lh_request request;

    ck_assert_str_eq(lh_retry_reason_name((enum lh_retry_reason)99), "NONE");
    ck_assert(!lh_retry_reason_allows_non_idempotent((enum lh_retry_reason)99));
    begin(&request, true, LH_US_PER_S);
    ck_assert_int_eq(failed_for(&request, 99), RETRY_REFUSED);
    ck_assert_uint_eq(lh_request_reasons(&request), 0);
}
END_TEST

START_TEST(only_those_of_a_broken_endpoint_go_to_the_next_one)
{
    static const unsigned next = 1u << LH_RETRY_SOCKET_NOT_AVAILABLE | 1u << LH_RETRY_ENDPOINT_NOT_AVAILABLE |
                                 1u << LH_RETRY_SOCKET_CLOSED_WHILE_IN_FLIGHT | 1u << LH_RETRY_CIRCUIT_BREAKER_OPEN |
                                 1u << LH_RETRY_SHUTTING_DOWN | 1u << LH_RETRY_DATABASE_UNAVAILABLE |
                                 1u << LH_RETRY_OVERLOADED;

    for (unsigned reason = 0; reason < LH_RETRY_REASON_COUNT; reason++)
        ck_assert(retry_reason_keeps_endpoint(reason) == ((next & 1u << reason) == 0));
}
END_TEST

/* --- delays --- */

START_TEST(best_effort_doubles_from_1_to_500_ms_and_never_overflows)
{
    static const int64_t first_ms[] = {1, 2, 4, 8, 16, 32, 64, 128, 256};
    struct lh_request request;

    begin(&request, true, LH_FOREVER);
    for (unsigned attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
        int64_t expected_ms = attempt < 9 ? first_ms[attempt] : 500;
        ck_assert_int_eq(failed_for(&request, LH_RETRY_DATABASE_UNAVAILABLE), RETRY_LATER);
        ck_assert_int_eq(wait_for_timer(&request), expected_ms * MS);
        ck_assert_int_eq(request.verdict, RETRY_AGAIN);
        ck_assert_uint_eq(lh_request_attempts(&request), attempt + 1);
    }
    ck_assert_int_eq(lh_best_effort_backoff_us(NULL, 70), 500 * MS);
    ck_assert_int_eq(lh_best_effort_backoff_us(NULL, 0), 1 * MS);
    ck_assert_int_eq(lh_best_effort_backoff_us(NULL, UINT32_MAX), 500 * MS);
}
END_TEST

START_TEST(what_is_always_retried_uses_the_controlled_backoff)
{
    static const int64_t first_ms[] = {1, 10, 50, 100, 500, 1000};
    struct lh_request request;

    begin(&request, false, LH_FOREVER);
    request.retry.strategy = strategies[FAIL_FAST];
    for (unsigned attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
        ck_assert_int_eq(failed_for(&request, LH_RETRY_SHUTTING_DOWN), RETRY_LATER);
        ck_assert_int_eq(wait_for_timer(&request), (attempt < 6 ? first_ms[attempt] : 1000) * MS);
        ck_assert_int_eq(request.verdict, RETRY_AGAIN);
    }
    ck_assert_int_eq(lh_controlled_backoff_us(NULL, 70), 1000 * MS);
    ck_assert_int_eq(lh_controlled_backoff_us(NULL, UINT32_MAX), 1000 * MS);
}
END_TEST

START_TEST(counters_that_are_full_stay_full)
{
    struct lh_request request;

    begin(&request, true, LH_FOREVER);
    request.retry.attempts = request.retry.failures = request.retry.controlled = UINT32_MAX;
    ck_assert_int_eq(failed_for(&request, LH_RETRY_OVERLOADED), RETRY_LATER);
    ck_assert_int_eq(wait_for_timer(&request), 500 * MS);
    ck_assert_int_eq(failed_for(&request, LH_RETRY_SHUTTING_DOWN), RETRY_LATER);
    ck_assert_int_eq(wait_for_timer(&request), 1000 * MS);
    ck_assert_uint_eq(lh_request_attempts(&request), UINT32_MAX);
}
END_TEST

START_TEST(a_delay_is_cut_to_what_is_left_and_then_nothing_is_sent)
{
    struct lh_request request;
    int64_t spent_us = 0;

    begin(&request, true, 100 * MS);
    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(failed_for(&request, LH_RETRY_SCOPE_BUSY), RETRY_LATER);
        spent_us += wait_for_timer(&request);
        ck_assert_int_eq(request.verdict, RETRY_AGAIN);
    }
    ck_assert_int_eq(spent_us, 63 * MS);
    ck_assert_int_eq(failed_for(&request, LH_RETRY_SCOPE_BUSY), RETRY_LATER); /* 64 ms would be next */
    ck_assert_int_eq(wait_for_timer(&request), 37 * MS);
    ck_assert_int_eq(request.verdict, RETRY_TIMED_OUT);
    ck_assert_uint_eq(request.verdicts, 7);
    ck_assert_int_eq(clock_us, START_US + 100 * MS);
    ck_assert(strstr(log_text, "fails at its timeout, in 37.000 ms") != NULL);
    ck_assert_int_eq(failed_for(&request, LH_RETRY_SCOPE_BUSY), RETRY_EXPIRED);
}
END_TEST

START_TEST(what_is_always_retried_is_cut_too)
{
    struct lh_request request;

    begin(&request, true, 1000 * MS);
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(failed_for(&request, LH_RETRY_SHUTTING_DOWN), RETRY_LATER);
        wait_for_timer(&request);
        ck_assert_int_eq(request.verdict, RETRY_AGAIN);
    }
    ck_assert_int_eq(clock_us, START_US + 661 * MS);
    ck_assert_int_eq(failed_for(&request, LH_RETRY_SHUTTING_DOWN), RETRY_LATER);
    ck_assert_int_eq(wait_for_timer(&request), 339 * MS);
    ck_assert_int_eq(request.verdict, RETRY_TIMED_OUT);
    ck_assert_int_eq(clock_us, START_US + 1000 * MS);
}
END_TEST

START_TEST(a_delay_that_ends_with_the_timeout_sends_nothing_and_one_ms_less_does)
{
    struct lh_request request;

    begin(&request, true, 1 * MS);
    ck_assert_int_eq(failed_for(&request, LH_RETRY_UNKNOWN), RETRY_LATER);
    ck_assert_int_eq(wait_for_timer(&request), 1 * MS);
    ck_assert_int_eq(request.verdict, RETRY_TIMED_OUT);
    begin(&request, true, 1 * MS + 1);
    ck_assert_int_eq(failed_for(&request, LH_RETRY_UNKNOWN), RETRY_LATER);
    ck_assert_int_eq(wait_for_timer(&request), 1 * MS);
    ck_assert_int_eq(request.verdict, RETRY_AGAIN);
}
END_TEST

static int64_t absurd(void *arg, uint32_t failures)
{
    return LH_FOREVER;
}

START_TEST(an_absurd_delay_is_cut_and_does_not_wrap_around)
{
    struct lh_request request;

    begin(&request, true, 250 * MS);
    request.retry.strategy.backoff = absurd;
    ck_assert_int_eq(failed_for(&request, LH_RETRY_UNKNOWN), RETRY_LATER);
    ck_assert_int_eq(wait_for_timer(&request), 250 * MS);
    ck_assert_int_eq(request.verdict, RETRY_TIMED_OUT);
    begin(&request, true, LH_FOREVER);
    request.retry.strategy.backoff = absurd;
    ck_assert_int_eq(failed_for(&request, LH_RETRY_UNKNOWN), RETRY_LATER);
    ck_assert_int_gt(request.armed_at_us, clock_us);
    retry_stop(&request.retry);
}
END_TEST

START_TEST(a_timer_that_fires_early_is_set_again)
{
    struct lh_request request;
    int64_t at_us;

    begin(&request, true, LH_US_PER_S);
    failed_for(&request, LH_RETRY_UNKNOWN);
    at_us = request.armed_at_us;
    clock_us = at_us - 1;
    request.armed_at_us = LH_FOREVER;
    retry_on_due(&request.retry);
    ck_assert_uint_eq(request.verdicts, 0);
    ck_assert_int_eq(request.armed_at_us, at_us);
    wait_for_timer(&request);
    ck_assert_uint_eq(request.verdicts, 1);
    retry_on_due(&request.retry);
    ck_assert_uint_eq(request.verdicts, 1);
}
END_TEST

/* --- the server's blocking limit --- */

static enum retry_answer fail_blocked(struct lh_request *request, int64_t blocked_us)
{
    return retry_consider(&request->retry,
                          &(struct retry_failure){.reason = LH_RETRY_BLOCKING_TIMEOUT, .blocked_us = blocked_us});
}

START_TEST(after_a_server_that_did_block_it_goes_on_at_once)
{
    struct lh_request request;

    begin(&request, true, LH_FOREVER);
    for (int i = 0; i < 5; i++) {
        failed_for(&request, LH_RETRY_DATABASE_UNAVAILABLE);
        wait_for_timer(&request);
    }
    ck_assert_uint_eq(lh_request_failures(&request), 5);
    ck_assert_int_eq(fail_blocked(&request, LH_US_PER_S), RETRY_LATER);
    ck_assert_uint_eq(request.verdicts, 5); /* at once is later, too */
    ck_assert_int_eq(wait_for_timer(&request), 0);
    ck_assert_int_eq(request.verdict, RETRY_AGAIN);
    ck_assert(retry_reason_keeps_endpoint(request.retry.last_reason));
    ck_assert_uint_eq(lh_request_failures(&request), 0);
    ck_assert_uint_eq(lh_request_attempts(&request), 6);
    /* The count of failures begins anew. */
    failed_for(&request, LH_RETRY_DATABASE_UNAVAILABLE);
    ck_assert_int_eq(wait_for_timer(&request), 1 * MS);
}
END_TEST

START_TEST(a_server_that_did_not_block_is_asked_by_controlled_backoff)
{
    static const int64_t first_ms[] = {1, 10, 50, 100, 500, 1000, 1000};
    struct lh_request request;

    begin(&request, true, LH_FOREVER);
    for (unsigned i = 0; i < 7; i++) {
        ck_assert_int_eq(fail_blocked(&request, LH_US_PER_S - 1), RETRY_LATER);
        ck_assert_int_eq(wait_for_timer(&request), first_ms[i] * MS);
    }
    fail_blocked(&request, 20 * LH_US_PER_S);
    ck_assert_int_eq(wait_for_timer(&request), 0);
    fail_blocked(&request, 0);
    ck_assert_int_eq(wait_for_timer(&request), 1 * MS);
}
END_TEST

START_TEST(no_time_is_left_after_the_block)
{
    struct lh_request request;

    begin(&request, true, 20 * LH_US_PER_S);
    clock_us += 20 * LH_US_PER_S;
    ck_assert_int_eq(fail_blocked(&request, 20 * LH_US_PER_S), RETRY_EXPIRED);
    ck_assert_uint_eq(retrier.count, 0);
}
END_TEST

/* --- who decides --- */

START_TEST(a_request_has_its_own_strategy_or_the_clients)
{
    struct lh_request request;

    retrier.strategy = strategies[FAIL_FAST];
    begin(&request, true, LH_US_PER_S);
    ck_assert_int_eq(failed_for(&request, LH_RETRY_UNKNOWN), RETRY_REFUSED);
    begin(&request, true, LH_US_PER_S);
    request.retry.strategy = strategies[CALCULATED];
    ck_assert_int_eq(failed_for(&request, LH_RETRY_UNKNOWN), RETRY_LATER);
    ck_assert_int_eq(wait_for_timer(&request), 3 * MS);
    failed_for(&request, LH_RETRY_UNKNOWN);
    ck_assert_int_eq(wait_for_timer(&request), 6 * MS);
    begin(&request, true, LH_US_PER_S);
    request.retry.strategy.decide = lh_best_effort;
    failed_for(&request, LH_RETRY_UNKNOWN);
    ck_assert_int_eq(wait_for_timer(&request), 1 * MS);
}
END_TEST

static int64_t look(const struct lh_strategy *strategy, const struct lh_request *request, enum lh_retry_reason reason)
{
    ck_assert_ptr_eq(strategy->arg, &retrier);
    ck_assert_str_eq(lh_request_verb(request), "Acquire");
    ck_assert_uint_gt(lh_request_id(request), 0);
    ck_assert_uint_eq(lh_request_attempts(request), 2);
    ck_assert_uint_eq(lh_request_failures(request), 2);
    ck_assert_uint_eq(lh_request_reasons(request), 1u << LH_RETRY_OVERLOADED | 1u << LH_RETRY_RETRY_INFO);
    ck_assert_int_eq(lh_request_remaining_us(request), LH_US_PER_S - 1 * MS);
    ck_assert_int_eq(lh_request_retry_after_us(request), 9 * MS);
    ck_assert_ptr_eq(lh_request_arg(request), &clock_us);
    ck_assert(lh_request_is_idempotent(request));
    return 2 * MS;
}

START_TEST(a_strategy_sees_the_requests_history_and_the_servers_wish_does_not_override_it)
{
    struct lh_request request;

    begin(&request, true, LH_US_PER_S);
    request.retry.arg = &clock_us;
    failed_for(&request, LH_RETRY_OVERLOADED);
    wait_for_timer(&request);
    request.retry.strategy = (struct lh_strategy){.decide = look, .arg = &retrier};
    retry_consider(&request.retry, &(struct retry_failure){.reason = LH_RETRY_RETRY_INFO, .retry_after_us = 9 * MS});
    ck_assert_int_eq(wait_for_timer(&request), 2 * MS);
}
END_TEST

START_TEST(every_retry_and_every_refusal_is_logged_with_its_reasons)
{
    struct lh_request request;

    begin(&request, true, LH_US_PER_S);
    failed_for(&request, LH_RETRY_OVERLOADED);
    ck_assert_uint_eq(log_lines, 1);
    ck_assert(strstr(log_text, "Acquire of db/7 is tried again in 1.000 ms") != NULL);
    ck_assert(strstr(log_text, "attempts=1 reason=OVERLOADED reasons=OVERLOADED: no luck") != NULL);
    wait_for_timer(&request);
    request.retry.strategy = strategies[FAIL_FAST];
    failed_for(&request, LH_RETRY_SCOPE_BUSY);
    ck_assert_uint_eq(log_lines, 2);
    ck_assert(strstr(log_text, "the strategy refused") != NULL);
    ck_assert(strstr(log_text, "attempts=2 reason=SCOPE_BUSY reasons=OVERLOADED,SCOPE_BUSY: no luck") != NULL);
    ck_assert_uint_eq(retrier.retries, 1);
    ck_assert_uint_eq(retrier.refusals, 1);
}
END_TEST

START_TEST(a_set_of_all_reasons_can_be_written)
{
    char text[RETRY_REASONS_TEXT_BYTES];

    retry_reasons_format(0, text);
    ck_assert_str_eq(text, "none");
    retry_reasons_format((1u << LH_RETRY_REASON_COUNT) - 1, text);
    for (unsigned reason = 0; reason < LH_RETRY_REASON_COUNT; reason++)
        ck_assert(strstr(text, lh_retry_reason_name((enum lh_retry_reason)reason)) != NULL);
}
END_TEST

/* --- decisions that come later --- */

START_TEST(a_decision_may_come_later)
{
    struct lh_request request;

    begin(&request, true, LH_US_PER_S);
    request.retry.strategy = strategies[NEVER_ANSWERS];
    ck_assert_int_eq(failed_for(&request, LH_RETRY_UNKNOWN), RETRY_LATER);
    clock_us += 30 * MS;
    ck_assert(retrier_decide(&retrier, lh_request_id(&request), 5 * MS));
    ck_assert_uint_eq(request.verdicts, 0);
    ck_assert(!retrier_decide(&retrier, lh_request_id(&request), 6 * MS));
    ck_assert_int_eq(wait_for_timer(&request), 5 * MS);
    ck_assert_int_eq(request.verdict, RETRY_AGAIN);
    ck_assert(!retrier_decide(&retrier, lh_request_id(&request), 5 * MS));
    ck_assert_int_eq(request.armed_at_us, LH_FOREVER);
}
END_TEST

START_TEST(a_late_decision_is_cut_to_what_is_left_then)
{
    struct lh_request request;

    begin(&request, true, 50 * MS);
    request.retry.strategy = strategies[NEVER_ANSWERS];
    failed_for(&request, LH_RETRY_UNKNOWN);
    clock_us += 30 * MS;
    ck_assert(retrier_decide(&retrier, lh_request_id(&request), 21 * MS));
    ck_assert_int_eq(wait_for_timer(&request), 20 * MS);
    ck_assert_int_eq(request.verdict, RETRY_TIMED_OUT);
}
END_TEST

START_TEST(a_late_no_is_told_later)
{
    struct lh_request request;

    begin(&request, true, LH_US_PER_S);
    request.retry.strategy = strategies[NEVER_ANSWERS];
    failed_for(&request, LH_RETRY_UNKNOWN);
    ck_assert(!retrier_decide(&retrier, lh_request_id(&request), LH_RETRY_DEFER));
    ck_assert(retrier_decide(&retrier, lh_request_id(&request), LH_RETRY_REFUSE));
    ck_assert_uint_eq(request.verdicts, 0);
    ck_assert_int_eq(wait_for_timer(&request), 0);
    ck_assert_int_eq(request.verdict, RETRY_DECLINED);
}
END_TEST

START_TEST(a_strategy_that_never_answers_ends_at_the_timeout)
{
    struct lh_request request;

    begin(&request, true, 77 * MS);
    request.retry.strategy = strategies[NEVER_ANSWERS];
    failed_for(&request, LH_RETRY_UNKNOWN);
    ck_assert_int_eq(wait_for_timer(&request), 77 * MS);
    ck_assert_int_eq(request.verdict, RETRY_TIMED_OUT);
    ck_assert(strstr(log_text, "before its strategy answered") != NULL);
    ck_assert(!retrier_decide(&retrier, lh_request_id(&request), 1 * MS)); /* the request may be gone by now */
    ck_assert_uint_eq(retrier.count, 0);
}
END_TEST

static int64_t answer_ahead(const struct lh_strategy *strategy, const struct lh_request *request,
                            enum lh_retry_reason reason)
{
    ck_assert(retrier_decide(&retrier, lh_request_id(request), 4 * MS));
    ck_assert(!retrier_decide(&retrier, lh_request_id(request), 5 * MS));
    return LH_RETRY_DEFER;
}

START_TEST(the_later_decision_may_come_from_inside_of_the_strategy)
{
    struct lh_request request;

    begin(&request, true, LH_US_PER_S);
    request.retry.strategy.decide = answer_ahead;
    ck_assert_int_eq(failed_for(&request, LH_RETRY_UNKNOWN), RETRY_LATER);
    ck_assert_int_eq(wait_for_timer(&request), 4 * MS);
    ck_assert_int_eq(request.verdict, RETRY_AGAIN);
}
END_TEST

START_TEST(a_request_without_a_timeout_waits_for_its_strategy_without_a_timer)
{
    struct lh_request request;

    begin(&request, true, LH_FOREVER);
    request.retry.strategy = strategies[NEVER_ANSWERS];
    ck_assert_int_eq(failed_for(&request, LH_RETRY_UNKNOWN), RETRY_LATER);
    ck_assert_int_eq(request.armed_at_us, LH_FOREVER);
    ck_assert_uint_eq(retrier.count, 1);
    retry_stop(&request.retry);
    ck_assert_uint_eq(retrier.count, 0);
}
END_TEST

START_TEST(many_deferred_decisions_are_each_their_own)
{
    enum { COUNT = 1000 };
    static struct lh_request requests[COUNT];

    for (unsigned i = 0; i < COUNT; i++) {
        begin(&requests[i], true, LH_US_PER_S);
        requests[i].retry.strategy = strategies[NEVER_ANSWERS];
        failed_for(&requests[i], LH_RETRY_UNKNOWN);
    }
    for (unsigned i = COUNT; i-- > 0;)
        ck_assert(retrier_decide(&retrier, lh_request_id(&requests[i]), (int64_t)(i + 1)));
    for (unsigned i = 0; i < COUNT; i++)
        ck_assert_int_eq(requests[i].armed_at_us, clock_us + (int64_t)(i + 1));
    for (unsigned i = 0; i < COUNT; i++)
        retry_stop(&requests[i].retry);
    ck_assert_uint_eq(retrier.count, 0);
}
END_TEST

START_TEST(who_was_stopped_hears_nothing_any_more)
{
    struct lh_request request;

    begin(&request, true, LH_US_PER_S);
    retry_stop(&request.retry);
    failed_for(&request, LH_RETRY_UNKNOWN);
    retry_stop(&request.retry);
    retry_stop(&request.retry);
    ck_assert_int_eq(request.armed_at_us, LH_FOREVER);
    retry_on_due(&request.retry);
    ck_assert_uint_eq(request.verdicts, 0);
    ck_assert_uint_eq(retrier.count, 0);
    /* And it may be used again. */
    failed_for(&request, LH_RETRY_UNKNOWN);
    wait_for_timer(&request);
    ck_assert_uint_eq(request.verdicts, 1);
}
END_TEST

START_TEST(so_many_requests_wait_and_no_more)
{
    struct lh_request requests[4];

    retrier.limit = 2;
    for (int i = 0; i < 4; i++)
        begin(&requests[i], true, LH_FOREVER);
    ck_assert_int_eq(failed_for(&requests[0], LH_RETRY_UNKNOWN), RETRY_LATER);
    requests[1].retry.strategy = strategies[NEVER_ANSWERS];
    ck_assert_int_eq(failed_for(&requests[1], LH_RETRY_UNKNOWN), RETRY_LATER);
    ck_assert_int_eq(failed_for(&requests[2], LH_RETRY_UNKNOWN), RETRY_LIMITED);
    ck_assert_int_eq(failed_for(&requests[2], LH_RETRY_SHUTTING_DOWN), RETRY_LIMITED);
    ck_assert(strstr(log_text, "too many requests wait") != NULL);
    /* A wait that only goes on does not wait in here. */
    ck_assert_int_eq(fail_blocked(&requests[3], 20 * LH_US_PER_S), RETRY_LATER);
    wait_for_timer(&requests[3]);
    wait_for_timer(&requests[0]);
    ck_assert_int_eq(failed_for(&requests[2], LH_RETRY_UNKNOWN), RETRY_LATER);
    retry_stop(&requests[1].retry);
    retry_stop(&requests[2].retry);
}
END_TEST

/* --- circuit breakers --- */

static void fail_calls(struct breaker *breaker, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        uint64_t ticket = breaker_admit(breaker, clock_us);
        ck_assert_uint_ne(ticket, BREAKER_OPEN);
        breaker_settle(breaker, ticket, BREAKER_FAILED, clock_us);
    }
}

START_TEST(so_many_failures_in_a_row_open_the_circuit_until_a_probe_succeeds)
{
    struct breaker breaker;
    uint64_t probe;

    breaker_init(&breaker, "a:1", 5, LH_US_PER_S);
    fail_calls(&breaker, 4);
    breaker_settle(&breaker, breaker_admit(&breaker, clock_us), BREAKER_SUCCEEDED, clock_us);
    fail_calls(&breaker, 5);
    ck_assert_int_eq(breaker.state, BREAKER_IS_OPEN);
    ck_assert_uint_eq(breaker_admit(&breaker, clock_us), BREAKER_OPEN);
    clock_us += LH_US_PER_S - 1;
    ck_assert_uint_eq(breaker_admit(&breaker, clock_us), BREAKER_OPEN);
    clock_us += 1;
    ck_assert(!breaker_is_open(&breaker, clock_us));
    probe = breaker_admit(&breaker, clock_us);
    ck_assert_uint_ne(probe, BREAKER_OPEN);
    ck_assert_uint_eq(breaker_admit(&breaker, clock_us), BREAKER_OPEN); /* one at a time */
    breaker_settle(&breaker, probe, BREAKER_FAILED, clock_us);
    ck_assert_uint_eq(breaker_admit(&breaker, clock_us), BREAKER_OPEN);
    clock_us += LH_US_PER_S;
    probe = breaker_admit(&breaker, clock_us);
    ck_assert_uint_ne(probe, BREAKER_OPEN);
    breaker_settle(&breaker, probe, BREAKER_SUCCEEDED, clock_us);
    ck_assert_int_eq(breaker.state, BREAKER_CLOSED);
    ck_assert_uint_ne(breaker_admit(&breaker, clock_us), BREAKER_OPEN);
    ck_assert_uint_eq(breaker.opened, 2);
    fail_calls(&breaker, 4); /* the count began anew */
    ck_assert_int_eq(breaker.state, BREAKER_CLOSED);
}
END_TEST

START_TEST(calls_that_fail_together_count_once)
{
    struct breaker breaker;
    uint64_t tickets[100];

    breaker_init(&breaker, "a:1", 2, LH_US_PER_S);
    for (int i = 0; i < 100; i++)
        tickets[i] = breaker_admit(&breaker, clock_us);
    for (int i = 0; i < 100; i++)
        breaker_settle(&breaker, tickets[i], BREAKER_FAILED, clock_us);
    ck_assert_int_eq(breaker.state, BREAKER_CLOSED);
    ck_assert_uint_eq(breaker.failures, 1);
    fail_calls(&breaker, 1);
    ck_assert_int_eq(breaker.state, BREAKER_IS_OPEN);
}
END_TEST

START_TEST(old_news_neither_closes_nor_reopens_a_circuit)
{
    struct breaker breaker;
    uint64_t old, probe;

    breaker_init(&breaker, "a:1", 1, LH_US_PER_S);
    old = breaker_admit(&breaker, clock_us);
    fail_calls(&breaker, 1);
    breaker_settle(&breaker, old, BREAKER_SUCCEEDED, clock_us);
    ck_assert_int_eq(breaker.state, BREAKER_IS_OPEN);
    clock_us += LH_US_PER_S;
    probe = breaker_admit(&breaker, clock_us);
    breaker_settle(&breaker, old, BREAKER_FAILED, clock_us);
    ck_assert_int_eq(breaker.state, BREAKER_HALF_OPEN);
    breaker_settle(&breaker, probe, BREAKER_SUCCEEDED, clock_us);
    breaker_settle(&breaker, old, BREAKER_FAILED, clock_us);
    ck_assert_int_eq(breaker.state, BREAKER_CLOSED);
    ck_assert_uint_eq(breaker.failures, 0);
}
END_TEST

START_TEST(a_probe_that_waits_or_is_cancelled_does_not_keep_the_circuit_open)
{
    struct breaker breaker;
    uint64_t slow, second, third;

    breaker_init(&breaker, "a:1", 1, LH_US_PER_S);
    fail_calls(&breaker, 1);
    clock_us += LH_US_PER_S;
    slow = breaker_admit(&breaker, clock_us);
    ck_assert_uint_ne(slow, BREAKER_OPEN);
    clock_us += LH_US_PER_S;
    second = breaker_admit(&breaker, clock_us); /* the next one, though the first says nothing yet */
    ck_assert_uint_ne(second, BREAKER_OPEN);
    breaker_settle(&breaker, second, BREAKER_SAID_NOTHING, clock_us);
    ck_assert_int_ne(breaker.state, BREAKER_CLOSED);
    third = breaker_admit(&breaker, clock_us);
    ck_assert_uint_ne(third, BREAKER_OPEN);
    breaker_settle(&breaker, third, BREAKER_SUCCEEDED, clock_us);
    ck_assert_int_eq(breaker.state, BREAKER_CLOSED);
    breaker_settle(&breaker, slow, BREAKER_SUCCEEDED, clock_us);
    ck_assert_int_eq(breaker.state, BREAKER_CLOSED);
}
END_TEST

START_TEST(an_answer_of_any_kind_speaks_for_the_endpoint)
{
    ck_assert_int_eq(breaker_result_of(LH_RPC_ANSWERED, LH_GRPC_INTERNAL), BREAKER_SUCCEEDED);
    ck_assert_int_eq(breaker_result_of(LH_RPC_ANSWERED, LH_GRPC_OK), BREAKER_SUCCEEDED);
    ck_assert_int_eq(breaker_result_of(LH_RPC_NOT_SENT, LH_GRPC_UNAVAILABLE), BREAKER_FAILED);
    ck_assert_int_eq(breaker_result_of(LH_RPC_IN_FLIGHT, LH_GRPC_UNAVAILABLE), BREAKER_FAILED);
    ck_assert_int_eq(breaker_result_of(LH_RPC_IN_FLIGHT, LH_GRPC_INTERNAL), BREAKER_FAILED);
    ck_assert_int_eq(breaker_result_of(LH_RPC_IN_FLIGHT, LH_GRPC_DEADLINE_EXCEEDED), BREAKER_SAID_NOTHING);
    ck_assert_int_eq(breaker_result_of(LH_RPC_NOT_SENT, LH_GRPC_CANCELLED), BREAKER_SAID_NOTHING);
}
END_TEST

static Suite *retry_suite(void)
{
    Suite *suite = suite_create("retry");
    TCase *tcase;

    tcase = tcase_create("matrix");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, every_stage_code_and_reason_comes_to_what_the_table_says, 0, STAGE_COUNT);
    tcase_add_loop_test(tcase, every_reason_has_its_two_properties_under_every_strategy, 0, LH_RETRY_REASON_COUNT);
    tcase_add_test(tcase, a_number_that_is_no_reason_is_harmless);
    tcase_add_test(tcase, only_those_of_a_broken_endpoint_go_to_the_next_one);
    suite_add_tcase(suite, tcase);

    tcase = tcase_create("delays");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, best_effort_doubles_from_1_to_500_ms_and_never_overflows);
    tcase_add_test(tcase, what_is_always_retried_uses_the_controlled_backoff);
    tcase_add_test(tcase, counters_that_are_full_stay_full);
    tcase_add_test(tcase, a_delay_is_cut_to_what_is_left_and_then_nothing_is_sent);
    tcase_add_test(tcase, what_is_always_retried_is_cut_too);
    tcase_add_test(tcase, a_delay_that_ends_with_the_timeout_sends_nothing_and_one_ms_less_does);
    tcase_add_test(tcase, an_absurd_delay_is_cut_and_does_not_wrap_around);
    tcase_add_test(tcase, a_timer_that_fires_early_is_set_again);
    tcase_add_test(tcase, after_a_server_that_did_block_it_goes_on_at_once);
    tcase_add_test(tcase, a_server_that_did_not_block_is_asked_by_controlled_backoff);
    tcase_add_test(tcase, no_time_is_left_after_the_block);
    suite_add_tcase(suite, tcase);

    tcase = tcase_create("decisions");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_request_has_its_own_strategy_or_the_clients);
    tcase_add_test(tcase, a_strategy_sees_the_requests_history_and_the_servers_wish_does_not_override_it);
    tcase_add_test(tcase, every_retry_and_every_refusal_is_logged_with_its_reasons);
    tcase_add_test(tcase, a_set_of_all_reasons_can_be_written);
    tcase_add_test(tcase, a_decision_may_come_later);
    tcase_add_test(tcase, a_late_decision_is_cut_to_what_is_left_then);
    tcase_add_test(tcase, a_late_no_is_told_later);
    tcase_add_test(tcase, a_strategy_that_never_answers_ends_at_the_timeout);
    tcase_add_test(tcase, the_later_decision_may_come_from_inside_of_the_strategy);
    tcase_add_test(tcase, a_request_without_a_timeout_waits_for_its_strategy_without_a_timer);
    tcase_add_test(tcase, many_deferred_decisions_are_each_their_own);
    tcase_add_test(tcase, who_was_stopped_hears_nothing_any_more);
    tcase_add_test(tcase, so_many_requests_wait_and_no_more);
    suite_add_tcase(suite, tcase);

    tcase = tcase_create("breakers");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, so_many_failures_in_a_row_open_the_circuit_until_a_probe_succeeds);
    tcase_add_test(tcase, calls_that_fail_together_count_once);
    tcase_add_test(tcase, old_news_neither_closes_nor_reopens_a_circuit);
    tcase_add_test(tcase, a_probe_that_waits_or_is_cancelled_does_not_keep_the_circuit_open);
    tcase_add_test(tcase, an_answer_of_any_kind_speaks_for_the_endpoint);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(retry_suite());
    int failed;

    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
