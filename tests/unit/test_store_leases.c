/* The store on the real schema: acquire, heartbeat, release, leave, and wake-ups between two stores. */
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test_store.h"

#define SECOND INT64_C(1000000)

static const char *conninfo;
static struct test_store one, two;
static struct test_answer answer;
static unsigned round_number;
static char key[32]; /* a scope of its own for each test */

static void on_enrolled(void *arg, enum lh_status status, const struct lh_error *error,
                        const struct lh_tick_answer *tick)
{
    ck_assert_msg(status == LH_OK, "%s", error == NULL ? "" : error->message);
    ck_assert(tick->is_registered);
    ck_assert_int_gt(tick->database_now_us, INT64_C(1700000000) * SECOND);
    answer.count++;
}

static void enroll(struct test_store *test)
{
    ck_assert_int_eq(test->store->ops->enroll(test->store, on_enrolled, NULL), LH_OK);
    test_wait_for(&answer);
}

static void setup_all(void)
{
    conninfo = test_store_database("leases");
}

static void setup(void)
{
    memset(&answer, 0, sizeof(answer));
    snprintf(key, sizeof(key), "key-%u", round_number++);
    test_store_start(&one, conninfo, 2);
    test_store_start(&two, conninfo, 1);
    enroll(&one);
    enroll(&two);
}

static void teardown(void)
{
    test_store_stop(&one);
    test_store_stop(&two);
}

static struct lh_acquire_item wish(bool queue)
{
    return (struct lh_acquire_item){
        .ns = "payments.invoices",
        .key = key,
        .lease_key = lh_uuid_random(),
        .terms.owner = "worker-3",
        .terms.principal = "dns:worker",
        .terms.labels = "{\"pod\": \"a-1\"}",
        .terms.duration_us = 30 * SECOND,
        .at_least_us = LH_AT_LEAST_POLICY,
        .queue = queue,
        .wait_us = queue ? 20 * SECOND : 0,
    };
}

static void acquire(struct test_store *test, struct lh_acquire_item *item)
{
    struct lh_acquire_item *items[] = {item};
    ck_assert_int_eq(
        test->store->ops->send(test->store, 0, LH_KIND_ACQUIRE, 0, (void **)items, 1, test_on_answer, &answer), LH_OK);
    test_wait_for(&answer);
    ck_assert_msg(answer.status == LH_OK, "%s", answer.error.message);
}

static struct lh_holder_item heartbeat(struct test_store *test, const struct lh_acquire_item *lease)
{
    struct lh_holder_item item = {.ns = lease->ns, .key = lease->key, .lease_key = lease->lease_key};
    struct lh_holder_item *items[] = {&item};
    ck_assert_int_eq(
        test->store->ops->send(test->store, 0, LH_KIND_HEARTBEAT, 0, (void **)items, 1, test_on_answer, &answer),
        LH_OK);
    test_wait_for(&answer);
    ck_assert_msg(answer.status == LH_OK, "%s", answer.error.message);
    item.message = NULL;
    return item;
}

static struct lh_holder_item give_back(struct test_store *test, const struct lh_acquire_item *lease, bool is_unheard)
{
    struct lh_holder_item item = {
        .ns = lease->ns, .key = lease->key, .lease_key = lease->lease_key, .is_unheard = is_unheard};
    struct lh_holder_item *items[] = {&item};
    ck_assert_int_eq(
        test->store->ops->send(test->store, 0, LH_KIND_RELEASE, 0, (void **)items, 1, test_on_answer, &answer), LH_OK);
    test_wait_for(&answer);
    ck_assert_msg(answer.status == LH_OK, "%s", answer.error.message);
    item.message = NULL;
    return item;
}

static struct lh_holder_item release(struct test_store *test, const struct lh_acquire_item *lease)
{
    return give_back(test, lease, false);
}

