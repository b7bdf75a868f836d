/*
 * soak [--seconds N] [--seed N] [--users N] [--coordinators N] [--calm]
 *
 * Connects as libpq's environment says, to a database that has soak.sql. Exit status 0: it ran to its end; then
 * check_history.py judges the history. See soak.h for what happens.
 */
#include "soak.h"

#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ACTORS_MAX 100
#define STANDSTILL_MS 30000 /* nobody is served for that long: a stall, however slow the machine */

const char *const scope_names[SCOPES] = {"hot", "hotter", "cool", "cooler", "cold", "colder"};

int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void sleep_ms(int64_t ms)
{
    struct timespec delay = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&delay, NULL);
}

/* splitmix64, https://prng.di.unimi.it/splitmix64.c */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t dice(struct actor *actor, uint64_t sides)
{
    return next_random(&actor->random) % sides;
}

static int pick_scope(struct actor *actor)
{
    return (int)(dice(actor, 3) != 0 ? dice(actor, 2) : 2 + dice(actor, SCOPES - 2));
}

static int pick_units(struct actor *actor)
{
    return dice(actor, 2) == 0 ? 0 : 1 + (int)dice(actor, dice(actor, 2) == 0 ? 1 : UNITS_MAX);
}

static bool has_scope(const struct item *items, int count, int scope)
{
    for (int i = 0; i < count; i++)
        if (items[i].scope == scope)
            return true;
    return false;
}

int pick_items(struct actor *actor, struct item items[ITEMS_MAX])
{
    int wanted = dice(actor, 6) == 0 ? ITEMS_MAX : 1;
    int count = 0;
    while (count < wanted) {
        int scope = pick_scope(actor);
        if (!has_scope(items, count, scope))
            items[count++] = (struct item){.scope = scope, .units = pick_units(actor)};
    }
    return count;
}

int pick_priority(struct actor *actor)
{
    return dice(actor, 3) == 0 ? 1 + (int)dice(actor, PRIORITY_MAX) : 0;
}

const char *units_text(int units)
{
    static const char *const texts[UNITS_MAX + 1] = {"null", "1", "2", "3"};
    return texts[units];
}

void make_uuid(struct actor *actor, char uuid[UUID_SIZE])
{
    uint64_t a = next_random(&actor->random), b = next_random(&actor->random);
    snprintf(uuid, UUID_SIZE, "%08x-%04x-4%03x-8%03x-%012llx", (unsigned)(a >> 32), (unsigned)(a >> 16 & 0xffff),
             (unsigned)(a & 0xfff), (unsigned)(b >> 52), (unsigned long long)(b & UINT64_C(0xffffffffffff)));
}

static void ignore_notice(void *unused_arg, const char *unused_message)
{
}

bool actor_connect(struct actor *actor)
{
    actor->backend_pid = 0;
    PQclear(actor->result);
    actor->result = NULL;
    PQfinish(actor->conn);
    actor->conn = PQconnectdb("");
    if (PQstatus(actor->conn) != CONNECTION_OK) {
        fprintf(stderr, "soak: %s", PQerrorMessage(actor->conn));
        actor->soak->has_failed = true;
        return false;
    }
    PQsetNoticeProcessor(actor->conn, ignore_notice, NULL);
    actor->backend_pid = PQbackendPID(actor->conn);
    return true;
}

static enum outcome outcome_of(struct actor *actor, const char *sql)
{
    if (PQstatus(actor->conn) != CONNECTION_OK)
        return BROKEN;
    ExecStatusType status = PQresultStatus(actor->result);
    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK)
        return DONE;
    const char *state = PQresultErrorField(actor->result, PG_DIAG_SQLSTATE);
    state = state == NULL ? "" : state;
    if (strcmp(state, "40001") == 0 || strcmp(state, "57014") == 0)
        return AGAIN;
    if (strcmp(state, "LH001") == 0)
        return LOST;
    if (strcmp(state, "57P01") == 0)
        return BROKEN;
    fprintf(stderr, "soak: actor %d: %s: %s", actor->number, sql, PQresultErrorMessage(actor->result));
    actor->soak->has_failed = true;
    return SOAK_BUG;
}

enum outcome run(struct actor *actor, const char *format, ...)
{
    char sql[16384];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sql, sizeof sql, format, arguments);
    va_end(arguments);
    PQclear(actor->result);
    actor->result = PQexec(actor->conn, sql);
    enum outcome outcome = outcome_of(actor, sql);
    if (outcome != DONE && outcome != BROKEN && PQtransactionStatus(actor->conn) != PQTRANS_IDLE)
        PQclear(PQexec(actor->conn, "rollback"));
    actor->retries += outcome == AGAIN;
    return outcome;
}

bool answer_is(const struct actor *actor, const char *text)
{
    return PQntuples(actor->result) == 1 && strcmp(PQgetvalue(actor->result, 0, 0), text) == 0;
}

