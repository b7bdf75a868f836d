/*
 * The nodes' side of the fake: control, life, breaking and mending. Time and chance are in fake_world.c, batches in
 * fake_lanes.c, the rules of the database in fake_rules.c.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "fake_lanes.h"
#include "fake_rules.h"

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
    if (at_us != LH_NEVER)
        fake_at(node->world, at_us, on_port_timer, node, node->timer_serial);
}

static uint32_t port_random(void *arg)
{
    return fake_random(((struct fake_node *)arg)->world);
}

static bool port_is_behind(void *arg)
{
    struct fake_node *node = arg;
    if (node->is_loop_behind != NULL && node->is_loop_behind(node->loop))
        return true;
    return node->behind > 0 && node->behind-- > 0;
}

static void port_poll_until(void *arg, int64_t at_us)
{
    ((struct fake_node *)arg)->polls_until_us = at_us;
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
        fake_at(world, world->now_us + fake_delay_us(world), on_control, node, node->control_serial);
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
        fake_at(node->world, node->world->now_us + fake_delay_us(node->world), on_control, node, node->control_serial);
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

static void store_look_elsewhere(struct lh_store *store)
{
    ((struct fake_node *)store)->world->looks_elsewhere++;
}

static enum lh_status store_pass_on(struct lh_store *store, const struct lh_wake *wake, lh_store_cb *on_done, void *arg)
{
    return add_control(
        store,
        (struct fake_control){.kind = 2, .on_done.store = on_done, .arg = arg, .first_ticket = wake->first_ticket},
        wake);
}

static enum lh_status store_reap(struct lh_store *store, int64_t clock_us, const char *const *namespaces,
                                 size_t namespace_count, bool include_children, const char *key, int32_t max,
                                 enum lh_reap_kind kind, const struct lh_requester *requester, lh_reap_pass_cb *on_done,
                                 void *arg)
{
    return add_control(store, (struct fake_control){.kind = 3, .on_done.reap = on_done, .arg = arg}, NULL);
}

static enum lh_status store_holders(struct lh_store *store, const char *ns, const char *key, int32_t max,
                                    lh_list_cb *on_done, void *arg)
{
    struct lh_wake scope = {ns, key, 0};
    return add_control(store, (struct fake_control){.kind = 4, .on_done.list = on_done, .arg = arg}, &scope);
}

static enum lh_status store_get(struct lh_store *store, const char *ns, const char *key, lh_scope_cb *on_done,
                                void *arg)
{
    struct lh_wake scope = {ns, key, 0};
    return add_control(store, (struct fake_control){.kind = 5, .on_done.get = on_done, .arg = arg}, &scope);
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
        fake_at(node->world, node->world->now_us + fake_delay_us(node->world), on_connect, node, i);
}

static void on_stopped(struct fake_world *world, void *arg, uint64_t n)
{
    struct fake_node *node = arg;
    if (node->is_gone) /* it was killed meanwhile */
        return;
    while (node->control_count > 0)
        answer_control(node, LH_CANCELED);
    fake_unregister(node);
    node->is_gone = true;
    node->on_stopped(node->on_stopped_arg, LH_OK, NULL);
}

void fake_stop_when_idle(struct fake_node *node)
{
    if (!node->is_stopping || node->stop_is_due || !fake_lanes_are_idle(node))
        return;
    node->stop_is_due = true;
    fake_at(node->world, node->world->now_us, on_stopped, node, 0);
}

static void store_stop(struct lh_store *store, lh_store_cb *on_done, void *arg)
{
    struct fake_node *node = (struct fake_node *)store;
    node->is_stopping = true;
    node->on_stopped = on_done;
    node->on_stopped_arg = arg;
    fake_stop_when_idle(node);
}

static void store_server(struct lh_store *store, struct lh_server_facts *facts)
{
    struct fake_node *node = LH_CONTAINER(struct fake_node, store, store);
    *facts = (struct lh_server_facts){.is_permanent = node->world->is_trouble_permanent};
}

static bool store_is_connected(struct lh_store *store)
{
    return ((struct fake_node *)store)->control_is_up;
}

static const struct lh_store_ops store_ops = {
    .lane_count = store_lane_count,
    .hook_lane_count = store_hook_lane_count,
    .start = store_start,
    .stop = store_stop,
    .send = fake_lane_send,
    .worth_a_batch = fake_lane_worth_a_batch,
    .hand_over = fake_lane_hand_over,
    .enroll = store_enroll,
    .tick = store_tick,
    .look_elsewhere = store_look_elsewhere,
    .pass_on = store_pass_on,
    .reap = store_reap,
    .holders = store_holders,
    .get = store_get,
    .is_connected = store_is_connected,
    .server = store_server,
};

struct fake_node *fake_node_start(struct fake_world *world, const struct lh_coordinator_options *options)
{
    assert(world->node_count < FAKE_NODES);
    struct fake_node *node = lh_alloc_zero(1, sizeof(*node));
    node->store.ops = &store_ops;
    node->world = world;
    node->index = world->node_count;
    node->cleaned_at_us = INT64_MIN / 2;
    fake_lanes_init(node);
    node->port =
        (struct lh_coordinator_port){port_now_us, port_set_timer, port_random, port_is_behind, port_poll_until, node};
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

void fake_node_vanish(struct fake_node *node)
{
    fake_lanes_kill(node);
    node->is_gone = true;
}

void fake_node_kill(struct fake_node *node)
{
    fake_node_vanish(node);
    lh_coordinator_destroy(node->coordinator);
    node->coordinator = NULL;
}

/* --- breaking and mending --- */

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
    fake_at(world, world->now_us + fake_delay_us(world), on_notified, node, (uint64_t)(scope - world->scopes));
    if (world->notify_twice_percent > 0 && fake_below(world, 100) < world->notify_twice_percent)
        fake_at(world, world->now_us + fake_delay_us(world), on_notified, node, (uint64_t)(scope - world->scopes));
}
