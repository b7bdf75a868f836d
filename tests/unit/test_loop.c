/* Timers, deferred work and descriptors, in one loop. */
#include <check.h>
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "loop/backlog.h"
#include "loop/internal.h"
#include "run_tests.h"

#define PATIENCE_US (10 * LH_US_PER_S)

static struct lh_loop *loop;

/* A timer that writes down when its turn came. */
struct note {
    struct lh_timer timer;
    struct lh_deferred deferred;
    struct note *other;
    int fired;
    int order;
};

static int fired_count;

static void setup(void)
{
    loop = lh_loop_create();
    ck_assert_ptr_nonnull(loop);
    fired_count = 0;
}

static void teardown(void)
{
    lh_loop_destroy(loop);
}

static void on_note(void *arg)
{
    struct note *note = arg;
    note->fired++;
    note->order = ++fired_count;
}

static void run_until(const int *value, int wanted)
{
    int64_t until_us = lh_clock_us() + PATIENCE_US;
    while (*value < wanted && lh_clock_us() < until_us)
        lh_loop_run_once(loop, LH_US_PER_S);
    ck_assert_int_ge(*value, wanted);
}

static void on_hog(void *arg)
{
    usleep(2000);
}

START_TEST(a_loop_that_polls_does_not_sleep_and_rests_once_it_was_kept_from_it)
{
    struct note note = {0};
    struct lh_deferred hog;

    lh_timer_init(&note.timer, loop, on_note, &note);
    lh_timer_arm_at_us(&note.timer, lh_clock_us() + PATIENCE_US);
    lh_loop_poll_until(loop, lh_clock_us() + 2 * PATIENCE_US);
    for (int i = 0; i < 100; i++) {
        loop->sleeps_until_us = 0; /* whatever else runs on this machine */
        lh_loop_run_once(loop, -1);
    }
    ck_assert_int_eq(note.fired, 0);
    lh_deferred_init(&hog, on_hog, NULL);
    lh_defer(loop, &hog);
    loop->sleeps_until_us = 0;
    lh_loop_run_once(loop, -1);
    ck_assert_int_gt(loop->sleeps_until_us, loop->polled_us);
    loop->sleeps_until_us = LH_NEVER;
    lh_timer_arm_at_us(&note.timer, lh_clock_us() + LH_US_PER_MS);
    lh_loop_run_once(loop, -1);
    ck_assert_int_eq(note.fired, 1);
    lh_timer_finish(&note.timer);
}
END_TEST

START_TEST(a_loop_sleeps_again_once_what_it_polled_for_has_come)
{
    struct note note = {0};

    lh_timer_init(&note.timer, loop, on_note, &note);
    lh_loop_poll_until(loop, lh_clock_us() + 2 * PATIENCE_US);
    lh_loop_poll_until(loop, 0);
    lh_timer_arm_at_us(&note.timer, lh_clock_us() + LH_US_PER_MS);
    lh_loop_run_once(loop, -1);
    ck_assert_int_eq(note.fired, 1);
    lh_timer_finish(&note.timer);
}
END_TEST

START_TEST(timers_fire_in_order_of_their_times_and_not_early)
{
    struct note notes[50] = {0};
    int64_t now_us = lh_clock_us();

    for (int i = 0; i < 50; i++) {
        lh_timer_init(&notes[i].timer, loop, on_note, &notes[i]);
        lh_timer_arm_at_us(&notes[i].timer, now_us + (i * 7 % 50) * LH_US_PER_MS);
    }
    run_until(&fired_count, 50);
    ck_assert_int_ge(lh_clock_us(), now_us + 49 * LH_US_PER_MS);
    for (int i = 0; i < 50; i++) {
        ck_assert_int_eq(notes[i].fired, 1);
        ck_assert_int_eq(notes[i].order, i * 7 % 50 + 1);
        ck_assert(!lh_timer_is_armed(&notes[i].timer));
    }
}
END_TEST

