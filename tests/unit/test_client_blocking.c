/* The calls that block, on many threads at once. Run under ThreadSanitizer too. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/client.h"
#include "client_fixture.h"

#define THREADS 6
#define ROUNDS 60

static pthread_t server_thread;
static struct lh_client *threaded;
static atomic_bool is_stopping;

static void *serve(void *arg)
{
    while (!atomic_load(&is_stopping))
        lh_loop_run_once(loop, 10 * LH_US_PER_MS);
    return NULL;
}

static void nobody(void *arg, enum lh_log_level level, const char *line)
{
}

static void setup(void)
{
    struct lh_error error = {0};

    lh_log_set_sink(nobody, NULL);
    atomic_store(&is_stopping, false);
    loop = lh_loop_create();
    fake_init(&fake, loop);
    fake.remaining_us = 500 * LH_US_PER_MS;
    ck_assert_int_eq(pthread_create(&server_thread, NULL, serve, NULL), 0);
    threaded = lh_client_create(&(struct lh_client_options){.endpoints = fake.target}, &error);
    ck_assert_msg(threaded != NULL, "%s", error.message);
    declared = lh_declare(threaded, "blocking", &(struct lh_declare_options){.duration_us = 500 * LH_US_PER_MS}, NULL);
}

static void teardown(void)
{
    lh_client_destroy(threaded);
    atomic_store(&is_stopping, true);
    pthread_join(server_thread, NULL);
    fake_finish(&fake);
    lh_loop_destroy(loop);
    lh_log_set_sink(NULL, NULL);
}

/* One thread's work: every verb, with the contexts and questions that go with them. */
static void *work(void *arg)
{
    unsigned number = (unsigned)(uintptr_t)arg;
    char key[32];

    for (int i = 0; i < ROUNDS; i++) {
        struct lh_lease *lease, *nested;
        struct lh_acquire_options under = {0};

        snprintf(key, sizeof(key), "%u-%d", number, i);
        ck_assert_int_eq(lh_acquire(declared, key, NULL, &lease, NULL), LH_OK);
        ck_assert(lh_lease_is_held(lease));
        under.context = lh_lease_context(lease);
        ck_assert_int_eq(lh_acquire(declared, "nested", &under, &nested, NULL), LH_OK);
        ck_assert_int_eq(lh_heartbeat(lease, NULL, NULL), LH_OK);
        ck_assert_int_gt(lh_context_remaining_us(lh_lease_context(nested)), 0);
        ck_assert_int_eq(lh_try_release(nested, NULL), LH_OK);
        if (i % 2 == 0)
            ck_assert_int_eq(lh_release(lease, NULL, NULL), LH_OK);
        ck_assert_int_eq(lh_release(nested, NULL, NULL), LH_LOST);
        lh_lease_destroy(nested);
        lh_lease_destroy(lease); /* every other one goes out from here */
    }
    return NULL;
}

START_TEST(many_threads_do_everything_at_once)
{
    pthread_t threads[THREADS];
    struct lh_client_stats now;

    for (uintptr_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, work, (void *)i), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    lh_client_close(threaded, NULL, NULL);
    lh_client_get_stats(threaded, &now);
    ck_assert_uint_eq(now.leases, 0);
    ck_assert_uint_eq(now.releases, 0);
    ck_assert_uint_eq(now.requests, 0);
    ck_assert_uint_eq(now.lost, 0);
}
END_TEST

static void *cancel_soon(void *arg)
{
    lh_context_cancel(arg, "by another thread");
    return NULL;
}

START_TEST(a_blocked_call_is_cancelled_by_its_context)
{
    struct lh_context *context = lh_context_create(NULL, LH_FOREVER);
    struct lh_error error;
    struct lh_lease *lease;
    pthread_t thread;

    fake_next(&fake, FAKE_ACQUIRE, FAKE_KEEP, 1, LH_OK);
    ck_assert_int_eq(pthread_create(&thread, NULL, cancel_soon, context), 0);
    ck_assert_int_eq(lh_acquire(declared, "a", &(struct lh_acquire_options){.context = context, .wait_us = LH_FOREVER},
                                &lease, &error),
                     LH_CANCELED);
    ck_assert_ptr_null(lease);
    pthread_join(thread, NULL);
    lh_context_destroy(context);
}
END_TEST

