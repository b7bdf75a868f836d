/* The nodes' side of the fake: time, lanes, control, breaking and mending. The rules of the database are in
 * fake_rules.c. */
#include "fake_store.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "fake_rules.h"

/* Instead of libc's: hash tables are keyed with it, and a seed has to give the same history each time. */
ssize_t getrandom(void *buffer, size_t size, unsigned flags)
{
    memset(buffer, 0x5a, size);
    return (ssize_t)size;
}

static bool is_before(const struct fake_event *a, const struct fake_event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->seq < b->seq;
}

void fake_at(struct fake_world *world, int64_t at_us, fake_event_fn *fn, void *arg, uint64_t n)
{
    if (world->event_count + 1 >= world->event_capacity) {
        world->event_capacity = world->event_capacity == 0 ? 64 : world->event_capacity * 2;
        world->events = lh_realloc(world->events, world->event_capacity, sizeof(world->events[0]));
    }
    struct fake_event event = {at_us < world->now_us ? world->now_us : at_us, world->next_seq++, fn, arg, n};
    size_t slot = ++world->event_count;
    while (slot > 1 && is_before(&event, &world->events[slot / 2])) {
        world->events[slot] = world->events[slot / 2];
        slot /= 2;
    }
    world->events[slot] = event;
}

static struct fake_event take_event(struct fake_world *world)
{
    struct fake_event first = world->events[1];
    struct fake_event last = world->events[world->event_count--];
    size_t slot = 1;
    for (;;) {
        size_t child = slot * 2;
        if (child > world->event_count)
            break;
        if (child < world->event_count && is_before(&world->events[child + 1], &world->events[child]))
            child++;
        if (!is_before(&world->events[child], &last))
            break;
        world->events[slot] = world->events[child];
        slot = child;
    }
    world->events[slot] = last;
    return first;
}

bool fake_step(struct fake_world *world, int64_t until_us)
{
    if (world->event_count == 0 || world->events[1].at_us > until_us) {
        world->now_us = until_us;
        return false;
    }
    struct fake_event event = take_event(world);
    world->now_us = event.at_us;
    event.fn(world, event.arg, event.n);
    return true;
}

void fake_run(struct fake_world *world, int64_t duration_us)
{
    int64_t until_us = world->now_us + duration_us;
    while (fake_step(world, until_us)) {
    }
}

/* xorshift64*, https://vigna.di.unimi.it/ftp/papers/xorshift.pdf */
uint32_t fake_random(struct fake_world *world)
{
    uint64_t x = world->random_state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    world->random_state = x;
    return (uint32_t)(x * UINT64_C(2685821657736338717) >> 32);
}

int fake_below(struct fake_world *world, int n)
{
    return (int)(fake_random(world) % (uint32_t)n);
}

static int64_t delay_us(struct fake_world *world)
{
    int64_t span_us = world->max_delay_us - world->min_delay_us;
    return world->min_delay_us + (span_us > 0 ? (int64_t)(fake_random(world) % (uint64_t)span_us) : 0);
}

void fake_world_init(struct fake_world *world, uint64_t seed)
{
    memset(world, 0, sizeof(*world));
    world->now_us = 1000 * LH_US_PER_S;
    world->clock_offset_us = INT64_C(1700000000) * LH_US_PER_S;
    world->random_state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    for (int i = 0; i < 8; i++)
        fake_random(world);
    world->min_delay_us = 500;
    world->max_delay_us = 500;
    world->slow_poll_helps = true;
    world->next_ticket = 100;
    for (int i = 0; i < FAKE_SCOPES; i++) {
        world->scopes[i].ns = "payments.invoices";
        snprintf(world->scopes[i].key, sizeof(world->scopes[i].key), "k%d", i);
        world->scopes[i].stalled_since_us = -1;
    }
}

