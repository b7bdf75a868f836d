/*
 * Contexts: who is cancelled with whom, what a lease's renewals, loss and release do to its context, callbacks and
 * descriptors, and all of it from several threads at once.
 */
#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "client/context.h"
#include "run_tests.h"

#define MS LH_US_PER_MS
#define START_US (1000 * LH_US_PER_S)

static int64_t clock_us;

static int64_t virtual_now_us(void)
{
    return clock_us;
}

static void setup(void)
{
    clock_us = START_US;
}

static struct lh_context *lease_context(int64_t duration_us)
{
    struct lh_context *context = lh_context_create_for_lease(NULL, clock_us + duration_us);
    lh_context_set_clock(context, virtual_now_us);
    return context;
}

struct heard {
    struct lh_context_callback callback;
    unsigned times;
    struct lh_context *context;
    char words[64];
    struct lh_context_callback *removes; /* from inside */
};

static void on_cancel(void *arg, struct lh_context *context)
{
    struct heard *heard = arg;

    heard->times++;
    heard->context = context;
    snprintf(heard->words, sizeof(heard->words), "%s", lh_context_words(context));
    ck_assert(lh_context_is_cancelled(context));
    if (heard->removes != NULL)
        lh_context_remove(context, heard->removes);
}

static void listen_to(struct heard *heard, struct lh_context *context)
{
    memset(heard, 0, sizeof(*heard));
    heard->callback.on_cancel = on_cancel;
    heard->callback.arg = heard;
    lh_context_add(context, &heard->callback);
}

static bool is_readable(int fd, int wait_ms)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    return poll(&ready, 1, wait_ms) == 1 && (ready.revents & POLLIN) != 0;
}

START_TEST(a_context_is_cancelled_by_hand_once)
{
    struct lh_context *context = lh_context_create(NULL, LH_FOREVER);
    struct heard heard;

    listen_to(&heard, context);
    ck_assert(!lh_context_is_cancelled(context));
    ck_assert_str_eq(lh_context_words(context), "");
    ck_assert_int_eq(lh_context_remaining_us(context), LH_FOREVER);
    lh_context_cancel(context, "enough");
    lh_context_cancel(context, "more than enough");
    ck_assert(lh_context_is_cancelled(context));
    ck_assert_str_eq(lh_context_words(context), "enough");
    ck_assert_int_eq(lh_context_remaining_us(context), 0);
    ck_assert_uint_eq(heard.times, 1);
    ck_assert_ptr_eq(heard.context, context);
    ck_assert_str_eq(heard.words, "enough");
    lh_context_destroy(context);
    lh_context_destroy(NULL);
}
END_TEST

START_TEST(words_need_not_be_given)
{
    struct lh_context *context = lh_context_create(NULL, LH_FOREVER);

    lh_context_cancel(context, NULL);
    ck_assert_str_ne(lh_context_words(context), "");
    lh_context_destroy(context);
}
END_TEST

START_TEST(children_end_with_their_parent_and_not_the_other_way_round)
{
    struct lh_context *top = lh_context_create(NULL, LH_FOREVER);
    struct lh_context *left = lh_context_create(top, LH_FOREVER);
    struct lh_context *right = lh_context_create(top, LH_FOREVER);
    struct lh_context *below = lh_context_create(left, LH_FOREVER);
    struct heard heard[4];

    listen_to(&heard[0], top);
    listen_to(&heard[1], left);
    listen_to(&heard[2], right);
    listen_to(&heard[3], below);
    lh_context_cancel(left, "left");
    ck_assert(!lh_context_is_cancelled(top));
    ck_assert(!lh_context_is_cancelled(right));
    ck_assert(lh_context_is_cancelled(below));
    ck_assert_str_eq(heard[3].words, "left");
    lh_context_cancel(top, "top");
    ck_assert_str_eq(lh_context_words(left), "left");
    ck_assert_str_eq(lh_context_words(right), "top");
    for (int i = 0; i < 4; i++)
        ck_assert_uint_eq(heard[i].times, 1);
    lh_context_destroy(top);
    lh_context_destroy(left);
    lh_context_destroy(right);
    lh_context_destroy(below);
}
END_TEST

