/*
 * How fast is the store alone, without gRPC: batches on every lane at once.
 *
 *     store_bench CONNINFO [batch size] [lanes] [seconds] [scopes per lane]
 *
 * Migrates the database, then measures for each kind of batch: acquire + release of the same scopes over and over
 * (scopes per lane = batch size), or of ever others, and heartbeats. Prints pairs or heartbeats per second and the
 * milliseconds of a batch.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/standard.h"
#include "loop/loop.h"
#include "pg/migrate.h"
#include "store/store.h"

enum phase { ACQUIRE, RELEASE, HEARTBEAT };

struct lane {
    unsigned number;
    struct lh_acquire_item *acquire_items;
    struct lh_holder_item *heartbeat_items;
    struct lh_holder_item *release_items;
    struct lh_acquire_item **acquires;
    struct lh_holder_item **heartbeats;
    struct lh_holder_item **releases;
    enum phase phase;
    size_t next_scope;
    uint64_t batches;
    uint64_t not_granted;
};

static struct lh_loop *loop;
static struct lh_store *store;
static size_t batch_size = 500, scopes_per_lane;
static unsigned lanes = 2, lanes_up, busy_lanes;
static double seconds = 5;
static char (*keys)[32];
static struct lane lane_states[LH_STORE_LANES_MAX];
static int64_t until_us;
static bool is_heartbeating, is_enrolled;

static void on_batch(void *arg, enum lh_status status, const struct lh_error *error);

static void die(const char *what, const struct lh_error *error)
{
    fprintf(stderr, "store_bench: %s%s%s\n", what, error == NULL ? "" : ": ", error == NULL ? "" : error->message);
    exit(1);
}

static void send_acquire(struct lane *lane)
{
    for (size_t i = 0; i < batch_size; i++) {
        size_t scope = lane->number * scopes_per_lane + (lane->next_scope + i) % scopes_per_lane;
        lane->acquire_items[i] = (struct lh_acquire_item){.ns = "bench",
                                                          .key = keys[scope],
                                                          .lease_key = lh_uuid_random(),
                                                          .terms.owner = "store_bench",
                                                          .terms.labels = "{}",
                                                          .terms.duration_us = 600 * LH_US_PER_S,
                                                          .at_least_us = LH_AT_LEAST_POLICY};
    }
    lane->next_scope = (lane->next_scope + batch_size) % scopes_per_lane;
    lane->phase = ACQUIRE;
    if (store->ops->send(store, lane->number, LH_KIND_ACQUIRE, 0, (void **)lane->acquires, batch_size, on_batch,
                         lane) != LH_OK)
        die("acquire was refused", NULL);
}

static void send_release(struct lane *lane)
{
    for (size_t i = 0; i < batch_size; i++) {
        const struct lh_acquire_item *held = &lane->acquire_items[i];
        lane->release_items[i] =
            (struct lh_holder_item){.ns = held->ns, .key = held->key, .lease_key = held->lease_key};
    }
    lane->phase = RELEASE;
    if (store->ops->send(store, lane->number, LH_KIND_RELEASE, 0, (void **)lane->releases, batch_size, on_batch,
                         lane) != LH_OK)
        die("release was refused", NULL);
}

static void send_heartbeat(struct lane *lane)
{
    for (size_t i = 0; i < batch_size; i++) {
        const struct lh_acquire_item *held = &lane->acquire_items[i];
        lane->heartbeat_items[i] =
            (struct lh_holder_item){.ns = held->ns, .key = held->key, .lease_key = held->lease_key};
    }
    lane->phase = HEARTBEAT;
    if (store->ops->send(store, lane->number, LH_KIND_HEARTBEAT, 0, (void **)lane->heartbeats, batch_size, on_batch,
                         lane) != LH_OK)
        die("heartbeat was refused", NULL);
}

static void on_batch(void *arg, enum lh_status status, const struct lh_error *error)
{
    struct lane *lane = arg;

    if (status != LH_OK)
        die("a batch failed", error);
    lane->batches++;
    for (size_t i = 0; lane->phase == ACQUIRE && i < batch_size; i++)
        lane->not_granted += lane->acquire_items[i].outcome != LH_ACQUIRE_GRANTED;
    if (lane->phase == RELEASE && lh_clock_us() >= until_us) {
        busy_lanes--;
        return;
    }
    if (lane->phase == RELEASE)
        send_acquire(lane);
    else if (is_heartbeating && lh_clock_us() < until_us)
        send_heartbeat(lane);
    else
        send_release(lane);
}

static void measure(const char *what, bool heartbeats, unsigned items_per_unit)
{
    int64_t from_us = lh_clock_us();
    uint64_t batches = 0, not_granted = 0;
    double took;

    is_heartbeating = heartbeats;
    until_us = from_us + (int64_t)(seconds * (double)LH_US_PER_S);
    busy_lanes = lanes;
    for (unsigned i = 0; i < lanes; i++) {
        lane_states[i].batches = lane_states[i].not_granted = 0;
        send_acquire(&lane_states[i]);
    }
    while (busy_lanes > 0)
        lh_loop_run_once(loop, LH_US_PER_S);
    took = (double)(lh_clock_us() - from_us) / (double)LH_US_PER_S;
    for (unsigned i = 0; i < lanes; i++) {
        batches += lane_states[i].batches;
        not_granted += lane_states[i].not_granted;
    }
    printf("%-32s %9.0f/s   %6.2f ms a batch of %zu on %u lanes", what,
           (double)batches * (double)batch_size / items_per_unit / took, took * 1000 * lanes / (double)batches,
           batch_size, lanes);
    printf(not_granted > 0 ? "   (%llu not granted)\n" : "\n", (unsigned long long)not_granted);
}

static void on_lane_up(void *arg, unsigned lane)
{
    lanes_up++;
}

static void on_lane_down(void *arg, unsigned lane)
{
    die("a lane was lost", NULL);
}

static void on_nothing(void *arg)
{
}

static void on_enrolled(void *arg, enum lh_status status, const struct lh_error *error,
                        const struct lh_tick_answer *answer)
{
    if (status != LH_OK)
        die("enroll failed", error);
    is_enrolled = true;
}

static void on_control_up(void *arg)
{
    if (store->ops->enroll(store, on_enrolled, NULL) != LH_OK)
        die("enroll was refused", NULL);
}

static void on_wake(void *arg, const struct lh_wake *wake)
{
}

static void on_stopped(void *arg, enum lh_status status, const struct lh_error *error)
{
    *(bool *)arg = true;
}

static void start(const char *conninfo)
{
    static const struct lh_store_events events = {on_lane_up, on_lane_down, on_control_up, on_nothing,
                                                  on_nothing, on_wake,      NULL};
    struct lh_store_options options;
    struct lh_error error;

    if (lh_migrate(conninfo, LH_MIGRATE_RUN, &lh_migrations, LH_VERSION, NULL, &error) != LH_OK)
        die("the schema", &error);
    loop = lh_loop_create();
    lh_store_options_init(&options);
    options.conninfo = conninfo;
    options.lanes = lanes;
    store = lh_store_create(loop, &options);
    store->ops->start(store, &events, NULL);
    while (lanes_up < lanes || !is_enrolled)
        lh_loop_run_once(loop, LH_US_PER_S);
}

static void make_lanes(void)
{
    keys = lh_alloc(lanes * scopes_per_lane * sizeof(*keys));
    for (size_t i = 0; i < lanes * scopes_per_lane; i++)
        snprintf(keys[i], sizeof(keys[i]), "scope-%zu", i);
    for (unsigned i = 0; i < lanes; i++) {
        struct lane *lane = &lane_states[i];
        lane->number = i;
        lane->acquire_items = lh_alloc_zero(batch_size, sizeof(struct lh_acquire_item));
        lane->heartbeat_items = lh_alloc_zero(batch_size, sizeof(struct lh_holder_item));
        lane->release_items = lh_alloc_zero(batch_size, sizeof(struct lh_holder_item));
        lane->acquires = lh_alloc(batch_size * sizeof(void *));
        lane->heartbeats = lh_alloc(batch_size * sizeof(void *));
        lane->releases = lh_alloc(batch_size * sizeof(void *));
        for (size_t n = 0; n < batch_size; n++) {
            lane->acquires[n] = &lane->acquire_items[n];
            lane->heartbeats[n] = &lane->heartbeat_items[n];
            lane->releases[n] = &lane->release_items[n];
        }
    }
}

static void free_lanes(void)
{
    for (unsigned i = 0; i < lanes; i++) {
        free(lane_states[i].acquire_items);
        free(lane_states[i].heartbeat_items);
        free(lane_states[i].release_items);
        free(lane_states[i].acquires);
        free(lane_states[i].heartbeats);
        free(lane_states[i].releases);
    }
    free(keys);
}

int main(int argc, char **argv)
{
    bool is_stopped = false;

    lh_standard_open();
    if (argc < 2)
        die("usage: store_bench CONNINFO [batch size] [lanes] [seconds] [scopes per lane]", NULL);
    batch_size = argc > 2 ? strtoul(argv[2], NULL, 10) : batch_size;
    lanes = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : lanes;
    seconds = argc > 4 ? strtod(argv[4], NULL) : seconds;
    scopes_per_lane = argc > 5 ? strtoul(argv[5], NULL, 10) : batch_size;
    if (batch_size < 1 || batch_size > LH_BATCH_MAX || lanes < 1 || lanes > LH_STORE_LANES_MAX ||
        scopes_per_lane < batch_size)
        die("a number is out of bounds", NULL);
    make_lanes();
    start(argv[1]);
    measure("acquire + release, pairs", false, 2);
    measure("heartbeats", true, 1);
    store->ops->stop(store, on_stopped, &is_stopped);
    while (!is_stopped)
        lh_loop_run_once(loop, LH_US_PER_S);
    lh_store_destroy(store);
    lh_loop_destroy(loop);
    free_lanes();
    return 0;
}
