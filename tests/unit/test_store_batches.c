/*
 * What a lane does when a batch fails. The functions here are stand-ins with the signatures of the real ones, for they
 * can be told, by the keys of a batch, how to fail.
 */
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test_store.h"

static const char stand_ins[] =
    "create schema leasehold; create schema leasehold_internal;"
    "create sequence leasehold.calls; create sequence leasehold.deadlocks;"
    "create sequence leasehold.upgrades;"
    "create table leasehold.said (at serial, what text);"
    "create function leasehold.behave(p_key text[]) returns void language plpgsql as $$ begin"
    "  perform nextval('leasehold.calls');"
    "  if 'deadlocks twice' = any (p_key) and nextval('leasehold.deadlocks') <= 2 then"
    "    raise exception 'dead' using errcode = '40P01'; end if;"
    "  if 'deadlocks' = any (p_key) then raise exception 'dead' using errcode = '40P01'; end if;"
    "  if 'upgraded' = any (p_key) and nextval('leasehold.upgrades') = 1 then"
    "    raise exception 'no function of before' using errcode = '42883'; end if;"
    "  if 'no function' = any (p_key) then raise exception 'no function' using errcode = '42883'; end if;"
    "  if 'full' = any (p_key) and cardinality(p_key) > 10 then raise exception 'no room' using errcode = '53200';"
    "  end if;"
    "  if 'full alone' = any (p_key) then raise exception 'no room' using errcode = '53200'; end if;"
    "  if 'locked' = any (p_key) then raise exception 'locked' using errcode = '55P03'; end if;"
    "  if 'doubled' = any (p_key) then raise exception 'a constraint of ours' using errcode = '23505'; end if;"
    "  if 'disk full' = any (p_key) then raise exception 'could not access status of transaction 0'"
    "    using errcode = '53100', detail = 'Could not write to file \"pg_xact\": No space left on device.'; end if;"
    "  if 'broken' = any (p_key) then raise exception 'our own fault' using errcode = 'XX000'; end if;"
    "  if 'broken when few' = any (p_key) and cardinality(p_key) <= 2 then"
    "    raise exception 'our own fault' using errcode = 'XX000'; end if;"
    "  if 'slow' = any (p_key) then perform pg_sleep(0.3); end if;"
    "  if 'very slow' = any (p_key) then perform pg_sleep(60); end if;"
    "end $$;"
    "create function leasehold_internal.release_batch(uuid, p_namespace text[], p_key text[], uuid[], boolean[], "
    "p_value text[])"
    " returns table (n integer, outcome text, end_reason text, message text, wake boolean) language plpgsql as $$"
    " begin"
    "  perform leasehold.behave(p_key);"
    "  insert into leasehold.said (what) select 'released ' || k from unnest(p_key) as k;"
    "  return query select i, 'ok', null::text, p_key[i], p_value[i]::jsonb is not null"
    "   from generate_series(1, cardinality(p_key)) as i where p_key[i] <> 'forgotten' order by i desc;"
    " end $$;"
    "create function leasehold_internal.heartbeat_batch(p_namespace text[], p_key text[], uuid[], boolean)"
    " returns table (n integer, outcome text) language plpgsql as $$ begin"
    "  perform leasehold.behave(p_key); return query select i, 'ok' from generate_series(1, cardinality(p_key)) as i;"
    " end $$;"
    "create function leasehold_internal.acquire_items(uuid, timestamptz, text[], p_key text[], uuid[], text[], "
    "p_labels text[],"
    " bigint[], boolean[], bigint[], bigint[], text[], bigint[], integer[], integer[]) returns table (n integer, "
    "outcome text, "
    "token bigint)"
    " language plpgsql as $$ begin"
    "  perform leasehold.behave(p_key);"
    "  return query select i, 'granted', (p_labels[i]::jsonb ->> 'token')::bigint"
    "   from generate_series(1, cardinality(p_key)) as i;"
    " end $$;"
    "create function leasehold_internal.end_long_guards(p_max interval) returns table (session text, trouble text)"
    " language plpgsql as $$ begin"
    "  perform leasehold.behave(array[case when p_max > '1 s' then 'no function' else 'upgraded' end]);"
    "  return query select 'of ' || p_max, null::text;"
    " end $$;"
    "create function leasehold_internal.coordinator_unregister(uuid) returns void language sql as"
    " $$ insert into leasehold.said (what) values ('unregistered') $$;";