/* The lease's strings live until on_done returns, so this one looks there. */
static void on_granted(void *arg, enum lh_status status, const struct lh_error *error)
{
    struct lh_acquire_item *item = arg;
    ck_assert_msg(status == LH_OK, "%s", error == NULL ? "" : error->message);
    ck_assert_int_eq(item->outcome, LH_ACQUIRE_GRANTED);
    ck_assert_str_eq(item->lease.ns, "payments.invoices");
    ck_assert_str_eq(item->lease.key, key);
    ck_assert_str_eq(item->lease.owner, "worker-3");
    ck_assert_str_eq(item->lease.principal, "dns:worker");
    ck_assert_str_eq(item->lease.labels, "{\"pod\": \"a-1\"}");
    answer.count++;
}

static void acquire_granted(struct lh_acquire_item *item)
{
    struct lh_acquire_item *items[] = {item};
    const struct lh_held_lease *lease = &item->lease;

    ck_assert_int_eq(one.store->ops->send(one.store, 1, LH_KIND_ACQUIRE, 0, (void **)items, 1, on_granted, item),
                     LH_OK);
    test_wait_for(&answer);
    ck_assert(item->has_lease);
    ck_assert(lh_uuid_equal(&lease->lease_key, &item->lease_key));
    ck_assert_int_gt(lease->token, 0);
    ck_assert_int_eq(lease->duration_us, 30 * SECOND);
    ck_assert_int_eq(lease->grace_us, SECOND);
    ck_assert_int_gt(lease->remaining_us, 20 * SECOND);
    ck_assert_int_le(lease->remaining_us, 30 * SECOND);
    ck_assert_int_eq(lease->deadline_us - lease->acquired_at_us, 30 * SECOND);
    ck_assert_int_gt(lease->acquired_at_us, INT64_C(1700000000) * SECOND);
    ck_assert_int_eq(lease->heartbeat_at_us, lease->acquired_at_us);
    ck_assert_int_eq(lease->liveness, LH_LIVENESS_ALIVE);
    ck_assert(!lease->is_manual);
    ck_assert_int_gt(item->expires_in_us, 30 * SECOND);
    ck_assert_int_le(item->expires_in_us, 31 * SECOND);
    ck_assert_int_gt(item->suspected_in_us, 0);
    ck_assert_int_lt(item->suspected_in_us, 30 * SECOND);
    ck_assert_int_eq(item->holder_count, 1);
}

START_TEST(a_lease_lives_from_grant_to_release)
{
    struct lh_acquire_item mine = wish(false);
    struct lh_holder_item beat;
    int64_t token;

    acquire_granted(&mine);
    token = mine.lease.token;

    acquire(&two, &mine);
    ck_assert_int_eq(mine.outcome, LH_ACQUIRE_RENEWED);
    ck_assert_int_eq(mine.lease.token, token);
    beat = heartbeat(&one, &mine);
    ck_assert(!beat.is_busy);
    ck_assert_int_eq(beat.outcome, LH_OUTCOME_OK);
    ck_assert_int_ge(beat.heartbeats, 1);
    ck_assert_int_ge(beat.deadline_us, mine.lease.deadline_us);
    ck_assert_int_gt(beat.remaining_us, 20 * SECOND);

    ck_assert_int_eq(release(&one, &mine).outcome, LH_OUTCOME_OK);
    ck_assert_int_eq(release(&one, &mine).outcome, LH_OUTCOME_LOST);
    beat = heartbeat(&one, &mine);
    ck_assert_int_eq(beat.outcome, LH_OUTCOME_LOST);
    ck_assert_int_eq(beat.end_reason, LH_END_RELEASED);
    acquire(&one, &mine);
    ck_assert_int_eq(mine.outcome, LH_ACQUIRE_ENDED);
}
END_TEST

/* A scope that is there and free is granted by a short row: what it leaves out is what was asked for. */
START_TEST(a_free_scope_is_granted_with_the_same_fields_as_a_new_one)
{
    struct lh_acquire_item first = wish(false), second = wish(false), other = wish(false);

    acquire_granted(&first);
    ck_assert_int_eq(release(&one, &first).outcome, LH_OUTCOME_OK);
    acquire_granted(&second);
    ck_assert_int_gt(second.lease.token, first.lease.token);
    acquire(&two, &other);
    ck_assert_int_eq(other.outcome, LH_ACQUIRE_HELD);
    ck_assert_int_eq(other.lease.token, second.lease.token);
    ck_assert_int_eq(other.lease.acquired_at_us, second.lease.acquired_at_us);
    ck_assert_int_eq(other.lease.deadline_us, second.lease.deadline_us);
    ck_assert_int_eq(other.lease.duration_us, second.lease.duration_us);
    ck_assert_int_eq(other.lease.grace_us, second.lease.grace_us);
}
END_TEST

