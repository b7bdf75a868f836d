/*
 * Workers: clients of the library, each with some jobs that want leases, hold them for a while, and give them back, or not.
 * What a worker believes is compared with the database all the time.
 */
#include <stdio.h>
#include <string.h>

#include "../unit/fake_scope.h"
#include "leasehold.h"
#include "simulation.h"

#define JOBS 3
#define SETTLES_US (5 * LH_US_PER_S) /* after trouble: daemons are back, breakers closed */
#define LONG_US (300 * LH_US_PER_S)  /* left to expire, it is there at the end */

enum state { IDLE, WAITING, HOLDING, LOST, RELEASING };

struct job {
    struct worker *worker;
    enum state state;
    int count; /* of scopes that it wants in one step */
    int scopes[SCOPES];
    struct lh_uuid lease_key;
    enum lh_mode mode;
    int32_t units;      /* of a shared lease */
    char own_key[37];   /* until it was granted or ended; "": the library chooses one */
    int64_t last_token; /* of its first lease */
    int64_t granted_us;
    bool is_from_trouble; /* it was asked for in trouble, which may have held it on its way */
    struct lh_request *request;
    struct lh_lease *leases[SCOPES];
    int64_t forced_at_us[SCOPES]; /* when its end by force was seen; 0: it was not */
    struct lh_timer timer;
    bool is_downgrading;
    bool is_smaller; /* a downgrade was asked for: the database may have another token */
};

struct worker {
    int number;
    struct process process;
    struct lh_client *client; /* NULL: it was killed */
    struct lh_declared *declared;
    int64_t duration_us;
    uint64_t life;
    bool is_closing;
    struct job jobs[JOBS];
};

static struct worker workers[WORKERS_MAX];
static int64_t last_token[SCOPES];

static void act_later(struct job *job, int64_t delay_us)
{
    lh_timer_arm_at_us(&job->timer, lh_clock_us() + delay_us);
}

static enum lh_end_reason end_of(const struct fake_scope *scope, const struct job *job)
{
    return fake_end_reason(scope, &job->lease_key);
}

/* By an administrator, who cannot stop the holder: it hears of it at its next renewal. */
static bool is_forced(const struct fake_scope *scope, const struct job *job)
{
    return end_of(scope, job) == LH_END_FORCED;
}

/* A renewal that came before is answered yet; none that comes later. */
static void check_forced(struct job *job, int i)
{
    if (job->forced_at_us[i] == 0)
        job->forced_at_us[i] = lh_clock_us();
    if (lh_lease_deadline_us(job->leases[i]) > job->forced_at_us[i] + job->worker->duration_us)
        fake_fail("worker %d was renewed on k%d after its lease was ended by force", job->worker->number,
                  job->scopes[i]);
}

/* Whatever is heard of it late. */
static void check_one_token(struct job *job)
{
    int64_t token = job->leases[0] == NULL ? 0 : lh_lease_token(job->leases[0]);

    if (token < job->last_token && token != 0)
        fake_fail("the token of k%d goes back from %lld to %lld", job->scopes[0], (long long)job->last_token,
                  (long long)token);
    job->last_token = token;
}

/* Nor has it that of another scope of its request. */
static void check_its_token(const struct job *job, const struct lh_lease *lease, const struct fake_scope *granted)
{
    if (lh_lease_token(lease) != granted->token && !job->is_smaller)
        fake_fail("worker %d holds %s with the token %lld, and the database says %lld", job->worker->number,
                  lh_lease_scope_key(lease), (long long)lh_lease_token(lease), (long long)granted->token);
}

/* Promise 3: each answer counts from before its question was sent. */
static void check_deadline(const struct job *job, const struct lh_lease *lease, const struct fake_scope *granted)
{
    if (lh_lease_deadline_us(lease) > fake_deadline_us(granted))
        fake_fail("worker %d believes to hold %s for %.3f s longer than the database", job->worker->number,
                  lh_lease_scope_key(lease), (double)(lh_lease_deadline_us(lease) - fake_deadline_us(granted)) / 1e6);
}