#define ITEMS_MAX LH_BATCH_MAX

static const char *conninfo;
static struct test_store test;
static struct test_answer answer;
static struct lh_holder_item items[ITEMS_MAX];
static struct lh_holder_item *pointers[ITEMS_MAX];
static char keys[ITEMS_MAX][24];

static void setup(void)
{
    conninfo = pg_fixture_create_database("stand_ins");
    pg_fixture_execute(conninfo, stand_ins);
    test_store_start(&test, conninfo, 1);
    memset(&answer, 0, sizeof(answer));
    for (size_t i = 0; i < ITEMS_MAX; i++) {
        snprintf(keys[i], sizeof(keys[i]), "key %zu", i);
        items[i] = (struct lh_holder_item){.ns = "payments", .key = keys[i], .value = "{\"a\": 1}"};
        pointers[i] = &items[i];
    }
}

static void teardown(void)
{
    if (test.store != NULL)
        test_store_stop(&test);
}

static void release(size_t n)
{
    ck_assert_int_eq(
        test.store->ops->send(test.store, 0, LH_KIND_RELEASE, 0, (void **)pointers, n, test_on_answer, &answer), LH_OK);
    ck_assert_uint_eq(answer.count, 0);
}

static void release_and_wait(size_t n)
{
    release(n);
    test_wait_for(&answer);
}

static int calls(void)
{
    return atoi(pg_fixture_value(conninfo, "select last_value from leasehold.calls"));
}

static void ck_released(size_t i)
{
    ck_assert_msg(!items[i].is_busy && items[i].outcome == LH_OUTCOME_OK, "item %zu", i);
}

START_TEST(each_item_gets_its_own_row_in_any_order)
{
    items[3].value = NULL;
    items[4].value = "";
    release(ITEMS_MAX);
    test_wait_for(&answer);
    ck_assert_int_eq(answer.status, LH_OK);
    for (size_t i = 0; i < ITEMS_MAX; i++) {
        ck_released(i);
        ck_assert_int_eq(items[i].wake, i != 3 && i != 4);
    }
    ck_assert_int_eq(calls(), 1);
}
END_TEST

static void on_done_send_next(void *arg, enum lh_status status, const struct lh_error *error)
{
    /* The answers of this batch are still there while the next is on its way. */
    ck_assert_int_eq(
        test.store->ops->send(test.store, 0, LH_KIND_RELEASE, 0, (void **)pointers + 1, 1, test_on_answer, &answer),
        LH_OK);
    ck_assert_str_eq(items[0].message, "key 0");
    ck_assert_str_eq(items[0].key, "key 0");
}

START_TEST(the_next_batch_may_be_sent_from_inside_the_answer)
{
    ck_assert_int_eq(
        test.store->ops->send(test.store, 0, LH_KIND_RELEASE, 0, (void **)pointers, 1, on_done_send_next, NULL), LH_OK);
    test_wait_for(&answer);
    ck_released(0);
    ck_released(1);
}
END_TEST

START_TEST(bad_json_is_invalid_and_spoils_no_other_item)
{
    items[137].value = "\"\\u0000\"";
    items[138].value = "{";
    items[499].value = "1e400000";
    items[400].is_failure = true;
    release_and_wait(ITEMS_MAX);
    ck_assert_int_eq(answer.status, LH_OK);
    for (size_t i = 0; i < ITEMS_MAX; i++) {
        if (i == 137 || i == 138 || i == 499) {
            ck_assert_int_eq(items[i].outcome, LH_OUTCOME_INVALID);
            ck_assert(!items[i].is_busy);
            ck_assert_ptr_nonnull(strstr(items[i].message, "success: "));
        } else {
            ck_released(i);
        }
    }
    /* Halving, not one by one. */
    ck_assert_int_lt(calls(), 80);
    ck_assert_str_eq(pg_fixture_value(conninfo, "select count(*) from leasehold.said"), "497");
    ck_assert_str_eq(pg_fixture_value(conninfo, "select bool_and(what = 'released key ' || (at_number - 1 +"
                                                " (at_number > 137)::integer * 2)) from (select what,"
                                                " row_number() over (order by at) as at_number from leasehold.said) s"),
                     "t");
}
END_TEST