START_TEST(a_held_scope_is_refused_with_its_holder)
{
    struct lh_acquire_item mine = wish(false), yours = wish(false);

    acquire(&one, &mine);
    acquire(&two, &yours);
    ck_assert_int_eq(yours.outcome, LH_ACQUIRE_HELD);
    ck_assert(yours.has_lease);
    ck_assert(lh_uuid_is_zero(&yours.lease.lease_key));
    ck_assert_int_eq(yours.lease.token, mine.lease.token);
    ck_assert_int_eq(yours.waiters_ahead, 0);
}
END_TEST

/* The reply of the first got lost; the holder asked the second, and was told. Then the first hears that he cancelled.
 */
START_TEST(what_another_store_renewed_is_not_given_back_as_unheard)
{
    struct lh_acquire_item mine = wish(false);

    acquire(&one, &mine);
    ck_assert_int_eq(mine.outcome, LH_ACQUIRE_GRANTED);
    acquire(&two, &mine);
    ck_assert_int_eq(mine.outcome, LH_ACQUIRE_RENEWED);
    ck_assert_int_eq(give_back(&one, &mine, true).outcome, LH_OUTCOME_LOST);
    ck_assert_int_eq(heartbeat(&two, &mine).outcome, LH_OUTCOME_OK);
    ck_assert_int_eq(release(&one, &mine).outcome, LH_OUTCOME_OK);
    mine = wish(false);
    acquire(&one, &mine);
    ck_assert_int_eq(give_back(&one, &mine, true).outcome, LH_OUTCOME_OK);
    ck_assert_int_eq(heartbeat(&two, &mine).end_reason, LH_END_RELEASED);
}
END_TEST

START_TEST(a_release_wakes_the_waiter_of_another_store)
{
    struct lh_acquire_item mine = wish(false), yours = wish(true);

    acquire(&one, &mine);
    acquire(&two, &yours);
    ck_assert_int_eq(yours.outcome, LH_ACQUIRE_QUEUED);
    ck_assert_int_gt(yours.new_ticket, 0);
    ck_assert_int_gt(yours.expires_in_us, 20 * SECOND);
    ck_assert_int_gt(yours.suspected_in_us, 10 * SECOND);
    two.wakes = 0;
    ck_assert(!release(&one, &mine).wake);
    WAIT_FOR(test_loop, two.wakes > 0);
    ck_assert_str_eq(two.wake_ns, "payments.invoices");
    ck_assert_str_eq(two.wake_key, key);
    ck_assert_uint_eq(one.wakes, 0);
    yours.ticket = yours.new_ticket;
    acquire(&two, &yours);
    ck_assert_int_eq(yours.outcome, LH_ACQUIRE_GRANTED);
    ck_assert_int_gt(yours.lease.token, mine.lease.token);
}
END_TEST

START_TEST(a_release_tells_of_an_own_waiter_at_once)
{
    struct lh_acquire_item mine = wish(false), next = wish(true), later = wish(true);

    acquire(&one, &mine);
    acquire(&one, &next);
    acquire(&two, &later);
    ck_assert_int_gt(later.new_ticket, next.new_ticket);
    ck_assert_int_eq(later.waiters_ahead, 1);
    ck_assert(release(&one, &mine).wake);
    /* Nobody overtakes, and the one whose turn it is gets it. */
    acquire(&two, &later);
    ck_assert_int_eq(later.outcome, LH_ACQUIRE_QUEUED);
    ck_assert(!later.has_lease);
    ck_assert_int_eq(later.expires_in_us, LH_NEVER);
    acquire(&one, &next);
    ck_assert_int_eq(next.outcome, LH_ACQUIRE_GRANTED);
}
END_TEST

