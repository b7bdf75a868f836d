/*
 * What libleasehold costs its caller, against a coordinator without a database in a process of its own. Measures, and
 * asserts nothing but that there is something to measure.
 *
 *     library pairs 20000       client CPU of an acquire and a release by the blocking calls, and of two bare RPCs
 *     library bare 20000        of the bare RPCs alone
 *     library try 1000000       lh_try_release of so many leases, against a server that is stopped
 *     library leases 100000     memory of each lease held, and RPCs for their renewal
 */
#include <err.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "leasehold.h"
#include "rpc/client.h"

#include "../unit/fake_coordinator.h"

/* Nothing here leaves this machine: what has stood still for so long has stopped. Renewals come every 3 s. */
#define STALL_US (30 * LH_US_PER_S)

static pid_t server;
static char target[32];

static void serve(int to)
{
    struct lh_loop *loop = lh_loop_create();
    static struct fake fake;

    fake_init(&fake, loop);
    fake.remaining_us = 3600 * LH_US_PER_S;
    if (write(to, fake.target, sizeof(fake.target)) < 0)
        _exit(1);
    lh_loop_run(loop);
}

static void start_server(void)
{
    int ends[2];

    if (pipe(ends) != 0 || (server = fork()) < 0)
        err(1, "no server");
    if (server == 0)
        serve(ends[1]);
    close(ends[1]);
    if (read(ends[0], target, sizeof(target)) <= 0)
        errx(1, "no server");
}

static double cpu_us(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 + (double)usage.ru_utime.tv_usec +
           (double)usage.ru_stime.tv_usec;
}

/* --- pairs --- */

static void on_bare_done(void *arg, const struct lh_rpc_result *result)
{
    if (result->code != LH_GRPC_OK)
        errx(1, "bare: %s", result->message);
    lh_loop_stop(arg);
}

static void bare_call(struct lh_loop *loop, struct lh_rpc_channel *channel, const char *path, const void *data,
                      size_t size)
{
    lh_rpc_client_call_unary(channel, path, data, size, lh_clock_us() + 5 * LH_US_PER_S, on_bare_done, loop);
    lh_loop_run(loop);
}

/* Packed once: nothing but the transport. */
static double bare_pairs(size_t count)
{
    struct lh_loop *loop = lh_loop_create();
    struct lh_rpc_channel *channel = lh_rpc_channel_create(loop, target, NULL, NULL);
    Leasehold__V1__AcquireRequest acquire = LEASEHOLD__V1__ACQUIRE_REQUEST__INIT;
    Leasehold__V1__ReleaseRequest release = LEASEHOLD__V1__RELEASE_REQUEST__INIT;
    Leasehold__V1__ReleaseItem item = LEASEHOLD__V1__RELEASE_ITEM__INIT, *items = &item;
    uint8_t acquire_bytes[256], release_bytes[256];
    size_t acquire_size, release_size;
    double begun_us;

    acquire.lease_key = (char *)(void *)"8f14e45f-ceea-467f-9b2c-111111111111";
    release.n_items = 1;
    release.items = &items;
    acquire_size = leasehold__v1__acquire_request__pack(&acquire, acquire_bytes);
    release_size = leasehold__v1__release_request__pack(&release, release_bytes);
    bare_call(loop, channel, "/leasehold.v1.LeaseService/Acquire", acquire_bytes, acquire_size);
    begun_us = cpu_us();
    for (size_t i = 0; i < count; i++) {
        bare_call(loop, channel, "/leasehold.v1.LeaseService/Acquire", acquire_bytes, acquire_size);
        bare_call(loop, channel, "/leasehold.v1.LeaseService/Release", release_bytes, release_size);
    }
    begun_us = cpu_us() - begun_us;
    lh_rpc_channel_destroy(channel);
    lh_loop_destroy(loop);
    return begun_us / (double)count;
}

static double library_pairs(size_t count)
{
    struct lh_client *client = lh_client_create(&(struct lh_client_options){.endpoints = target}, NULL);
    struct lh_declared *declared = lh_declare(client, "bench", NULL, NULL);
    double begun_us = 0;

    for (size_t i = 0; i <= count; i++) {
        struct lh_lease *lease;
        struct lh_error error;
        if (i == 1)
            begun_us = cpu_us();
        if (lh_acquire(declared, "key", NULL, &lease, &error) != LH_OK || lh_release(lease, NULL, &error) != LH_OK)
            errx(1, "%s", error.message);
        lh_lease_destroy(lease);
    }
    begun_us = cpu_us() - begun_us;
    lh_client_destroy(client);
    return begun_us / (double)count;
}

static void pairs(size_t count)
{
    double bare = bare_pairs(count), library = library_pairs(count);
    printf("pairs=%zu bare_cpu_us=%.1f library_cpu_us=%.1f above_us=%.1f\n", count, bare, library, library - bare);
}

/* --- many leases --- */

/* How far a poll has come, and since when it has been there. */
struct progress {
    const char *what;
    size_t wanted, seen;
    int64_t since_us;
};

static void look_again_later(struct progress *progress, size_t seen, useconds_t pause_us)
{
    int64_t now_us = lh_clock_us();

    if (progress->since_us == 0 || seen != progress->seen) {
        progress->seen = seen;
        progress->since_us = now_us;
    }
    if (now_us - progress->since_us > STALL_US)
        errx(1, "no %s for %lld s, after %zu of %zu", progress->what, (long long)(STALL_US / LH_US_PER_S), seen,
             progress->wanted);
    usleep(pause_us);
}

