/*
 * Plays histories. LH_SEED=n replays one (LH_TRACE=1: and prints what happens), LH_SEEDS=n plays so many, LH_FIRST=n begins
 * with that one; tests/simulation/run plays many on all processors.
 *
 * Checked all the time: no worker believes to hold what the database has given away, tokens grow and are the database's,
 * every request is answered once, no lease is lost while nothing goes wrong, and no scope stays free while somebody waits for
 * it. At the end, when nothing breaks any more: every worker that waits gets its turn, and no lease and no place is left.
 *
 * Half of the histories are gentle: nobody ends, so that no lease is left to expire, and one that nobody has is seen. Half of
 * these are strict: no poll of the database makes good a wake-up that was forgotten.
 *
 * A message arrives twice where its sender repeats it; TCP hands none over twice.
 *
 * Not played: priorities, requests to hand over, watches, several databases, max_hold, batches other than acquires that are
 * committed seconds after their connection was lost, and the ticks of schedules, which are rows that SQL alone decides
 * about. The rules of the database are those of tests/unit/fake_rules.h.
 */
#include <check.h>
#include <event2/event.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "../unit/fake_scope.h"
#include "../unit/run_tests.h"
#include "base/log.h"
#include "base/table.h"
#include "simulation.h"

#define PROCESSES_MAX (DAEMONS_MAX + WORKERS_MAX)
#define TROUBLE_US (20 * LH_US_PER_S)
#define CALM_US (120 * LH_US_PER_S)
#define STRICT_STALL_US (3 * LH_US_PER_S)
#define ENOUGH_TO_JUDGE 20            /* histories; they have 30 grants each */
#define EXPIRED_US (20 * LH_US_PER_S) /* the longest wait for what a dead holder has left */

struct simulation sim;

static struct process *processes[PROCESSES_MAX];
static bool is_printed;

void fake_fail(const char *format, ...)
{
    va_list args;

    fprintf(stderr, "seed %llu at %.6f s: ", (unsigned long long)sim.seed,
            (double)(sim.world.now_us - 1000 * LH_US_PER_S) / 1e6);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\n");
    abort();
}

int below(int n)
{
    return fake_below(&sim.world, n);
}

bool chance(int percent)
{
    return below(100) < percent;
}

int64_t ms_below(int n)
{
    return below(n * 1000);
}

void note(const char *what, int64_t a, int64_t b)
{
    for (const char *c = what; *c != '\0'; c++)
        sim.trace = (sim.trace ^ (unsigned char)*c) * UINT64_C(1099511628211);
    sim.trace = (sim.trace ^ (uint64_t)sim.world.now_us) * UINT64_C(1099511628211);
    sim.trace = (sim.trace ^ (uint64_t)(a * 1000003 + b)) * UINT64_C(1099511628211);
    if (is_printed)
        printf("%10.6f %s %lld %lld\n", (double)(sim.world.now_us - 1000 * LH_US_PER_S) / 1e6, what, (long long)a,
               (long long)b);
}

/* An assertion, or worse. */
static void on_signal(int number)
{
    fprintf(stderr, "seed %llu ends by signal %d\n", (unsigned long long)sim.seed, number);
    signal(number, SIG_DFL);
    raise(number);
}

/* LeakSanitizer asks: what a killed daemon had is not given back. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return 1;
}

/* --- the clock: everybody's is the world's --- */

int64_t __wrap_lh_clock_us(void);
int64_t __wrap_lh_clock_us(void)
{
    return sim.world.now_us;
}

/* Different each time, as lease keys have to be, and the same in each run. */
ssize_t __wrap_getrandom(void *buffer, size_t size, unsigned flags);
ssize_t __wrap_getrandom(void *buffer, size_t size, unsigned flags)
{
    memset(buffer, 0, size);
    sim.drawn++;
    memcpy(buffer, &sim.drawn, size < sizeof(sim.drawn) ? size : sizeof(sim.drawn));
    return (ssize_t)size;
}

/* --- processes --- */

void process_start(struct process *process)
{
    int i = 0;

    *process = (struct process){0};
    sim.starting = process;
    process->loop = lh_loop_create();
    while (processes[i] != NULL)
        i++;
    processes[i] = process;
}

void process_end(struct process *process)
{
    for (int i = 0; i < PROCESSES_MAX; i++)
        if (processes[i] == process)
            processes[i] = NULL;
    lh_loop_destroy(process->loop);
    *process = (struct process){0};
}

bool process_is_stopped(const struct process *process)
{
    return process->stopped_until_us > sim.world.now_us;
}

static void on_continued(struct fake_world *world, void *arg, uint64_t n)
{
}