START_TEST(timer_in_the_past_fires_in_the_next_turn_and_not_inside_arm)
{
    struct note note = {0};
    lh_timer_init(&note.timer, loop, on_note, &note);
    lh_timer_arm_at_us(&note.timer, 1);
    ck_assert_int_eq(note.fired, 0);
    lh_loop_run_once(loop, 0);
    ck_assert_int_eq(note.fired, 1);
}
END_TEST

START_TEST(cancelled_timer_does_not_fire_and_a_moved_one_fires_once)
{
    struct note gone = {0}, moved = {0}, last = {0};

    lh_timer_init(&gone.timer, loop, on_note, &gone);
    lh_timer_init(&moved.timer, loop, on_note, &moved);
    lh_timer_init(&last.timer, loop, on_note, &last);
    lh_timer_arm_at_us(&gone.timer, lh_clock_us() + LH_US_PER_MS);
    lh_timer_arm_at_us(&moved.timer, lh_clock_us() + 3600 * LH_US_PER_S);
    lh_timer_arm_at_us(&moved.timer, lh_clock_us() + 2 * LH_US_PER_MS);
    lh_timer_arm_at_us(&last.timer, lh_clock_us() + 20 * LH_US_PER_MS);
    lh_timer_cancel(&gone.timer);
    lh_timer_cancel(&gone.timer);
    run_until(&last.fired, 1);
    ck_assert_int_eq(gone.fired, 0);
    ck_assert_int_eq(moved.fired, 1);
}
END_TEST

static void on_cancel_other(void *arg)
{
    struct note *note = arg;
    on_note(arg);
    lh_timer_finish(&note->other->timer);
    lh_deferred_cancel(&note->other->deferred);
}

START_TEST(timer_may_cancel_another_that_is_due_in_the_same_turn)
{
    struct note first = {0}, second = {0};

    first.other = &second;
    lh_timer_init(&first.timer, loop, on_cancel_other, &first);
    lh_timer_init(&second.timer, loop, on_note, &second);
    lh_deferred_init(&second.deferred, on_note, &second);
    lh_timer_arm_at_us(&first.timer, 1);
    lh_timer_arm_at_us(&second.timer, 2);
    lh_defer(loop, &second.deferred);
    lh_loop_run_once(loop, 0);
    lh_loop_run_once(loop, 0);
    ck_assert_int_eq(first.fired, 1);
    ck_assert_int_eq(second.fired, 0);
}
END_TEST

static void on_rearm(void *arg)
{
    struct note *note = arg;
    on_note(arg);
    lh_timer_arm_at_us(&note->timer, 0);
}

START_TEST(timer_that_rearms_itself_in_the_past_does_not_hold_up_the_turn)
{
    struct note note = {0};
    lh_timer_init(&note.timer, loop, on_rearm, &note);
    lh_timer_arm_at_us(&note.timer, 0);
    lh_loop_run_once(loop, 0);
    ck_assert_int_eq(note.fired, 1);
    run_until(&note.fired, 3);
    lh_timer_finish(&note.timer);
}
END_TEST

static void on_free(void *arg)
{
    struct note *note = arg;
    fired_count++;
    free(note);
}

static void on_defer_free(void *arg)
{
    struct note *note = arg;
    lh_deferred_init(&note->deferred, on_free, note);
    lh_defer(loop, &note->deferred);
    lh_defer(loop, &note->deferred);
    note->fired++; /* it is still there */
}

START_TEST(object_is_freed_by_deferred_work_after_its_own_callback)
{
    struct note *note = calloc(1, sizeof(*note));
    lh_timer_init(&note->timer, loop, on_defer_free, note);
    lh_timer_arm_at_us(&note->timer, 1);
    lh_loop_run_once(loop, 0);
    ck_assert_int_eq(fired_count, 1);
}
END_TEST

static void on_defer_again(void *arg)
{
    struct note *note = arg;
    on_note(arg);
    if (note->fired < 1000)
        lh_defer(loop, &note->deferred);
}

