/* What is there and does nothing: waiters, connections, leases that nobody renews. Who measures them is told READY. */
#include <stdio.h>

#include "base/clock.h"
#include "drive.h"

static size_t granted;

static void on_granted(struct slot *slot)
{
    granted++;
}

/* `clients` wait for one name, over `connections`. */
void workload_waiters(struct drive *drive)
{
    drive->is_hot = true;
    drive_make_slots(drive, drive->clients + 1);
    drive->peer->open(drive);
    drive->on_acquired = on_granted;
    drive->peer->acquire(&drive->slots[0], true);
    while (granted == 0)
        lh_loop_run_once(drive->loop, LH_US_PER_S);
    drive_pause(drive); /* before the others come */
    for (size_t i = 1; i < drive->slot_count; i++) {
        drive->peer->acquire(&drive->slots[i], true);
        if (i % 1000 == 0)
            lh_loop_run_once(drive->loop, 0);
    }
    if (drive->peer->await_waiters != NULL)
        drive->peer->await_waiters(drive, drive->clients);
    else
        drive_run_for(drive, 5 * LH_US_PER_S);
    drive_pause(drive);
    if (granted != 1)
        drive_die("a waiter was granted what is held");
    printf("{\"waiters\": %zu}\n", drive->clients);
}

/* `connections`, each of which was used once and then never again. */
void workload_connections(struct drive *drive)
{
    drive_pause(drive);
    drive->is_lasting = true;
    drive_make_slots(drive, drive->channels);
    drive->peer->open(drive);
    drive_acquire_all(drive, 50); /* of one address the daemon takes 64 whose handshake is not finished */
    drive_pause(drive);
    printf("{\"connections\": %zu}\n", drive->channels);
}

static size_t renewed;

static void on_renewed(struct batch *batch)
{
    renewed += batch->count;
}

/* Leases whose holder dies: all acquired, renewed once together so that they expire together, and left. */
void workload_fill(struct drive *drive)
{
    struct batch batch = {.drive = drive};
    int64_t began_us = lh_clock_us(), filled_us, renewing_us;

    drive->is_lasting = true;
    drive_make_slots(drive, drive->leases);
    drive->peer->open(drive);
    drive_acquire_all(drive, 2000);
    filled_us = lh_clock_us();
    drive->on_renewed = on_renewed;
    while (renewed < drive->leases) {
        size_t left = drive->leases - renewed, before = renewed;
        batch.first = renewed;
        batch.count = drive->batch < left ? drive->batch : left;
        batch.answered = 0;
        drive->peer->renew(&batch);
        while (renewed == before)
            lh_loop_run_once(drive->loop, LH_US_PER_S);
    }
    renewing_us = lh_clock_us();
    printf("{\"leases\": %zu, \"fill_s\": %.2f, \"renew_s\": %.2f}\n", drive->leases,
           (double)(filled_us - began_us) / (double)LH_US_PER_S,
           (double)(renewing_us - filled_us) / (double)LH_US_PER_S);
}

static void on_returned(struct slot *slot)
{
    slot->drive->is_over = true;
}

/* One lease from a server that may only just be starting: the peer's open() tries until it is there. */
void workload_first(struct drive *drive)
{
    int64_t at_us;

    drive->is_patient = drive->is_lasting = true;
    drive_make_slots(drive, 1);
    drive->peer->open(drive);
    drive_acquire_all(drive, 1);
    at_us = lh_clock_us();
    drive->on_released = on_returned;
    drive->peer->release(&drive->slots[0]);
    drive_run_until(drive, &drive->is_over, 60 * LH_US_PER_S, "the answer of the release");
    printf("{\"at_us\": %lld}\n", (long long)at_us);
}
