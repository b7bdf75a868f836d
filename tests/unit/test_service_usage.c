/* What one caller may take: a principal on all of its connections together, an anonymous connection by itself. */
#include "service/edge_internal.h"
#include "test_service_methods.h"

#define MOST 2

static void setup(void)
{
    struct lh_service_options options;

    methods_setup();
    lh_service_destroy(service);
    lh_service_options_init(&options);
    for (size_t i = 0; i < LH_USAGE_BOUNDS; i++)
        options.caller_limits[i] = MOST;
    service = lh_service_create(&coordinator, &options);
}

/* NULL: refused. */
static struct lh_usage *take(unsigned connection, const char *principal, enum lh_usage_bound bound)
{
    struct lh_rpc_call *call = fake_call(service, LEASES "GetLease");
    struct lh_usage *caller;

    call->connection = connection;
    call->principal = principal;
    if (!lh_usage_take(call, bound, 1, &caller)) {
        ck_assert_int_eq(call->code, LH_GRPC_RESOURCE_EXHAUSTED);
        caller = NULL;
    }
    fake_call_end(call, LH_RPC_END_FINISHED);
    return caller;
}

START_TEST(connections_of_one_principal_share_what_it_may_have)
{
    struct lh_service_caller_stats stats;

    for (int bound = 0; bound < LH_USAGE_BOUNDS; bound++) {
        struct lh_usage *ci = take(0, "token:ci", bound), *other;

        ck_assert_ptr_eq(take(1, "token:ci", bound), ci);
        ck_assert_ptr_null(take(0, "token:ci", bound));
        ck_assert_ptr_null(take(1, "token:ci", bound));
        other = take(1, "token:other", bound);
        ck_assert_ptr_nonnull(other);
        ck_assert_ptr_null(take(1, "token:ci", bound)); /* its share did not begin anew */
        lh_usage_give(ci, bound, 1);
        ck_assert_ptr_eq(take(1, "token:ci", bound), ci);
        lh_usage_give(ci, bound, MOST);
        lh_usage_give(other, bound, 1);
        lh_service_caller_stats(service, &stats);
        ck_assert_uint_eq(stats.refusals[bound], 3);
    }
}
END_TEST

START_TEST(anonymous_connections_share_nothing)
{
    struct lh_usage *first = take(0, NULL, LH_USAGE_WAITERS), *second;

    ck_assert_ptr_eq(take(0, NULL, LH_USAGE_WAITERS), first);
    ck_assert_ptr_null(take(0, NULL, LH_USAGE_WAITERS));
    second = take(1, NULL, LH_USAGE_WAITERS);
    ck_assert_ptr_nonnull(second);
    /* With a token in between. */
    lh_usage_give(take(0, "token:ci", LH_USAGE_WAITERS), LH_USAGE_WAITERS, 1);
    ck_assert_ptr_null(take(0, NULL, LH_USAGE_WAITERS));
    lh_usage_give(first, LH_USAGE_WAITERS, MOST);
    lh_usage_give(second, LH_USAGE_WAITERS, 1);
}
END_TEST

START_TEST(what_a_principal_has_taken_outlives_its_connections)
{
    struct lh_usage *ci = take(0, "token:ci", LH_USAGE_WAITERS), *anonymous = take(1, NULL, LH_USAGE_WAITERS);

    ck_assert_ptr_eq(take(1, "token:ci", LH_USAGE_WAITERS), ci);
    fake_connection_gone(service, 0);
    fake_connection_gone(service, 1);
    ck_assert_ptr_null(take(0, "token:ci", LH_USAGE_WAITERS));
    fake_connection_gone(service, 0);
    lh_usage_give(ci, LH_USAGE_WAITERS, MOST); /* the last of it: ASan watches */
    lh_usage_give(anonymous, LH_USAGE_WAITERS, 1);
    ci = take(0, "token:ci", LH_USAGE_WAITERS);
    ck_assert_ptr_nonnull(ci);
    lh_usage_give(ci, LH_USAGE_WAITERS, 1);
}
END_TEST

Suite *usage_suite(void)
{
    Suite *suite = suite_create("usage");
    TCase *tcase = tcase_create("usage");

    tcase_add_checked_fixture(tcase, setup, methods_teardown);
    tcase_add_test(tcase, connections_of_one_principal_share_what_it_may_have);
    tcase_add_test(tcase, anonymous_connections_share_nothing);
    tcase_add_test(tcase, what_a_principal_has_taken_outlives_its_connections);
    suite_add_tcase(suite, tcase);
    return suite;
}
