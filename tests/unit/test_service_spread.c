/* A service with several databases, whose rows say which keys of a spread namespace they have. */
#include "test_service_spread.h"
#include "base/clock.h"
#include "loop/loop.h"
#include "service/call_internal.h"
#include "service/service_internal.h"
#include "test_service_fakes.h"

static struct fake_store stores[3];
static struct lh_coordinator coordinators[3];

static struct lh_loop *loop;

static void setup(void)
{
    loop = lh_loop_create();
}

static void teardown(void)
{
    lh_loop_destroy(loop);
    test_arena_reset();
}

static const char *const spread[] = {"jobs", "more.jobs"};
static size_t spread_count;

static struct lh_service_place new_place(int at)
{
    fake_store_init(&stores[at]);
    coordinators[at] = (struct lh_coordinator){.store = &stores[at].base, .readiness.is_ready = true};
    return (struct lh_service_place){
        .name = abc[at], .coordinator = &coordinators[at], .spread = spread, .spread_count = spread_count};
}

static struct lh_service *start_with(size_t count)
{
    struct lh_service_options options;
    struct lh_service_place places[2];

    spread_count = count;
    lh_service_options_init(&options);
    options.loop = loop;
    memset(coordinators, 0, sizeof(coordinators));
    for (int i = 0; i < 2; i++)
        places[i] = new_place(i);
    return lh_service_create_placed(places, 2, &options);
}

static struct lh_service *start(void)
{
    return start_with(1);
}

static void stop(struct lh_service *service)
{
    fake_client_gone(service);
    lh_service_destroy(service);
}

static void answer_all(int place, const struct lh_spread_row *rows, size_t count)
{
    struct lh_spread_answer answer = {rows, count};

    coordinators[place].on_spread(coordinators[place].spread_arg, &answer);
    lh_loop_run_once(loop, 0); /* the looks at open calls */
}

static void answer(int place, const struct lh_spread_row *row)
{
    answer_all(place, row, row != NULL);
}

static struct lh_rpc_call *acquire(struct lh_service *service, const char *key)
{
    Leasehold__V1__AcquireRequest *request = new_acquire_request();
    struct lh_rpc_call *call = fake_call(service, "/leasehold.v1.LeaseService/Acquire");

    request->scope = new_scope("jobs", key);
    fake_call_message(call, &request->base);
    return call;
}

static void check_refused(struct lh_rpc_call *call, const char *words)
{
    ck_assert(call->is_finished);
    ck_assert_str_eq(fake_call_reason(call), "DATABASE_UNAVAILABLE");
    ck_assert_msg(strstr(call->message, words) != NULL, "%s", call->message);
    fake_call_end(call, LH_RPC_END_FINISHED);
}

START_TEST(databases_are_claimed_one_after_the_other_and_ready_then)
{
    struct lh_service *service = start();
    struct lh_spread_row a = row_of("a", ab, 2, false), b = row_of("b", ab, 2, false);

    ck_assert_str_eq(coordinators[0].lack, "its part of the spread namespaces was not read yet");
    answer(1, NULL);
    ck_assert_uint_eq(stores[0].claim_count + stores[1].claim_count, 0);
    ck_assert_ptr_null(coordinators[1].lack);
    answer(0, NULL);
    ck_assert_ptr_nonnull(coordinators[1].lack);
    ck_assert_str_eq(stores[0].claimed, "a");
    answer(0, NULL); /* the claim is under way */
    ck_assert_uint_eq(stores[0].claim_count, 1);
    check_refused(acquire(service, "k1"), "the keys of jobs are not divided between the databases a, b yet");
    stores[0].on_claimed(stores[0].claim_arg, LH_OK, NULL);
    ck_assert_uint_eq(coordinators[0].spread_reads, 1);
    answer(0, &a);
    ck_assert_str_eq(stores[1].claimed, "b");
    stores[1].on_claimed(stores[1].claim_arg, LH_OK, NULL);
    answer(1, &b);
    ck_assert_str_eq(stores[0].claimed, "a!");
    stores[0].on_claimed(stores[0].claim_arg, LH_OK, NULL);
    a = settled("a", ab, 2);
    answer(0, &a);
    ck_assert_str_eq(stores[1].claimed, "b!");
    stores[1].on_claimed(stores[1].claim_arg, LH_OK, NULL);
    b = settled("b", ab, 2);
    answer(1, &b);
    ck_assert_ptr_null(coordinators[0].lack);
    ck_assert_ptr_null(coordinators[1].lack);
    ck_assert_uint_eq(stores[0].claim_count + stores[1].claim_count, 4);
    stop(service);
}
END_TEST