bool wait_for_notify(struct actor *actor, int64_t ms, char *payload, size_t size)
{
    struct pollfd fd = {.fd = PQsocket(actor->conn), .events = POLLIN};
    PGnotify *notify = PQnotifies(actor->conn);
    if (notify == NULL && poll(&fd, 1, (int)ms) > 0) {
        PQconsumeInput(actor->conn);
        notify = PQnotifies(actor->conn);
    }
    if (notify == NULL)
        return false;
    if (payload != NULL)
        snprintf(payload, size, "%s", notify->extra);
    PQfreemem(notify);
    return true;
}

/* Sessions killed and statements cancelled, at random, until the soak stops. */
static void kill_one(struct actor *killer, struct actor *actors, int count)
{
    struct actor *victim = &actors[dice(killer, (uint64_t)count)];
    const char *how = dice(killer, 10) == 0 ? "terminate" : dice(killer, 5) == 0 ? "cancel" : NULL;
    if (how != NULL && victim->backend_pid != 0)
        run(killer, "select pg_%s_backend(%d)", how, victim->backend_pid);
}

/* Wait until everybody is done; false when nobody was served for STANDSTILL_MS. */
static bool watch(struct soak *soak, struct actor *actors, int count, int64_t until_ms)
{
    struct actor killer = {.soak = soak, .number = -1, .random = soak->seed ^ 1};
    uint64_t seen = soak->progress;
    int64_t seen_at = now_ms();
    bool is_good = actor_connect(&killer);
    while (is_good && soak->running > 0) {
        sleep_ms(50);
        if (now_ms() > until_ms || soak->has_failed)
            soak->is_stopping = true;
        if (!soak->is_calm && !soak->is_stopping) {
            kill_one(&killer, actors, count);
            run(&killer, "select soak.reap('reaper')");
        }
        if (soak->is_stopping && !soak->is_calm)
            run(&killer, "select soak.reap('reaper')");
        if (soak->progress != seen) {
            seen = soak->progress;
            seen_at = now_ms();
        }
        is_good = now_ms() - seen_at < STANDSTILL_MS;
    }
    if (is_good && !soak->has_failed)
        run(&killer, "insert into soak.event (at, kind, actor) values (clock_timestamp(), 'stop', 'soak')");
    PQclear(killer.result);
    PQfinish(killer.conn);
    return is_good;
}

static int parse_arguments(int argc, char **argv, struct soak *soak, int64_t *seconds, int *users, int *coordinators)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--calm") == 0) {
            soak->is_calm = true;
            continue;
        }
        if (i + 1 == argc)
            return -1;
        long long value = strtoll(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--seconds") == 0)
            *seconds = value;
        else if (strcmp(argv[i], "--seed") == 0)
            soak->seed = (uint64_t)value;
        else if (strcmp(argv[i], "--users") == 0)
            *users = (int)value;
        else if (strcmp(argv[i], "--coordinators") == 0)
            *coordinators = (int)value;
        else
            return -1;
        i++;
    }
    return *users >= 0 && *coordinators >= 0 && *users + *coordinators > 0 && *users + *coordinators <= ACTORS_MAX ? 0
                                                                                                                   : -1;
}

int main(int argc, char **argv)
{
    static struct actor actors[ACTORS_MAX];
    static pthread_t threads[ACTORS_MAX];
    struct soak soak = {.seed = (uint64_t)time(NULL)};
    int64_t seconds = 6;
    int users = 8, coordinators = 2;

    if (parse_arguments(argc, argv, &soak, &seconds, &users, &coordinators) != 0) {
        fprintf(stderr, "usage: soak [--seconds N] [--seed N] [--users N] [--coordinators N] [--calm]\n");
        return 2;
    }
    int count = users + coordinators;
    soak.running = count;
    soak.has_coordinators = coordinators > 0;
    for (int i = 0; i < count; i++) {
        actors[i] = (struct actor){.soak = &soak, .number = i, .random = soak.seed * 1000 + (uint64_t)i};
        if (pthread_create(&threads[i], NULL, i < users ? user_main : coordinator_main, &actors[i]) != 0) {
            fprintf(stderr, "soak: no thread\n");
            return 1;
        }
    }
    if (!watch(&soak, actors, count, now_ms() + seconds * 1000)) {
        fprintf(stderr, "soak: stall: nobody was served for %d s (seed %llu)\n", STANDSTILL_MS / 1000,
                (unsigned long long)soak.seed);
        return 1; /* the threads wait for what never comes */
    }
    uint64_t grants = 0, waits = 0, gave_up = 0, retries = 0;
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        grants += actors[i].grants;
        waits += actors[i].waits;
        gave_up += actors[i].gave_up;
        retries += actors[i].retries;
        PQclear(actors[i].result);
        PQfinish(actors[i].conn);
    }
    printf("seed %llu: %llu grants, %llu of them to waiters, %llu gave up waiting, %llu transactions repeated\n",
           (unsigned long long)soak.seed, (unsigned long long)grants, (unsigned long long)waits,
           (unsigned long long)gave_up, (unsigned long long)retries);
    return soak.has_failed ? 1 : 0;
}