static struct lh_leave_item leave_since(struct test_store *test, const struct lh_acquire_item *place,
                                        enum lh_leave_kind kind, int64_t unheard_since_us)
{
    struct lh_leave_item item = {.ns = place->ns,
                                 .key = place->key,
                                 .lease_key = place->lease_key,
                                 .kind = kind,
                                 .unheard_since_us = unheard_since_us};
    struct lh_leave_item *items[] = {&item};
    ck_assert_int_eq(
        test->store->ops->send(test->store, 0, LH_KIND_LEAVE, 0, (void **)items, 1, test_on_answer, &answer), LH_OK);
    test_wait_for(&answer);
    ck_assert_msg(answer.status == LH_OK, "%s", answer.error.message);
    return item;
}

static struct lh_leave_item leave(struct test_store *test, const struct lh_acquire_item *place, enum lh_leave_kind kind)
{
    return leave_since(test, place, kind, 0);
}

START_TEST(a_lease_from_before_who_leaves_goes_on)
{
    struct lh_acquire_item mine = wish(false);
    struct lh_leave_item left;

    acquire(&one, &mine);
    left = leave_since(&one, &mine, LH_LEAVE_GONE, mine.lease.acquired_at_us + 1);
    ck_assert_int_eq(left.lease.token, mine.lease.token);
    ck_assert_int_eq(heartbeat(&one, &mine).outcome, LH_OUTCOME_OK);
    /* Whoever comes back is told of it all the same. */
    left = leave_since(&one, &mine, LH_LEAVE_AWAY, mine.lease.acquired_at_us + 1);
    ck_assert(left.was_granted);
    left = leave_since(&one, &mine, LH_LEAVE_GONE, mine.lease.acquired_at_us);
    ck_assert(!left.has_lease);
    ck_assert_int_eq(heartbeat(&one, &mine).outcome, LH_OUTCOME_LOST);
}
END_TEST

START_TEST(who_leaves_gives_up_place_and_lease)
{
    struct lh_acquire_item mine = wish(false), yours = wish(true), third = wish(true);
    struct lh_leave_item left;

    acquire(&one, &mine);
    acquire(&two, &yours);
    acquire(&two, &third);
    left = leave(&two, &yours, LH_LEAVE_GONE);
    ck_assert(!left.is_busy);
    ck_assert(!left.was_granted);
    ck_assert(left.has_lease);
    ck_assert_int_eq(left.lease.token, mine.lease.token);
    /* The holder itself: its lease is released, and the next is told. */
    two.wakes = 0;
    left = leave(&one, &mine, LH_LEAVE_GONE);
    ck_assert(!left.is_busy);
    WAIT_FOR(test_loop, two.wakes > 0);
    ck_assert_int_eq(heartbeat(&one, &mine).outcome, LH_OUTCOME_LOST);
    acquire(&two, &third);
    ck_assert_int_eq(third.outcome, LH_ACQUIRE_GRANTED);
    left = leave(&two, &third, LH_LEAVE_AWAY);
    ck_assert(left.was_granted);
    ck_assert_int_eq(left.lease.token, third.lease.token);
    ck_assert(lh_uuid_equal(&left.lease.lease_key, &third.lease_key));
}
END_TEST

START_TEST(a_row_that_another_session_has_is_busy_and_holds_up_nobody)
{
    struct lh_acquire_item mine = wish(false), wanted[3] = {wish(false), wish(false), wish(false)};
    struct lh_acquire_item *items[] = {&wanted[0], &wanted[1], &wanted[2]};
    char sql[160], other[2][48];
    PGconn *session = PQconnectdb(conninfo);

    acquire(&one, &mine);
    snprintf(sql, sizeof(sql), "begin; select * from leasehold.scope where key = '%s' for update", key);
    PQclear(PQexec(session, sql));
    for (int i = 0; i < 2; i++)
        snprintf(other[i], sizeof(other[i]), "%s-other-%d", key, i);
    wanted[0].key = other[0];
    wanted[2].key = other[1];
    ck_assert_int_eq(two.store->ops->send(two.store, 0, LH_KIND_ACQUIRE, 0, (void **)items, 3, test_on_answer, &answer),
                     LH_OK);
    test_wait_for(&answer);
    ck_assert_int_eq(wanted[0].outcome, LH_ACQUIRE_GRANTED);
    ck_assert_int_eq(wanted[1].outcome, LH_ACQUIRE_BUSY);
    ck_assert_int_eq(wanted[2].outcome, LH_ACQUIRE_GRANTED);
    ck_assert(heartbeat(&one, &mine).is_busy);
    ck_assert(release(&one, &mine).is_busy);
    PQfinish(session);
    WAIT_FOR(test_loop, !heartbeat(&one, &mine).is_busy);
    ck_assert_int_eq(release(&one, &mine).outcome, LH_OUTCOME_OK);
}
END_TEST

