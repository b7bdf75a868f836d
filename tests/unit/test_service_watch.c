/* WatchLeases between a hand-made client, coordinator and store: what is told of a list and the changes around it. */

#include "base/clock.h"
#include "test_service_methods.h"

static struct lh_rpc_call *call;
static bool asks_for_alive;
static unsigned seen;

static void setup(void)
{
    methods_setup();
    seen = 0;
}

static void open_stream(bool include_initial)
{
    Leasehold__V1__WatchLeasesRequest request;
    char text[] = "payments", *segment = text;

    call = fake_call(service, "/leasehold.v1.LeaseService/WatchLeases");
    leasehold__v1__watch_leases_request__init(&request);
    request.namespace_ = &segment;
    request.n_namespace_ = 1;
    request.include_initial = include_initial;
    request.alive = asks_for_alive;
    fake_call_message(call, &request.base);
}

static struct lh_held_lease lease(const char *key, int64_t token)
{
    return (struct lh_held_lease){.ns = "payments", .key = key, .token = token, .owner = "", .labels = "{}"};
}

static void change(enum lh_event_type type, const char *key, int64_t token)
{
    struct lh_lease_event event = {.type = type, .lease = lease(key, token)};
    coordinator.watcher->on_event(coordinator.watcher, &event);
}

static void answer_page(const char *key, int64_t token, bool has_more)
{
    struct lh_held_lease leases[] = {lease(key == NULL ? "" : key, token)};
    struct lh_list_answer answer = {.leases = leases, .lease_count = key != NULL, .has_more = has_more};
    store.on_list(store.arg, LH_OK, NULL, &answer);
}

/* Exactly one message came, and this is it. */
static void expect(Leasehold__V1__LeaseEvent__Type type, int64_t token)
{
    Leasehold__V1__LeaseEvent *event = fake_call_reply(call, &leasehold__v1__lease_event__descriptor);

    ck_assert_uint_eq(call->sent_count, ++seen);
    ck_assert_int_eq(event->type, type);
    if (token != 0)
        ck_assert_int_eq(event->lease->token, token);
}

static void expect_nothing(void)
{
    ck_assert_uint_eq(call->sent_count, seen);
}

#define TYPE(name) LEASEHOLD__V1__LEASE_EVENT__TYPE__TYPE_##name

START_TEST(headers_come_when_it_is_active)
{
    open_stream(false);
    ck_assert(!call->has_headers);
    coordinator.watcher->on_active(coordinator.watcher);
    ck_assert(call->has_headers);
    change(LH_EVENT_RELEASED, "k", 7);
    expect(TYPE(RELEASED), 7);
    fake_call_end(call, LH_RPC_END_CANCELED);
    ck_assert_ptr_null(coordinator.watcher);
}
END_TEST

/* An older client may take any event for one that has a lease. */
START_TEST(quiet_streams_are_looked_after_for_who_asks)
{
    asks_for_alive = _i == 1;
    open_stream(false);
    asks_for_alive = false;
    coordinator.watcher->on_active(coordinator.watcher);
    if (_i == 1) {
        ck_assert_int_ge(call->alarm_us, lh_clock_us() + 14 * LH_US_PER_S);
        ck_assert_int_le(call->alarm_us, lh_clock_us() + 15 * LH_US_PER_S);
        call->method->on_alarm(call); /* too early */
        expect_nothing();
    } else {
        ck_assert_int_eq(call->alarm_us, 0);
    }
    fake_call_end(call, LH_RPC_END_CANCELED);
}
END_TEST

