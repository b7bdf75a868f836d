/* Acquire and release, each client a name of its own, one after the other: a pair's time is from its request to the
 * answer of its release. Warm-up pairs are counted, but not measured. */
#include <stdio.h>

#include "base/clock.h"
#include "drive.h"
#include "samples.h"

static size_t running, total, measured;
static int64_t from_us, to_us;

static void begin(struct slot *slot)
{
    slot->started_us = lh_clock_us();
    slot->drive->peer->acquire(slot, false);
}

static void on_acquired(struct slot *slot)
{
    slot->drive->peer->release(slot);
}

static void on_released(struct slot *slot)
{
    int64_t now_us = lh_clock_us();

    total++;
    if (now_us >= from_us && now_us < to_us) {
        measured++;
        samples_add(slot->drive->samples, now_us - slot->started_us);
    }
    if (now_us < to_us)
        begin(slot);
    else if (--running == 0)
        slot->drive->is_over = true;
}

void workload_pairs(struct drive *drive)
{
    struct samples *samples = drive->samples;

    drive_make_slots(drive, drive->clients);
    drive->peer->open(drive);
    drive->on_acquired = on_acquired;
    drive->on_released = on_released;
    from_us = lh_clock_us() + drive->warmup_us;
    to_us = from_us + drive->measure_us;
    running = drive->clients;
    for (size_t i = 0; i < drive->clients; i++)
        begin(&drive->slots[i]);
    drive_run_until(drive, &drive->is_over, drive->warmup_us + drive->measure_us + 120 * LH_US_PER_S,
                    "the last answer");
    samples_sort(samples);
    printf("{\"pairs\": %zu, \"total\": %zu, \"per_s\": %.1f, \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"p999_ms\": %.3f}\n",
           measured, total + drive->uncounted, (double)measured * 1e6 / (double)drive->measure_us,
           samples_quantile_ms(samples, 0.5), samples_quantile_ms(samples, 0.99), samples_quantile_ms(samples, 0.999));
}
