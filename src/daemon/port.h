/* The coordinator's view of the world outside: the loop's clock and timer, the kernel's randomness. */
#ifndef LH_DAEMON_PORT_H
#define LH_DAEMON_PORT_H

#include "lease/coordinator.h"
#include "loop/loop.h"

struct lh_port {
    struct lh_timer timer;
    struct lh_coordinator *coordinator; /* set once there is one */
    struct lh_coordinator_port port;    /* passed to lh_coordinator_create */
};

void lh_port_init(struct lh_port *port, struct lh_loop *loop);
void lh_port_finish(struct lh_port *port);

#endif
