/*
 * A load driver: real gRPC calls from one process to a running daemon, with the same HTTP/2 code as the command line.
 *
 *     drive pairs   HOST:PORT --clients 256 --connections 16 --seconds 5    acquire and release, a scope for each
 * client drive handoff HOST:PORT --clients 16 --rounds 500                     one scope, the others wait: release to
 * grant drive expiry  HOST:PORT --rounds 5                                    a holder dies: its expiry to the next
 * grant drive waiters HOST:PORT --clients 10000 --connections 100 --pid PID   resident memory of the daemon for each
 * waiter
 *
 * Each prints one line of name=value pairs. Every reply is checked; anything unexpected ends the run with status 1.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "leasehold/v1/leasehold.pb-c.h"
#include "loop/loop.h"
#include "rpc/client.h"

#define ACQUIRE "/leasehold.v1.LeaseService/Acquire"
#define RELEASE "/leasehold.v1.LeaseService/Release"

struct client {
    struct drive *drive;
    struct lh_rpc_channel *channel;
    char key[32];
    char lease_key[40];
    int64_t started_us;
    int64_t token;
    bool is_waiting;
};

struct drive {
    struct lh_loop *loop;
    struct lh_rpc_channel **channels;
    struct client *clients;
    size_t client_count, channel_count;
    const char *mode, *namespace_text;
    int64_t duration_s, seconds, rounds;
    int64_t settle_s; /* handoff: the first holder keeps it for that long, so that everybody queues */
    int64_t once;     /* handoff: nobody queues a second time */
    long pid;
    int64_t end_us;
    int64_t *samples_us;
    size_t sample_count, sample_capacity;
    size_t running, granted;
    int64_t event_us; /* when the last release was sent, or the expiry */
    int64_t last_token;
    struct client *first;
    struct lh_timer timer;
};

static void die(const char *what, const struct lh_rpc_result *result)
{
    fprintf(stderr, "drive: %s: %s (code %d)\n", what, result == NULL ? "unexpected" : result->message,
            result == NULL ? -1 : (int)result->code);
    exit(1);
}

static void add_sample(struct drive *drive, int64_t us)
{
    if (drive->sample_count == drive->sample_capacity) {
        drive->sample_capacity = drive->sample_capacity == 0 ? 65536 : drive->sample_capacity * 2;
        drive->samples_us = lh_realloc(drive->samples_us, drive->sample_capacity, sizeof(*drive->samples_us));
    }
    drive->samples_us[drive->sample_count++] = us;
}