START_TEST(what_the_list_has_shown_is_not_told_again)
{
    open_stream(true);
    coordinator.watcher->on_active(coordinator.watcher);
    answer_page("k", 7, false);
    ck_assert_uint_eq(call->sent_count, 2); /* INITIAL */
    seen = 1;
    expect(TYPE(SYNCED), 0);
    ck_assert(coordinator.is_catching_up);
    change(LH_EVENT_ACQUIRED, "k", 5);
    change(LH_EVENT_RELEASED, "k", 5);
    change(LH_EVENT_ACQUIRED, "k", 7);
    change(LH_EVENT_RELEASED, "other", 6); /* of a lease that ended before the list */
    expect_nothing();
    change(LH_EVENT_EXPIRED, "k", 7);
    expect(TYPE(EXPIRED), 7);
    change(LH_EVENT_ACQUIRED, "other", 8);
    expect(TYPE(ACQUIRED), 8);
    change(LH_EVENT_FORCED, "other", 8);
    expect(TYPE(FORCED), 8);
    /* From here on nothing can be older than the list. */
    coordinator.watcher->on_caught_up(coordinator.watcher);
    change(LH_EVENT_RELEASED, "third", 3);
    expect(TYPE(RELEASED), 3);
    fake_call_end(call, LH_RPC_END_CANCELED);
}
END_TEST

START_TEST(several_holders_of_a_scope_are_told_apart)
{
    open_stream(true);
    coordinator.watcher->on_active(coordinator.watcher);
    answer_page("k", 7, true);
    answer_page("k", 9, false);
    seen = 2; /* INITIAL twice */
    expect(TYPE(SYNCED), 0);
    change(LH_EVENT_ACQUIRED, "k", 9);
    change(LH_EVENT_ACQUIRED, "k", 8); /* it had ended before the list */
    change(LH_EVENT_RELEASED, "k", 8);
    expect_nothing();
    change(LH_EVENT_RELEASED, "k", 7);
    expect(TYPE(RELEASED), 7);
    change(LH_EVENT_ACQUIRED, "k", 10);
    expect(TYPE(ACQUIRED), 10);
    change(LH_EVENT_RELEASED, "k", 9);
    expect(TYPE(RELEASED), 9);
    change(LH_EVENT_DOWNGRADED, "k", 10); /* smaller, under its token */
    expect(TYPE(DOWNGRADED), 10);
    change(LH_EVENT_RELEASED, "k", 10);
    expect(TYPE(RELEASED), 10);
    change(LH_EVENT_DOWNGRADED, "k", 12);
    expect(TYPE(DOWNGRADED), 12);
    change(LH_EVENT_RELEASED, "k", 12);
    expect(TYPE(RELEASED), 12);
    fake_call_end(call, LH_RPC_END_CANCELED);
}
END_TEST

START_TEST(one_scope_alone_is_watched)
{
    Leasehold__V1__WatchLeasesRequest request;
    char text[] = "payments", *segment = text;

    call = fake_call(service, "/leasehold.v1.LeaseService/WatchLeases");
    leasehold__v1__watch_leases_request__init(&request);
    request.key = (char *)"k";
    fake_call_message(call, &request.base);
    ck_assert_str_eq(fake_call_field(call), "namespace"); /* a key is of a namespace */
    fake_call_end(call, LH_RPC_END_FINISHED);

    call = fake_call(service, "/leasehold.v1.LeaseService/WatchLeases");
    request.namespace_ = &segment;
    request.n_namespace_ = 1;
    request.include_children = true;
    fake_call_message(call, &request.base);
    ck_assert_str_eq(fake_call_field(call), "include_children");
    fake_call_end(call, LH_RPC_END_FINISHED);

    call = fake_call(service, "/leasehold.v1.LeaseService/WatchLeases");
    request.include_children = false;
    request.include_initial = true;
    fake_call_message(call, &request.base);
    coordinator.watcher->on_active(coordinator.watcher);
    ck_assert_str_eq(store.after_ns, "payments");
    ck_assert_str_eq(store.after_key, "k");
    ck_assert_int_eq(store.after_token, -1);
    answer_page("k", 7, true);
    expect(TYPE(INITIAL), 7);
    answer_page("l", 8, true); /* beyond it: no page more is asked for */
    expect(TYPE(SYNCED), 0);
    change(LH_EVENT_ACQUIRED, "l", 9);
    expect_nothing();
    change(LH_EVENT_RELEASED, "k", 7);
    expect(TYPE(RELEASED), 7);
    fake_call_end(call, LH_RPC_END_CANCELED);
}
END_TEST

