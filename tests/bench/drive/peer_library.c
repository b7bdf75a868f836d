/*
 * libleasehold, as a program that uses it: each acquire is asynchronous, a lease is given back by lh_try_release, which
 * waits for nothing, and the next acquire of the same name goes out when that release has been answered. So a pair ends
 * when the next one's lease is there; what is left at the end is waited for. Renewals are the library's own business.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "drive.h"
#include "leasehold.h"
#include "loop/internal.h"

struct state {
    struct lh_client **clients;
    struct lh_declared **declared;
    struct slot **again; /* given back in this turn: their pairs go on in the next */
    size_t again_count;
    struct lh_deferred go_on;
    bool is_there;
};

static void on_acquired(void *arg, enum lh_status status, struct lh_lease *lease, const struct lh_error *error)
{
    struct slot *slot = arg;

    if (status != LH_OK)
        drive_die("libleasehold: acquire: %s", error->message);
    if (!lh_lease_is_held(lease) || lh_lease_token(lease) <= slot->token)
        drive_die("libleasehold: a lease that is not held, or with a token that did not grow");
    slot->token = lh_lease_token(lease);
    slot->lease = lease;
    slot->drive->on_acquired(slot);
}

static void acquire(struct slot *slot, bool wait)
{
    struct state *state = slot->drive->state;
    struct lh_acquire_options options = {.wait_us = wait ? LH_FOREVER : 0};
    struct lh_error error;
    char key[DRIVE_KEY_BYTES];

    slot->generation++;
    drive_key(slot, key);
    if (lh_acquire_async(state->declared[slot->number % slot->drive->channels], key, &options, on_acquired, slot, NULL,
                         &error) != LH_OK)
        drive_die("libleasehold: %s", error.message);
}

static void go_on(void *arg)
{
    struct drive *drive = arg;
    struct state *state = drive->state;
    struct slot **again = state->again;
    size_t count = state->again_count;

    state->again = lh_alloc((drive->slot_count + 1) * sizeof(struct slot *));
    state->again_count = 0;
    for (size_t i = 0; i < count; i++)
        drive->on_released(again[i]);
    free(again);
}

static void release(struct slot *slot)
{
    struct drive *drive = slot->drive;
    struct state *state = drive->state;

    if (lh_try_release(slot->lease, NULL) != LH_OK)
        drive_die("libleasehold: a lease could not be given back");
    lh_lease_destroy(slot->lease);
    slot->lease = NULL;
    state->again[state->again_count++] = slot;
    lh_defer(drive->loop, &state->go_on);
}

static void renew(struct batch *batch)
{
    drive_die("libleasehold renews by itself");
}

static void on_first(void *arg, enum lh_status status, struct lh_lease *lease, const struct lh_error *error)
{
    struct state *state = arg;

    if (status != LH_OK)
        drive_die("libleasehold: %s", error->message);
    lh_lease_destroy(lease);
    state->is_there = true;
}

static void open_clients(struct drive *drive)
{
    struct state *state = lh_alloc_zero(1, sizeof(*state));
    struct lh_client_options options = {.endpoints = drive->target, .event_base = drive->loop->base};
    struct lh_declare_options declaration = {.duration_us = drive->duration_s * LH_SECOND};
    struct lh_error error;

    drive->state = state;
    state->again = lh_alloc((drive->slot_count + 1) * sizeof(struct slot *));
    lh_deferred_init(&state->go_on, go_on, drive);
    state->clients = lh_alloc_zero(drive->channels, sizeof(struct lh_client *));
    state->declared = lh_alloc_zero(drive->channels, sizeof(struct lh_declared *));
    for (size_t i = 0; i < drive->channels; i++) {
        state->clients[i] = lh_client_create(&options, &error);
        if (state->clients[i] == NULL)
            drive_die("libleasehold: %s", error.message);
        state->declared[i] = lh_declare(state->clients[i], "bench", &declaration, &error);
        if (state->declared[i] == NULL)
            drive_die("libleasehold: %s", error.message);
    }
    if (lh_acquire_async(state->declared[0], "opening", NULL, on_first, state, NULL, &error) != LH_OK)
        drive_die("libleasehold: %s", error.message);
    drive_run_until(drive, &state->is_there, 60 * LH_US_PER_S, "the first lease");
    drive->uncounted = 1;
}

/* Until everything that was given back has been answered. */
static void finish(struct drive *drive)
{
    struct state *state = drive->state;

    for (size_t i = 0; i < drive->channels; i++) {
        struct lh_client_stats stats;
        int64_t end_us = lh_clock_us() + 60 * LH_US_PER_S;
        for (lh_client_get_stats(state->clients[i], &stats); stats.releases > 0;
             lh_client_get_stats(state->clients[i], &stats)) {
            if (lh_clock_us() > end_us)
                drive_die("libleasehold: %llu releases are not answered", (unsigned long long)stats.releases);
            drive_run_for(drive, LH_US_PER_MS);
        }
        if (stats.lost > 0 || stats.left_to_expire > 0)
            drive_die("libleasehold: %llu leases were lost, %llu left to expire", (unsigned long long)stats.lost,
                      (unsigned long long)stats.left_to_expire);
    }
}

const struct peer peer_library = {
    .name = "library", .open = open_clients, .acquire = acquire, .release = release, .renew = renew, .finish = finish};
