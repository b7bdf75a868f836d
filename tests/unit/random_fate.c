/* The hand of fate in a random history: lanes, listeners and databases that break, coordinators that end. */
#include "random_history.h"

static void on_database_back(struct fake_world *world, void *arg, uint64_t n)
{
    fake_database_raise(world);
}

static void on_lane_back(struct fake_world *world, void *arg, uint64_t n)
{
    fake_lane_raise(arg, (unsigned)n);
}

static void on_control_back(struct fake_world *world, void *arg, uint64_t n)
{
    fake_control_raise(arg);
}

static void on_listener_back(struct fake_world *world, void *arg, uint64_t n)
{
    fake_listener_raise(arg);
}

static void on_failure_over(struct fake_world *world, void *arg, uint64_t n)
{
    world->fail_with = LH_OK;
    t.quiet_since_us = world->now_us;
}

static void lose_calls_of(const struct fake_node *node)
{
    for (int i = 0; i < t.call_count; i++) {
        if (t.calls[i].node == node && t.calls[i].answers == 0) {
            t.calls[i].is_lost = true;
            free(t.calls[i].owner);
            t.calls[i].owner = NULL;
            t.open--;
        }
    }
    for (int i = 0; i < t.hold_count; i++) {
        struct hold *hold = &t.holds[i];
        if (hold->node != node || (!hold->is_beating && !hold->is_releasing && !hold->is_downgrading))
            continue;
        hold->is_beating = hold->is_releasing = hold->is_downgrading = false;
        t.open--;
        schedule_holder(hold);
    }
}

static void replace(struct fake_node *node, bool is_kill)
{
    if (node == NULL || t.world.node_count >= FAKE_NODES)
        return;
    if (is_kill) {
        fake_node_kill(node);
        lose_calls_of(node);
    } else {
        node->is_leaving = true;
        t.calling++;
        fake_node_stop(node);
        t.calling--;
    }
    fake_node_start(&t.world, &t.options);
}

static void lose_rows(void)
{
    fake_rows_lose(&t.world, fake_below(&t.world, 100));
    t.rows_lost_us = t.world.now_us;
}

static void strike(void)
{
    struct fake_world *world = &t.world;
    struct fake_node *node = any_node();
    int64_t later_us = world->now_us + (1 + fake_below(world, 400)) * LH_US_PER_MS;
    if (node == NULL)
        return;
    switch (fake_below(world, 12)) {
    case 0:
    case 1:
    case 2:
    case 3: {
        unsigned lane = (unsigned)fake_below(world, FAKE_LANES);
        fake_lane_drop(node, lane, fake_below(world, 2) == 0);
        fake_at(world, later_us, on_lane_back, node, lane);
        break;
    }
    case 4:
    case 5:
        fake_control_drop(node);
        fake_at(world, later_us + (fake_below(world, 4) == 0 ? 6 * LH_US_PER_S : 0), on_control_back, node, 0);
        break;
    case 6:
        fake_listener_drop(node);
        fake_at(world, later_us, on_listener_back, node, 0);
        break;
    case 7:
        fake_database_drop(world);
        if (fake_below(world, 2) == 0)
            lose_rows();
        fake_at(world, later_us + (fake_below(world, 3) == 0 ? 3 * LH_US_PER_S : 0), on_database_back, NULL, 0);
        break;
    case 8:
        world->fail_with = LH_INTERNAL;
        fake_at(world, later_us, on_failure_over, NULL, 0);
        break;
    case 9:
        replace(node, true);
        break;
    case 10:
        replace(node, false);
        break;
    default:
        world->clock_offset_us += fake_below(world, 100);
        break;
    }
}

/* A lower one ends nothing, and a waiter that needs more is answered when its turn comes. */
static void change_capacity(int s)
{
    int32_t capacity = fake_below(&t.world, 6);

    fake_set_capacity(&t.world, &t.world.scopes[s], capacity);
    if (capacity == 0 || t.capacity[s] == 0)
        t.capacity[s] = 0;
    else if (capacity > t.capacity[s])
        t.capacity[s] = capacity;
}

void act(void)
{
    struct fake_world *world = &t.world;
    struct call *call;
    int what = fake_below(world, 100);

    if (what < 45) {
        if (any_node() != NULL)
            begin_call(any_node(), fake_below(world, SCOPES), NULL, false);
    } else if (what < 60) {
        call = any_open_call();
        if (call != NULL && !call->node->is_gone)
            cancel(call);
    } else if (what < 70) {
        call = any_open_call();
        if (call != NULL && !call->node->is_gone && !call->node->is_leaving) {
            call->is_repeat = true;
            begin_call(call->node, call->scope, &call->acquire.lease_key, true);
        }
    } else if (what < 80) {
        int64_t busy_us = fake_below(world, 10) == 0 ? 1500 * LH_US_PER_MS : fake_below(world, 80) * LH_US_PER_MS;
        world->scopes[fake_below(world, SCOPES)].busy_until_us = world->now_us + busy_us;
    } else if (what < 90 && t.has_faults) {
        strike();
    } else if (what == 96 && t.has_modes) {
        change_capacity(fake_below(world, SCOPES));
    } else if (what >= 97 && t.has_hooks) {
        world->is_hooked = !world->is_hooked;
    }
}