START_TEST(a_child_of_what_is_cancelled_is_born_cancelled)
{
    struct lh_context *top = lh_context_create(NULL, LH_FOREVER), *child;
    struct heard heard;

    lh_context_cancel(top, "over");
    child = lh_context_create(top, LH_FOREVER);
    ck_assert(lh_context_is_cancelled(child));
    ck_assert_str_eq(lh_context_words(child), "over");
    listen_to(&heard, child); /* at once */
    ck_assert_uint_eq(heard.times, 1);
    lh_context_destroy(top);
    lh_context_destroy(child);
}
END_TEST

START_TEST(the_time_is_the_least_of_all_above)
{
    struct lh_context *top = lh_context_create(NULL, START_US + 500 * MS), *child, *below;

    lh_context_set_clock(top, virtual_now_us);
    child = lh_context_create(top, START_US + 900 * MS);
    below = lh_context_create(child, START_US + 700 * MS);
    ck_assert_int_eq(lh_context_remaining_us(below), 500 * MS);
    ck_assert_int_eq(lh_context_remaining_us(child), 500 * MS);
    clock_us += 500 * MS - 1;
    ck_assert(!lh_context_is_cancelled(below));
    ck_assert_int_eq(lh_context_remaining_us(below), 1);
    clock_us += 1;
    ck_assert(lh_context_is_cancelled(below));
    ck_assert_int_eq(lh_context_remaining_us(below), 0);
    ck_assert_str_ne(lh_context_words(below), "");
    lh_context_destroy(below);
    lh_context_destroy(child);
    lh_context_destroy(top);
}
END_TEST

/* Acquire under a lease's context, and again under that one's: three calls, one in the other. */
START_TEST(a_nested_chain_of_three_calls_ends_when_the_first_lease_is_lost)
{
    struct lh_context *first = lease_context(10 * LH_US_PER_S);
    struct lh_context *second = lh_context_create_for_lease(first, clock_us + 30 * LH_US_PER_S);
    struct lh_context *third = lh_context_create_for_lease(second, clock_us + 60 * LH_US_PER_S);
    struct lh_context *call = lh_context_create(third, LH_FOREVER);
    struct heard heard[3];

    listen_to(&heard[0], second);
    listen_to(&heard[1], third);
    listen_to(&heard[2], call);
    ck_assert_int_eq(lh_context_remaining_us(call), 10 * LH_US_PER_S);
    clock_us += 4 * LH_US_PER_S;
    ck_assert(lh_context_move(first, clock_us + 10 * LH_US_PER_S)); /* the first is renewed */
    ck_assert_int_eq(lh_context_remaining_us(call), 10 * LH_US_PER_S);
    ck_assert(!lh_context_is_cancelled(call));
    lh_context_cancel(first, "the lease a is lost: expired");
    for (int i = 0; i < 3; i++) {
        ck_assert_uint_eq(heard[i].times, 1);
        ck_assert_str_eq(heard[i].words, "the lease a is lost: expired");
    }
    ck_assert_int_eq(lh_context_remaining_us(call), 0);
    ck_assert(!lh_context_move(second, clock_us + 30 * LH_US_PER_S));
    lh_context_destroy(call);
    lh_context_destroy(third);
    lh_context_destroy(second);
    lh_context_destroy(first);
}
END_TEST

START_TEST(a_chain_ends_by_the_first_deadline_though_nobody_cancels)
{
    struct lh_context *first = lease_context(1 * LH_US_PER_S);
    struct lh_context *second = lh_context_create_for_lease(first, clock_us + 30 * LH_US_PER_S);
    struct lh_context *third = lh_context_create_for_lease(second, clock_us + 60 * LH_US_PER_S);

    clock_us += 1 * LH_US_PER_S; /* the process was stopped, say */
    ck_assert(lh_context_is_cancelled(third));
    ck_assert_int_eq(lh_context_remaining_us(third), 0);
    lh_context_destroy(first);
    lh_context_destroy(second);
    ck_assert(lh_context_is_cancelled(third)); /* its parents are held by it */
    lh_context_destroy(third);
}
END_TEST