struct fuse {
    enum lh_status status;
    atomic_bool is_done;
};

static void block_inside(void *arg, enum lh_status status, struct lh_lease *lease, const struct lh_error *error)
{
    struct fuse *fuse = arg;
    struct lh_lease *other;

    fuse->status = lh_acquire(declared, "b", NULL, &other, NULL);
    lh_lease_destroy(lease);
    atomic_store(&fuse->is_done, true);
}

START_TEST(blocking_where_it_would_never_end_is_refused)
{
    struct fuse fuse = {0};
    struct lh_client *other;
    struct lh_declared *there;
    struct lh_lease *lease;
    struct lh_error error = {0};

    ck_assert_int_eq(lh_acquire_async(declared, "a", NULL, block_inside, &fuse, NULL, NULL), LH_OK);
    while (!atomic_load(&fuse.is_done))
        sched_yield();
    ck_assert_int_eq(fuse.status, LH_WOULD_BLOCK);
    other = lh_client_create(
        &(struct lh_client_options){.endpoints = fake.target, .event_base = loop->base, .flush_us = -1}, NULL);
    there = lh_declare(other, "x", NULL, NULL);
    ck_assert_int_eq(lh_acquire(there, "a", NULL, &lease, &error), LH_WOULD_BLOCK);
    ck_assert_str_ne(error.message, "");
    atomic_store(&is_stopping, true);
    pthread_join(server_thread, NULL);
    lh_client_destroy(other);
    atomic_store(&is_stopping, false);
    ck_assert_int_eq(pthread_create(&server_thread, NULL, serve, NULL), 0);
}
END_TEST

/* In the child: the number of the first thing that is wrong. */
static int inherited(struct lh_lease *lease)
{
    struct lh_error error = {0};
    struct lh_lease *another;
    struct lh_client_stats stats;

    if (lh_lease_is_held(lease))
        return 1;
    if (lh_acquire(declared, "b", NULL, &another, &error) != LH_CLOSED ||
        strstr(error.message, "before a fork") == NULL)
        return 2;
    if (lh_release(lease, NULL, &error) != LH_CLOSED || lh_heartbeat(lease, NULL, &error) != LH_CLOSED)
        return 3;
    if (lh_declare(threaded, "more", NULL, &error) != NULL)
        return 4;
    lh_client_get_stats(threaded, &stats);
    lh_lease_destroy(lease);
    lh_client_close(threaded, NULL, NULL);
    lh_client_destroy(threaded);
    return 0;
}

/* A forked child has neither the client's thread nor, while another thread had it, the lock. */
START_TEST(a_forked_child_holds_nothing_and_ends)
{
    struct lh_lease *lease;
    pid_t child;
    int status = -1;

    ck_assert_int_eq(lh_acquire(declared, "a", NULL, &lease, NULL), LH_OK);
    pthread_mutex_lock(&threaded->mutex);
    child = fork();
    if (child == 0) {
        alarm(30);
        _exit(inherited(lease));
    }
    pthread_mutex_unlock(&threaded->mutex);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status), "it was ended by signal %d", WTERMSIG(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
    ck_assert(lh_lease_is_held(lease));
    ck_assert_int_eq(lh_release(lease, NULL, NULL), LH_OK);
    lh_lease_destroy(lease);
}
END_TEST

/* Answers later, from the thread that waits for the questions. */
struct question {
    pthread_mutex_t mutex;
    pthread_cond_t asked;
    uint64_t id;
};

static int64_t ask(const struct lh_strategy *strategy, const struct lh_request *request, enum lh_retry_reason reason)
{
    struct question *question = strategy->arg;

    pthread_mutex_lock(&question->mutex);
    question->id = lh_request_id(request);
    pthread_cond_signal(&question->asked);
    pthread_mutex_unlock(&question->mutex);
    return LH_RETRY_DEFER;
}

static void *reply(void *arg)
{
    struct question *question = arg;

    pthread_mutex_lock(&question->mutex);
    while (question->id == 0)
        pthread_cond_wait(&question->asked, &question->mutex);
    pthread_mutex_unlock(&question->mutex);
    lh_retry_decide(threaded, question->id, 0);
    return NULL;
}

static int64_t never(const struct lh_strategy *strategy, const struct lh_request *request, enum lh_retry_reason reason)
{
    return LH_RETRY_REFUSE;
}

