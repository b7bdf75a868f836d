/* Hook lanes on the real schema: single items under the limit of their policy, and runs of reaps. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test_store.h"

static const struct lh_requester requester = {"user:admin", "unix:"};

#define SECOND INT64_C(1000000)
#define RUN 40
#define LIMIT_US (2 * SECOND)

/* The lanes of the store under test. */
enum { LANE, HOOK_LANE };

static const char *conninfo;
static struct test_store test;
static struct test_answer answer;
static struct lh_reap_item items[RUN];
static struct lh_reap_item *pointers[RUN];
static char keys[RUN][24];

static const char hooks[] =
    "create table public.hit (event text, key text, lsn pg_lsn default pg_current_wal_insert_lsn(),"
    " at xid8 default pg_current_xact_id(), timeout text default current_setting('statement_timeout'));"
    "create table public.parent (key text primary key);"
    "create table public.child (key text references public.parent deferrable initially deferred);"
    "create function public.hook(e leasehold.lease_event) returns void"
    " language plpgsql security definer set search_path = pg_catalog, pg_temp as $$ begin"
    "  if e.key like 'no%' then raise exception 'no, said the hook'; end if;"
    "  if e.key like 'slow%' then perform pg_sleep(60); end if;"
    "  if e.key like 'fatal%' then perform pg_terminate_backend(pg_backend_pid()); perform pg_sleep(60); end if;"
    "  if e.key like 'nap%' then perform pg_sleep(6);"
    "    update leasehold.coordinator set seen_at = clock_timestamp(); end if;" /* no tick comes meanwhile */
    "  if e.key like 'orphan%' then insert into public.child values (e.key); end if;"
    "  if e.key like 'shut%' then perform set_config('default_transaction_read_only', 'on', false),"
    "    set_config('search_path', 'nowhere', false), set_config('datestyle', 'German', false); end if;"
    "  if e.key like 'wild%' then perform set_config('statement_timeout', '1', false); end if;"
    "  insert into public.hit values (e.event, e.key); end $$;"
    "insert into leasehold.policy (namespace, min_duration, grace, hook_timeout)"
    " values ('h', '100 ms', '0 s', '2 s');"
    "select leasehold.add_hook('h', e, 'public.hook(leasehold.lease_event)')"
    " from unnest(array['acquire', 'heartbeat', 'release_ok', 'release_fail', 'reap']) e";

static void setup_all(void)
{
    conninfo = test_store_database("hooks");
    pg_fixture_execute(conninfo, hooks);
}

static void on_tick(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_tick_answer *tick)
{
    test_on_answer(&answer, status, error);
}

static void setup(void)
{
    memset(&answer, 0, sizeof(answer));
    pg_fixture_execute(conninfo, "delete from leasehold.scope; delete from public.hit");
    test_store_start_hooked(&test, conninfo, 1, 1);
    ck_assert_int_eq(test.store->ops->enroll(test.store, on_tick, NULL), LH_OK);
    test_wait_for_ok(&answer);
    for (int i = 0; i < RUN; i++) {
        snprintf(keys[i], sizeof(keys[i]), "key %d", i);
        items[i] = (struct lh_reap_item){.ns = "h", .key = keys[i], .hook_timeout_us = LIMIT_US};
        pointers[i] = &items[i];
    }
}

static void teardown(void)
{
    test_store_stop(&test);
}

static struct lh_acquire_item acquire(unsigned lane, const char *key)
{
    struct lh_acquire_item item = {.ns = "h",
                                   .key = key,
                                   .lease_key = lh_uuid_random(),
                                   .terms.owner = "me",
                                   .terms.labels = "{}",
                                   .terms.duration_us = 30 * SECOND,
                                   .hook_timeout_us = LIMIT_US};
    struct lh_acquire_item *all[] = {&item};
    ck_assert_int_eq(
        test.store->ops->send(test.store, lane, LH_KIND_ACQUIRE, 0, (void **)all, 1, test_on_answer, &answer), LH_OK);
    test_wait_for_ok(&answer);
    return item;
}