START_TEST(every_item_may_be_bad)
{
    for (size_t i = 0; i < 40; i++)
        items[i].value = "{";
    release_and_wait(40);
    ck_assert_int_eq(answer.status, LH_OK);
    for (size_t i = 0; i < 40; i++)
        ck_assert_int_eq(items[i].outcome, LH_OUTCOME_INVALID);
}
END_TEST

START_TEST(a_full_lock_table_makes_smaller_batches)
{
    for (size_t i = 0; i < 100; i++)
        items[i].key = "full";
    release_and_wait(100);
    ck_assert_int_eq(answer.status, LH_OK);
    for (size_t i = 0; i < 100; i++)
        ck_released(i);
    items[50].key = "full alone";
    release_and_wait(100);
    ck_assert_int_eq(answer.status, LH_OK);
    for (size_t i = 0; i < 100; i++)
        ck_assert_int_eq(items[i].is_busy, i == 50);
}
END_TEST

START_TEST(a_deadlock_is_tried_again_some_times)
{
    items[2].key = "deadlocks twice";
    release_and_wait(5);
    ck_assert_int_eq(answer.status, LH_OK);
    ck_released(2);
    ck_assert_int_eq(calls(), 3);
    items[2].key = "deadlocks";
    release_and_wait(5);
    ck_assert_int_eq(answer.status, LH_OK);
    for (size_t i = 0; i < 5; i++)
        ck_assert(items[i].is_busy);
    ck_assert_int_eq(calls(), 7);
}
END_TEST

START_TEST(a_function_that_a_migration_has_just_replaced_is_called_again)
{
    items[2].key = "upgraded";
    release_and_wait(5);
    ck_assert_int_eq(answer.status, LH_OK);
    ck_released(2);
    ck_assert_int_eq(calls(), 2);
    items[2].key = "no function";
    release_and_wait(5);
    ck_assert_int_eq(answer.status, LH_INTERNAL);
    ck_assert_str_eq(answer.error.sqlstate, "42883");
    ck_assert_int_eq(calls(), 6);
}
END_TEST

static void on_guards(void *arg, enum lh_status status, const struct lh_error *error,
                      const struct lh_long_guard *guards, size_t count)
{
    test_on_answer(&answer, status, error);
    if (status == LH_OK)
        ck_assert_str_eq(guards[0].session, "of 00:00:01");
}

START_TEST(so_is_a_control_call_once)
{
    ck_assert_int_eq(test.store->ops->end_long_guards(test.store, LH_US_PER_S, on_guards, NULL), LH_OK);
    test_wait_for_ok(&answer);
    ck_assert_int_eq(calls(), 2);
    ck_assert_int_eq(test.store->ops->end_long_guards(test.store, 2 * LH_US_PER_S, on_guards, NULL), LH_OK);
    test_wait_for(&answer);
    ck_assert_int_eq(answer.status, LH_INTERNAL);
    ck_assert_str_eq(answer.error.sqlstate, "42883");
    ck_assert_int_eq(calls(), 4);
}
END_TEST

START_TEST(a_lock_timeout_and_a_missing_row_are_busy)
{
    items[1].key = "locked";
    release_and_wait(3);
    ck_assert_int_eq(answer.status, LH_OK);
    for (size_t i = 0; i < 3; i++)
        ck_assert(items[i].is_busy);
    items[1].key = "forgotten";
    release_and_wait(3);
    ck_released(0);
    ck_assert(items[1].is_busy);
    ck_released(2);
}
END_TEST

START_TEST(our_own_fault_is_told_with_its_words)
{
    items[1].key = "broken";
    release_and_wait(3);
    ck_assert_int_eq(answer.status, LH_INTERNAL);
    ck_assert_str_eq(answer.error.sqlstate, "XX000");
    ck_assert_str_eq(answer.error.message, "our own fault");
    ck_assert_str_eq(pg_fixture_value(conninfo, "select count(*) from leasehold.said"), "0");
    /* Once a part is committed, the rest is busy: "nothing was committed" would be a lie. */
    items[0].value = "{";
    items[3].key = "broken when few";
    items[1].key = keys[1];
    release_and_wait(4);
    ck_assert_int_eq(answer.status, LH_OK);
    ck_assert_int_eq(items[0].outcome, LH_OUTCOME_INVALID);
    ck_released(1);
    ck_assert(items[2].is_busy);
    ck_assert(items[3].is_busy);
}
END_TEST

