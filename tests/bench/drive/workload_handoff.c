/*
 * One name that everybody wants: whoever gets it gives it back at once and queues again behind the others. Measured
 * from when a release is sent to when the next grant has arrived. The first holder keeps it until everybody waits. Of a
 * shared name (--units, --capacity) all but one unit are with --holders, so that one waiter at a time gets the last.
 */
#include <stdio.h>

#include "base/clock.h"
#include "drive.h"
#include "samples.h"

static size_t granted;
static int64_t released_us, from_us, to_us;
static struct slot *holder;
static int64_t last_token;

static void on_released(struct slot *slot)
{
    if (!slot->drive->is_over)
        slot->drive->peer->acquire(slot, true);
}

static void on_acquired(struct slot *slot)
{
    struct drive *drive = slot->drive;
    int64_t now_us = lh_clock_us();

    if (holder != NULL)
        drive_die("two holders at once");
    if (slot->token != 0 && slot->token <= last_token)
        drive_die("a token did not grow");
    last_token = slot->token;
    holder = slot;
    granted++;
    if (granted == 1)
        return; /* it settles first */
    if (now_us >= from_us)
        samples_add(drive->samples, now_us - released_us);
    if (now_us >= to_us || drive->samples->count >= drive->rounds) {
        to_us = now_us;
        drive->is_over = true;
        return;
    }
    holder = NULL;
    released_us = now_us;
    drive->peer->release(slot);
}

void workload_handoff(struct drive *drive)
{
    struct samples *samples = drive->samples;

    drive->is_hot = true;
    drive_make_slots(drive, drive->holders + drive->clients + 1);
    drive->peer->open(drive);
    if (drive->holders > 0) {
        size_t all = drive->slot_count;
        drive->slot_count = drive->holders;
        drive_acquire_all(drive, 100);
        drive->slot_count = all;
    }
    drive->on_acquired = on_acquired;
    drive->on_released = on_released;
    for (size_t i = drive->holders; i < drive->slot_count; i++)
        drive->peer->acquire(&drive->slots[i], true);
    if (drive->peer->await_waiters != NULL)
        drive->peer->await_waiters(drive, drive->clients);
    else
        drive_run_for(drive, LH_US_PER_S + (int64_t)drive->clients * 500);
    if (holder == NULL)
        drive_die("nobody was granted it");
    /* Time that waiters get, and that their turns take, are of the same order: the warm-up counts from here. */
    from_us = lh_clock_us() + drive->warmup_us;
    to_us = from_us + drive->measure_us;
    released_us = lh_clock_us();
    struct slot *first = holder;
    holder = NULL;
    drive->peer->release(first);
    drive_run_until(drive, &drive->is_over, drive->warmup_us + drive->measure_us + 60 * LH_US_PER_S, "the last grant");
    samples_sort(samples);
    printf(
        "{\"handoffs\": %zu, \"total\": %zu, \"per_s\": %.1f, \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"p999_ms\": %.3f}\n",
        samples->count, granted, (double)samples->count * 1e6 / (double)(to_us - from_us),
        samples_quantile_ms(samples, 0.5), samples_quantile_ms(samples, 0.99), samples_quantile_ms(samples, 0.999));
}

static int64_t expires_us;

static void on_expired(struct slot *slot)
{
    struct drive *drive = slot->drive;
    int64_t now_us = lh_clock_us();

    if (slot->token != 0 && slot->token <= last_token)
        drive_die("a token did not grow");
    last_token = slot->token;
    if (granted++ > 0)
        samples_add(drive->samples, now_us - expires_us);
    drive->is_over = granted > drive->rounds;
    /* It dies now: nobody renews. */
    expires_us = now_us + (drive->duration_s + drive->grace_s) * LH_US_PER_S;
}

/* A chain of holders that die: from the expiry of one (duration and grace) to the next one's grant. */
void workload_expiry(struct drive *drive)
{
    struct samples *samples = drive->samples;

    drive->is_hot = true;
    drive_make_slots(drive, drive->rounds + 1);
    drive->peer->open(drive);
    drive->on_acquired = on_expired;
    for (size_t i = 0; i < drive->slot_count; i++)
        drive->peer->acquire(&drive->slots[i], true);
    drive_run_until(drive, &drive->is_over,
                    ((int64_t)drive->rounds * (drive->duration_s + drive->grace_s + 5) + 60) * LH_US_PER_S,
                    "the last grant");
    samples_sort(samples);
    printf("{\"expiries\": %zu, \"p50_ms\": %.3f, \"max_ms\": %.3f}\n", samples->count,
           samples_quantile_ms(samples, 0.5), samples_quantile_ms(samples, 1));
}