static int hits(const char *event)
{
    char sql[96];
    snprintf(sql, sizeof(sql), "select count(*) from public.hit where event = '%s'", event);
    return atoi(pg_fixture_value(conninfo, sql));
}

START_TEST(a_hooked_item_is_left_alone_by_a_lane_and_done_by_a_hook_lane)
{
    struct lh_acquire_item item = acquire(LANE, "k");
    ck_assert_int_eq(item.outcome, LH_ACQUIRE_HOOKED);
    ck_assert_int_eq(item.hook_timeout_us, LIMIT_US);
    item = acquire(HOOK_LANE, "k");
    ck_assert_int_eq(item.outcome, LH_ACQUIRE_GRANTED);
    ck_assert_int_eq(hits("acquire"), 1);

    struct lh_holder_item beat = {.ns = "h", .key = "k", .lease_key = item.lease_key};
    struct lh_holder_item *beats[] = {&beat};
    ck_assert_int_eq(
        test.store->ops->send(test.store, LANE, LH_KIND_HEARTBEAT, 0, (void **)beats, 1, test_on_answer, &answer),
        LH_OK);
    test_wait_for_ok(&answer);
    ck_assert(beat.is_hooked && !beat.is_busy);
    ck_assert_int_eq(beat.hook_timeout_us, LIMIT_US);
    ck_assert_int_eq(
        test.store->ops->send(test.store, HOOK_LANE, LH_KIND_HEARTBEAT, 0, (void **)beats, 1, test_on_answer, &answer),
        LH_OK);
    test_wait_for_ok(&answer);
    ck_assert(!beat.is_hooked && !beat.is_busy);
    ck_assert_int_eq(beat.outcome, LH_OUTCOME_OK);

    struct lh_leave_item leave = {.ns = "h", .key = "k", .lease_key = item.lease_key, .kind = LH_LEAVE_GONE};
    struct lh_leave_item *leaves[] = {&leave};
    ck_assert_int_eq(
        test.store->ops->send(test.store, LANE, LH_KIND_LEAVE, 0, (void **)leaves, 1, test_on_answer, &answer), LH_OK);
    test_wait_for_ok(&answer);
    ck_assert(leave.is_hooked && !leave.is_busy);
    ck_assert_int_eq(leave.hook_timeout_us, LIMIT_US);

    struct lh_holder_item give = {.ns = "h", .key = "k", .lease_key = item.lease_key};
    struct lh_holder_item *gives[] = {&give};
    ck_assert_int_eq(
        test.store->ops->send(test.store, LANE, LH_KIND_RELEASE, 0, (void **)gives, 1, test_on_answer, &answer), LH_OK);
    test_wait_for_ok(&answer);
    ck_assert(give.is_hooked && give.hook_timeout_us == LIMIT_US);
    give.hook_timeout_us = 0; /* no limit */
    ck_assert_int_eq(
        test.store->ops->send(test.store, HOOK_LANE, LH_KIND_RELEASE, 0, (void **)gives, 1, test_on_answer, &answer),
        LH_OK);
    test_wait_for_ok(&answer);
    ck_assert_int_eq(give.outcome, LH_OUTCOME_OK);
    ck_assert_int_eq(hits("release_ok"), 1);
}
END_TEST

START_TEST(a_veto_and_a_limit_are_told_and_the_next_has_its_own_limit)
{
    struct lh_acquire_item item = acquire(HOOK_LANE, "no way");
    ck_assert_int_eq(item.outcome, LH_ACQUIRE_REJECTED);
    ck_assert_str_eq(item.message, "no, said the hook");
    item = acquire(HOOK_LANE, "slow");
    ck_assert_int_eq(item.outcome, LH_ACQUIRE_REJECTED);
    ck_assert_msg(strncmp(item.message, LH_HOOK_TIMEOUT_WORDS, strlen(LH_HOOK_TIMEOUT_WORDS)) == 0, "%s", item.message);
    item = acquire(HOOK_LANE, "wild");
    ck_assert_int_eq(item.outcome, LH_ACQUIRE_GRANTED);
    item = acquire(HOOK_LANE, "after it");
    ck_assert_int_eq(item.outcome, LH_ACQUIRE_GRANTED);
}
END_TEST