static struct lh_lease **leases;
static size_t acquired;

static void on_acquired(void *arg, enum lh_status status, struct lh_lease *lease, const struct lh_error *error)
{
    if (status != LH_OK)
        errx(1, "%s", error->message);
    leases[(size_t)(uintptr_t)arg] = lease;
    __atomic_add_fetch(&acquired, 1, __ATOMIC_RELEASE);
}

static size_t seen(void)
{
    return __atomic_load_n(&acquired, __ATOMIC_ACQUIRE);
}

static void hold(struct lh_declared *declared, size_t count)
{
    struct progress progress = {.what = "grant", .wanted = count};
    struct lh_error error;
    char key[32];

    leases = calloc(count, sizeof(*leases));
    for (size_t i = 0; i < count; i++) {
        snprintf(key, sizeof(key), "invoice-%zu", i);
        while (i - seen() >= 1000)
            look_again_later(&progress, seen(), 100);
        if (lh_acquire_async(declared, key, NULL, on_acquired, (void *)(uintptr_t)i, NULL, &error) != LH_OK)
            errx(1, "%s", error.message);
    }
    while (seen() < count)
        look_again_later(&progress, seen(), 1000);
}

static int compare(const void *a, const void *b)
{
    int32_t first = *(const int32_t *)a, second = *(const int32_t *)b;
    return (first > second) - (first < second);
}

static void try_all(size_t count)
{
    struct lh_client *client = lh_client_create(
        &(struct lh_client_options){.endpoints = target, .flush_us = -1, .max_releases = (uint32_t)count}, NULL);
    struct lh_declared *declared = lh_declare(client, "bench", NULL, NULL);
    int32_t *took_ns = calloc(count, sizeof(*took_ns));
    size_t before, after;

    hold(declared, count);
    kill(server, SIGSTOP);
    before = mallinfo2().uordblks;
    for (size_t i = 0; i < count; i++) {
        struct timespec begun, ended;
        clock_gettime(CLOCK_MONOTONIC, &begun);
        if (lh_try_release(leases[i], NULL) != LH_OK)
            errx(1, "refused");
        clock_gettime(CLOCK_MONOTONIC, &ended);
        took_ns[i] = (int32_t)((ended.tv_sec - begun.tv_sec) * 1000000000 + ended.tv_nsec - begun.tv_nsec);
    }
    after = mallinfo2().uordblks;
    qsort(took_ns, count, sizeof(*took_ns), compare);
    printf("releases=%zu median_ns=%d p99_ns=%d max_ns=%d bytes_each=%.1f\n", count, took_ns[count / 2],
           took_ns[count / 100 * 99], took_ns[count - 1], (double)(after - before) / (double)count);
    fflush(stdout);
    _exit(0); /* without a million lines of what is left */
}

static void hold_all(size_t count)
{
    struct lh_client *client = lh_client_create(&(struct lh_client_options){.endpoints = target, .flush_us = -1}, NULL);
    struct lh_declared *declared =
        lh_declare(client, "bench", &(struct lh_declare_options){.duration_us = 9 * LH_SECOND}, NULL);
    struct progress progress = {.what = "renewal", .wanted = 3 * count};
    struct lh_client_stats begun, ended;
    size_t before = mallinfo2().uordblks, after;
    double cpu;

    hold(declared, count);
    after = mallinfo2().uordblks;
    lh_client_get_stats(client, &begun);
    cpu = cpu_us();
    for (ended = begun; ended.renewals - begun.renewals < progress.wanted; lh_client_get_stats(client, &ended))
        look_again_later(&progress, ended.renewals - begun.renewals, 10000);
    printf("leases=%zu bytes_each=%.0f renewals=%llu rpcs=%llu rpcs_percent=%.3f cpu_us_per_renewal=%.2f lost=%llu\n",
           count, (double)(after - before) / (double)count, (unsigned long long)(ended.renewals - begun.renewals),
           (unsigned long long)(ended.rpcs - begun.rpcs),
           100.0 * (double)(ended.rpcs - begun.rpcs) / (double)(ended.renewals - begun.renewals),
           (cpu_us() - cpu) / (double)(ended.renewals - begun.renewals), (unsigned long long)ended.lost);
    fflush(stdout);
    _exit(0);
}

int main(int argc, char **argv)
{
    size_t count = argc > 2 ? (size_t)atol(argv[2]) : 10000;
    pid_t measurer;
    int status;

    if (argc < 2)
        errx(2, "library pairs|bare|try|leases COUNT");
    start_server();
    if ((measurer = fork()) < 0)
        err(1, "fork");
    if (measurer == 0) {
        if (strcmp(argv[1], "pairs") == 0)
            pairs(count);
        else if (strcmp(argv[1], "bare") == 0)
            printf("pairs=%zu bare_cpu_us=%.1f\n", count, bare_pairs(count));
        else if (strcmp(argv[1], "try") == 0)
            try_all(count);
        else
            hold_all(count);
        return 0;
    }
    if (waitpid(measurer, &status, 0) < 0)
        err(1, "waitpid");
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