START_TEST(five_hundred_at_once_with_bad_ones_among_them)
{
    static struct lh_acquire_item wanted[LH_BATCH_MAX];
    static struct lh_acquire_item *items[LH_BATCH_MAX];
    static struct lh_holder_item given[LH_BATCH_MAX];
    static struct lh_holder_item *back[LH_BATCH_MAX];
    static char keys[LH_BATCH_MAX][48];

    for (size_t i = 0; i < LH_BATCH_MAX; i++) {
        snprintf(keys[i], sizeof(keys[i]), "%s-%03zu", key, i);
        wanted[i] = wish(false);
        wanted[i].key = keys[i];
        items[i] = &wanted[i];
    }
    wanted[77].terms.duration_us = 0;
    wanted[99].terms.labels = "{\"a\": \"\\u0000\"}";
    ck_assert_int_eq(
        one.store->ops->send(one.store, 0, LH_KIND_ACQUIRE, 0, (void **)items, LH_BATCH_MAX, test_on_answer, &answer),
        LH_OK);
    test_wait_for(&answer);
    ck_assert_int_eq(answer.status, LH_OK);
    for (size_t i = 0; i < LH_BATCH_MAX; i++) {
        ck_assert_msg(wanted[i].outcome == (i == 77 || i == 99 ? LH_ACQUIRE_INVALID : LH_ACQUIRE_GRANTED),
                      "item %zu has outcome %d", i, wanted[i].outcome);
        given[i] = (struct lh_holder_item){.ns = wanted[i].ns,
                                           .key = keys[i],
                                           .lease_key = wanted[i].lease_key,
                                           .is_failure = i % 3 == 0,
                                           .value = i == 250 ? "{\"a\": 1e200000}" : "{\"a\": \"b\"}"};
        back[i] = &given[i];
    }
    given[250].is_failure = false;
    ck_assert_int_eq(
        one.store->ops->send(one.store, 1, LH_KIND_RELEASE, 0, (void **)back, LH_BATCH_MAX, test_on_answer, &answer),
        LH_OK);
    test_wait_for(&answer);
    ck_assert_int_eq(answer.status, LH_OK);
    for (size_t i = 0; i < LH_BATCH_MAX; i++)
        ck_assert_int_eq(given[i].outcome, i == 77 || i == 99 ? LH_OUTCOME_LOST
                                           : i == 250         ? LH_OUTCOME_INVALID
                                                              : LH_OUTCOME_OK);
}
END_TEST

static char invalid_field[64], invalid_bound[128];

static void on_invalid(void *arg, enum lh_status status, const struct lh_error *error)
{
    struct lh_acquire_item *item = arg;
    ck_assert_int_eq(status, LH_OK);
    ck_assert_int_eq(item->outcome, LH_ACQUIRE_INVALID);
    snprintf(invalid_field, sizeof(invalid_field), "%s", item->field);
    snprintf(invalid_bound, sizeof(invalid_bound), "%s", item->bound == NULL ? "" : item->bound);
    answer.count++;
}

START_TEST(a_duration_out_of_bounds_names_field_and_bound)
{
    struct lh_acquire_item item = wish(false);
    struct lh_acquire_item *items[] = {&item};

    item.terms.duration_us = 3 * 86400 * SECOND;
    ck_assert_int_eq(one.store->ops->send(one.store, 0, LH_KIND_ACQUIRE, 0, (void **)items, 1, on_invalid, &item),
                     LH_OK);
    test_wait_for(&answer);
    ck_assert_str_eq(invalid_field, "duration");
    ck_assert_str_ne(invalid_bound, "");
}
END_TEST