START_TEST(changes_while_it_lists_come_after_synced)
{
    open_stream(true);
    coordinator.watcher->on_active(coordinator.watcher);
    answer_page("a", 1, true);
    expect(TYPE(INITIAL), 1);
    ck_assert_str_eq(store.after_key, "a");
    change(LH_EVENT_RELEASED, "a", 1);
    change(LH_EVENT_ACQUIRED, "b", 2);
    expect_nothing();
    answer_page("b", 2, false);
    /* INITIAL, SYNCED, the end of a; the grant of b was in the list. */
    ck_assert_uint_eq(call->sent_count, 4);
    seen = 3;
    expect(TYPE(RELEASED), 1);
    fake_call_end(call, LH_RPC_END_CANCELED);
}
END_TEST

START_TEST(the_next_page_waits_until_this_one_is_read)
{
    open_stream(true);
    coordinator.watcher->on_active(coordinator.watcher);
    call->is_over_mark = true;
    store.after_key[0] = '\0';
    answer_page("a", 1, true);
    ck_assert_str_eq(store.after_key, "");
    call->is_over_mark = false;
    call->method->on_writable(call);
    ck_assert_str_eq(store.after_key, "a");
    answer_page(NULL, 0, false);
    seen = 1;
    expect(TYPE(SYNCED), 0);
    fake_call_end(call, LH_RPC_END_CANCELED);
}
END_TEST

START_TEST(who_does_not_read_is_ended)
{
    open_stream(false);
    coordinator.watcher->on_active(coordinator.watcher);
    call->unsent = (size_t)4 * 1024 * 1024;
    change(LH_EVENT_ACQUIRED, "k", 1);
    ck_assert(call->is_finished);
    ck_assert_str_eq(fake_call_reason(call), "WATCH_LAGGED");
    ck_assert_ptr_null(coordinator.watcher);
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

START_TEST(who_does_not_read_the_list_is_ended_by_the_changes)
{
    open_stream(true);
    coordinator.watcher->on_active(coordinator.watcher);
    for (int i = 0; i < 10000; i++)
        change(LH_EVENT_ACQUIRED, "k", i + 1);
    ck_assert(!call->is_finished);
    change(LH_EVENT_ACQUIRED, "k", 10001);
    ck_assert(call->is_finished);
    ck_assert_str_eq(fake_call_reason(call), "WATCH_LAGGED");
    /* The page that is on its way finds nobody. */
    fake_call_end(call, LH_RPC_END_FINISHED);
    answer_page("a", 1, false);
}
END_TEST

START_TEST(refusals_and_shutdown)
{
    coordinator.refuse = LH_OVERLOADED;
    coordinator.stats.max_watchers = 3;
    open_stream(false);
    ck_assert_str_eq(fake_call_reason(call), "OVERLOADED");
    fake_call_end(call, LH_RPC_END_FINISHED);
    coordinator.refuse = LH_OK;
    open_stream(true);
    lh_service_drain(service);
    ck_assert_str_eq(fake_call_reason(call), "SHUTTING_DOWN");
    fake_call_end(call, LH_RPC_END_FINISHED);
    open_stream(true);
    ck_assert_str_eq(fake_call_reason(call), "SHUTTING_DOWN");
    fake_call_end(call, LH_RPC_END_FINISHED);
}
END_TEST

Suite *watch_suite(void)
{
    Suite *suite = suite_create("watch");
    TCase *tcase = tcase_create("watch");

    tcase_add_checked_fixture(tcase, setup, methods_teardown);
    tcase_add_test(tcase, headers_come_when_it_is_active);
    tcase_add_loop_test(tcase, quiet_streams_are_looked_after_for_who_asks, 0, 2);
    tcase_add_test(tcase, what_the_list_has_shown_is_not_told_again);
    tcase_add_test(tcase, several_holders_of_a_scope_are_told_apart);
    tcase_add_test(tcase, one_scope_alone_is_watched);
    tcase_add_test(tcase, changes_while_it_lists_come_after_synced);
    tcase_add_test(tcase, the_next_page_waits_until_this_one_is_read);
    tcase_add_test(tcase, who_does_not_read_is_ended);
    tcase_add_test(tcase, who_does_not_read_the_list_is_ended_by_the_changes);
    tcase_add_test(tcase, refusals_and_shutdown);
    suite_add_tcase(suite, tcase);
    return suite;
}
