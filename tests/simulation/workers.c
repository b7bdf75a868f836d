/*
 * Workers: clients of the library, each with some jobs that want leases, hold them for a while, and give them back, or not.
 * What a worker believes is compared with the database all the time.
 */
#include <stdio.h>
#include <string.h>

#include "leasehold.h"
#include "simulation.h"

#define JOBS 3
#define LONG_US (300 * LH_US_PER_S) /* left to expire, it is there at the end */

enum state { IDLE, WAITING, HOLDING, LOST, RELEASING };

struct job {
    struct worker *worker;
    enum state state;
    int scope;
    struct lh_uuid lease_key;
    enum lh_mode mode;
    struct lh_request *request;
    struct lh_lease *lease;
    struct lh_timer timer;
    bool is_downgrading;
    bool ends;
};

struct worker {
    int number;
    struct process process;
    struct lh_client *client; /* NULL: it was killed */
    struct lh_declared *declared;
    struct job jobs[JOBS];
};

static struct worker workers[WORKERS_MAX];
static int64_t last_token[SCOPES];

static void act_later(struct job *job, int64_t delay_us)
{
    lh_timer_arm_at_us(&job->timer, lh_clock_us() + delay_us);
}

static const struct fake_scope *granted(const struct job *job)
{
    return fake_lease(&sim.world.scopes[job->scope], &job->lease_key);
}

static void check(const struct job *job)
{
    const struct fake_scope *lease;

    if (job->lease == NULL || !lh_lease_is_held(job->lease))
        return;
    lease = granted(job);
    if (lease == NULL || !lease->is_held)
        fake_fail("worker %d believes for %.3f s more that it holds k%d with the token %lld, and the database has "
                  "given it away",
                  job->worker->number, (double)lh_lease_remaining_us(job->lease) / 1e6, job->scope,
                  (long long)lh_lease_token(job->lease));
}

void workers_check(void)
{
    for (int w = 0; w < sim.workers; w++)
        for (int j = 0; j < JOBS && workers[w].client != NULL; j++)
            check(&workers[w].jobs[j]);
}

/* --- what a job is told --- */

static void check_refusal(const struct job *job, enum lh_status status, const struct lh_error *error)
{
    switch (status) {
    case LH_CANCELED:
    case LH_WAIT_TIMEOUT:
    case LH_OVERLOADED:
    case LH_LEASE_HELD:
    case LH_SCOPE_BUSY:
    case LH_BLOCKING_TIMEOUT:
    case LH_DATABASE_UNAVAILABLE:
    case LH_SHUTTING_DOWN:
    case LH_LOST:        /* it was granted, and the answer came too late */
    case LH_LEASE_ENDED: /* the same, and it was asked for again */
    case LH_TIMED_OUT:
    case LH_UNAVAILABLE:
    case LH_CLOSED:
        return;
    default:
        fake_fail("worker %d was told %s for k%d: %s", job->worker->number, lh_status_name(status), job->scope,
                  error->message);
    }
}

static void on_acquired(void *arg, enum lh_status status, struct lh_lease *lease, const struct lh_error *error)
{
    struct job *job = arg;
    int64_t token;
    char text[37];

    if (job->state != WAITING)
        fake_fail("an acquire was answered twice");
    job->request = NULL;
    note(lh_status_name(status), job->worker->number, job->scope);
    if (status != LH_OK) {
        check_refusal(job, status, error);
        sim.seen.refusals++;
        job->state = IDLE;
        act_later(job, ms_below(500));
        return;
    }
    sim.seen.grants++;
    job->lease = lease;
    lh_lease_key(lease, text);
    lh_uuid_parse(text, &job->lease_key);
    job->state = HOLDING;
    token = lh_lease_token(lease);
    check(job);
    if (lh_lease_is_held(lease)) {
        if (job->mode == LH_EXCLUSIVE && token <= last_token[job->scope])
            fake_fail("token %lld of k%d after %lld", (long long)token, job->scope, (long long)last_token[job->scope]);
        if (token > last_token[job->scope])
            last_token[job->scope] = token;
    }
    act_later(job, chance(30) ? ms_below(8000) : ms_below(300));
}

static void on_lost(void *arg, struct lh_lease *lease, enum lh_lost_reason reason, const char *words)
{
    struct job *job = lh_lease_user(lease);

    note(lh_lost_reason_name(reason), job->worker->number, job->scope);
    sim.seen.losses++;
    if (lh_lease_is_held(lease))
        fake_fail("a lost lease of k%d is held", job->scope);
    if (job->state == HOLDING)
        job->state = LOST;
    act_later(job, ms_below(100));
}

static void on_released(void *arg, enum lh_status status, const struct lh_error *error)
{
    struct job *job = arg;

    if (job->state != RELEASING)
        fake_fail("a release was answered twice");
    note("released", job->worker->number, status);
    if (status != LH_OK)
        check_refusal(job, status, error);
    job->request = NULL;
    lh_lease_destroy(job->lease);
    job->lease = NULL;
    job->state = IDLE;
    act_later(job, ms_below(500));
}

static void on_downgraded(void *arg, enum lh_status status, const struct lh_error *error)
{
    struct job *job = arg;

    note("downgraded", job->worker->number, status);
    job->is_downgrading = false;
    if (status != LH_OK)
        check_refusal(job, status, error);
}