void fake_world_finish(struct fake_world *world)
{
    for (int i = 0; i < world->node_count; i++) {
        struct fake_node *node = world->nodes[i];
        lh_coordinator_destroy(node->coordinator);
        for (int k = 0; k < FAKE_ALL_LANES; k++)
            lh_arena_finish(&node->lanes[k].batch.strings);
        free(node);
    }
    for (int i = 0; i < FAKE_SCOPES; i++) {
        free(world->scopes[i].rows);
        free(world->scopes[i].ends);
    }
    free(world->events);
}

/* --- the port --- */

static int64_t port_now_us(void *arg)
{
    return ((struct fake_node *)arg)->world->now_us;
}

static void on_port_timer(struct fake_world *world, void *arg, uint64_t n)
{
    struct fake_node *node = arg;
    if (n == node->timer_serial && !node->is_gone && node->coordinator != NULL)
        lh_coordinator_on_timer(node->coordinator);
}

static void port_set_timer(void *arg, int64_t at_us)
{
    struct fake_node *node = arg;
    node->timer_serial++;
    if (at_us != LH_FOREVER)
        fake_at(node->world, at_us, on_port_timer, node, node->timer_serial);
}

static uint32_t port_random(void *arg)
{
    return fake_random(((struct fake_node *)arg)->world);
}

static bool port_is_behind(void *arg)
{
    struct fake_node *node = arg;
    return node->behind > 0 && node->behind-- > 0;
}

/* --- lanes --- */

static void finish_stop(struct fake_node *node);

static void answer_batch(struct fake_node *node, struct fake_lane *lane, enum lh_status status)
{
    struct fake_batch *batch = &lane->batch;
    struct lh_error error;
    lh_error_set(&error, status == LH_OK ? LH_INTERNAL : status, "the database says no");
    batch->kind = -1;
    batch->serial++;
    batch->on_done(batch->arg, status, status == LH_OK ? NULL : &error);
    lh_arena_finish(&batch->strings); /* whoever kept a string is found out */
    finish_stop(node);
}

static void on_connect(struct fake_world *world, void *arg, uint64_t n);

static void on_reply(struct fake_world *world, void *arg, uint64_t n)
{
    struct fake_node *node = arg;
    struct fake_lane *lane = &node->lanes[n % FAKE_ALL_LANES];
    if (node->is_gone || lane->batch.serial != n / FAKE_ALL_LANES || lane->batch.kind < 0)
        return;
    if (lane->is_broken) {
        lane->is_broken = false;
        fake_lane_drop(node, (unsigned)(n % FAKE_ALL_LANES), false);
        fake_at(world, world->now_us + 50 * LH_US_PER_MS, on_connect, node, n % FAKE_ALL_LANES);
        return;
    }
    answer_batch(node, lane, lane->batch.status);
}

static void scope_of(int kind, const void *item, const char **ns, const char **key)
{
    /* All of them begin with the names. */
    const struct lh_heartbeat_item *names = item;
    *ns = names->ns;
    *key = names->key;
}

static void on_execute(struct fake_world *world, void *arg, uint64_t n)
{
    struct fake_node *node = arg;
    struct fake_lane *lane = &node->lanes[n % FAKE_ALL_LANES];
    if (node->is_gone || lane->batch.serial != n / FAKE_ALL_LANES || lane->batch.kind < 0)
        return;
    lane->is_broken = lane->batch.is_on_hook_lane && fake_below(world, 100) < world->hook_break_percent;
    if (world->fail_with == LH_OK && (!lane->is_broken || lane->batch.kind == 4))
        fake_execute(node, &lane->batch);
    lane->batch.is_executed = true;
    lane->batch.status = world->fail_with;
    int64_t hook_us = 0;
    const char *ns, *key;
    scope_of(lane->batch.kind, lane->batch.items[0], &ns, &key);
    bool is_slow = world->slow_ns == NULL || strcmp(ns, world->slow_ns) == 0;
    if (lane->batch.is_on_hook_lane && world->hook_us > 0 && is_slow)
        hook_us = (int64_t)(fake_random(world) % (uint64_t)world->hook_us);
    fake_at(world, world->now_us + delay_us(world) + hook_us, on_reply, node, n);
}

