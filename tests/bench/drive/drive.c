/*
 *     drive WORKLOAD PEER TARGET [--option value]...
 *
 * Workloads: pairs, handoff, expiry, heartbeats, steady, fill, waiters, connections, first. Peers: leasehold,
 * library (libleasehold), etcd, redis, zookeeper. Each run prints one line of JSON. See drive.h.
 */
#include "drive.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/standard.h"
#include "samples.h"

static const struct peer *const peers[] = {&peer_leasehold, &peer_library, &peer_etcd, &peer_redis, &peer_zookeeper};

static const struct {
    const char *name;
    void (*run)(struct drive *drive);
} workloads[] = {
    {"pairs", workload_pairs},           {"handoff", workload_handoff},         {"expiry", workload_expiry},
    {"heartbeats", workload_heartbeats}, {"steady", workload_steady},           {"fill", workload_fill},
    {"waiters", workload_waiters},       {"connections", workload_connections}, {"first", workload_first},
};

void drive_die(const char *format, ...)
{
    va_list args;

    fputs("drive: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    fflush(stdout);
    _exit(1);
}

void drive_make_slots(struct drive *drive, size_t count)
{
    drive->slots = lh_alloc_zero(count, sizeof(*drive->slots));
    drive->slot_count = count;
    for (size_t i = 0; i < count; i++) {
        drive->slots[i].drive = drive;
        drive->slots[i].number = (uint32_t)i;
    }
}

void drive_key(const struct slot *slot, char key[DRIVE_KEY_BYTES])
{
    if (slot->drive->is_hot)
        snprintf(key, DRIVE_KEY_BYTES, "hot%" PRIx32, slot->drive->run);
    else if (slot->drive->is_fresh)
        snprintf(key, DRIVE_KEY_BYTES, "%" PRIx32 "-%" PRIu32 "-%" PRIu32, slot->drive->run, slot->number,
                 slot->generation);
    else if (slot->drive->is_lasting)
        snprintf(key, DRIVE_KEY_BYTES, "%" PRIx32 "-%" PRIu32, slot->drive->run, slot->number);
    else
        snprintf(key, DRIVE_KEY_BYTES, "k%" PRIu32, slot->number);
}

void drive_credential(const struct slot *slot, char text[DRIVE_CREDENTIAL_BYTES])
{
    uint32_t generation = slot->generation;
    snprintf(text, DRIVE_CREDENTIAL_BYTES, "%08x-%04x-4%03x-8%03x-%012x", slot->drive->run, generation >> 16,
             generation >> 8 & 0xff, generation & 0xff, slot->number);
}

static void on_time(void *arg)
{
    lh_loop_stop(arg);
}

void drive_run_for(struct drive *drive, int64_t us)
{
    struct lh_timer timer;

    lh_timer_init(&timer, drive->loop, on_time, drive->loop);
    lh_timer_arm_at_us(&timer, lh_clock_us() + us);
    lh_loop_run(drive->loop);
    lh_timer_finish(&timer);
}

void drive_run_until(struct drive *drive, bool *is_true, int64_t limit_us, const char *what)
{
    int64_t end_us = lh_clock_us() + limit_us;

    while (!*is_true) {
        if (lh_clock_us() > end_us)
            drive_die("%s did not come within %d s", what, (int)(limit_us / LH_US_PER_S));
        lh_loop_run_once(drive->loop, 100 * LH_US_PER_MS);
    }
}

static size_t acquired_count, next_slot;

static void on_one_acquired(struct slot *slot)
{
    struct drive *drive = slot->drive;

    acquired_count++;
    if (next_slot < drive->slot_count)
        drive->peer->acquire(&drive->slots[next_slot++], false);
    drive->is_over = acquired_count == drive->slot_count;
}

void drive_acquire_all(struct drive *drive, size_t window)
{
    acquired_count = next_slot = 0;
    drive->on_acquired = on_one_acquired;
    drive->is_over = false;
    while (next_slot < drive->slot_count && next_slot < window)
        drive->peer->acquire(&drive->slots[next_slot++], false);
    drive_run_until(drive, &drive->is_over, 1800 * LH_US_PER_S, "the last of the leases");
    drive->is_over = false;
}

static void on_stdin(void *arg, unsigned ready)
{
    lh_loop_stop(arg);
}

void drive_pause(struct drive *drive)
{
    struct lh_watch watch;
    char line[64];

    puts("READY");
    fflush(stdout);
    lh_watch_init(&watch, drive->loop, STDIN_FILENO, on_stdin, drive->loop);
    lh_watch_want(&watch, LH_WATCH_READ);
    lh_loop_run(drive->loop);
    lh_watch_finish(&watch);
    if (read(STDIN_FILENO, line, sizeof(line)) < 0)
        drive_die("stdin");
}

_Noreturn static void usage(void)
{
    fprintf(stderr,
            "usage: drive WORKLOAD PEER TARGET [--clients N] [--connections N] [--leases N] [--batch N] [--rounds N]\n"
            "             [--duration SECONDS] [--every SECONDS] [--warmup MS] [--measure MS] [--run N] [--namespace "
            "N] [--batched 1] "
            "[--kept 1] [--stream 1]\n"
            "             [--hot 1] [--fresh 1] [--units N] [--capacity N] [--holders N]\n");
    exit(2);
}

static void parse(struct drive *drive, int argc, char **argv)
{
    for (int i = 4; i < argc; i += 2) {
        long value = i + 1 < argc ? strtol(argv[i + 1], NULL, 10) : -1;
        if (value < 0)
            usage();
        if (strcmp(argv[i], "--clients") == 0)
            drive->clients = (size_t)value;
        else if (strcmp(argv[i], "--connections") == 0)
            drive->channels = (size_t)value;
        else if (strcmp(argv[i], "--leases") == 0)
            drive->leases = (size_t)value;
        else if (strcmp(argv[i], "--batch") == 0)
            drive->batch = (size_t)value;
        else if (strcmp(argv[i], "--rounds") == 0)
            drive->rounds = (size_t)value;
        else if (strcmp(argv[i], "--duration") == 0)
            drive->duration_s = value;
        else if (strcmp(argv[i], "--every") == 0)
            drive->every_s = value;
        else if (strcmp(argv[i], "--warmup") == 0)
            drive->warmup_us = value * LH_US_PER_MS;
        else if (strcmp(argv[i], "--measure") == 0)
            drive->measure_us = value * LH_US_PER_MS;
        else if (strcmp(argv[i], "--run") == 0)
            drive->run = (uint32_t)value;
        else if (strcmp(argv[i], "--namespace") == 0)
            snprintf(drive->ns, sizeof(drive->ns), "bench%ld", value);
        else if (strcmp(argv[i], "--batched") == 0)
            drive->is_batched = value != 0;
        else if (strcmp(argv[i], "--kept") == 0)
            drive->is_kept = value != 0;
        else if (strcmp(argv[i], "--stream") == 0)
            drive->is_stream = value != 0;
        else if (strcmp(argv[i], "--hot") == 0)
            drive->is_hot = value != 0;
        else if (strcmp(argv[i], "--fresh") == 0)
            drive->is_fresh = value != 0;
        else if (strcmp(argv[i], "--units") == 0)
            drive->units = (size_t)value;
        else if (strcmp(argv[i], "--capacity") == 0)
            drive->capacity = (size_t)value;
        else if (strcmp(argv[i], "--holders") == 0)
            drive->holders = (size_t)value;
        else
            usage();
    }
}

/* As many descriptors as we may have: ten thousand connections need them. */
static void raise_limits(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int main(int argc, char **argv)
{
    struct samples samples = {0};
    struct drive drive = {.ns = "bench",
                          .clients = 1,
                          .batch = 1,
                          .rounds = 200,
                          .duration_s = 60,
                          .every_s = 15,
                          .grace_s = 1,
                          .warmup_us = LH_US_PER_S / 2,
                          .measure_us = 2 * LH_US_PER_S,
                          .run = (uint32_t)lh_clock_us(),
                          .samples = &samples};
    void (*run)(struct drive * drive) = NULL;

    lh_standard_open();
    if (argc < 4)
        usage();
    for (size_t i = 0; i < sizeof(workloads) / sizeof(workloads[0]); i++)
        if (strcmp(argv[1], workloads[i].name) == 0)
            run = workloads[i].run;
    for (size_t i = 0; i < sizeof(peers) / sizeof(peers[0]); i++)
        if (strcmp(argv[2], peers[i]->name) == 0)
            drive.peer = peers[i];
    if (run == NULL || drive.peer == NULL)
        usage();
    drive.target = argv[3];
    parse(&drive, argc, argv);
    if (drive.channels == 0)
        drive.channels = drive.clients < 16 ? drive.clients : 16;
    raise_limits();
    drive.loop = lh_loop_create();
    if (drive.loop == NULL)
        drive_die("no event loop");
    run(&drive);
    if (drive.peer->finish != NULL)
        drive.peer->finish(&drive);
    fflush(stdout);
    /* The process ends here, and with it what is still open. */
    _exit(0);
}
