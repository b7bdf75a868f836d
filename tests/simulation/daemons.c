/* The daemons, wired up as src/daemon/serving.c does it. One that ends is replaced. */
#include <stdio.h>

#include "rpc/server.h"
#include "service/service.h"
#include "simulation.h"

#define HEALTH_LOOK_US (250 * LH_US_PER_MS)
#define COMES_BACK_US (300 * LH_US_PER_MS)
#define RECOVERS_US (2 * LH_US_PER_S)

struct daemon {
    int number;
    struct process process;
    struct fake_node *node;
    struct lh_service *service;
    struct lh_rpc_server *server;
    struct lh_timer health;
    bool is_draining;
    bool is_server_idle;
    bool has_coordinator_stopped;
};

static struct daemon daemons[DAEMONS_MAX];

/* No client here asks for the descriptions of messages, whose tables were a fifth of a history's time. */
struct lh_reflection;
struct lh_reflection *__wrap_lh_reflection_create(void);
struct lh_reflection *__wrap_lh_reflection_create(void)
{
    return NULL;
}

void __wrap_lh_reflection_destroy(struct lh_reflection *reflection);
void __wrap_lh_reflection_destroy(struct lh_reflection *reflection)
{
}

static void look_at_health(void *arg)
{
    struct daemon *daemon = arg;
    lh_service_tick(daemon->service);
    lh_timer_arm_at_us(&daemon->health, lh_clock_us() + HEALTH_LOOK_US);
}

static void come_back(struct fake_world *world, void *arg, uint64_t number)
{
    daemon_start((int)number);
}

/* What is left when the coordinator has gone. */
static void forget(struct daemon *daemon)
{
    lh_timer_finish(&daemon->health);
    if (daemon->server != NULL)
        lh_rpc_server_destroy(daemon->server);
    lh_service_destroy(daemon->service);
    if (daemon->node->coordinator != NULL)
        lh_coordinator_destroy(daemon->node->coordinator);
    daemon->node->coordinator = NULL;
    daemon->node->is_gone = true;
    process_end(&daemon->process);
    if (sim.world.node_count < FAKE_NODES)
        fake_at(&sim.world, sim.world.now_us + COMES_BACK_US + ms_below(2000), come_back, NULL,
                (uint64_t)daemon->number);
    daemon->node = NULL;
}

static void on_ended(struct fake_world *world, void *arg, uint64_t number)
{
    struct daemon *daemon = &daemons[number];
    if (daemon->node != NULL && daemon->is_server_idle && daemon->has_coordinator_stopped)
        forget(daemon);
}

/* Out of the callbacks, and of the loop, that go with it. */
static void end_if_idle(struct daemon *daemon)
{
    if (daemon->is_server_idle && daemon->has_coordinator_stopped)
        fake_at(&sim.world, sim.world.now_us, on_ended, NULL, (uint64_t)daemon->number);
}

static void on_coordinator_stopped(void *arg)
{
    struct daemon *daemon = arg;
    daemon->has_coordinator_stopped = true;
    end_if_idle(daemon);
}

static void on_final(void *arg)
{
    struct daemon *daemon = arg;
    lh_coordinator_stop(daemon->node->coordinator, on_coordinator_stopped, daemon);
}

static void on_idle(void *arg)
{
    struct daemon *daemon = arg;
    daemon->is_server_idle = true;
    end_if_idle(daemon);
}

void daemon_start(int number)
{
    struct daemon *daemon = &daemons[number];
    struct lh_coordinator_options coordinator;
    struct lh_service_options service;
    struct lh_rpc_server_options rpc;
    struct lh_error error;
    const struct lh_rpc_method *methods;
    size_t count;

    if (daemon->node != NULL || sim.world.node_count == FAKE_NODES)
        return;
    *daemon = (struct daemon){.number = number};
    process_start(&daemon->process);
    lh_coordinator_options_init(&coordinator);
    coordinator.max_block_us = 3 * LH_US_PER_S;
    daemon->node = fake_node_start(&sim.world, &coordinator);
    daemon->node->loop = daemon->process.loop;
    daemon->node->is_loop_behind = lh_loop_is_behind;
    lh_service_options_init(&service);
    service.loop = daemon->process.loop;
    service.max_block_us = coordinator.max_block_us;
    daemon->service = lh_service_create(daemon->node->coordinator, &service);
    lh_rpc_server_options_init(&rpc);
    rpc.encode_error = lh_service_encode_error;
    rpc.on_enter = lh_service_on_enter;
    rpc.on_left = lh_service_on_left;
    rpc.on_late_cancel = lh_service_on_late_cancel;
    rpc.on_client_gone = lh_service_on_client_gone;
    methods = lh_service_methods(&count);
    daemon->server = lh_rpc_server_create(daemon->process.loop, &rpc, methods, count, daemon->service);
    if (lh_rpc_server_adopt(daemon->server, network_listen(number), &error) != LH_OK)
        fake_fail("%s", error.message);
    lh_timer_init(&daemon->health, daemon->process.loop, look_at_health, daemon);
    lh_timer_arm_at_us(&daemon->health, lh_clock_us() + HEALTH_LOOK_US);
    note("daemon starts", number, daemon->node->index);
}

void daemon_kill(int number)
{
    struct daemon *daemon = &daemons[number];
    if (daemon->node == NULL)
        return;
    note("daemon is killed", number, 0);
    sim.seen.kills++;
    fake_control_drop(daemon->node); /* whoever asked for something is told: nobody hears of it any more */
    fake_node_vanish(daemon->node);
    forget(daemon);
}

void daemon_stop(int number)
{
    struct daemon *daemon = &daemons[number];
    if (daemon->node == NULL || daemon->is_draining)
        return;
    note("daemon is told to stop", number, 0);
    daemon->is_draining = true;
    daemon->node->is_leaving = true;
    lh_service_drain(daemon->service);
    lh_rpc_server_drain(daemon->server, on_final, on_idle, daemon);
}

void daemon_pause(int number, int64_t until_us)
{
    if (daemons[number].node != NULL)
        process_stop_until(&daemons[number].process, until_us);
}

int64_t daemon_stopped_until_us(const struct fake_node *node)
{
    for (int d = 0; d < sim.daemons; d++)
        if (daemons[d].node == node)
            return daemons[d].process.stopped_until_us;
    return 0;
}

struct fake_node *daemon_node(int number)
{
    return daemons[number].node;
}

/* After a pause it reads for a while before it grants. */
bool daemon_is_well(const struct fake_node *node)
{
    return fake_node_is_healthy(node) && !node->is_leaving &&
           daemon_stopped_until_us(node) + RECOVERS_US < sim.world.now_us;
}

void daemons_end(void)
{
    for (int d = 0; d < sim.daemons; d++)
        daemon_kill(d);
}
