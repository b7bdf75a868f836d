#include "client_fixture.h"

#include <stdio.h>
#include <stdlib.h>

struct lh_loop *loop;
struct fake fake;
struct lh_client *client;
struct lh_declared *declared;
struct loss loss;

size_t test_client_error_bytes(void);
size_t test_client_error_bytes(void)
{
    return sizeof(struct lh_error);
}

static void on_lost(void *arg, struct lh_lease *lease, enum lh_lost_reason reason, const char *words)
{
    loss.count++;
    loss.reason = reason;
    snprintf(loss.words, sizeof(loss.words), "%s", words);
    loss.remaining_us = lh_lease_remaining_us(lease);
    loss.was_cancelled = lh_context_is_cancelled(lh_lease_context(lease));
}

static void nobody(void *arg, enum lh_log_level level, const char *line)
{
}

void client_again(const struct lh_client_options *options)
{
    struct lh_client_options mine = *options;
    struct lh_error error = {0};

    lh_client_destroy(client);
    if (mine.endpoints == NULL)
        mine.endpoints = fake.target;
    mine.event_base = loop->base;
    client = lh_client_create(&mine, &error);
    ck_assert_msg(client != NULL, "%s", error.message);
    client_declare(30 * LH_US_PER_S, 0);
}

void client_declare(int64_t duration_us, int64_t margin_us)
{
    struct lh_declare_options options = {.duration_us = duration_us, .margin_us = margin_us, .on_lost = on_lost};

    declared = lh_declare(client, "test.client", &options, NULL);
    ck_assert_ptr_nonnull(declared);
}

void client_setup(void)
{
    lh_log_set_sink(nobody, NULL);
    virtual_clock_begin();
    loop = lh_loop_create();
    fake_init(&fake, loop);
    client = NULL;
    memset(&loss, 0, sizeof(loss));
    client_again(&(struct lh_client_options){.flush_us = -1});
}

void client_teardown(void)
{
    lh_client_destroy(client);
    fake_finish(&fake);
    lh_loop_destroy(loop);
    virtual_clock_end();
    lh_log_set_sink(NULL, NULL);
}

static void on_acquired(void *arg, enum lh_status status, struct lh_lease *lease, const struct lh_error *error)
{
    struct answer *answer = arg;

    answer->done++;
    answer->status = status;
    answer->lease = lease;
    answer->error = *error;
}

void on_done(void *arg, enum lh_status status, const struct lh_error *error)
{
    on_acquired(arg, status, NULL, error);
}

void acquire(const char *key, const struct lh_acquire_options *options, struct answer *answer)
{
    *answer = (struct answer){0};
    ck_assert_int_eq(lh_acquire_async(declared, key, options, on_acquired, answer, &answer->request, NULL), LH_OK);
    ck_assert_uint_eq(answer->done, 0);
}

struct lh_lease *held(const char *key)
{
    struct answer answer;

    acquire(key, NULL, &answer);
    WAIT_FOR(answer.done == 1);
    ck_assert_msg(answer.status == LH_OK, "%s", answer.error.message);
    return answer.lease;
}

void release(struct lh_lease *lease, struct answer *answer)
{
    *answer = (struct answer){0};
    ck_assert_int_eq(lh_release_async(lease, NULL, on_done, answer, &answer->request, NULL), LH_OK);
}

struct lh_client_stats stats(void)
{
    struct lh_client_stats now;
    lh_client_get_stats(client, &now);
    return now;
}