/* The core's rule: a scope is in one batch at a time. */
static void check_alone(const struct fake_node *node, const struct fake_batch *batch)
{
    for (int l = 0; l < FAKE_ALL_LANES && batch->kind != 4; l++) {
        const struct fake_batch *other = &node->lanes[l].batch;
        if (other == batch || other->kind < 0 || other->kind == 4)
            continue;
        for (size_t i = 0; i < batch->n; i++) {
            for (size_t k = 0; k < other->n; k++) {
                const char *ns, *key, *other_ns, *other_key;
                scope_of(batch->kind, batch->items[i], &ns, &key);
                scope_of(other->kind, other->items[k], &other_ns, &other_key);
                if (strcmp(ns, other_ns) == 0 && strcmp(key, other_key) == 0)
                    fake_fail("scope %s/%s is in two batches at once", ns, key);
            }
        }
    }
}

static enum lh_status send_batch(struct lh_store *store, unsigned index, int kind, void *items, size_t n,
                                 lh_store_cb *on_done, void *arg)
{
    struct fake_node *node = (struct fake_node *)store;
    struct fake_world *world = node->world;
    struct fake_lane *lane = &node->lanes[index];

    if (!lane->is_up || world->refuse_batches)
        return LH_DATABASE_UNAVAILABLE;
    if (lane->batch.kind >= 0 || node->is_stopping)
        fake_fail("lane %u got a batch out of turn", index);
    if (n == 0 || n > LH_BATCH_MAX)
        fake_fail("a batch of %zu", n);
    struct fake_batch *batch = &lane->batch;
    batch->is_on_hook_lane = index >= FAKE_LANES;
    if (batch->is_on_hook_lane && n != 1 && kind != 4)
        fake_fail("%zu items at once on a hook lane", n);
    if (kind == 4 && (n > LH_REAP_PIPELINE_MAX || !batch->is_on_hook_lane))
        fake_fail("a run of %zu reaps on lane %u", n, index);
    if (kind == 4 && n > world->largest_run)
        world->largest_run = n;
    world->hook_batches[kind] += batch->is_on_hook_lane;
    batch->kind = kind;
    batch->items = items;
    batch->n = n;
    batch->rider_count = 0;
    batch->is_executed = false;
    batch->on_done = on_done;
    batch->arg = arg;
    check_alone(node, batch);
    if (n > world->largest_batch)
        world->largest_batch = n;
    world->batches[kind]++;
    fake_at(world, world->now_us + delay_us(world), on_execute, node, batch->serial * FAKE_ALL_LANES + index);
    return LH_OK;
}

static enum lh_status store_acquire(struct lh_store *store, unsigned lane, int64_t clock_us,
                                    struct lh_acquire_item **items, size_t n, lh_store_cb *on_done, void *arg)
{
    struct fake_node *node = (struct fake_node *)store;
    node->lanes[lane].batch.clock_us = clock_us;
    node->last_clock_us = clock_us;
    return send_batch(store, lane, 0, items, n, on_done, arg);
}

static enum lh_status store_heartbeat(struct lh_store *store, unsigned lane, struct lh_heartbeat_item **items, size_t n,
                                      lh_store_cb *on_done, void *arg)
{
    return send_batch(store, lane, 1, items, n, on_done, arg);
}

static enum lh_status store_release(struct lh_store *store, unsigned lane, struct lh_release_item **items, size_t n,
                                    lh_store_cb *on_done, void *arg)
{
    return send_batch(store, lane, 2, items, n, on_done, arg);
}