/* What has come for it in a stop is held until the end of that: a second stop does not shorten it. */
void process_stop_until(struct process *process, int64_t until_us)
{
    if (process->stopped_until_us < until_us)
        process->stopped_until_us = until_us;
    fake_at(&sim.world, until_us, on_continued, NULL, 0);
    sim.seen.stops++;
}

/* Something to read, to run, or a timer to set. */
static bool has_work(const struct process *process)
{
    struct lh_loop *loop = process->loop;

    return process->is_ready || !lh_list_is_empty(&loop->deferred) || loop->is_behind ||
           lh_heap_next_us(&loop->timers) < loop->clock_at_us ||
           event_base_get_num_events(loop->base, EVENT_BASE_COUNT_ACTIVE) > 0;
}

/* One turn of each that has something to do. Returns false if none had. */
static bool turn_all(void)
{
    bool is_any = false;

    for (int i = 0; i < PROCESSES_MAX; i++) {
        struct process *process = processes[i];
        if (process == NULL || process_is_stopped(process) || !has_work(process))
            continue;
        lh_loop_run_once(process->loop, 0);
        is_any = true;
    }
    return is_any;
}

void run_until_us(int64_t until_us)
{
    do {
        while (turn_all())
            workers_check();
        fake_check_stalls(&sim.world, SCOPES, sim.is_strict ? STRICT_STALL_US : 0, daemon_is_well);
        sim.seen.steps++;
    } while (fake_step(&sim.world, until_us));
}

/* --- fate --- */

static void on_database_back(struct fake_world *world, void *arg, uint64_t n)
{
    fake_database_raise(world);
}

/* By a DBA in SQL. */
static void force_release(int number)
{
    struct fake_scope *scope = &sim.world.scopes[number];

    note("force-release", number, (int64_t)scope->share_count);
    if (scope->is_held)
        fake_end(&sim.world, scope, scope, LH_END_FORCED);
    while (scope->share_count > 0)
        fake_end(&sim.world, scope, &scope->shares[0], LH_END_FORCED);
    fake_wake_head(&sim.world, -1, scope);
}

static void trouble(int64_t until_us)
{
    if (until_us > sim.trouble_until_us)
        sim.trouble_until_us = until_us;
}

static void on_lane_back(struct fake_world *world, void *node, uint64_t lane)
{
    fake_lane_raise(node, (unsigned)lane);
}

static void on_control_back(struct fake_world *world, void *node, uint64_t n)
{
    fake_control_raise(node);
}

static void on_listener_back(struct fake_world *world, void *node, uint64_t n)
{
    fake_listener_raise(node);
}

/* One of its connections to the database. */
static void break_connection(struct fake_node *node, int64_t until_us)
{
    struct fake_world *world = &sim.world;
    unsigned lane = (unsigned)below(FAKE_ALL_LANES + 2);

    if (node == NULL || sim.is_strict)
        return;
    note("a connection to the database is gone", node->index, lane);
    if (lane < FAKE_ALL_LANES) {
        fake_lane_drop(node, lane, chance(50));
        fake_at(world, until_us, on_lane_back, node, lane);
    } else if (lane == FAKE_ALL_LANES) {
        fake_control_drop(node);
        fake_at(world, until_us, on_control_back, node, 0);
    } else {
        fake_listener_drop(node);
        fake_at(world, until_us, on_listener_back, node, 0);
    }
}

static void on_failure_over(struct fake_world *world, void *arg, uint64_t n)
{
    world->fail_with = LH_OK;
}

/* It comes back; after a failover without the last places in its queues. */
static void drop_database(int64_t until_us)
{
    int lost = chance(30) ? 1 + below(100) : 0;

    note("the database is gone", until_us, lost);
    fake_database_drop(&sim.world);
    if (lost > 0)
        fake_rows_lose(&sim.world, lost);
    fake_at(&sim.world, until_us, on_database_back, NULL, 0);
}

static void on_stall_again(struct fake_world *world, void *arg, uint64_t pair)
{
    int64_t until_us = world->now_us + ms_below(9000);

    if (sim.is_calm)
        return;
    note("stall again", (int64_t)pair, until_us);
    network_stall((int)pair / DAEMONS_MAX, (int)pair % DAEMONS_MAX, WAYS_BOTH, until_us);
    trouble(until_us);
}

static void strike_network(int worker, int number, int64_t until_us)
{
    switch (below(5)) {
    case 0:
    case 1:
        note("cut", worker, number);
        network_cut(worker, number);
        break;
    case 2:
    case 3:
        note("stall", worker, number);
        network_stall(worker, number, 1u + (unsigned)below(3), until_us);
        if (chance(30)) /* a request comes then, and its cancel is held for seconds more */
            fake_at(&sim.world, sim.world.now_us + ms_below(1500), on_stall_again, NULL,
                    (uint64_t)(worker * DAEMONS_MAX + number));
        break;
    default:
        note("a worker is alone", worker, 0);
        for (int d = 0; d < sim.daemons; d++)
            network_stall(worker, d, WAYS_BOTH, until_us);
        return;
    }
    sim.seen.cuts++;
}