START_TEST(a_claim_that_fails_is_tried_again_and_keeps_nobody_from_other_namespaces)
{
    struct lh_service *service = start();
    struct lh_error error = {.message = "permission denied"};

    answer(0, NULL);
    answer(1, NULL);
    stores[0].on_claimed(stores[0].claim_arg, LH_INTERNAL, &error);
    answer(0, NULL);
    ck_assert_uint_eq(stores[0].claim_count, 2);
    ck_assert_ptr_null(coordinators[0].lack);
    ck_assert_ptr_null(coordinators[1].lack);
    stores[0].on_claimed(stores[0].claim_arg, LH_CANCELED, &error);
    stop(service);
}
END_TEST

START_TEST(waiters_of_a_key_that_goes_elsewhere_are_sent_away)
{
    struct lh_service *service = start();
    struct lh_spread_row a = settled("a", ab, 2), b = settled("b", ab, 2), none = b;
    struct lh_acquire_result gone = {.status = LH_CANCELED}, sent_back = {.status = LH_DATABASE_UNAVAILABLE};
    struct lh_rpc_call *moved, *kept;

    answer(0, &a);
    answer(1, &b);
    moved = acquire(service, "k1");
    kept = acquire(service, "invoice-42");
    ck_assert_str_eq(coordinators[1].acquire->key, "k1");
    ck_assert_str_eq(coordinators[0].acquire->key, "invoice-42");
    move_all(&none, NULL);
    answer(1, &none);
    ck_assert_ptr_eq(coordinators[1].sent_back, coordinators[1].acquire);
    ck_assert(!moved->is_finished); /* its grant may be on its way */
    ck_assert(!kept->is_finished);
    ck_assert_ptr_null(coordinators[0].sent_back);
    coordinators[1].acquire->on_done(coordinators[1].acquire, &sent_back);
    check_refused(
        moved,
        "this key of jobs is on its way from database b to another; deploy/move-namespace keys jobs FROM TO goes on "
        "with a move that was interrupted: call again with the same lease key");
    check_refused(acquire(service, "k1"), "this key of jobs is on its way from database b to another");

    move_all(&b, &a);
    answer(0, &a);
    ck_assert(!kept->is_finished);
    moved = acquire(service, "k1");
    ck_assert_str_eq(coordinators[0].acquire->key, "k1");
    coordinators[0].acquire->on_done(coordinators[0].acquire, &gone);
    fake_call_end(moved, LH_RPC_END_FINISHED);
    fake_call_end(kept, LH_RPC_END_CANCELED);
    coordinators[0].canceled->on_done(coordinators[0].canceled, &gone);
    stop(service);
}
END_TEST

START_TEST(a_database_comes_and_goes_and_keys_in_between)
{
    struct lh_service *service = start();
    struct lh_spread_row a = settled("a", ab, 2), b = settled("b", ab, 2), c = row_of("c", abc, 3, true), none = b;
    struct lh_acquire_result gone = {.status = LH_CANCELED}, sent_back = {.status = LH_DATABASE_UNAVAILABLE};
    char why[LH_SERVICE_WORDS_BYTES];
    struct lh_rpc_call *waiting;

    move_all(&none, &c);
    answer(0, &a);
    ck_assert(!lh_service_may_remove(service, "b", why)); /* it was not read */
    ck_assert_ptr_nonnull(strstr(why, "may have keys of jobs, because "));
    answer(1, &b);
    for (int round = 0; round < 2; round++) {
        struct lh_service_place place = new_place(2);
        lh_service_add(service, &place);
        ck_assert_str_eq(coordinators[2].lack, "its part of the spread namespaces was not read yet");
        ck_assert(lh_service_may_remove(service, "c", why));
        answer(2, NULL);
        ck_assert_ptr_null(coordinators[2].lack);
        ck_assert_uint_eq(stores[2].claim_count, 0);
        answer(1, &none);
        answer(2, &c);
        waiting = acquire(service, "k1");
        ck_assert_str_eq(coordinators[2].acquire->key, "k1");
        ck_assert(!lh_service_may_remove(service, "c", why));
        ck_assert_ptr_nonnull(strstr(why, " of 4096 slots of jobs: move its keys to other sections first, with "));
        none.section = c.section;
        answer(2, &none);
        none.section = b.section;
        answer(1, &b);
        ck_assert_ptr_eq(coordinators[2].sent_back, coordinators[2].acquire);
        ck_assert(lh_service_may_remove(service, "c", why));
        lh_service_remove(service, &coordinators[2]);
        coordinators[2].acquire->on_done(coordinators[2].acquire, &sent_back);
        check_refused(waiting, "call again with the same lease key");
        lh_service_forget(service, &coordinators[2]);
        waiting = acquire(service, "k1");
        coordinators[1].acquire->on_done(coordinators[1].acquire, &gone);
        fake_call_end(waiting, LH_RPC_END_FINISHED);
    }
    stop(service);
}
END_TEST