/* The words of the failure that test.store told last. */
static struct lh_error told;

static void on_told(void *arg, enum lh_status status, const struct lh_error *error)
{
    if (error != NULL)
        told = *error;
    test_on_answer(arg, status, error);
}

static void acquire_alone(struct lh_acquire_item *item)
{
    struct lh_acquire_item *asked = item;
    ck_assert_int_eq(test.store->ops->send(test.store, 0, LH_KIND_ACQUIRE, 0, (void **)&asked, 1, on_told, &answer),
                     LH_OK);
    test_wait_for(&answer);
}

START_TEST(what_is_not_in_the_labels_is_not_blamed_on_them)
{
    struct lh_acquire_item item = {
        .ns = "n", .key = "doubled", .terms.owner = "o", .terms.labels = "{}", .terms.duration_us = 1000000};
    acquire_alone(&item);
    ck_assert_int_eq(answer.status, LH_INTERNAL);
    ck_assert_str_eq(told.message, "a constraint of ours");
    ck_assert_str_eq(told.sqlstate, "23505");
}
END_TEST

START_TEST(a_full_disk_is_told_in_the_servers_words)
{
    struct lh_acquire_item item = {
        .ns = "n", .key = "disk full", .terms.owner = "o", .terms.labels = "{}", .terms.duration_us = 1000000};
    acquire_alone(&item);
    ck_assert_int_eq(answer.status, LH_OVERLOADED);
    ck_assert_str_eq(told.message, "could not access status of transaction 0: Could not write to file \"pg_xact\": "
                                   "No space left on device.");
}
END_TEST

START_TEST(bad_labels_name_their_field)
{
    struct lh_acquire_item asked[3];
    struct lh_acquire_item *asking[3] = {&asked[0], &asked[1], &asked[2]};

    for (size_t i = 0; i < 3; i++)
        asked[i] = (struct lh_acquire_item){.ns = "payments",
                                            .key = "one",
                                            .terms.owner = "me",
                                            .terms.labels = i == 1 ? "{\"a\": \"\\u0000\"}" : "{\"token\": \"7\"}",
                                            .terms.duration_us = 1000000,
                                            .wait_us = LH_NEVER};
    ck_assert_int_eq(
        test.store->ops->send(test.store, 0, LH_KIND_ACQUIRE, 0, (void **)asking, 3, test_on_answer, &answer), LH_OK);
    test_wait_for(&answer);
    ck_assert_int_eq(answer.status, LH_OK);
    ck_assert_int_eq(asked[0].outcome, LH_ACQUIRE_GRANTED);
    ck_assert_int_eq(asked[1].outcome, LH_ACQUIRE_INVALID);
    ck_assert_str_eq(asked[1].field, "labels");
    ck_assert_int_eq(asked[2].outcome, LH_ACQUIRE_GRANTED);
    ck_assert_int_eq(asked[2].lease.token, 7);
    ck_assert_str_eq(asked[2].lease.key, "one");
}
END_TEST

static void terminate_other_sessions(void)
{
    pg_fixture_execute(conninfo, "select pg_terminate_backend(pid) from pg_stat_activity"
                                 " where datname = 'stand_ins' and pid <> pg_backend_pid()");
}

static unsigned lanes_down_then;

static void on_done_look(void *arg, enum lh_status status, const struct lh_error *error)
{
    lanes_down_then = test.lanes_down;
    test_on_answer(&answer, status, error);
}

START_TEST(a_lost_connection_answers_the_batch_before_the_lane_is_down)
{
    items[0].key = "very slow";
    ck_assert_int_eq(test.store->ops->send(test.store, 0, LH_KIND_RELEASE, 0, (void **)pointers, 2, on_done_look, NULL),
                     LH_OK);
    WAIT_FOR(test_loop, strcmp(pg_fixture_value(conninfo, "select count(*) from pg_stat_activity where wait_event ="
                                                          " 'PgSleep'"),
                               "1") == 0);
    terminate_other_sessions();
    test_wait_for(&answer);
    ck_assert_uint_eq(lanes_down_then, 0);
    ck_assert_int_eq(answer.status, LH_DATABASE_UNAVAILABLE);
    WAIT_FOR(test_loop, test.lanes_down == 1 && test.control_down == 1);
    WAIT_FOR(test_loop, test.lanes_up == 2 && test.control_up == 2 && test.listener_up == 2);
    items[0].key = keys[0];
    release_and_wait(2);
    ck_assert_int_eq(answer.status, LH_OK);
}
END_TEST