static int compare_us(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static double quantile_ms(struct drive *drive, double q)
{
    if (drive->sample_count == 0)
        return 0;
    return (double)drive->samples_us[(size_t)((double)(drive->sample_count - 1) * q)] / 1000.0;
}

static void fill_scope(Leasehold__V1__Scope *scope, char **segments, struct client *client)
{
    leasehold__v1__scope__init(scope);
    segments[0] = (char *)client->drive->namespace_text;
    scope->n_namespace_ = 1;
    scope->namespace_ = segments;
    scope->key = client->key;
}

static void on_acquired(void *arg, const struct lh_rpc_result *result);

static void acquire(struct client *client, bool wait)
{
    Leasehold__V1__AcquireRequest request = LEASEHOLD__V1__ACQUIRE_REQUEST__INIT;
    Leasehold__V1__Scope scope;
    Google__Protobuf__Duration duration = GOOGLE__PROTOBUF__DURATION__INIT;
    char *segments[1];
    uint8_t bytes[512];
    size_t size;

    fill_scope(&scope, segments, client);
    request.scope = &scope;
    duration.seconds = client->drive->duration_s;
    request.duration = &duration;
    request.wait_forever = wait;
    request.owner = (char *)"drive";
    size = leasehold__v1__acquire_request__pack(&request, bytes);
    client->started_us = lh_clock_us();
    client->is_waiting = true;
    lh_rpc_call_unary(client->channel, ACQUIRE, bytes, size, LH_RPC_FOREVER, on_acquired, client);
}

static void on_released(void *arg, const struct lh_rpc_result *result)
{
    struct client *client = arg;
    struct drive *drive = client->drive;
    Leasehold__V1__ReleaseResponse *response;

    if (result->code != LH_GRPC_OK)
        die("release", result);
    response = leasehold__v1__release_response__unpack(NULL, result->reply_size, result->reply);
    if (response == NULL || response->n_results != 1 ||
        response->results[0]->outcome != LEASEHOLD__V1__OUTCOME__OUTCOME_OK)
        die("release was not OK", NULL);
    leasehold__v1__release_response__free_unpacked(response, NULL);
    if (strcmp(drive->mode, "pairs") == 0) {
        add_sample(drive, lh_clock_us() - client->started_us);
        if (lh_clock_us() < drive->end_us)
            acquire(client, false);
        else if (--drive->running == 0)
            lh_loop_stop(drive->loop);
    }
}

static void release(struct client *client)
{
    Leasehold__V1__ReleaseRequest request = LEASEHOLD__V1__RELEASE_REQUEST__INIT;
    Leasehold__V1__ReleaseItem item = LEASEHOLD__V1__RELEASE_ITEM__INIT, *items[1] = {&item};
    Leasehold__V1__LeaseRef lease = LEASEHOLD__V1__LEASE_REF__INIT;
    Leasehold__V1__Scope scope;
    char *segments[1];
    uint8_t bytes[512];
    size_t size;

    fill_scope(&scope, segments, client);
    lease.scope = &scope;
    lease.lease_key = client->lease_key;
    item.lease = &lease;
    request.n_items = 1;
    request.items = items;
    size = leasehold__v1__release_request__pack(&request, bytes);
    client->drive->event_us = lh_clock_us();
    lh_rpc_call_unary(client->channel, RELEASE, bytes, size, LH_RPC_FOREVER, on_released, client);
}

/* One scope: whoever has it gives it back when everybody else waits, and queues again behind them. */
static void on_hot_grant(struct client *client)
{
    struct drive *drive = client->drive;

    if (client->token <= drive->last_token)
        die("a token did not grow", NULL);
    drive->last_token = client->token;
    if (drive->granted++ > 0)
        add_sample(drive, lh_clock_us() - drive->event_us);
    if ((int64_t)drive->granted > drive->rounds) {
        lh_loop_stop(drive->loop);
        return;
    }
    if (strcmp(drive->mode, "expiry") == 0) {
        /* It dies now: nobody renews. The expiry is duration + grace (1 s) after the grant reached us. */
        drive->event_us = lh_clock_us() + (drive->duration_s + 1) * LH_US_PER_S;
        acquire(client, true);
        return;
    }
    if (drive->granted == 1 && drive->settle_s > 0) {
        drive->first = client;
        lh_timer_arm_at_us(&drive->timer, lh_clock_us() + drive->settle_s * LH_US_PER_S);
        return;
    }
    release(client);
    if (drive->once == 0)
        acquire(client, true);
}

static void on_settled(void *arg)
{
    struct drive *drive = arg;

    release(drive->first);
    if (drive->once == 0)
        acquire(drive->first, true);
}

static void on_acquired(void *arg, const struct lh_rpc_result *result)
{
    struct client *client = arg;
    struct drive *drive = client->drive;
    Leasehold__V1__AcquireResponse *response;

    client->is_waiting = false;
    if (result->code != LH_GRPC_OK)
        die("acquire", result);
    response = leasehold__v1__acquire_response__unpack(NULL, result->reply_size, result->reply);
    if (response == NULL || response->lease == NULL || response->lease->token <= 0)
        die("acquire without a lease", NULL);
    snprintf(client->lease_key, sizeof(client->lease_key), "%s", response->lease->lease_key);
    client->token = response->lease->token;
    leasehold__v1__acquire_response__free_unpacked(response, NULL);
    if (strcmp(drive->mode, "pairs") == 0)
        release(client);
    else if (strcmp(drive->mode, "waiters") == 0)
        drive->granted++;
    else
        on_hot_grant(client);
}

static long resident_kib(long pid)
{
    char path[64], line[256];
    long kib = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%ld/status", pid);
    file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "VmRSS: %ld", &kib) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return kib;
}

static void on_timer(void *arg)
{
    lh_loop_stop(((struct drive *)arg)->loop);
}

static void run_for(struct drive *drive, int64_t us)
{
    lh_timer_arm_at_us(&drive->timer, lh_clock_us() + us);
    lh_loop_run(drive->loop);
}

static void drive_waiters(struct drive *drive)
{
    long before_kib, after_kib;

    acquire(&drive->clients[0], false);
    run_for(drive, LH_US_PER_S);
    if (drive->granted != 1)
        die("the holder", NULL);
    before_kib = resident_kib(drive->pid);
    for (size_t i = 1; i < drive->client_count; i++) {
        acquire(&drive->clients[i], true);
        if (i % 1000 == 0)
            run_for(drive, 200 * LH_US_PER_MS);
    }
    run_for(drive, drive->seconds * LH_US_PER_S);
    after_kib = resident_kib(drive->pid);
    if (drive->granted != 1)
        die("a waiter was granted", NULL);
    printf("mode=waiters waiters=%zu connections=%zu before_kib=%ld after_kib=%ld bytes_per_waiter=%ld\n",
           drive->client_count - 1, drive->channel_count, before_kib, after_kib,
           (after_kib - before_kib) * 1024 / (long)(drive->client_count - 1));
}