START_TEST(who_was_told_that_the_time_has_passed_is_never_told_otherwise)
{
    struct lh_context *told = lease_context(1 * LH_US_PER_S), *untold = lease_context(1 * LH_US_PER_S);

    clock_us += 1 * LH_US_PER_S;
    ck_assert(lh_context_is_cancelled(told));
    ck_assert(!lh_context_move(told, clock_us + 30 * LH_US_PER_S)); /* a reply that lay there while the process slept */
    ck_assert(lh_context_is_cancelled(told));
    ck_assert(!lh_context_move(untold, clock_us + 30 * LH_US_PER_S)); /* its time has passed all the same */
    ck_assert(lh_context_is_cancelled(untold));
    lh_context_destroy(told);
    lh_context_destroy(untold);
}
END_TEST

START_TEST(a_release_takes_the_time_away_and_cancels_nothing)
{
    struct lh_context *lease = lease_context(1 * LH_US_PER_S);
    struct lh_context *call = lh_context_create(lease, LH_FOREVER);
    struct heard heard;

    listen_to(&heard, call);
    lh_context_free_of_time(lease);
    ck_assert_int_eq(lh_context_remaining_us(call), LH_FOREVER);
    ck_assert(lh_context_move(lease, clock_us + 2 * LH_US_PER_S)); /* a renewal that was under way */
    ck_assert_int_eq(lh_context_remaining_us(call), LH_FOREVER);
    clock_us += 3600 * LH_US_PER_S;
    ck_assert(!lh_context_is_cancelled(call));
    ck_assert_uint_eq(heard.times, 0);
    lh_context_cancel(lease, "by hand");
    ck_assert_uint_eq(heard.times, 1);
    lh_context_destroy(lease);
    lh_context_destroy(call);
}
END_TEST

START_TEST(a_release_after_the_time_has_passed_revives_nothing)
{
    struct lh_context *lease = lease_context(1 * LH_US_PER_S);

    clock_us += 1 * LH_US_PER_S;
    lh_context_free_of_time(lease);
    ck_assert(lh_context_is_cancelled(lease));
    lh_context_destroy(lease);
}
END_TEST

START_TEST(a_descriptor_is_readable_from_when_it_is_cancelled)
{
    struct lh_context *top = lh_context_create(NULL, LH_FOREVER), *child = lh_context_create(top, LH_FOREVER), *late;
    int fd = lh_context_fd(child);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(lh_context_fd(child), fd);
    ck_assert(!is_readable(fd, 0));
    lh_context_cancel(top, NULL);
    ck_assert(is_readable(fd, 10000));
    ck_assert(is_readable(fd, 0)); /* and stays so */
    late = lh_context_create(top, LH_FOREVER);
    ck_assert(is_readable(lh_context_fd(late), 10000));
    lh_context_destroy(top);
    lh_context_destroy(child);
    lh_context_destroy(late);
}
END_TEST

START_TEST(a_descriptor_is_readable_when_the_time_has_passed)
{
    struct lh_context *top = lh_context_create(NULL, lh_clock_us() + 50 * MS);
    struct lh_context *child = lh_context_create(top, LH_FOREVER);
    int fd = lh_context_fd(child);

    ck_assert(is_readable(fd, 10000));
    ck_assert(lh_context_is_cancelled(child));
    lh_context_destroy(top);
    lh_context_destroy(child);
}
END_TEST

START_TEST(the_descriptor_of_a_lease_does_not_fire_at_a_time_that_was_moved)
{
    struct lh_context *lease = lh_context_create_for_lease(NULL, lh_clock_us() + 500 * MS);
    struct lh_context *timer = lh_context_create(NULL, lh_clock_us() + 600 * MS);
    int fd = lh_context_fd(lease);

    ck_assert(lh_context_move(lease, lh_clock_us() + 3600 * LH_US_PER_S));
    ck_assert(is_readable(lh_context_fd(timer), 10000)); /* it is later than the first time by now */
    ck_assert(!is_readable(fd, 0));
    lh_context_cancel(lease, "lost");
    ck_assert(is_readable(fd, 10000));
    lh_context_destroy(lease);
    lh_context_destroy(timer);
}
END_TEST

