#include "daemon/port.h"

#include <stdlib.h>

#include "base/clock.h"

static int64_t now_us(void *arg)
{
    return lh_clock_us();
}

static void set_timer(void *arg, int64_t at_us)
{
    struct lh_port *port = arg;

    lh_timer_arm_at_us(&port->timer, at_us);
}

static uint32_t random_number(void *arg)
{
    return arc4random();
}

static bool is_behind(void *arg)
{
    struct lh_port *port = arg;

    return lh_loop_is_behind(port->timer.loop);
}

static void on_due(void *arg)
{
    struct lh_port *port = arg;

    lh_coordinator_on_timer(port->coordinator);
}

void lh_port_init(struct lh_port *port, struct lh_loop *loop)
{
    lh_timer_init(&port->timer, loop, on_due, port);
    port->coordinator = NULL;
    port->port = (struct lh_coordinator_port){
        .now_us = now_us, .set_timer = set_timer, .random = random_number, .is_behind = is_behind, .arg = port};
}

void lh_port_finish(struct lh_port *port)
{
    lh_timer_finish(&port->timer);
}
