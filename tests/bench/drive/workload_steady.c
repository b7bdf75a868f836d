/*
 * Many leases, each renewed every --every seconds, no faster; beside it one client that acquires and releases other
 * names. Does it stay like that, how late are the renewals answered, and what does the other client wait?
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "drive.h"
#include "samples.h"

#define TICK_US (50 * LH_US_PER_MS)
/* The other client asks so often that there are samples, and so seldom that what it costs does not count. */
#define OTHER_US (100 * LH_US_PER_MS)

static struct samples renewals, acquires;
static struct lh_timer tick, other_tick;
/* A server that does not keep up is waited for, as clients would: so much is under way at most, and what is owed shows.
 */
#define LEASES_UNDER_WAY_MAX 100000

static size_t next_lease, renewed, in_flight;
static double owed, per_tick;
static int64_t from_us, to_us;

static void on_renewed(struct batch *batch)
{
    int64_t now_us = lh_clock_us();

    if (now_us >= from_us) {
        renewed += batch->count;
        samples_add(&renewals, now_us - batch->started_us);
    }
    in_flight--;
    free(batch);
}

static void send_batch(struct drive *drive, size_t count)
{
    struct batch *batch = lh_alloc_zero(1, sizeof(*batch));

    batch->drive = drive;
    batch->lane = (uint32_t)(next_lease / drive->batch);
    batch->first = next_lease;
    batch->count = count;
    batch->started_us = lh_clock_us();
    next_lease = (next_lease + count) % drive->leases;
    in_flight++;
    drive->peer->renew(batch);
}

static void on_tick(void *arg)
{
    struct drive *drive = arg;

    for (owed += per_tick; owed >= 1 && in_flight * drive->batch < LEASES_UNDER_WAY_MAX;) {
        size_t left = drive->leases - next_lease, count = drive->batch;
        count = count > (size_t)owed ? (size_t)owed : count;
        count = count > left ? left : count;
        send_batch(drive, count);
        owed -= (double)count;
    }
    if (lh_clock_us() < to_us)
        lh_timer_arm_at_us(&tick, tick.due.at_us + TICK_US);
}

static void begin(void *arg)
{
    struct slot *slot = arg;
    slot->started_us = lh_clock_us();
    slot->drive->peer->acquire(slot, false);
}

static void on_acquired(struct slot *slot)
{
    if (lh_clock_us() >= from_us)
        samples_add(&acquires, lh_clock_us() - slot->started_us);
    slot->drive->peer->release(slot);
}

static void on_released(struct slot *slot)
{
    if (lh_clock_us() < to_us)
        lh_timer_arm_at_us(&other_tick, lh_clock_us() + OTHER_US);
    else
        slot->drive->is_over = true;
}

void workload_steady(struct drive *drive)
{
    struct slot *other;

    drive->is_lasting = true;
    drive_make_slots(drive, drive->leases + 1);
    other = &drive->slots[--drive->slot_count];
    drive->peer->open(drive);
    drive_acquire_all(drive, 2000);
    drive->on_renewed = on_renewed;
    drive->on_acquired = on_acquired;
    drive->on_released = on_released;
    per_tick = (double)drive->leases * (double)TICK_US / (double)(drive->every_s * LH_US_PER_S);
    from_us = lh_clock_us() + drive->warmup_us;
    to_us = from_us + drive->measure_us;
    lh_timer_init(&tick, drive->loop, on_tick, drive);
    lh_timer_arm_at_us(&tick, lh_clock_us());
    lh_timer_init(&other_tick, drive->loop, begin, other);
    begin(other);
    drive_run_until(drive, &drive->is_over, drive->warmup_us + drive->measure_us + 120 * LH_US_PER_S,
                    "the last answer");
    samples_sort(&renewals);
    samples_sort(&acquires);
    printf("{\"heartbeats\": %zu, \"per_s\": %.1f, \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"acquires\": %zu, "
           "\"acquire_p50_ms\": %.3f, "
           "\"acquire_p99_ms\": %.3f, \"owed\": %.0f}\n",
           renewed, (double)renewed * 1e6 / (double)drive->measure_us, samples_quantile_ms(&renewals, 0.5),
           samples_quantile_ms(&renewals, 0.99), acquires.count, samples_quantile_ms(&acquires, 0.5),
           samples_quantile_ms(&acquires, 0.99), owed);
}
