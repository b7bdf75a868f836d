/* What comes of each stage, code and reason, for each kind of request under each kind of strategy. */
#include "test_retry.h"

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
    {LH_RPC_NOT_SENT, LH_GRPC_UNAUTHENTICATED, RETRY_NO_INFO, false, FINAL, LH_UNAUTHENTICATED},
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
    unsigned reason = lh_retry_reason_of(&evidence);

    ck_assert_uint_eq(reason, stages[_i].reason);
    ck_assert_int_eq(lh_retry_status_of(&evidence), stages[_i].status);
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
        ck_assert(lh_retry_reason_keeps_endpoint(reason) == ((next & 1u << reason) == 0));
}
END_TEST

TCase *tcase_retry_matrix(void)
{
    TCase *tcase = tcase_create("matrix");

    tcase_add_checked_fixture(tcase, retry_setup, retry_teardown);
    tcase_add_loop_test(tcase, every_stage_code_and_reason_comes_to_what_the_table_says, 0, STAGE_COUNT);
    tcase_add_loop_test(tcase, every_reason_has_its_two_properties_under_every_strategy, 0, LH_RETRY_REASON_COUNT);
    tcase_add_test(tcase, a_number_that_is_no_reason_is_harmless);
    tcase_add_test(tcase, only_those_of_a_broken_endpoint_go_to_the_next_one);
    return tcase;
}