START_TEST(deferred_work_that_defers_itself_does_not_hold_up_the_turn)
{
    struct note note = {0};
    lh_deferred_init(&note.deferred, on_defer_again, &note);
    lh_defer(loop, &note.deferred);
    lh_loop_run_once(loop, 0);
    ck_assert_int_gt(note.fired, 1);
    ck_assert_int_lt(note.fired, 1000);
    /* What is left keeps the loop from waiting. */
    while (note.fired < 1000)
        lh_loop_run_once(loop, -1);
}
END_TEST

START_TEST(random_arming_and_cancelling_keeps_the_order)
{
    enum { COUNT = 200 };
    static struct note notes[COUNT];
    unsigned seed = (unsigned)lh_clock_us();
    int64_t base_us = lh_clock_us() + 20 * LH_US_PER_MS;
    int wanted = 0;
    int64_t latest_us = 0;

    printf("seed %u\n", seed);
    srand(seed);
    for (int i = 0; i < COUNT; i++) {
        notes[i] = (struct note){0};
        lh_timer_init(&notes[i].timer, loop, on_note, &notes[i]);
    }
    for (int step = 0; step < 5000; step++) {
        struct note *note = &notes[rand() % COUNT];
        if (rand() % 3 == 0)
            lh_timer_cancel(&note->timer);
        else
            lh_timer_arm_at_us(&note->timer, base_us + rand() % 5000);
    }
    for (int i = 0; i < COUNT; i++)
        wanted += lh_timer_is_armed(&notes[i].timer);
    run_until(&fired_count, wanted);
    for (int order = 1; order <= wanted; order++) {
        for (int i = 0; i < COUNT; i++) {
            if (notes[i].order != order)
                continue;
            ck_assert_int_eq(notes[i].fired, 1);
            ck_assert_int_ge(notes[i].timer.due.at_us, latest_us);
            latest_us = notes[i].timer.due.at_us;
        }
    }
}
END_TEST

struct pipe_end {
    struct lh_watch watch;
    int reads;
    int writes;
};

static void on_pipe(void *arg, unsigned ready)
{
    struct pipe_end *end = arg;
    char byte;
    if (ready & LH_WATCH_WRITE) {
        end->writes++;
        lh_watch_want(&end->watch, LH_WATCH_READ);
    }
    if (ready & LH_WATCH_READ) {
        ck_assert_int_eq(read(end->watch.fd, &byte, 1), 1);
        end->reads++;
        lh_watch_finish(&end->watch); /* inside of its own callback */
    }
}

START_TEST(watcher_changes_what_it_waits_for_and_may_finish_itself)
{
    int fds[2];
    struct pipe_end end = {0};

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    lh_watch_init(&end.watch, loop, fds[0], on_pipe, &end);
    lh_watch_want(&end.watch, LH_WATCH_WRITE);
    run_until(&end.writes, 1);
    ck_assert_int_eq(write(fds[1], "xy", 2), 2);
    run_until(&end.reads, 1);
    lh_loop_run_once(loop, 0);
    ck_assert_int_eq(end.reads, 1);
    ck_assert_int_eq(end.writes, 1);
    lh_watch_finish(&end.watch);
    close(fds[0]);
    close(fds[1]);
}
END_TEST

/* Whoever asks in a callback is told whether everything that came before the pause has been handled. */
struct asker {
    struct lh_watch watch;
    struct lh_timer timer;
    int reads;
    int told_behind;
    int told_read; /* how many had been read when it was told that the loop is not behind */
};

static void on_some(void *arg, unsigned ready)
{
    struct pipe_end *end = arg;
    char byte;
    end->reads += read(end->watch.fd, &byte, 1) == 1;
}

enum { MANY = 100 };
static struct pipe_end many[MANY];

static int many_read(void)
{
    int read = 0;
    for (int i = 0; i < MANY; i++)
        read += many[i].reads;
    return read;
}

static void on_asker(void *arg)
{
    struct asker *asker = arg;
    if (lh_loop_is_behind(loop)) {
        asker->told_behind++;
        lh_timer_arm_at_us(&asker->timer, lh_clock_us());
    } else {
        asker->told_read = many_read();
    }
}