static void check(struct job *job)
{
    check_one_token(job);
    for (int i = 0; i < job->count; i++) {
        struct fake_scope *scope = &sim.world.scopes[job->scopes[i]];
        const struct fake_scope *granted;
        if (job->leases[i] == NULL || !lh_lease_is_held(job->leases[i]))
            continue;
        granted = fake_lease(scope, &job->lease_key);
        if (granted != NULL && granted->is_held) {
            check_its_token(job, job->leases[i], granted);
            check_deadline(job, job->leases[i], granted);
            continue;
        }
        if (is_forced(scope, job))
            check_forced(job, i);
        else
            fake_fail("worker %d believes for %.3f s more that it holds k%d with the token %lld, and the database has "
                      "given it away",
                      job->worker->number, (double)lh_lease_remaining_us(job->leases[i]) / 1e6, job->scopes[i],
                      (long long)lh_lease_token(job->leases[i]));
    }
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
    case LH_INTERNAL:
        if (sim.has_failed)
            return;
        break;
    case LH_HOOK_REJECTED:
        if (sim.world.is_hooked)
            return;
        break;
    default:
        break;
    }
    fake_fail("worker %d was told %s for k%d: %s", job->worker->number, lh_status_name(status), job->scopes[0],
              error->message);
}

/* What was granted is there to be held, or its holder has been told that it is not. */
static void check_time(const struct job *job)
{
    for (int i = 0; i < job->count; i++)
        if (lh_lease_remaining_us(job->leases[i]) <= 0 && lh_lease_lost_reason(job->leases[i]) == 0)
            fake_fail("worker %d was granted k%d when its time was over", job->worker->number, job->scopes[i]);
}

/*
 * Nothing went wrong for so long that a renewal must have come through. The time of a lease counts from when its request
 * was sent: little is left of one whose request was long on its way.
 */
static void check_loss(const struct job *job, enum lh_lost_reason reason)
{
    bool is_late = job->is_from_trouble && job->granted_us > sim.trouble_until_us;
    int64_t quiet_us = sim.world.now_us - (is_late ? job->granted_us : sim.trouble_until_us);

    if ((reason == LH_LOST_UNREACHABLE || reason == LH_LOST_EXPIRED) && !sim.world.is_hooked &&
        quiet_us > 2 * job->worker->duration_us + SETTLES_US)
        fake_fail("worker %d lost k%d for nothing: %s", job->worker->number, job->scopes[0],
                  lh_lost_reason_name(reason));
}

static void check_token(const struct job *job, int i)
{
    int64_t token = lh_lease_token(job->leases[i]), *last = &last_token[job->scopes[i]];

    if (!lh_lease_is_held(job->leases[i]) || is_forced(&sim.world.scopes[job->scopes[i]], job))
        return;
    if (job->mode == LH_EXCLUSIVE && token <= *last)
        fake_fail("token %lld of k%d after %lld", (long long)token, job->scopes[i], (long long)*last);
    if (token > *last)
        *last = token;
}

static void on_acquired_all(void *arg, enum lh_status status, struct lh_lease *const *leases,
                            const struct lh_error *error)
{
    struct job *job = arg;
    char text[37];

    if (job->state != WAITING)
        fake_fail("an acquire was answered twice");
    job->request = NULL;
    note(lh_status_name(status), job->worker->number, job->scopes[0]);
    if (status != LH_OK) {
        check_refusal(job, status, error);
        sim.seen.refusals++;
        job->state = IDLE;
        if (status == LH_LEASE_ENDED)
            job->own_key[0] = '\0';
        act_later(job, ms_below(500));
        return;
    }
    sim.seen.grants++;
    sim.seen.together += job->count > 1;
    memcpy(job->leases, leases, (size_t)job->count * sizeof(leases[0]));
    lh_lease_key(leases[0], text);
    lh_uuid_parse(text, &job->lease_key);
    job->state = HOLDING;
    job->own_key[0] = '\0';
    job->last_token = 0;
    job->granted_us = sim.world.now_us;
    job->is_smaller = false;
    check_time(job);
    check(job);
    for (int i = 0; i < job->count; i++)
        check_token(job, i);
    act_later(job, chance(20) ? ms_below(8000) : ms_below(300));
}