static enum lh_status store_hand_over(struct lh_store *store, unsigned lane, int64_t clock_us,
                                      struct lh_release_item **items, size_t n, struct lh_acquire_item **riders,
                                      size_t rider_count, lh_store_cb *on_done, void *arg)
{
    struct fake_node *node = (struct fake_node *)store;
    struct fake_batch *batch = &node->lanes[lane].batch;
    enum lh_status status = send_batch(store, lane, 2, items, n, on_done, arg);
    if (status != LH_OK)
        return status;
    if (rider_count == 0 || rider_count > n)
        fake_fail("%zu riders on %zu releases", rider_count, n);
    batch->clock_us = clock_us;
    node->last_clock_us = clock_us;
    batch->riders = (void **)riders;
    batch->rider_count = rider_count;
    node->world->riders += rider_count;
    return LH_OK;
}

static enum lh_status store_leave(struct lh_store *store, unsigned lane, struct lh_leave_item **items, size_t n,
                                  lh_store_cb *on_done, void *arg)
{
    return send_batch(store, lane, 3, items, n, on_done, arg);
}

static enum lh_status store_reap_hooked(struct lh_store *store, unsigned lane, int64_t clock_us,
                                        struct lh_reap_item **items, size_t n, lh_store_cb *on_done, void *arg)
{
    return send_batch(store, lane, 4, items, n, on_done, arg);
}

/* --- control: one at a time, in order --- */

static void answer_control(struct fake_node *node, enum lh_status status)
{
    struct fake_control control = node->controls[0];
    memmove(node->controls, node->controls + 1, --node->control_count * sizeof(control));
    fake_answer_control(node, &control, status);
}

static void on_control(struct fake_world *world, void *arg, uint64_t n)
{
    struct fake_node *node = arg;
    if (node->is_gone || n != node->control_serial || node->control_count == 0)
        return;
    node->control_serial++;
    node->control_is_moving = false;
    answer_control(node, LH_OK);
    if (!node->control_is_moving && node->control_count > 0 && node->control_is_up) {
        node->control_is_moving = true;
        fake_at(world, world->now_us + delay_us(world), on_control, node, node->control_serial);
    }
}

static enum lh_status add_control(struct lh_store *store, struct fake_control new_control, const struct lh_wake *wake)
{
    struct fake_node *node = (struct fake_node *)store;
    if (!node->control_is_up)
        return LH_DATABASE_UNAVAILABLE;
    if (node->control_count == FAKE_CONTROL_MAX)
        return LH_OVERLOADED;
    struct fake_control *control = &node->controls[node->control_count++];
    *control = new_control;
    if (wake != NULL) {
        snprintf(control->ns, sizeof(control->ns), "%s", wake->ns);
        snprintf(control->key, sizeof(control->key), "%s", wake->key);
    }
    if (!node->control_is_moving) {
        node->control_is_moving = true;
        fake_at(node->world, node->world->now_us + delay_us(node->world), on_control, node, node->control_serial);
    }
    return LH_OK;
}

static enum lh_status store_enroll(struct lh_store *store, lh_tick_cb *on_done, void *arg)
{
    return add_control(store, (struct fake_control){.kind = 0, .on_done.tick = on_done, .arg = arg}, NULL);
}

static enum lh_status store_tick(struct lh_store *store, int64_t clock_us, lh_tick_cb *on_done, void *arg)
{
    ((struct fake_node *)store)->last_clock_us = clock_us;
    return add_control(store, (struct fake_control){.kind = 1, .on_done.tick = on_done, .arg = arg}, NULL);
}

static enum lh_status store_pass_on(struct lh_store *store, const struct lh_wake *wake, lh_store_cb *on_done, void *arg)
{
    return add_control(store, (struct fake_control){.kind = 2, .on_done.store = on_done, .arg = arg}, wake);
}

static enum lh_status store_reap(struct lh_store *store, int64_t clock_us, const char *const *namespaces,
                                 size_t namespace_count, bool include_children, int32_t max, bool is_automatic,
                                 lh_reap_cb *on_done, void *arg)
{
    return add_control(store, (struct fake_control){.kind = 3, .on_done.reap = on_done, .arg = arg}, NULL);
}

/* --- life --- */

static unsigned store_lane_count(struct lh_store *store)
{
    return FAKE_LANES;
}

