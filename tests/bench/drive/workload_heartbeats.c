/*
 * Many leases, renewed round and round: `clients` requests in flight with `batch` leases each. First all are acquired.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "drive.h"
#include "samples.h"

static size_t next_lease, running, measured;
static int64_t from_us, to_us;

static void begin(struct batch *batch)
{
    struct drive *drive = batch->drive;
    size_t left = drive->leases - next_lease;

    batch->first = next_lease;
    batch->count = drive->batch < left ? drive->batch : left;
    batch->answered = 0;
    batch->started_us = lh_clock_us();
    next_lease = (next_lease + batch->count) % drive->leases;
    drive->peer->renew(batch);
}

static void on_renewed(struct batch *batch)
{
    int64_t now_us = lh_clock_us();

    if (now_us >= from_us && now_us < to_us) {
        measured += batch->count;
        samples_add(batch->drive->samples, now_us - batch->started_us);
    }
    if (now_us < to_us)
        begin(batch);
    else if (--running == 0)
        batch->drive->is_over = true;
}

void workload_heartbeats(struct drive *drive)
{
    struct batch *batches = lh_alloc_zero(drive->clients, sizeof(*batches));
    struct samples *samples = drive->samples;
    int64_t began_us = lh_clock_us(), filled_us;

    drive->is_lasting = true;
    drive_make_slots(drive, drive->leases);
    drive->peer->open(drive);
    drive_acquire_all(drive, 2000);
    filled_us = lh_clock_us();
    drive->on_renewed = on_renewed;
    from_us = filled_us + drive->warmup_us;
    to_us = from_us + drive->measure_us;
    running = drive->clients;
    for (size_t i = 0; i < drive->clients; i++) {
        batches[i].drive = drive;
        batches[i].lane = (uint32_t)i;
        begin(&batches[i]);
    }
    drive_run_until(drive, &drive->is_over, drive->warmup_us + drive->measure_us + 120 * LH_US_PER_S,
                    "the last answer");
    samples_sort(samples);
    printf("{\"heartbeats\": %zu, \"per_s\": %.1f, \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"p999_ms\": %.3f, \"fill_s\": "
           "%.2f}\n",
           measured, (double)measured * 1e6 / (double)drive->measure_us, samples_quantile_ms(samples, 0.5),
           samples_quantile_ms(samples, 0.99), samples_quantile_ms(samples, 0.999),
           (double)(filled_us - began_us) / (double)LH_US_PER_S);
    free(batches);
}