/* Nothing of it leaves a lease to expire. */
static void strike_gently(int worker, int number, int64_t until_us)
{
    struct fake_scope *scope = &sim.world.scopes[below(SCOPES)];

    switch (below(6)) {
    case 0:
        note("worker stops", worker, until_us);
        worker_pause(worker, until_us);
        break;
    case 1:
        note("daemon stops", number, until_us);
        daemon_pause(number, until_us);
        break;
    case 2:
        note("the database's clock steps", 0, 0);
        sim.world.clock_offset_us += (below(2) == 0 ? 1 : -1) * ms_below(90000);
        break;
    case 3:
        force_release(below(SCOPES));
        break;
    case 4:
        scope->busy_until_us = sim.world.now_us + ms_below(chance(20) ? 1500 : 80);
        note("a row is busy", scope - sim.world.scopes, scope->busy_until_us);
        break;
    default:
        break_connection(daemon_node(number), until_us);
        break;
    }
}

static void strike_hard(int worker, int number, int64_t until_us)
{
    switch (below(6)) {
    case 0:
        worker_kill(worker);
        break;
    case 1:
        worker_close(worker);
        break;
    case 2:
        daemon_kill(number);
        break;
    case 3:
        daemon_stop(number);
        break;
    case 4:
        drop_database(until_us);
        break;
    default:
        note("the database fails", 0, 0);
        sim.world.fail_with = chance(50) ? LH_INTERNAL : LH_OVERLOADED;
        sim.has_failed = true;
        fake_at(&sim.world, sim.world.now_us + ms_below(400), on_failure_over, NULL, 0);
        break;
    }
}

static void strike(void)
{
    int worker = below(sim.workers), number = below(sim.daemons);
    int64_t until_us = sim.world.now_us + ms_below(chance(20) ? 9000 : 1500);
    int dice = below(sim.is_gentle ? 10 : 14);

    if (dice < 5)
        strike_network(worker, number, until_us);
    else if (dice < 10)
        strike_gently(worker, number, until_us);
    else
        strike_hard(worker, number, until_us);
    trouble(until_us);
}

static int64_t held_until_us(const void *node)
{
    return node == NULL ? 0 : daemon_stopped_until_us(node);
}

/* One that refuses leaves a lease to expire: a release, or a repeat of what was granted when the connection broke. */
static void hook(void)
{
    sim.world.is_hooked = true;
    sim.world.hook_reject_percent = sim.is_gentle ? 0 : below(3) * 10;
    sim.world.hook_break_percent = below(3) * 5;
    sim.world.hook_us = (1 + below(10)) * LH_US_PER_MS;
    sim.world.hook_timeout_us = LH_US_PER_S;
}

static void begin(uint64_t seed)
{
    memset(&sim, 0, sizeof(sim));
    sim.seed = seed;
    fake_world_init(&sim.world, seed);
    sim.world.held_until_us = held_until_us;
    sim.world.min_delay_us = 50;
    sim.world.max_delay_us = (1 + below(20)) * LH_US_PER_MS;
    sim.is_gentle = seed % 2 == 0;
    sim.is_strict = seed % 4 == 0;
    sim.anger = 15 + 27 * below(3);
    sim.world.slow_poll_helps = !sim.is_strict;
    sim.world.notify_loss_percent = sim.is_strict ? 0 : below(30);
    sim.world.notify_twice_percent = below(20);
    sim.world.reply_loss_percent = sim.is_strict || chance(30) ? 1 + below(5) : 0;
    /* It may leave a lease to expire. */
    sim.world.late_commit_percent = !sim.is_gentle && chance(30) ? 1 + below(5) : 0;
    for (int s = 0; s < SCOPES; s++)
        sim.world.scopes[s].capacity = below(4);
    if (seed % 5 == 0)
        hook();
    sim.daemons = 1 + below(DAEMONS_MAX);
    sim.workers = 1 + below(WORKERS_MAX);
    sim.window = chance(25) ? (size_t)(100 + below(1000)) : 65536;
    for (int d = 0; d < sim.daemons; d++)
        daemon_start(d);
    for (int w = 0; w < sim.workers; w++)
        worker_start(w);
}

static void check_that_nothing_is_left(void)
{
    for (int s = 0; s < SCOPES; s++) {
        const struct fake_scope *scope = &sim.world.scopes[s];
        if (fake_head(&sim.world, scope) != NULL)
            fake_fail("k%d has a live waiter, and nobody knows", s);
        if (!fake_is_ended(&sim.world, scope))
            fake_fail("k%d is held, and nobody knows", s);
    }
}