static void usage(void)
{
    fprintf(stderr,
            "usage: drive pairs|handoff|expiry|waiters HOST:PORT [--clients N] [--connections N] [--seconds N]\n"
            "             [--rounds N] [--duration SECONDS] [--settle SECONDS] [--once 1] [--pid PID]\n");
    exit(2);
}

static void parse(struct drive *drive, int argc, char **argv)
{
    for (int i = 3; i < argc; i += 2) {
        long value = i + 1 < argc ? strtol(argv[i + 1], NULL, 10) : 0;
        if (value <= 0)
            usage();
        if (strcmp(argv[i], "--clients") == 0)
            drive->client_count = (size_t)value;
        else if (strcmp(argv[i], "--connections") == 0)
            drive->channel_count = (size_t)value;
        else if (strcmp(argv[i], "--seconds") == 0)
            drive->seconds = value;
        else if (strcmp(argv[i], "--rounds") == 0)
            drive->rounds = value;
        else if (strcmp(argv[i], "--duration") == 0)
            drive->duration_s = value;
        else if (strcmp(argv[i], "--settle") == 0)
            drive->settle_s = value;
        else if (strcmp(argv[i], "--once") == 0)
            drive->once = value;
        else if (strcmp(argv[i], "--pid") == 0)
            drive->pid = value;
        else
            usage();
    }
}

int main(int argc, char **argv)
{
    struct drive drive = {.client_count = 2, .duration_s = 60, .seconds = 5, .rounds = 200, .namespace_text = "bench"};
    struct lh_error error;
    int64_t began_us;
    bool one_scope;

    if (argc < 3)
        usage();
    drive.mode = argv[1];
    parse(&drive, argc, argv);
    if (strcmp(drive.mode, "expiry") == 0)
        drive.duration_s = 1;
    if (drive.channel_count == 0)
        drive.channel_count = drive.client_count < 16 ? drive.client_count : 16;
    one_scope = strcmp(drive.mode, "pairs") != 0;
    drive.loop = lh_loop_create();
    lh_timer_init(&drive.timer, drive.loop, strcmp(drive.mode, "handoff") == 0 ? on_settled : on_timer, &drive);
    drive.channels = lh_alloc_zero(drive.channel_count, sizeof(*drive.channels));
    for (size_t i = 0; i < drive.channel_count; i++) {
        drive.channels[i] = lh_rpc_channel_create(drive.loop, argv[2], NULL, &error);
        if (drive.channels[i] == NULL) {
            fprintf(stderr, "drive: %s\n", error.message);
            return 1;
        }
    }
    drive.clients = lh_alloc_zero(drive.client_count, sizeof(*drive.clients));
    for (size_t i = 0; i < drive.client_count; i++) {
        drive.clients[i].drive = &drive;
        drive.clients[i].channel = drive.channels[i % drive.channel_count];
        if (one_scope)
            snprintf(drive.clients[i].key, sizeof(drive.clients[i].key), "hot");
        else
            snprintf(drive.clients[i].key, sizeof(drive.clients[i].key), "k%zu", i);
    }
    if (strcmp(drive.mode, "waiters") == 0) {
        drive_waiters(&drive);
        return 0;
    }
    began_us = lh_clock_us();
    drive.end_us = began_us + drive.seconds * LH_US_PER_S;
    drive.running = drive.client_count;
    for (size_t i = 0; i < drive.client_count; i++)
        acquire(&drive.clients[i], one_scope);
    lh_loop_run(drive.loop);
    qsort(drive.samples_us, drive.sample_count, sizeof(*drive.samples_us), compare_us);
    printf("mode=%s clients=%zu connections=%zu samples=%zu per_s=%.0f p50_ms=%.3f p99_ms=%.3f p999_ms=%.3f\n",
           drive.mode, drive.client_count, drive.channel_count, drive.sample_count,
           (double)drive.sample_count * 1e6 / (double)(lh_clock_us() - began_us), quantile_ms(&drive, 0.5),
           quantile_ms(&drive, 0.99), quantile_ms(&drive, 0.999));
    return 0;
}
