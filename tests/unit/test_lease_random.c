/*
 * Random interleavings of several coordinators on one fake database. Each seed is one history: arrivals, cancels,
 * repeats with the same lease key, heartbeats, releases, holders that die, rows that are busy, replies and
 * notifications that get lost, outages, coordinators that stop or are killed; in some, hooks that come and go, refuse,
 * take their time, or break their connection. Checked at every step: one holder (promise 1), tokens that grow (promise 2),
 * no request answered twice or inside a call, first come first served (promise 6), no live waiter forgotten while its
 * scope is free, nobody granted a scope that rests; of shared leases: none beside an exclusive one, no more units than the
 * capacity, no slot twice, and nobody granted in another mode than asked for; of requests for several scopes: all or none, and
 * none that stands in a free scope is forgotten while all of its scopes are; and at the end: every request answered, nothing left.
 *
 * LH_SEED=n replays one seed (LH_TRACE=1: with what the core did), LH_SEEDS=n runs that many, LH_FIRST=n begins with that one.
 */
#include <check.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/log.h"
#include "random_history.h"
#include "run_tests.h"

struct history t;

void fake_fail(const char *format, ...)
{
    va_list args;
    fprintf(stderr, "seed %llu at %.6f s: ", (unsigned long long)t.seed,
            (double)(t.world.now_us - 1000 * LH_US_PER_S) / 1e6);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\n");
    abort();
}

struct fake_node *any_node(void)
{
    struct fake_node *found = NULL;
    int seen = 0;
    for (int i = 0; i < t.world.node_count; i++) {
        struct fake_node *node = t.world.nodes[i];
        if (!node->is_gone && !node->is_leaving && fake_below(&t.world, ++seen) == 0)
            found = node;
    }
    return found;
}

struct call *any_open_call(void)
{
    struct call *found = NULL;
    int seen = 0;
    for (int i = t.call_count - 1; i >= 0 && i > t.call_count - 100; i--) {
        struct call *call = &t.calls[i];
        if (call->answers == 0 && !call->is_lost && !call->is_cancelled && fake_below(&t.world, ++seen) == 0)
            found = call;
    }
    return found;
}

struct hold *find_hold(int scope, const struct lh_uuid *lease_key)
{
    for (int i = t.hold_count - 1; i >= 0; i--) {
        if (t.holds[i].scope == scope && lh_uuid_equal(&t.holds[i].lease_key, lease_key))
            return &t.holds[i];
    }
    return NULL;
}

static void run(int64_t duration_us)
{
    int64_t until_us = t.world.now_us + duration_us;
    while (fake_step(&t.world, until_us)) {
        check_stalls();
        check_now_and_then();
    }
    check_stalls();
}

static void heal(void)
{
    t.is_healing = true;
    t.world.fail_with = LH_OK;
    t.world.hook_reject_percent = t.world.hook_break_percent = 0;
    t.world.notify_loss_percent = t.is_strict ? 0 : 20;
    fake_database_raise(&t.world);
    for (int s = 0; s < SCOPES; s++)
        t.world.scopes[s].busy_until_us = t.world.now_us;
    for (int i = 0; i < 400 && t.open > 0; i++)
        run(LH_US_PER_S);
    for (int i = 0; i < t.call_count; i++) {
        if (t.calls[i].answers == 0 && !t.calls[i].is_lost)
            fake_fail("call %d on k%d was never answered: wait %d, state %d", i, t.calls[i].scope,
                      t.calls[i].acquire.wait, (int)t.calls[i].acquire.own.verdict);
    }
    if (t.open != 0)
        fake_fail("%d heartbeats or releases were never answered", t.open);
}

static void stop_all(void)
{
    for (int i = 0; i < t.world.node_count; i++) {
        struct fake_node *node = t.world.nodes[i];
        if (!node->is_gone && !node->is_leaving) {
            node->is_leaving = true;
            fake_node_stop(node);
        }
    }
    run(20 * LH_US_PER_S);
    for (int i = 0; i < t.world.node_count; i++) {
        if (!t.world.nodes[i]->has_stopped && t.world.nodes[i]->coordinator != NULL)
            fake_fail("node %d did not stop", i);
    }
    for (int i = 0; i < t.call_count; i++) {
        if (t.calls[i].answers == 0 && !t.calls[i].is_lost)
            fake_fail("call %d was not answered at the stop", i);
    }
    if (t.open != 0)
        fake_fail("%d requests were not answered at the stop", t.open);
}