START_TEST(a_key_that_two_databases_have_is_refused_with_both_names)
{
    struct lh_service *service = start();
    struct lh_spread_row a = settled("a", ab, 2), b = settled("b", ab, 2), copy = b;

    move_all(&copy, &a);
    answer(0, &a);
    answer(1, &b);
    check_refused(acquire(service, "k1"), "the databases a and b both say that they have this key of jobs");
    stop(service);
}
END_TEST

/* A namespace, and of which spread one the words are: itself, above it or below it. */
static const struct {
    const char *ns, *of;
} asked[] = {{"jobs", " of jobs: "},           {"jobs.x", " of jobs: "},           {"more", " of more.jobs: "},
             {"more.jobs", " of more.jobs: "}, {"more.jobs.x", " of more.jobs: "}, {"", " of jobs: "}};

START_TEST(a_list_without_some_keys_says_where_they_are)
{
    struct lh_service *service = start();
    struct lh_spread_row a = settled("a", abc, 3), b = settled("b", abc, 3);
    char words[LH_OUTAGE_WORDS_BYTES];

    answer(0, &a);
    answer(1, &b);
    ck_assert_str_eq(lh_call_words_of_outage(service, "jobs", NULL, "call again", words),
                     "no database of this daemon has some keys of jobs: its keys are in the sections a, b, c, this "
                     "daemon has a, b: call again");
    a = settled("a", ab, 2);
    b = settled("b", ab, 2);
    answer(0, &a);
    answer(1, &b);
    move_all(&b, NULL);
    answer(1, &b);
    ck_assert_str_eq(
        lh_call_words_of_outage(service, "jobs", NULL, "call again", words),
        "keys of jobs are on their way between databases; deploy/move-namespace keys jobs FROM TO goes on with a "
        "move that was interrupted: call again");
    stop(service);
}
END_TEST

START_TEST(keys_in_no_database_of_all_sections_may_be_those_of_a_move_that_ended_early)
{
    struct lh_service *service = start();
    struct lh_spread_row a = settled("a", ab, 2), b = row_of("b", ab, 2, true);
    char words[LH_OUTAGE_WORDS_BYTES];

    answer(0, &a);
    answer(1, &b);
    ck_assert_str_eq(
        lh_call_words_of_outage(service, "jobs", NULL, "call again", words),
        "no database has some keys of jobs: a move of keys is under way; deploy/move-namespace keys jobs FROM TO "
        "goes on with a move that was interrupted: call again");
    check_refused(
        acquire(service, "k1"),
        "no database has this key of jobs: a move of keys is under way; deploy/move-namespace keys jobs FROM TO "
        "goes on with a move that was interrupted");
    stop(service);
}
END_TEST

START_TEST(words_without_a_key_are_of_the_namespace_that_was_asked_for)
{
    struct lh_service *service = start_with(2);
    struct lh_spread_row rows[2][2]; /* of jobs and of more.jobs */
    char words[LH_OUTAGE_WORDS_BYTES];

    for (int i = 0; i < 2; i++) {
        rows[i][0] = rows[i][1] = settled(ab[i], ab, 2);
        rows[i][1].ns = "more.jobs";
    }
    move_all(&rows[1][0], NULL);
    move_all(&rows[1][1], NULL);
    answer_all(0, rows[0], 2);
    answer_all(1, rows[1], 2);
    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        lh_call_words_of_outage(service, asked[i].ns, NULL, "call again", words);
        ck_assert_msg(strstr(words, asked[i].of) != NULL, "%s: %s", asked[i].ns, words);
    }
    ck_assert(!lh_places_lack_leases(service->places, "more.jobsx", words));
    ck_assert(!lh_places_lack_leases(service->places, "job", words));
    stop(service);
}
END_TEST

static struct lh_rpc_call *watch_jobs(struct lh_service *service)
{
    struct lh_rpc_call *call = fake_call(service, "/leasehold.v1.LeaseService/WatchLeases");
    Leasehold__V1__WatchLeasesRequest request;
    char name[] = "jobs", *segment = name;

    leasehold__v1__watch_leases_request__init(&request);
    request.namespace_ = &segment;
    request.n_namespace_ = 1;
    fake_call_message(call, &request.base);
    return call;
}