static void print_queues(void)
{
    for (int s = 0; s < SCOPES; s++) {
        const struct fake_scope *scope = &sim.world.scopes[s];
        fprintf(stderr, "k%d: %s %d, %zu shared holders, capacity %d\n", s, scope->is_held ? "held by" : "free",
                scope->lease_key.bytes[0], scope->share_count, (int)scope->capacity);
        for (size_t i = 0; i < scope->row_count; i++) {
            const struct fake_row *row = &scope->rows[i];
            fprintf(stderr, "    ticket %lld, daemon %d, lease key %d, %s, %s\n", (long long)row->ticket, row->node,
                    row->lease_key.bytes[0], row->units > 0 ? "shared" : "exclusive",
                    row->away_until_us > 0 ? "away" : "there");
        }
    }
}

static void play(uint64_t seed)
{
    int64_t until_us;

    begin(seed);
    until_us = sim.world.now_us + TROUBLE_US;
    while (sim.world.now_us < until_us) {
        if (chance(sim.anger))
            strike();
        run_until_us(sim.world.now_us + ms_below(1000));
    }
    sim.is_calm = true;
    sim.world.fail_with = LH_OK;
    sim.world.hook_reject_percent = sim.world.hook_break_percent = sim.world.reply_loss_percent = 0;
    sim.world.late_commit_percent = 0;
    note("calm", 0, 0);
    network_calm();
    for (int d = 0; d < sim.daemons; d++)
        daemon_start(d);
    until_us = sim.world.now_us + CALM_US;
    while (!workers_are_done() && sim.world.now_us < until_us)
        run_until_us(sim.world.now_us + LH_US_PER_S);
    if (!workers_are_done()) {
        print_queues();
        fake_fail("a worker still waits, and nothing is in its way");
    }
    run_until_us(sim.world.now_us + EXPIRED_US);
    check_that_nothing_is_left();
    workers_end();
    daemons_end();
    network_end();
    fake_world_finish(&sim.world);
}

static void print(uint64_t seed)
{
    printf("seed %llu: %016llx, %llu steps, %llu grants (%llu of several), %llu refusals, %llu losses (%llu forced), "
           "%llu cuts, %llu stops, %llu kills, %llu closes\n",
           (unsigned long long)seed, (unsigned long long)sim.trace, (unsigned long long)sim.seen.steps,
           (unsigned long long)sim.seen.grants, (unsigned long long)sim.seen.together,
           (unsigned long long)sim.seen.refusals, (unsigned long long)sim.seen.losses,
           (unsigned long long)sim.seen.forced, (unsigned long long)sim.seen.cuts, (unsigned long long)sim.seen.stops,
           (unsigned long long)sim.seen.kills, (unsigned long long)sim.seen.closes);
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

START_TEST(histories_keep_the_promises)
{
    uint64_t one = number_of("LH_SEED", 0);
    uint64_t first = one > 0 ? one : number_of("LH_FIRST", 1);
    uint64_t count = one > 0 ? 1 : number_of("LH_SEEDS", 200);
    uint64_t grants = 0;

    is_printed = getenv("LH_TRACE") != NULL;
    lh_hash("", 0, 0); /* its secret is drawn once in a process, and not in the first history */
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (uint64_t seed = first; seed < first + count; seed++) {
        play(seed);
        grants += sim.seen.grants;
        if (is_printed || one > 0)
            print(seed);
    }
    /* Histories in which nothing is granted keep every promise: link-time optimization loses the wraps of the clock, for one. */
    ck_assert_msg(count < ENOUGH_TO_JUDGE || grants > count, "%llu grants in %llu histories",
                  (unsigned long long)grants, (unsigned long long)count);
}
END_TEST

START_TEST(a_seed_gives_the_same_history)
{
    uint64_t trace;

    lh_hash("", 0, 0); /* as above */
    play(7);
    trace = sim.trace;
    play(7);
    ck_assert_uint_eq(sim.trace, trace);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("simulation");
    TCase *tcase = tcase_create("simulation");

    lh_log_set_level(getenv("LH_TRACE") != NULL ? LH_LOG_DEBUG : LH_LOG_ERROR);
    signal(SIGSEGV, on_signal);
    signal(SIGABRT, on_signal);
    tcase_set_timeout(tcase, 0);
    tcase_add_test(tcase, histories_keep_the_promises);
    tcase_add_test(tcase, a_seed_gives_the_same_history);
    suite_add_tcase(suite, tcase);
    return run_tests(suite, CK_FORK_GETENV);
}