START_TEST(what_fails_at_the_commit_is_the_hooks_own_and_in_its_words)
{
    struct lh_acquire_item item = acquire(HOOK_LANE, "orphan");
    ck_assert_int_eq(item.outcome, LH_ACQUIRE_REJECTED);
    ck_assert_ptr_nonnull(strstr(item.message, "child_key_fkey"));
    ck_assert_ptr_null(item.field);
}
END_TEST

START_TEST(what_a_hook_sets_in_its_session_ends_with_it)
{
    struct lh_acquire_item item = acquire(HOOK_LANE, "shut");
    ck_assert_int_eq(item.outcome, LH_ACQUIRE_GRANTED);
    for (int i = 0; i < 3; i++) {
        item = acquire(HOOK_LANE, keys[i]);
        ck_assert_msg(item.outcome == LH_ACQUIRE_GRANTED, "%s", item.message);
    }
}
END_TEST

/* Leases that have expired, as many acquires would have left them. */
static void expire(int count)
{
    for (int i = 0; i < count; i++) {
        char sql[2048];
        snprintf(sql, sizeof(sql),
                 "insert into leasehold.scope (namespace, key, state, lease_key, token, owner, labels, duration, grace,"
                 " acquired_at, heartbeat_at, deadline, incarnation, check_at) select 'h', '%s', 'held',"
                 " gen_random_uuid(), nextval('leasehold.token'), 'gone', '{}', '100 ms', '0 s', n - interval '2 s',"
                 " n - interval '2 s', n - interval '1 s', (leasehold_internal.life(null)).id, 'infinity'"
                 " from clock_timestamp() n returning token",
                 keys[i]);
        items[i].token = atoll(pg_fixture_value(conninfo, sql));
        ck_assert_int_gt(items[i].token, 0);
    }
}

static void run(size_t n)
{
    ck_assert_int_eq(
        test.store->ops->send(test.store, HOOK_LANE, LH_KIND_REAP, 0, (void **)pointers, n, test_on_answer, &answer),
        LH_OK);
    ck_assert_uint_eq(answer.count, 0);
    test_wait_for(&answer);
}

static int held(void)
{
    return atoi(pg_fixture_value(conninfo, "select count(*) from leasehold.scope where state = 'held'"));
}

/* As the core does: what a run did not reach goes with the next one. On a busy machine any call may take too long. */
static void run_until_each_is_answered(size_t n)
{
    struct lh_reap_item *all[RUN];

    memcpy(all, pointers, n * sizeof(all[0]));
    for (size_t left = n; left > 0;) {
        run(left);
        ck_assert_int_eq(answer.status, LH_OK);
        ck_assert_int_ne(pointers[0]->outcome, LH_REAP_UNANSWERED);
        left = 0;
        for (size_t i = 0; i < n; i++)
            if (all[i]->outcome == LH_REAP_UNANSWERED)
                pointers[left++] = all[i];
    }
    memcpy(pointers, all, n * sizeof(all[0]));
}

START_TEST(a_run_reaps_each_lease_in_a_transaction_of_its_own)
{
    snprintf(keys[3], sizeof(keys[3]), "no, never");
    expire(RUN);
    items[5].token += 1000; /* somebody else's by now */
    items[RUN - 1].token += 1000;
    run_until_each_is_answered(RUN);
    for (int i = 0; i < RUN; i++) {
        enum lh_reap_end expected = i == 3 ? LH_REAP_FAILED : i == 5 || i == RUN - 1 ? LH_REAP_GONE : LH_REAP_DONE;
        ck_assert_msg(items[i].outcome == expected, "item %d: %d", i, items[i].outcome);
    }
    ck_assert_str_eq(items[3].reaped.error, "no, said the hook");
    ck_assert_int_eq(items[3].reaped.reap_failures, 1);
    ck_assert_int_eq(hits("reap"), RUN - 3);
    ck_assert_int_eq(held(), 3);
}
END_TEST

