#include "lease_fixture.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/log.h"
#include "run_tests.h"

struct fake_world world;
struct lh_coordinator_options options;

void fake_fail(const char *format, ...)
{
    char message[256];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    ck_abort_msg("%s", message);
    abort();
}

void fixture_setup(void)
{
    fake_world_init(&world, 1);
    lh_coordinator_options_init(&options);
}

void fixture_teardown(void)
{
    fake_world_finish(&world);
}

struct fake_node *start_node(void)
{
    struct fake_node *node = fake_node_start(&world, &options);
    fake_run(&world, MS(10));
    return node;
}

struct fake_node *start_hooked_node(void)
{
    world.is_hooked = true;
    world.hook_timeout_us = MS(1000);
    return start_node();
}

struct lh_coordinator_stats stats_of(const struct fake_node *node)
{
    struct lh_coordinator_stats stats;
    lh_coordinator_stats(node->coordinator, &stats);
    return stats;
}

static void drop_all(struct fake_node *node, bool commits)
{
    for (unsigned i = 0; i < FAKE_LANES; i++)
        fake_lane_drop(node, i, commits);
}

void drop_lanes(struct fake_node *node)
{
    drop_all(node, false);
}

void lose_replies(struct fake_node *node)
{
    fake_run(&world, 100);
    drop_all(node, true);
}

void raise_lanes(struct fake_node *node)
{
    for (unsigned i = 0; i < FAKE_LANES; i++)
        fake_lane_raise(node, i);
}

struct lh_uuid key_of(int lease_key)
{
    struct lh_uuid uuid = {{0}};
    uuid.bytes[0] = (uint8_t)lease_key;
    uuid.bytes[1] = (uint8_t)(lease_key >> 8);
    uuid.bytes[15] = 1;
    return uuid;
}

const struct fake_row *row_of(int scope, int lease_key)
{
    struct lh_uuid uuid = key_of(lease_key);
    return fake_row(&world.scopes[scope], &uuid);
}

static void on_acquired(struct lh_acquire *acquire, const struct lh_acquire_result *result)
{
    struct ask *ask = acquire->arg;
    ask->answers++;
    ck_assert_int_eq(ask->answers, 1);
    ask->status = result->status;
    ask->answered_us = world.now_us;
    ask->waited_us = result->waited_us;
    ask->is_renewal = result->is_renewal;
    ask->has_all = result->all != NULL;
    ck_assert((result->lease != NULL) == (result->status == LH_OK));
    if (result->lease != NULL)
        ask->token = result->lease->token;
    ask->has_contention = result->contention != NULL;
    if (result->contention != NULL) {
        ask->has_holder = result->contention->has_holder;
        ask->waiters_ahead = result->contention->waiters_ahead;
        ask->rests_us = result->contention->rests_us;
    }
    if (result->message != NULL)
        snprintf(ask->message, sizeof(ask->message), "%s", result->message);
    if (ask->then != NULL)
        ask->then(ask);
}

void ask_init(struct ask *ask, int scope, int lease_key, enum lh_wait wait, int64_t wait_us)
{
    memset(ask, 0, sizeof(*ask));
    ask->acquire = (struct lh_acquire){
        .ns = world.scopes[scope].ns,
        .key = world.scopes[scope].key,
        .lease_key = key_of(lease_key),
        .terms.owner = "worker",
        .terms.principal = "token:worker",
        .terms.labels = "{}",
        .terms.duration_us = MS(10000),
        .wait = wait,
        .wait_us = wait_us,
        .on_done = on_acquired,
        .arg = ask,
    };
}

void ask_send(struct fake_node *node, struct ask *ask)
{
    ck_assert_int_eq(lh_coordinator_acquire(node->coordinator, &ask->acquire), LH_OK);
    ck_assert_int_eq(ask->answers, 0); /* never before the call returned */
}

void ask_for(struct fake_node *node, struct ask *ask, int scope, int lease_key, enum lh_wait wait, int64_t wait_us)
{
    ask_init(ask, scope, lease_key, wait, wait_us);
    ask_send(node, ask);
}

void hold_now(struct fake_node *node, struct ask *ask, int scope, int lease_key)
{
    ask_for(node, ask, scope, lease_key, LH_WAIT_NONE, 0);
    fake_run(&world, MS(5));
    ck_assert_int_eq(ask->answers, 1);
    ck_assert_int_eq(ask->status, LH_OK);
}

void hold_and_queue(struct fake_node *node, struct ask *holder, struct ask *waiter)
{
    hold_now(node, holder, 0, 1);
    ask_for(node, waiter, 0, 2, LH_WAIT_TIME, MS(9000));
    fake_run(&world, MS(5));
    ck_assert_int_eq(waiter->answers, 0);
    ck_assert_ptr_nonnull(row_of(0, 2));
}

static void on_beaten(struct lh_holder_request *request)
{
    struct beat *beat = request->arg;
    beat->answers++;
    ck_assert_int_eq(beat->answers, 1);
    beat->answered_us = world.now_us;
    if (request->count == 0)
        return;
    beat->outcome = beat->items[0].item.outcome;
    if (beat->items[0].item.message != NULL)
        snprintf(beat->message, sizeof(beat->message), "%s", beat->items[0].item.message);
}

void beat_send(struct fake_node *node, struct beat *beat, int scope, int lease_key)
{
    memset(beat, 0, sizeof(*beat));
    beat->items[0].item = (struct lh_holder_item){
        .ns = world.scopes[scope].ns, .key = world.scopes[scope].key, .lease_key = key_of(lease_key)};
    beat->request = (struct lh_holder_request){.items = beat->items, .count = 1, .on_done = on_beaten, .arg = beat};
    ck_assert_int_eq(lh_coordinator_heartbeat(node->coordinator, &beat->request), LH_OK);
    ck_assert_int_eq(beat->answers, 0);
}

static void on_given(struct lh_holder_request *request)
{
    struct give *give = request->arg;
    give->answers++;
    ck_assert_int_eq(give->answers, 1);
    give->answered_us = world.now_us;
    give->outcome = give->items[0].item.outcome;
}

void give_send(struct fake_node *node, struct give *give, int scope, int lease_key)
{
    memset(give, 0, sizeof(*give));
    give->items[0].item = (struct lh_holder_item){
        .ns = world.scopes[scope].ns, .key = world.scopes[scope].key, .lease_key = key_of(lease_key)};
    give->request = (struct lh_holder_request){.items = give->items, .count = 1, .on_done = on_given, .arg = give};
    ck_assert_int_eq(lh_coordinator_release(node->coordinator, &give->request), LH_OK);
    ck_assert_int_eq(give->answers, 0);
}

int run_suite(const char *name, void (*add)(TCase *tcase))
{
    lh_log_set_level(getenv("LH_TRACE") != NULL ? LH_LOG_DEBUG : LH_LOG_ERROR);
    Suite *suite = suite_create(name);
    TCase *tcase = tcase_create(name);
    tcase_add_checked_fixture(tcase, fixture_setup, fixture_teardown);
    add(tcase);
    suite_add_tcase(suite, tcase);
    return run_tests(suite, CK_FORK_GETENV);
}