static unsigned store_hook_lane_count(struct lh_store *store)
{
    return FAKE_HOOK_LANES;
}

static void on_connect(struct fake_world *world, void *arg, uint64_t n)
{
    struct fake_node *node = arg;
    if (node->is_gone)
        return;
    if (n < FAKE_ALL_LANES)
        fake_lane_raise(node, (unsigned)n);
    else if (n == FAKE_ALL_LANES)
        fake_control_raise(node);
    else
        fake_listener_raise(node);
}

static void store_start(struct lh_store *store, const struct lh_store_events *events, void *arg)
{
    struct fake_node *node = (struct fake_node *)store;
    node->events = events;
    node->events_arg = arg;
    for (unsigned i = 0; i < FAKE_ALL_LANES + 2; i++)
        fake_at(node->world, node->world->now_us + delay_us(node->world), on_connect, node, i);
}

static void on_stopped(struct fake_world *world, void *arg, uint64_t n)
{
    struct fake_node *node = arg;
    while (node->control_count > 0)
        answer_control(node, LH_CANCELED);
    fake_unregister(node);
    node->is_gone = true;
    node->on_stopped(node->on_stopped_arg, LH_OK, NULL);
}

static void finish_stop(struct fake_node *node)
{
    if (!node->is_stopping || node->stop_is_due)
        return;
    for (int i = 0; i < FAKE_ALL_LANES; i++) {
        if (node->lanes[i].batch.kind >= 0)
            return;
    }
    node->stop_is_due = true;
    fake_at(node->world, node->world->now_us, on_stopped, node, 0);
}

static void store_stop(struct lh_store *store, lh_store_cb *on_done, void *arg)
{
    struct fake_node *node = (struct fake_node *)store;
    node->is_stopping = true;
    node->on_stopped = on_done;
    node->on_stopped_arg = arg;
    finish_stop(node);
}

static const struct lh_store_ops store_ops = {
    .lane_count = store_lane_count,
    .hook_lane_count = store_hook_lane_count,
    .start = store_start,
    .stop = store_stop,
    .acquire = store_acquire,
    .heartbeat = store_heartbeat,
    .release = store_release,
    .hand_over = store_hand_over,
    .leave = store_leave,
    .reap_hooked = store_reap_hooked,
    .enroll = store_enroll,
    .tick = store_tick,
    .pass_on = store_pass_on,
    .reap = store_reap,
};

struct fake_node *fake_node_start(struct fake_world *world, const struct lh_coordinator_options *options)
{
    assert(world->node_count < FAKE_NODES);
    struct fake_node *node = lh_alloc_zero(1, sizeof(*node));
    node->store.ops = &store_ops;
    node->world = world;
    node->index = world->node_count;
    node->cleaned_at_us = INT64_MIN / 2;
    for (int i = 0; i < FAKE_ALL_LANES; i++)
        node->lanes[i].batch.kind = -1;
    node->port = (struct lh_coordinator_port){port_now_us, port_set_timer, port_random, port_is_behind, node};
    world->nodes[world->node_count++] = node;
    node->coordinator = lh_coordinator_create(&node->store, &node->port, options);
    lh_coordinator_start(node->coordinator);
    return node;
}

static void on_node_stopped(void *arg)
{
    struct fake_node *node = arg;
    struct lh_coordinator_stats stats;
    lh_coordinator_stats(node->coordinator, &stats);
    if (stats.waiters != 0 || stats.pending != 0)
        fake_fail("stopped with %zu waiters and %zu pending", stats.waiters, stats.pending);
    node->has_stopped = true;
    lh_coordinator_destroy(node->coordinator);
    node->coordinator = NULL;
}

void fake_node_stop(struct fake_node *node)
{
    lh_coordinator_stop(node->coordinator, on_node_stopped, node);
}