START_TEST(after_one_that_took_long_no_more_are_sent)
{
    snprintf(keys[2], sizeof(keys[2]), "slow");
    expire(RUN);
    run(RUN);
    ck_assert_int_eq(answer.status, LH_OK);
    ck_assert_int_eq(items[1].outcome, LH_REAP_DONE);
    ck_assert_int_eq(items[2].outcome, LH_REAP_FAILED);
    ck_assert_int_ge(items[2].took_us, LIMIT_US / 2);
    ck_assert_int_eq(items[RUN - 1].outcome, LH_REAP_UNANSWERED);
    int done = 0;
    for (int i = 0; i < RUN; i++)
        done += items[i].outcome == LH_REAP_DONE;
    ck_assert_int_eq(hits("reap"), done);
}
END_TEST

START_TEST(a_run_that_was_cut_short_is_durable_when_it_is_answered)
{
    snprintf(keys[2], sizeof(keys[2]), "slow");
    expire(RUN);
    run(RUN);
    ck_assert_int_eq(answer.status, LH_OK);
    ck_assert_int_eq(items[3].outcome, LH_REAP_DONE);
    ck_assert_int_eq(items[RUN - 1].outcome, LH_REAP_UNANSWERED);
    ck_assert_str_eq(pg_fixture_value(conninfo, "select pg_current_wal_flush_lsn() > max(lsn) from public.hit"), "t");
}
END_TEST

START_TEST(a_hook_that_ends_its_session_ends_the_run_and_its_failure_is_recorded_afterwards)
{
    snprintf(keys[4], sizeof(keys[4]), "fatal");
    expire(RUN);
    run(RUN);
    ck_assert_int_eq(answer.status, LH_DATABASE_UNAVAILABLE);
    /* What was answered is the beginning; of those behind it some may have been done, and their answers lost. */
    int answered = 0;
    while (items[answered].outcome == LH_REAP_DONE)
        answered++;
    ck_assert_int_le(answered, 4);
    for (int i = answered; i < RUN; i++)
        ck_assert_int_eq(items[i].outcome, LH_REAP_UNANSWERED);
    ck_assert_int_eq(hits("reap"), 4);
    WAIT_FOR(test_loop, test.lanes_down == 1 && test.lanes_up == 3);
    items[4].loss = "it was lost";
    pointers[0] = &items[4];
    run(1);
    ck_assert_int_eq(answer.status, LH_OK);
    ck_assert_int_eq(items[4].outcome, LH_REAP_FAILED);
    ck_assert_str_eq(items[4].reaped.error, "it was lost");
    ck_assert_str_eq(pg_fixture_value(conninfo, "select error from leasehold.reap_failure"), "it was lost");
}
END_TEST

/* Items from..to - 1, in one transaction. */
static void join(int from, int to)
{
    for (int i = from + 1; i < to; i++)
        items[i].is_joined = true;
}

static void check_outcomes(int from, int to, enum lh_reap_end expected)
{
    for (int i = from; i < to; i++)
        ck_assert_msg(items[i].outcome == expected, "item %d: %d", i, items[i].outcome);
}

/* On a busy machine their little time may pass: then nothing was done, and they go once more, together. */
static void run_again_while_alone(int from, int to)
{
    for (int tries = 0; tries < 20 && items[from].outcome == LH_REAP_ALONE; tries++) {
        for (int i = from; i < to; i++)
            pointers[i - from] = &items[i];
        run((size_t)(to - from));
    }
}

static const char *failures(void)
{
    return pg_fixture_value(conninfo, "select count(*) from leasehold.reap_failure");
}