/* The setting as it is when the transaction commits. */
static const char commit_watcher[] =
    "create table public.commit (setting text);"
    "create function public.note_commit() returns trigger language plpgsql security definer as $$ begin"
    "  insert into public.commit values (current_setting('synchronous_commit')); return null; end $$;"
    "create constraint trigger note_commit after update on leasehold.scope deferrable initially deferred"
    "  for each row execute function public.note_commit();";

static const char *commits(void)
{
    return pg_fixture_value(conninfo, "with d as (delete from public.commit returning setting)"
                                      " select string_agg(distinct setting, ' ') from d");
}

START_TEST(renewals_alone_are_answered_before_they_are_on_disk)
{
    struct lh_acquire_item mine = wish(false);
    struct lh_holder_item ours, theirs;
    struct lh_holder_item *both[] = {&ours, &theirs};

    acquire(&one, &mine);
    pg_fixture_execute(conninfo, commit_watcher);
    ck_assert_int_eq(heartbeat(&one, &mine).outcome, LH_OUTCOME_OK);
    ck_assert_str_eq(commits(), "off");

    ours = theirs = (struct lh_holder_item){.ns = mine.ns, .key = key, .lease_key = mine.lease_key};
    theirs.lease_key = lh_uuid_random();
    ck_assert_int_eq(
        one.store->ops->send(one.store, 0, LH_KIND_HEARTBEAT, 0, (void **)both, 2, test_on_answer, &answer), LH_OK);
    test_wait_for(&answer);
    ck_assert_int_eq(ours.outcome, LH_OUTCOME_OK);
    ck_assert_int_eq(theirs.outcome, LH_OUTCOME_LOST);
    ck_assert_str_eq(commits(), "on"); /* for somebody was told LOST */
    pg_fixture_execute(conninfo, "drop trigger note_commit on leasehold.scope; drop function public.note_commit;"
                                 " drop table public.commit");
}
END_TEST

START_TEST(leases_outlive_a_server_that_was_restarted)
{
    struct lh_acquire_item mine = wish(false);

    acquire(&one, &mine);
    pg_fixture_stop();
    WAIT_FOR(test_loop, one.lanes_down == 2 && two.lanes_down == 1);
    pg_fixture_start();
    WAIT_FOR(test_loop, one.lanes_up == 4 && two.lanes_up == 2 && one.control_up == 2 && two.control_up == 2 &&
                            one.listener_up == 2 && two.listener_up == 2);
    enroll(&one);
    enroll(&two);
    ck_assert_int_eq(heartbeat(&one, &mine).outcome, LH_OUTCOME_OK);
}
END_TEST

TCase *test_store_leases(void)
{
    TCase *tcase = tcase_create("leases");
    tcase_add_unchecked_fixture(tcase, setup_all, NULL);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, a_lease_lives_from_grant_to_release);
    tcase_add_test(tcase, a_free_scope_is_granted_with_the_same_fields_as_a_new_one);
    tcase_add_test(tcase, a_held_scope_is_refused_with_its_holder);
    tcase_add_test(tcase, what_another_store_renewed_is_not_given_back_as_unheard);
    tcase_add_test(tcase, a_release_wakes_the_waiter_of_another_store);
    tcase_add_test(tcase, a_release_tells_of_an_own_waiter_at_once);
    tcase_add_test(tcase, a_lease_from_before_who_leaves_goes_on);
    tcase_add_test(tcase, who_leaves_gives_up_place_and_lease);
    tcase_add_test(tcase, a_row_that_another_session_has_is_busy_and_holds_up_nobody);
    tcase_add_test(tcase, five_hundred_at_once_with_bad_ones_among_them);
    tcase_add_test(tcase, a_duration_out_of_bounds_names_field_and_bound);
    tcase_add_test(tcase, renewals_alone_are_answered_before_they_are_on_disk);
    tcase_add_test(tcase, leases_outlive_a_server_that_was_restarted);
    return tcase;
}