START_TEST(a_callback_that_was_removed_is_not_called)
{
    struct lh_context *context = lh_context_create(NULL, LH_FOREVER);
    struct heard gone, other;

    listen_to(&gone, context);
    listen_to(&other, context);
    lh_context_remove(context, &gone.callback);
    lh_context_remove(context, &gone.callback);
    lh_context_cancel(context, NULL);
    ck_assert_uint_eq(gone.times, 0);
    ck_assert_uint_eq(other.times, 1);
    lh_context_remove(context, &other.callback);
    lh_context_destroy(context);
}
END_TEST

START_TEST(a_callback_may_remove_itself_and_those_that_are_due_after_it)
{
    struct lh_context *context = lh_context_create(NULL, LH_FOREVER);
    struct heard itself, first, due;

    listen_to(&itself, context);
    itself.removes = &itself.callback;
    listen_to(&first, context);
    listen_to(&due, context);
    first.removes = &due.callback;
    lh_context_cancel(context, NULL);
    ck_assert_uint_eq(itself.times, 1);
    ck_assert_uint_eq(first.times, 1);
    ck_assert_uint_eq(due.times, 0);
    lh_context_destroy(context);
}
END_TEST

struct guest {
    struct lh_context_callback callback;
    struct lh_context *context;
};

static void leave_for_good(void *arg, struct lh_context *context)
{
    struct guest *guest = arg;

    lh_context_destroy(guest->context);
    free(guest);
}

START_TEST(a_callback_may_destroy_its_context_and_free_itself)
{
    struct lh_context *top = lh_context_create(NULL, LH_FOREVER);

    for (int i = 0; i < 3; i++) {
        struct guest *guest = lh_alloc_zero(1, sizeof(*guest));
        guest->context = i == 0 ? top : lh_context_create(top, LH_FOREVER);
        guest->callback.on_cancel = leave_for_good;
        guest->callback.arg = guest;
        lh_context_add(guest->context, &guest->callback);
    }
    lh_context_cancel(top, NULL); /* the last hold of `top` goes away in here; the sanitizer looks on */
}
END_TEST

START_TEST(a_long_chain_and_a_wide_one_are_no_matter)
{
    enum { COUNT = 20000 };
    static struct lh_context *chain[COUNT], *fan[COUNT];
    struct heard last;

    for (int i = 0; i < COUNT; i++) {
        chain[i] = lh_context_create(i > 0 ? chain[i - 1] : NULL, LH_FOREVER);
        fan[i] = lh_context_create(chain[0], LH_FOREVER);
    }
    listen_to(&last, chain[COUNT - 1]);
    for (int i = 1; i < COUNT - 1; i++)
        lh_context_destroy(chain[i]); /* the last one holds them */
    lh_context_cancel(chain[0], "all");
    ck_assert_uint_eq(last.times, 1);
    for (int i = 0; i < COUNT; i++) {
        ck_assert(lh_context_is_cancelled(fan[i]));
        lh_context_destroy(fan[i]);
    }
    lh_context_destroy(chain[0]);
    lh_context_destroy(chain[COUNT - 1]);
}
END_TEST

/* --- threads --- */

struct slow {
    struct lh_context_callback callback;
    atomic_bool is_in, may_leave;
    atomic_bool has_left;
};

static void on_cancel_slowly(void *arg, struct lh_context *context)
{
    struct slow *slow = arg;

    atomic_store(&slow->is_in, true);
    while (!atomic_load(&slow->may_leave))
        sched_yield();
    atomic_store(&slow->has_left, true);
}

static void *cancel_it(void *arg)
{
    lh_context_cancel(arg, "by another thread");
    return NULL;
}

static void *let_it_leave(void *arg)
{
    struct slow *slow = arg;

    poll(NULL, 0, 20);
    atomic_store(&slow->may_leave, true);
    return NULL;
}