START_TEST(reaps_that_are_joined_are_one_transaction_with_little_time)
{
    expire(RUN);
    join(0, 10);
    join(10, RUN - 1);
    items[5].token += 1000; /* somebody else's by now */
    run(RUN);
    ck_assert_int_eq(answer.status, LH_OK);
    check_outcomes(0, 5, LH_REAP_DONE);
    check_outcomes(5, 6, LH_REAP_ALONE);
    check_outcomes(6, RUN, LH_REAP_DONE);
    ck_assert_int_eq(held(), 1);
    ck_assert_str_eq(pg_fixture_value(conninfo, "select string_agg(n || ' ' || timeout, ', ' order by n desc) from"
                                                " (select count(*) n, timeout from public.hit group by at, timeout) t"),
                     "29 200ms, 9 200ms, 1 2s");
    ck_assert_str_eq(pg_fixture_value(conninfo, "select pg_current_wal_flush_lsn() > max(lsn) from public.hit"), "t");
}
END_TEST

START_TEST(joined_reaps_have_no_more_time_than_one_of_them)
{
    expire(4);
    for (int i = 0; i < 4; i++)
        items[i].hook_timeout_us = 150000;
    join(0, 4);
    run(4);
    run_again_while_alone(0, 4);
    check_outcomes(0, 4, LH_REAP_DONE);
    ck_assert_str_eq(pg_fixture_value(conninfo, "select distinct timeout from public.hit"), "150ms");
}
END_TEST

/* Their own limit is shorter than what the answer to the first one takes, and than how long a connection may be silent.
 */
START_TEST(those_behind_one_that_may_take_long_do_not_cut_it_short)
{
    snprintf(keys[0], sizeof(keys[0]), "nap");
    expire(4);
    items[0].hook_timeout_us = 30 * SECOND;
    join(1, 4);
    run(4);
    ck_assert_int_eq(answer.status, LH_OK);
    check_outcomes(0, 4, LH_REAP_DONE);
}
END_TEST

/* Whatever goes wrong with one of the joined: none is done, none has failed, and what comes before and behind is done.
 */
static void lose(const char *culprit)
{
    snprintf(keys[14], sizeof(keys[14]), "%s", culprit);
    expire(RUN);
    join(0, 10);
    join(10, 20);
    join(20, RUN);
    run(RUN);
    if (answer.status == LH_OK) {
        run_again_while_alone(0, 10);
        run_again_while_alone(20, RUN);
    }
    check_outcomes(0, 10, LH_REAP_DONE);
    ck_assert_str_eq(failures(), "0");
    ck_assert_str_eq(pg_fixture_value(conninfo, "select count(*) from public.hit h join leasehold.scope s"
                                                " on s.key = h.key and s.namespace = 'h' where s.state = 'held'"),
                     "0");
}

static void lose_and_go_on(const char *culprit)
{
    lose(culprit);
    ck_assert_int_eq(answer.status, LH_OK);
    check_outcomes(10, 20, LH_REAP_ALONE);
    for (int i = 20; i < RUN; i++)
        ck_assert(items[i].outcome == LH_REAP_DONE || items[i].outcome == LH_REAP_UNANSWERED);
    ck_assert_str_eq(pg_fixture_value(conninfo, "select pg_current_wal_flush_lsn() > max(lsn) from public.hit"), "t");
    for (int i = 10; i < 20; i++) {
        items[i].is_joined = false;
        pointers[i - 10] = &items[i];
    }
    run(10);
    check_outcomes(10, 14, LH_REAP_DONE);
}

START_TEST(a_veto_in_the_middle_of_joined_reaps_is_no_failure_of_the_others)
{
    lose_and_go_on("no, never");
    check_outcomes(14, 15, LH_REAP_FAILED);
    ck_assert_str_eq(items[14].reaped.error, "no, said the hook");
    check_outcomes(15, 20, LH_REAP_DONE);
    ck_assert_str_eq(failures(), "1");
}
END_TEST

START_TEST(a_slow_one_in_the_middle_of_joined_reaps_has_its_own_limit_alone)
{
    lose_and_go_on("slow");
    check_outcomes(14, 15, LH_REAP_FAILED);
    ck_assert_int_ge(items[14].took_us, LIMIT_US / 2);
    ck_assert_str_eq(failures(), "1");
}
END_TEST