START_TEST(after_a_pause_it_is_behind_until_everything_that_came_was_read)
{
    int fds[MANY][2];
    struct asker asker = {.told_read = -1};

    for (int i = 0; i < MANY; i++) {
        many[i] = (struct pipe_end){0};
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds[i]), 0);
        lh_watch_init(&many[i].watch, loop, fds[i][0], on_some, &many[i]);
        lh_watch_want(&many[i].watch, LH_WATCH_READ);
    }
    lh_loop_run_once(loop, 0);
    ck_assert(!lh_loop_is_behind(loop));
    for (int i = 0; i < MANY; i++)
        ck_assert_int_eq(write(fds[i][1], "xyz", 3), 3);
    usleep(150 * 1000); /* the pause */
    lh_timer_init(&asker.timer, loop, on_asker, &asker);
    lh_timer_arm_at_us(&asker.timer, lh_clock_us());
    for (int turns = 0; asker.told_read < 0 && turns < 20; turns++)
        lh_loop_run_once(loop, 0);
    ck_assert_int_ge(asker.told_behind, 1);
    ck_assert_int_eq(asker.told_read, 3 * MANY); /* one in a turn */
    for (int i = 0; i < MANY; i++) {
        lh_watch_finish(&many[i].watch);
        close(fds[i][0]);
        close(fds[i][1]);
    }
}
END_TEST

/* Between the poll and its first event: what came meanwhile was not looked for. */
static bool is_told_behind;

static void on_pause(evutil_socket_t fd, short what, void *arg)
{
    usleep(150 * 1000);
    is_told_behind = lh_loop_is_behind(loop);
}