START_TEST(remove_waits_for_a_callback_that_runs_on_another_thread)
{
    struct lh_context *context = lh_context_create(NULL, LH_FOREVER);
    struct slow slow = {.callback = {.on_cancel = on_cancel_slowly, .arg = &slow}};
    pthread_t canceller, opener;

    lh_context_add(context, &slow.callback);
    pthread_create(&canceller, NULL, cancel_it, context);
    while (!atomic_load(&slow.is_in))
        sched_yield();
    ck_assert(lh_context_is_cancelled(context)); /* asking does not wait */
    pthread_create(&opener, NULL, let_it_leave, &slow);
    lh_context_remove(context, &slow.callback);
    ck_assert(atomic_load(&slow.has_left));
    pthread_join(canceller, NULL);
    pthread_join(opener, NULL);
    lh_context_destroy(context);
}
END_TEST

#define ROUNDS 2000

static atomic_uint called;

static void on_cancel_counted(void *arg, struct lh_context *context)
{
    atomic_fetch_add(&called, 1);
    atomic_fetch_add((atomic_uint *)arg, 1);
}

/* Makes children of a tree that another thread cancels: each is called once, or was removed in time. */
static void *work_under(void *arg)
{
    struct lh_context *top = arg;

    for (int i = 0; i < ROUNDS; i++) {
        struct lh_context *child = lh_context_create(top, LH_FOREVER), *below = lh_context_create(child, LH_FOREVER);
        atomic_uint times = 0;
        struct lh_context_callback callback = {.on_cancel = on_cancel_counted, .arg = &times};

        lh_context_add(below, &callback);
        lh_context_destroy(child);
        if (lh_context_is_cancelled(below))
            ck_assert_uint_le(atomic_load(&times), 1);
        lh_context_remaining_us(below);
        lh_context_remove(below, &callback);
        ck_assert_uint_le(atomic_load(&times), 1);
        lh_context_destroy(below);
    }
    return NULL;
}

START_TEST(trees_may_be_made_and_cancelled_by_several_threads)
{
    struct lh_context *top = lh_context_create_for_lease(NULL, lh_clock_us() + 3600 * LH_US_PER_S);
    pthread_t threads[3];

    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, work_under, top);
    for (int i = 0; i < 100; i++)
        lh_context_move(top, lh_clock_us() + (3600 + i) * LH_US_PER_S);
    lh_context_cancel(top, "in the middle of it");
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    lh_context_destroy(top);
}
END_TEST

static Suite *context_suite(void)
{
    Suite *suite = suite_create("context");
    TCase *tcase = tcase_create("contexts");

    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_context_is_cancelled_by_hand_once);
    tcase_add_test(tcase, words_need_not_be_given);
    tcase_add_test(tcase, children_end_with_their_parent_and_not_the_other_way_round);
    tcase_add_test(tcase, a_child_of_what_is_cancelled_is_born_cancelled);
    tcase_add_test(tcase, the_time_is_the_least_of_all_above);
    tcase_add_test(tcase, a_nested_chain_of_three_calls_ends_when_the_first_lease_is_lost);
    tcase_add_test(tcase, a_chain_ends_by_the_first_deadline_though_nobody_cancels);
    tcase_add_test(tcase, who_was_told_that_the_time_has_passed_is_never_told_otherwise);
    tcase_add_test(tcase, a_release_takes_the_time_away_and_cancels_nothing);
    tcase_add_test(tcase, a_release_after_the_time_has_passed_revives_nothing);
    tcase_add_test(tcase, a_descriptor_is_readable_from_when_it_is_cancelled);
    tcase_add_test(tcase, a_descriptor_is_readable_when_the_time_has_passed);
    tcase_add_test(tcase, the_descriptor_of_a_lease_does_not_fire_at_a_time_that_was_moved);
    tcase_add_test(tcase, a_callback_that_was_removed_is_not_called);
    tcase_add_test(tcase, a_callback_may_remove_itself_and_those_that_are_due_after_it);
    tcase_add_test(tcase, a_callback_may_destroy_its_context_and_free_itself);
    tcase_add_test(tcase, a_long_chain_and_a_wide_one_are_no_matter);
    tcase_add_test(tcase, remove_waits_for_a_callback_that_runs_on_another_thread);
    tcase_add_test(tcase, trees_may_be_made_and_cancelled_by_several_threads);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{

    return run_tests(context_suite(), CK_FORK_GETENV);
}