START_TEST(a_deferred_constraint_in_joined_reaps_fails_alone_too)
{
    lose_and_go_on("orphan");
    check_outcomes(14, 15, LH_REAP_FAILED);
    check_outcomes(15, 20, LH_REAP_DONE);
    ck_assert_str_eq(failures(), "1");
    ck_assert_ptr_nonnull(strstr(items[14].reaped.error, "violates foreign key"));
}
END_TEST

START_TEST(a_hook_that_ends_its_session_in_the_middle_of_joined_reaps_leaves_no_trace)
{
    lose("fatal");
    ck_assert_int_eq(answer.status, LH_DATABASE_UNAVAILABLE);
    check_outcomes(10, RUN, LH_REAP_UNANSWERED);
    ck_assert_int_eq(hits("reap"), 10);
    WAIT_FOR(test_loop, test.lanes_down == 1 && test.lanes_up == 3);
}
END_TEST

static void on_forced(void *arg, enum lh_status status, const struct lh_error *error,
                      const struct lh_scope_answer *scope)
{
    test_on_answer(arg, status, error);
}

START_TEST(a_forced_release_has_the_limit_of_its_policy_and_does_not_hold_up_the_signs_of_life)
{
    struct test_answer forced = {0};

    snprintf(keys[0], sizeof(keys[0]), "slow");
    expire(2);
    ck_assert_int_eq(
        test.store->ops->force_release(test.store, "h", "slow", "because", 0, false, &requester, on_forced, &forced),
        LH_OK);
    ck_assert_int_eq(test.store->ops->tick(test.store, 0, on_tick, NULL), LH_OK);
    test_wait_for_ok(&answer);
    ck_assert_uint_eq(forced.count, 0);
    test_wait_for(&forced);
    ck_assert_int_eq(forced.status, LH_HOOK_REJECTED);
    ck_assert_int_eq(held(), 2);
    /* What comes next on that lane has its own limit again. */
    pointers[0] = &items[1];
    items[1].hook_timeout_us = 0;
    run(1);
    ck_assert_int_eq(items[1].outcome, LH_REAP_DONE);
}
END_TEST

TCase *test_store_hooks(void)
{
    TCase *tcase = tcase_create("hooks");
    tcase_set_timeout(tcase, 60);
    tcase_add_unchecked_fixture(tcase, setup_all, NULL);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_hooked_item_is_left_alone_by_a_lane_and_done_by_a_hook_lane);
    tcase_add_test(tcase, a_veto_and_a_limit_are_told_and_the_next_has_its_own_limit);
    tcase_add_test(tcase, what_fails_at_the_commit_is_the_hooks_own_and_in_its_words);
    tcase_add_test(tcase, what_a_hook_sets_in_its_session_ends_with_it);
    tcase_add_test(tcase, a_run_reaps_each_lease_in_a_transaction_of_its_own);
    tcase_add_test(tcase, after_one_that_took_long_no_more_are_sent);
    tcase_add_test(tcase, a_run_that_was_cut_short_is_durable_when_it_is_answered);
    tcase_add_test(tcase, a_hook_that_ends_its_session_ends_the_run_and_its_failure_is_recorded_afterwards);
    tcase_add_test(tcase, reaps_that_are_joined_are_one_transaction_with_little_time);
    tcase_add_test(tcase, joined_reaps_have_no_more_time_than_one_of_them);
    tcase_add_test(tcase, those_behind_one_that_may_take_long_do_not_cut_it_short);
    tcase_add_test(tcase, a_veto_in_the_middle_of_joined_reaps_is_no_failure_of_the_others);
    tcase_add_test(tcase, a_slow_one_in_the_middle_of_joined_reaps_has_its_own_limit_alone);
    tcase_add_test(tcase, a_deferred_constraint_in_joined_reaps_fails_alone_too);
    tcase_add_test(tcase, a_hook_that_ends_its_session_in_the_middle_of_joined_reaps_leaves_no_trace);
    tcase_add_test(tcase, a_forced_release_has_the_limit_of_its_policy_and_does_not_hold_up_the_signs_of_life);
    return tcase;
}