START_TEST(a_pause_before_the_first_event_of_a_turn_counts)
{
    struct event *pause = event_new(loop->base, -1, 0, on_pause, NULL);
    struct pipe_end end = {0};
    int fds[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    lh_watch_init(&end.watch, loop, fds[0], on_some, &end);
    lh_watch_want(&end.watch, LH_WATCH_READ);
    ck_assert_int_eq(write(fds[1], "x", 1), 1);
    event_active(pause, EV_TIMEOUT, 0); /* it runs first */
    lh_loop_run_once(loop, 0);
    ck_assert_int_eq(end.reads, 1);
    ck_assert(lh_loop_is_behind(loop));
    lh_loop_run_once(loop, 0);
    ck_assert(!lh_loop_is_behind(loop));
    loop->rests_until_us = 0;
    is_told_behind = false;
    event_active(pause, EV_TIMEOUT, 0);
    lh_loop_poll_until(loop, lh_clock_us() + PATIENCE_US);
    lh_loop_run_once(loop, -1);
    ck_assert(is_told_behind); /* right after it has caught up, too */
    lh_watch_finish(&end.watch);
    event_free(pause);
    close(fds[0]);
    close(fds[1]);
}
END_TEST

static void on_slow(void *arg)
{
    usleep(120 * 1000);
    on_asker(arg);
}

static void on_endless(void *arg, unsigned ready)
{
    ((struct pipe_end *)arg)->writes++;
}

START_TEST(a_loop_whose_turns_are_slow_catches_up_all_the_same)
{
    struct asker asker = {.told_read = -1};
    struct pipe_end endless = {0};
    int64_t before_us = 0, turn_us = 0;
    int fds[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    lh_watch_init(&endless.watch, loop, fds[0], on_endless, &endless);
    lh_watch_want(&endless.watch, LH_WATCH_WRITE);
    memset(many, 0, sizeof(many));
    lh_timer_init(&asker.timer, loop, on_slow, &asker);
    lh_timer_arm_at_us(&asker.timer, lh_clock_us());
    for (int turns = 0; asker.told_read < 0 && turns < 20; turns++) {
        before_us = turn_us;
        turn_us = lh_clock_us();
        lh_loop_run_once(loop, 0);
    }
    ck_assert_int_eq(asker.told_read, 0);
    ck_assert_int_ge(asker.told_behind, 1);
    /* And the question rests, for a second from the end of the turn before. */
    for (int i = 0; i < 3; i++) {
        asker.told_behind = 0;
        lh_timer_arm_at_us(&asker.timer, lh_clock_us());
        lh_loop_run_once(loop, 0);
        ck_assert(asker.told_behind == 0 || lh_clock_us() >= before_us + LH_US_PER_S);
    }
    lh_watch_finish(&endless.watch);
    close(fds[0]);
    close(fds[1]);
}
END_TEST

static int signalled;

static void on_signal(void *arg, int number)
{
    signalled = number;
    lh_loop_stop(loop);
}

static void on_raise(void *arg)
{
    raise(SIGUSR1);
}

START_TEST(signal_is_a_callback_and_stop_ends_the_loop)
{
    struct lh_signal handler;
    struct lh_deferred later;

    lh_signal_init(&handler, loop, SIGUSR1, on_signal, NULL);
    lh_deferred_init(&later, on_raise, NULL);
    lh_defer(loop, &later);
    lh_loop_run(loop);
    ck_assert_int_eq(signalled, SIGUSR1);
    lh_signal_finish(&handler);
}
END_TEST

static int steps, turns;

static void take_step(void *arg)
{
    struct lh_backlog_item *item = arg;

    steps++;
    if (item != NULL)
        lh_backlog_remove(item);
}

static void count_turn(void *arg)
{
    turns++;
}

START_TEST(a_backlog_takes_its_time_in_each_turn_and_lets_the_others_have_theirs)
{
    struct lh_backlog backlog;
    struct lh_backlog_item items[4];
    struct lh_deferred other;

    lh_backlog_init(&backlog, loop, 0); /* one item for each turn */
    lh_deferred_init(&other, count_turn, NULL);
    for (int i = 0; i < 4; i++)
        lh_backlog_item_init(&items[i], take_step, i == 1 ? &items[2] : NULL);
    for (int i = 0; i < 4; i++)
        lh_backlog_add(&backlog, &items[i]);
    lh_backlog_add(&backlog, &items[0]); /* it waits already */
    ck_assert_int_eq(steps, 0);
    for (int turn = 1; turn <= 5; turn++) {
        lh_defer(loop, &other);
        lh_loop_run_once(loop, 0);
        ck_assert_int_eq(turns, turn);
        ck_assert_int_eq(steps, turn < 3 ? turn : 3); /* the second removed the third */
    }
    lh_backlog_add(&backlog, &items[0]);
    lh_loop_run_once(loop, 0);
    ck_assert_int_eq(steps, 4);
    lh_backlog_finish(&backlog);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loop");
    TCase *tests = tcase_create("loop");

    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_loop_that_polls_does_not_sleep_and_rests_once_it_was_kept_from_it);
    tcase_add_test(tests, a_loop_sleeps_again_once_what_it_polled_for_has_come);
    tcase_add_test(tests, timers_fire_in_order_of_their_times_and_not_early);
    tcase_add_test(tests, timer_in_the_past_fires_in_the_next_turn_and_not_inside_arm);
    tcase_add_test(tests, cancelled_timer_does_not_fire_and_a_moved_one_fires_once);
    tcase_add_test(tests, timer_may_cancel_another_that_is_due_in_the_same_turn);
    tcase_add_test(tests, timer_that_rearms_itself_in_the_past_does_not_hold_up_the_turn);
    tcase_add_test(tests, object_is_freed_by_deferred_work_after_its_own_callback);
    tcase_add_test(tests, deferred_work_that_defers_itself_does_not_hold_up_the_turn);
    tcase_add_test(tests, random_arming_and_cancelling_keeps_the_order);
    tcase_add_test(tests, watcher_changes_what_it_waits_for_and_may_finish_itself);
    tcase_add_test(tests, after_a_pause_it_is_behind_until_everything_that_came_was_read);
    tcase_add_test(tests, a_pause_before_the_first_event_of_a_turn_counts);
    tcase_add_test(tests, a_loop_whose_turns_are_slow_catches_up_all_the_same);
    tcase_add_test(tests, a_backlog_takes_its_time_in_each_turn_and_lets_the_others_have_theirs);
    tcase_add_test(tests, signal_is_a_callback_and_stop_ends_the_loop);
    suite_add_tcase(suite, tests);
    return run_tests(suite, CK_FORK_GETENV);
}