static void on_acquired(void *arg, enum lh_status status, struct lh_lease *lease, const struct lh_error *error)
{
    on_acquired_all(arg, status, &lease, error);
}

static void on_lost(void *arg, struct lh_lease *lease, enum lh_lost_reason reason, const char *words)
{
    struct job *job = lh_lease_user(lease);

    note(lh_lost_reason_name(reason), job->worker->number, job->scopes[0]);
    sim.seen.losses++;
    check_loss(job, reason);
    sim.seen.forced += reason == LH_LOST_FORCED;
    if (lh_lease_is_held(lease))
        fake_fail("a lost lease of %s is held", lh_lease_scope_key(lease));
    if (job->state == HOLDING)
        job->state = LOST;
    act_later(job, ms_below(100));
}

static void forget(struct job *job)
{
    for (int i = 0; i < SCOPES; i++) {
        lh_lease_destroy(job->leases[i]);
        job->leases[i] = NULL;
        job->forced_at_us[i] = 0;
    }
}

/* As lh_try_release, where they are held. */
static void let_go(struct job *job)
{
    forget(job);
    job->state = IDLE;
    act_later(job, ms_below(500));
}

static void on_released(void *arg, enum lh_status status, const struct lh_error *error)
{
    struct job *job = arg;

    if (job->state != RELEASING)
        fake_fail("a release was answered twice");
    note("released", job->worker->number, status);
    if (status != LH_OK)
        check_refusal(job, status, error);
    if (status == LH_LOST && end_of(&sim.world.scopes[job->scopes[0]], job) == LH_END_RELEASED)
        fake_fail("worker %d was told that k%d was lost, by its own release", job->worker->number, job->scopes[0]);
    job->request = NULL;
    let_go(job);
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

/* Different ones, in any order. */
static void choose_scopes(struct job *job)
{
    bool has_room = true;

    job->count = chance(30) ? SCOPES - below(2) : 1;
    job->scopes[0] = below(SCOPES);
    for (int i = 1; i < job->count; i++)
        job->scopes[i] = (job->scopes[0] + i) % SCOPES;
    for (int i = 0; i < job->count; i++)
        has_room &= sim.world.scopes[job->scopes[i]].capacity != 1;
    job->mode = chance(30) ? LH_SHARED : LH_EXCLUSIVE;
    job->units = job->mode == LH_EXCLUSIVE ? 0 : has_room && chance(30) ? 2 : 1;
    if (job->count == 1 &&
        chance(20)) { /* of several one may have ended, and the others are for the caller to release */
        struct lh_uuid key = lh_uuid_random();
        lh_uuid_format(&key, job->own_key);
    }
}

static enum lh_status ask(struct job *job, struct lh_acquire_options *options, struct lh_error *error)
{
    struct lh_acquire_scope scopes[SCOPES] = {{0}};
    char keys[SCOPES][8];
    int64_t at_least_us = job->mode == LH_EXCLUSIVE && chance(15) ? 1 + ms_below(1500) : 0;

    for (int i = 0; i < job->count; i++) {
        snprintf(keys[i], sizeof(keys[i]), "k%d", job->scopes[i]);
        scopes[i] = (struct lh_acquire_scope){.declared = job->worker->declared,
                                              .key = keys[i],
                                              .mode = job->mode,
                                              .units = job->units,
                                              .at_least_us = at_least_us,
                                              .user = job};
    }
    job->is_from_trouble = sim.world.now_us <= sim.trouble_until_us;
    if (job->own_key[0] != '\0')
        options->lease_key = job->own_key;
    if (job->count > 1)
        return lh_acquire_all_async(scopes, (size_t)job->count, options, on_acquired_all, job, &job->request, error);
    options->user = job;
    options->mode = job->mode;
    options->units = job->units;
    options->at_least_us = at_least_us;
    return lh_acquire_async(job->worker->declared, keys[0], options, on_acquired, job, &job->request, error);
}

static void on_waiting(void *arg, const struct lh_obstacle *obstacle)
{
    const struct job *job = arg;

    if (job->state != WAITING)
        fake_fail("worker %d hears of a wait that is over", job->worker->number);
}

static void choose_wait(const struct job *job, struct lh_acquire_options *options)
{
    switch (sim.is_calm ? 3 : below(4)) {
    case 0:
        break;
    case 1:
        options->wait_us = ms_below(3000);
        break;
    case 2:
        options->wait_while_alive = job->count == 1; /* the only wait that several do not have */
        break;
    default:
        options->wait_us = LH_FOREVER;
    }
    if (job->count == 1 && (options->wait_us > 0 || options->wait_while_alive) && chance(20)) {
        options->on_waiting = on_waiting; /* the answer is a stream */
        options->on_waiting_arg = (void *)(uintptr_t)job;
    }
}

/* With a key of its own it asks for the same until that has had a lease. */
static void acquire(struct job *job)
{
    struct lh_acquire_options options = {.timeout_us = LH_US_PER_S + ms_below(4000)};
    struct lh_error error;

    if (job->own_key[0] == '\0')
        choose_scopes(job);
    choose_wait(job, &options);
    job->state = WAITING;
    note("acquires", job->worker->number, job->scopes[0] + 10 * job->count);
    if (ask(job, &options, &error) != LH_OK)
        fake_fail("worker %d may not ask for k%d: %s", job->worker->number, job->scopes[0], error.message);
    if (!sim.is_calm && chance(15))
        act_later(job, ms_below(1000)); /* to give it up again */
}

static void give_back(struct job *job)
{
    /* A release that waits for its answer gives up after a while; the set of releases does not. */
    if (!sim.is_gentle && job->count == 1 && (job->state == LOST || chance(60))) {
        job->state = RELEASING;
        if (lh_release_async(job->leases[0], NULL, on_released, job, &job->request, NULL) == LH_OK)
            return;
        job->request = NULL;
    }
    note("lets go", job->worker->number, job->scopes[0]);
    let_go(job);
}

static void act(void *arg)
{
    struct job *job = arg;

    if (job->worker->is_closing)
        return;
    switch (job->state) {
    case IDLE:
        if (!sim.is_calm || job->own_key[0] != '\0')
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
        if (job->mode == LH_EXCLUSIVE && job->count == 1 && chance(20)) {
            job->mode = LH_SHARED;
            job->is_smaller = true;
            job->is_downgrading = lh_downgrade_async(job->leases[0], 1, NULL, on_downgraded, job, NULL, NULL) == LH_OK;
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
    *worker = (struct worker){.number = number, .life = worker->life + 1};
    if (sim.is_gentle && chance(70))
        declaration.duration_us = LONG_US;
    worker->duration_us = declaration.duration_us;
    process_start(&worker->process);
    for (int d = 0; d < sim.daemons; d++) {
        size_t used = strlen(endpoints);
        if (d > 0)
            endpoints[used++] = ',';
        network_address(number, (number + d) % sim.daemons, endpoints + used, sizeof(endpoints) - used);
    }
    options.endpoints = endpoints;
    options.owner = "worker"; /* a process's number would be other bytes each time */
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
        forget(&worker->jobs[j]);
        lh_timer_finish(&worker->jobs[j].timer);
    }
    process_end(&worker->process);
    fake_at(&sim.world, sim.world.now_us + ms_below(3000), come_back, NULL, (uint64_t)number);
}

static void on_gone(struct fake_world *world, void *arg, uint64_t life)
{
    struct worker *worker = arg;

    if (worker->client != NULL && worker->life == life)
        worker_kill(worker->number);
}

/* Not under its own callback. */
static void on_closed(void *arg)
{
    struct worker *worker = arg;

    fake_at(&sim.world, sim.world.now_us, on_gone, worker, worker->life);
}

void worker_close(int number)
{
    struct worker *worker = &workers[number];

    if (worker->client == NULL || worker->is_closing)
        return;
    note("worker closes", number, 0);
    sim.seen.closes++;
    worker->is_closing = true;
    lh_client_close(worker->client, on_closed, worker);
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
            if (workers[w].jobs[j].state != IDLE || workers[w].jobs[j].own_key[0] != '\0')
                return false;
    return true;
}

void workers_end(void)
{
    for (int w = 0; w < sim.workers; w++)
        worker_kill(w);
    memset(last_token, 0, sizeof(last_token));
}