static void play(uint64_t seed)
{
    memset(&t, 0, sizeof(t));
    t.seed = seed;
    t.calls = lh_alloc_zero(CALLS_MAX, sizeof(t.calls[0]));
    t.holds = lh_alloc_zero(HOLDS_MAX, sizeof(t.holds[0]));
    fake_world_init(&t.world, seed);
    struct fake_world *world = &t.world;

    t.has_faults = seed % 2 == 0;
    t.is_strict = seed % 4 == 1;
    world->slow_poll_helps = !t.is_strict;
    world->notify_loss_percent = t.is_strict ? 0 : fake_below(world, 30);
    world->min_delay_us = 50;
    world->worth_a_batch = seed % 13 < 6 ? 24 : 3;
    world->max_delay_us = (1 + fake_below(world, 10)) * LH_US_PER_MS;
    t.has_hooks = seed % 3 == 0;
    world->is_hooked = t.has_hooks;
    world->hook_reject_percent = fake_below(world, 3) * 10;
    world->hook_break_percent = t.has_faults ? fake_below(world, 3) * 5 : 0;
    world->hook_us = (1 + fake_below(world, 10)) * LH_US_PER_MS;
    world->hook_timeout_us = LH_US_PER_S;
    t.has_rests = seed % 5 == 0;
    world->at_least_us = LH_US_PER_S;
    t.has_modes = seed % 7 < 5;
    t.has_together = seed % 11 < 6;
    for (int s = 0; s < SCOPES && t.has_modes; s++)
        world->scopes[s].capacity = t.capacity[s] = fake_below(world, 6);
    lh_coordinator_options_init(&t.options);
    t.options.max_block_us = fake_below(world, 2) == 0 ? 0 : 700 * LH_US_PER_MS;
    t.options.batch_max = (size_t)(1 + fake_below(world, 8));
    for (int i = 1 + fake_below(world, 3); i > 0; i--)
        fake_node_start(world, &t.options);

    for (int i = 0; i < 150; i++) {
        act();
        note_health();
        check_stalls();
        if (fake_below(world, 3) > 0)
            run(fake_below(world, 20) == 0 ? fake_below(world, 2000) * LH_US_PER_MS : fake_below(world, 30000));
    }
    if (fake_below(world, 4) > 0)
        heal(); /* else: stop in the middle of it all */
    t.is_healing = true;
    stop_all();

    for (int i = 0; i < t.call_count; i++)
        free(t.calls[i].owner);
    fake_world_finish(world);
    free(t.calls);
    free(t.holds);
}

START_TEST(random_histories_keep_the_promises)
{
    const char *one = getenv("LH_SEED");
    const char *many = getenv("LH_SEEDS");
    if (one != NULL) {
        if (getenv("LH_TRACE") != NULL)
            lh_log_set_level(LH_LOG_DEBUG);
        play(strtoull(one, NULL, 10));
        return;
    }
    const char *first = getenv("LH_FIRST");
    uint64_t seed = first != NULL ? strtoull(first, NULL, 10) : 1;
    uint64_t count = many != NULL ? strtoull(many, NULL, 10) : 2000;
    for (uint64_t last = seed + count; seed < last; seed++)
        play(seed);
    play(10505); /* newcomers to a scope that rested do not put off its first waiter */
    play(2638);  /* a scope that is free for another coordinator's waiter is asked for again without a wake-up */
    play(8021);  /* those behind one that waits for another scope are asked for */
    play(29285); /* the same, where the scope is shared */
    play(2417);  /* who has a new place behind others wakes them */
}
END_TEST

int main(void)
{
    lh_log_set_level(LH_LOG_ERROR);
    Suite *suite = suite_create("lease, random histories");
    TCase *tcase = tcase_create("random");
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, random_histories_keep_the_promises);
    suite_add_tcase(suite, tcase);
    return run_tests(suite, CK_FORK_GETENV);
}