START_TEST(a_lane_that_is_down_refuses)
{
    pg_fixture_stop();
    WAIT_FOR(test_loop, test.lanes_down == 1 && test.control_down == 1);
    ck_assert_int_eq(
        test.store->ops->send(test.store, 0, LH_KIND_RELEASE, 0, (void **)pointers, 1, test_on_answer, &answer),
        LH_DATABASE_UNAVAILABLE);
    ck_assert(!test.store->ops->is_connected(test.store));
    pg_fixture_start();
    WAIT_FOR(test_loop, test.lanes_up == 2 && test.control_up == 2 && test.listener_up == 2);
    release_and_wait(1);
    ck_assert_int_eq(answer.status, LH_OK);
    ck_assert_uint_eq(answer.count, 0);
}
END_TEST

START_TEST(stop_finishes_the_batch_and_unregisters_after_it)
{
    items[0].key = "slow";
    release(1);
    test_store_stop(&test);
    test_wait_for(&answer);
    ck_assert_int_eq(answer.status, LH_OK);
    ck_released(0);
    ck_assert_str_eq(pg_fixture_value(conninfo, "select string_agg(what, ', ' order by at) from leasehold.said"),
                     "released slow, unregistered");
    ck_assert_str_eq(pg_fixture_value(conninfo, "select count(*) from pg_stat_activity where application_name ="
                                                " 'leaseholdd' and state = 'active'"),
                     "0");
}
END_TEST

START_TEST(a_stop_that_takes_too_long_gives_up_the_batch)
{
    test_store_stop(&test);
    test_store_start_with(&test, conninfo, 1, 100 * LH_US_PER_MS);
    items[0].key = "very slow";
    release(1);
    test_store_stop(&test);
    test_wait_for(&answer);
    ck_assert_int_eq(answer.status, LH_CANCELED);
    ck_assert_str_eq(pg_fixture_value(conninfo, "select count(*) from leasehold.said where what like 'released%'"),
                     "0");
}
END_TEST

START_TEST(a_store_that_was_never_started_can_be_destroyed)
{
    struct lh_store_options options;
    lh_store_options_init(&options);
    options.conninfo = "host=/nonexistent";
    lh_store_destroy(lh_store_create(test_loop, &options));
    lh_loop_run_once(test_loop, 0);
}
END_TEST

TCase *test_store_batches(void)
{
    TCase *tcase = tcase_create("batches");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, each_item_gets_its_own_row_in_any_order);
    tcase_add_test(tcase, the_next_batch_may_be_sent_from_inside_the_answer);
    tcase_add_test(tcase, bad_json_is_invalid_and_spoils_no_other_item);
    tcase_add_test(tcase, every_item_may_be_bad);
    tcase_add_test(tcase, a_full_lock_table_makes_smaller_batches);
    tcase_add_test(tcase, a_deadlock_is_tried_again_some_times);
    tcase_add_test(tcase, a_function_that_a_migration_has_just_replaced_is_called_again);
    tcase_add_test(tcase, so_is_a_control_call_once);
    tcase_add_test(tcase, a_lock_timeout_and_a_missing_row_are_busy);
    tcase_add_test(tcase, our_own_fault_is_told_with_its_words);
    tcase_add_test(tcase, what_is_not_in_the_labels_is_not_blamed_on_them);
    tcase_add_test(tcase, a_full_disk_is_told_in_the_servers_words);
    tcase_add_test(tcase, bad_labels_name_their_field);
    tcase_add_test(tcase, a_lost_connection_answers_the_batch_before_the_lane_is_down);
    tcase_add_test(tcase, a_lane_that_is_down_refuses);
    tcase_add_test(tcase, stop_finishes_the_batch_and_unregisters_after_it);
    tcase_add_test(tcase, a_stop_that_takes_too_long_gives_up_the_batch);
    tcase_add_test(tcase, a_store_that_was_never_started_can_be_destroyed);
    return tcase;
}