/* --- what a job does --- */

static void acquire(struct job *job)
{
    struct lh_acquire_options options = {.user = job, .timeout_us = LH_US_PER_S + ms_below(4000)};
    struct lh_error error;
    char key[8];

    job->scope = below(SCOPES);
    snprintf(key, sizeof(key), "k%d", job->scope);
    options.mode = job->mode = chance(30) ? LH_SHARED : LH_EXCLUSIVE;
    switch (below(4)) {
    case 0:
        break;
    case 1:
        options.wait_us = ms_below(3000);
        break;
    case 2:
        options.wait_while_alive = true;
        break;
    default:
        options.wait_us = LH_FOREVER;
    }
    job->state = WAITING;
    note("acquires", job->worker->number, job->scope);
    if (lh_acquire_async(job->worker->declared, key, &options, on_acquired, job, &job->request, &error) != LH_OK)
        fake_fail("worker %d may not ask for %s: %s", job->worker->number, key, error.message);
    if (chance(15))
        act_later(job, ms_below(1000)); /* to give it up again */
}

static void give_back(struct job *job)
{
    /* A release that waits for its answer gives up after a while; the set of releases does not. */
    if (!sim.is_gentle && (job->state == LOST || chance(60))) {
        job->state = RELEASING;
        if (lh_release_async(job->lease, NULL, on_released, job, &job->request, NULL) == LH_OK)
            return;
        job->request = NULL;
    }
    note("lets go", job->worker->number, job->scope);
    lh_lease_destroy(job->lease); /* as lh_try_release, where it is held */
    job->lease = NULL;
    job->state = IDLE;
    act_later(job, ms_below(500));
}

static void act(void *arg)
{
    struct job *job = arg;

    switch (job->state) {
    case IDLE:
        if (!sim.is_calm)
            acquire(job);
        return;
    case WAITING:
        lh_cancel(job->request);
        return;
    case HOLDING:
        if (job->is_downgrading) {
            act_later(job, 100 * LH_US_PER_MS);
            return;
        }
        if (job->mode == LH_EXCLUSIVE && chance(20)) {
            job->mode = LH_SHARED;
            job->is_downgrading = lh_downgrade_async(job->lease, 1, NULL, on_downgraded, job, NULL, NULL) == LH_OK;
            act_later(job, ms_below(1000));
            return;
        }
        give_back(job);
        return;
    case LOST:
        if (job->is_downgrading)
            act_later(job, 100 * LH_US_PER_MS);
        else
            give_back(job);
        return;
    case RELEASING:
        return;
    }
}

/* --- workers --- */

void worker_start(int number)
{
    struct worker *worker = &workers[number];
    struct lh_client_options options = {.connect_timeout_us = LH_US_PER_S};
    struct lh_declare_options declaration = {.duration_us = (1 + below(3)) * LH_US_PER_S, .on_lost = on_lost};
    struct lh_error error;
    char endpoints[DAEMONS_MAX * 96] = "";

    if (worker->client != NULL)
        return;
    *worker = (struct worker){.number = number};
    if (sim.is_gentle && chance(50))
        declaration.duration_us = LONG_US;
    process_start(&worker->process);
    for (int d = 0; d < sim.daemons; d++) {
        size_t used = strlen(endpoints);
        if (d > 0)
            endpoints[used++] = ',';
        network_address(number, (number + d) % sim.daemons, endpoints + used, sizeof(endpoints) - used);
    }
    options.endpoints = endpoints;
    options.event_base = worker->process.loop->base;
    worker->client = lh_client_create(&options, &error);
    if (worker->client == NULL)
        fake_fail("%s", error.message);
    worker->declared = lh_declare(worker->client, "payments.invoices", &declaration, &error);
    for (int j = 0; j < JOBS; j++) {
        struct job *job = &worker->jobs[j];
        job->worker = worker;
        lh_timer_init(&job->timer, worker->process.loop, act, job);
        act_later(job, ms_below(500));
    }
    note("worker starts", number, 0);
}

static void come_back(struct fake_world *world, void *arg, uint64_t number)
{
    if (!sim.is_calm)
        worker_start((int)number);
}

void worker_kill(int number)
{
    struct worker *worker = &workers[number];

    if (worker->client == NULL)
        return;
    note("worker is killed", number, 0);
    sim.seen.kills++;
    lh_client_destroy(worker->client);
    worker->client = NULL;
    for (int j = 0; j < JOBS; j++) {
        lh_lease_destroy(worker->jobs[j].lease);
        lh_timer_finish(&worker->jobs[j].timer);
    }
    process_end(&worker->process);
    fake_at(&sim.world, sim.world.now_us + ms_below(3000), come_back, NULL, (uint64_t)number);
}

void worker_pause(int number, int64_t until_us)
{
    if (workers[number].client != NULL)
        process_stop_until(&workers[number].process, until_us);
}

bool workers_are_done(void)
{
    for (int w = 0; w < sim.workers; w++)
        for (int j = 0; j < JOBS && workers[w].client != NULL; j++)
            if (workers[w].jobs[j].state != IDLE)
                return false;
    return true;
}

void workers_end(void)
{
    for (int w = 0; w < sim.workers; w++)
        worker_kill(w);
    memset(last_token, 0, sizeof(last_token));
}