START_TEST(a_watch_waits_for_no_database_without_keys_that_is_given_up)
{
    struct lh_service *service = start();
    struct lh_spread_row a = settled("a", ab, 2), b = settled("b", ab, 2);
    struct lh_service_place c = new_place(2);
    struct lh_rpc_call *call;

    answer(0, &a);
    answer(1, &b);
    lh_service_add(service, &c);
    call = watch_jobs(service);
    for (int i = 0; i < 2; i++)
        coordinators[i].watcher->on_active(coordinators[i].watcher);
    ck_assert(!call->has_headers); /* its database may come yet */
    coordinators[2].watcher->on_end(coordinators[2].watcher, LH_DATABASE_UNAVAILABLE);
    ck_assert(call->has_headers);
    ck_assert(!call->is_finished);
    fake_call_end(call, LH_RPC_END_CANCELED);
    stop(service);
}
END_TEST

static void on_beaten(struct lh_holder_request *request)
{
    *(bool *)request->arg = true;
}

START_TEST(a_renewal_goes_to_no_database_that_may_not_know_the_lease)
{
    struct lh_service *service = start();
    struct lh_spread_row a = settled("a", abc, 3), b = settled("b", abc, 3);
    struct lh_holder_entry items[2] = {{.item = {.ns = "jobs", .key = "k1"}},
                                       {.item = {.ns = "jobs", .key = "Zürich"}}};
    bool is_done = false;
    struct lh_holder_request request = {.items = items, .count = 2, .on_done = on_beaten, .arg = &is_done};

    /* Nothing was read yet: no item is sent, and the answer comes later. */
    ck_assert_int_eq(lh_route_heartbeat(service, &request), LH_OK);
    ck_assert(!is_done);
    ck_assert_uint_eq(coordinators[0].heartbeat->count, 0);
    coordinators[0].heartbeat->on_done(coordinators[0].heartbeat);
    ck_assert(is_done);
    ck_assert_int_eq(items[0].item.outcome, LH_OUTCOME_RETRY);

    answer(0, &a);
    answer(1, &b);
    is_done = false;
    ck_assert_int_eq(lh_route_heartbeat(service, &request), LH_OK);
    ck_assert_uint_eq(coordinators[1].heartbeat->count, 1);
    coordinators[1].heartbeat->items[0].item.outcome = LH_OUTCOME_OK;
    coordinators[1].heartbeat->on_done(coordinators[1].heartbeat);
    ck_assert(is_done);
    ck_assert_int_eq(items[0].item.outcome, LH_OUTCOME_OK);
    ck_assert_int_eq(items[1].item.outcome, LH_OUTCOME_RETRY);
    check_refused(
        acquire(service, "Zürich"),
        "no database of this daemon has this key of jobs: its keys are in the sections a, b, c, this daemon has a, b");

    move_all(&b, NULL); /* k1 is on its way, and may have left b */
    answer(1, &b);
    coordinators[0].heartbeat = coordinators[1].heartbeat = NULL;
    is_done = false;
    ck_assert_int_eq(lh_route_heartbeat(service, &request), LH_OK);
    ck_assert_ptr_null(coordinators[1].heartbeat);
    coordinators[0].heartbeat->on_done(coordinators[0].heartbeat);
    ck_assert(is_done);
    ck_assert_int_eq(items[0].item.outcome, LH_OUTCOME_RETRY);
    stop(service);
}
END_TEST

Suite *spread_suite(void)
{
    Suite *suite = suite_create("spread");
    TCase *tcase = tcase_create("spread");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, databases_are_claimed_one_after_the_other_and_ready_then);
    tcase_add_test(tcase, a_claim_that_fails_is_tried_again_and_keeps_nobody_from_other_namespaces);
    tcase_add_test(tcase, waiters_of_a_key_that_goes_elsewhere_are_sent_away);
    tcase_add_test(tcase, a_database_comes_and_goes_and_keys_in_between);
    tcase_add_test(tcase, a_key_that_two_databases_have_is_refused_with_both_names);
    tcase_add_test(tcase, a_list_without_some_keys_says_where_they_are);
    tcase_add_test(tcase, keys_in_no_database_of_all_sections_may_be_those_of_a_move_that_ended_early);
    tcase_add_test(tcase, words_without_a_key_are_of_the_namespace_that_was_asked_for);
    tcase_add_test(tcase, a_watch_waits_for_no_database_without_keys_that_is_given_up);
    tcase_add_test(tcase, a_renewal_goes_to_no_database_that_may_not_know_the_lease);
    suite_add_tcase(suite, tcase);
    return suite;
}