void fake_node_kill(struct fake_node *node)
{
    for (int i = 0; i < FAKE_ALL_LANES; i++) {
        struct fake_batch *batch = &node->lanes[i].batch;
        if (batch->kind >= 0 && !batch->is_executed && fake_below(node->world, 2) == 0)
            fake_execute(node, batch); /* it was on its way already */
        batch->kind = -1;
        lh_arena_finish(&batch->strings);
    }
    node->is_gone = true;
    lh_coordinator_destroy(node->coordinator);
    node->coordinator = NULL;
}

void fake_lane_drop(struct fake_node *node, unsigned index, bool commits)
{
    struct fake_lane *lane = &node->lanes[index];
    if (node->is_gone || !lane->is_up)
        return;
    lane->is_up = false;
    if (lane->batch.kind >= 0) {
        if (commits && !lane->batch.is_executed && node->world->fail_with == LH_OK)
            fake_execute(node, &lane->batch);
        lane->is_broken = false;
        fake_scribble(node->world, &lane->batch);
        answer_batch(node, lane, LH_DATABASE_UNAVAILABLE);
    }
    if (!node->is_gone)
        node->events->on_lane_down(node->events_arg, index);
}

void fake_lane_raise(struct fake_node *node, unsigned index)
{
    if (node->is_gone || node->is_stopping || node->lanes[index].is_up)
        return;
    node->lanes[index].is_up = true;
    node->events->on_lane_up(node->events_arg, index);
}

void fake_control_drop(struct fake_node *node)
{
    if (node->is_gone || !node->control_is_up)
        return;
    node->control_is_up = false;
    node->control_is_moving = false;
    node->control_serial++;
    while (node->control_count > 0)
        answer_control(node, LH_DATABASE_UNAVAILABLE);
    if (!node->is_gone)
        node->events->on_control_down(node->events_arg);
}

void fake_control_raise(struct fake_node *node)
{
    if (node->is_gone || node->is_stopping || node->control_is_up)
        return;
    node->control_is_up = true;
    node->events->on_control_up(node->events_arg);
}

void fake_listener_drop(struct fake_node *node)
{
    node->listener_is_up = false;
}

void fake_listener_raise(struct fake_node *node)
{
    if (node->is_gone || node->is_stopping || node->listener_is_up)
        return;
    node->listener_is_up = true;
    node->events->on_listener_up(node->events_arg);
}

void fake_database_drop(struct fake_world *world)
{
    for (int i = 0; i < world->node_count; i++) {
        for (unsigned l = 0; l < FAKE_ALL_LANES; l++)
            fake_lane_drop(world->nodes[i], l, fake_below(world, 2) == 0);
        fake_control_drop(world->nodes[i]);
        fake_listener_drop(world->nodes[i]);
    }
}

void fake_database_raise(struct fake_world *world)
{
    for (int i = 0; i < world->node_count; i++) {
        for (unsigned n = 0; n < FAKE_ALL_LANES + 2; n++)
            on_connect(world, world->nodes[i], n);
    }
}

bool fake_node_is_healthy(const struct fake_node *node)
{
    return !node->is_gone && !node->is_stopping && node->control_is_up && node->lanes[0].is_up &&
           node->lanes[1].is_up && node->lanes[2].is_up && node->lanes[FAKE_LANES].is_up &&
           node->lanes[FAKE_LANES + 1].is_up && node->is_registered;
}

static void on_notified(struct fake_world *world, void *arg, uint64_t n)
{
    struct fake_node *node = arg;
    if (node->is_gone || node->is_stopping || !node->listener_is_up)
        return;
    struct lh_wake wake = {world->scopes[n].ns, world->scopes[n].key, 0};
    node->events->on_wake(node->events_arg, &wake);
}

void fake_notify(struct fake_world *world, int index, const struct fake_scope *scope)
{
    struct fake_node *node = world->nodes[index];
    if (fake_below(world, 100) < world->notify_loss_percent)
        return;
    fake_at(world, world->now_us + delay_us(world), on_notified, node, (uint64_t)(scope - world->scopes));
}