START_TEST(a_strategy_of_the_callers_own_decides_at_once_or_later)
{
    struct question question = {.mutex = PTHREAD_MUTEX_INITIALIZER, .asked = PTHREAD_COND_INITIALIZER};
    struct lh_strategy fail_fast = {.decide = never}, deferring = {.decide = ask, .arg = &question};
    struct lh_lease *lease;
    struct lh_error error;
    pthread_t thread;

    fake_next(&fake, FAKE_ACQUIRE, FAKE_FAIL, 1, LH_DATABASE_UNAVAILABLE);
    ck_assert_int_eq(lh_acquire(declared, "a", &(struct lh_acquire_options){.strategy = &fail_fast}, &lease, &error),
                     LH_DATABASE_UNAVAILABLE);
    ck_assert_str_eq(error.message, "as planned");
    fake_next(&fake, FAKE_ACQUIRE, FAKE_FAIL, 1, LH_DATABASE_UNAVAILABLE);
    ck_assert_int_eq(pthread_create(&thread, NULL, reply, &question), 0);
    ck_assert_int_eq(lh_acquire(declared, "a", &(struct lh_acquire_options){.strategy = &deferring}, &lease, &error),
                     LH_OK);
    pthread_join(thread, NULL);
    lh_lease_destroy(lease);
}
END_TEST

START_TEST(misuse_is_a_status_with_words)
{
    struct lh_error error = {0};
    struct lh_lease *lease = (void *)&error;

    ck_assert_int_eq(lh_acquire(NULL, "a", NULL, &lease, &error), LH_INVALID_ARGUMENT);
    ck_assert_str_ne(error.message, "");
    ck_assert_int_eq(lh_acquire(declared, NULL, NULL, &lease, &error), LH_INVALID_ARGUMENT);
    ck_assert_ptr_null(lease);
    ck_assert_str_eq(error.field, "key");
    ck_assert_int_eq(lh_acquire(declared, "", NULL, &lease, &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_acquire(declared, "a\xff", NULL, &lease, &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_acquire(declared, "a", NULL, NULL, &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_acquire(declared, "a", &(struct lh_acquire_options){.wait_us = -1}, &lease, &error),
                     LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_release(NULL, NULL, &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_heartbeat(NULL, NULL, &error), LH_INVALID_ARGUMENT);
    ck_assert_int_eq(lh_try_release(NULL, NULL), LH_INVALID_ARGUMENT);
    ck_assert_ptr_null(lh_declare(NULL, "a", NULL, &error));
    ck_assert_ptr_null(lh_declare(threaded, NULL, NULL, &error));
    ck_assert_ptr_null(lh_declare(threaded, "a", &(struct lh_declare_options){.duration_us = 99999}, &error));
    ck_assert_ptr_null(lh_declare(threaded, "a", &(struct lh_declare_options){.duration_us = INT64_MAX}, &error));
    ck_assert_str_eq(error.field, "duration_us");
    ck_assert_str_eq(error.message, "duration_us must be at most 365 days, is 292471 years or more");
    ck_assert_ptr_null(lh_client_create(&(struct lh_client_options){.endpoints = "127.0.0.1:7420,,"}, &error));
    ck_assert_ptr_null(lh_client_create(&(struct lh_client_options){.timeout_us = -1}, &error));
    ck_assert(!lh_lease_is_held(NULL));
    ck_assert_int_eq(lh_lease_token(NULL), 0);
    ck_assert_str_eq(lh_lease_scope_key(NULL), "");
    ck_assert_ptr_null(lh_lease_context(NULL));
    lh_lease_destroy(NULL);
    lh_client_destroy(NULL);
    lh_client_close(NULL, NULL, NULL);
    lh_cancel(NULL);
}
END_TEST

TCase *tcase_client_blocking(void)
{
    TCase *tcase = tcase_create("blocking");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, many_threads_do_everything_at_once);
    tcase_add_test(tcase, a_blocked_call_is_cancelled_by_its_context);
    tcase_add_test(tcase, blocking_where_it_would_never_end_is_refused);
    tcase_add_test(tcase, a_strategy_of_the_callers_own_decides_at_once_or_later);
    tcase_add_test(tcase, a_forked_child_holds_nothing_and_ends);
    tcase_add_test(tcase, misuse_is_a_status_with_words);
    return tcase;
}
