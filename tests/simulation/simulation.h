/*
 * The whole system in one process, on one clock that nobody waits for: daemons (service, RPC server and coordinator as they
 * are), clients (libleasehold as it is) and a network between them, on the database of tests/unit/fake_store.h. Each daemon
 * and each client is a process of its own here: a loop that is turned only while it is not stopped, and has something to do.
 *
 * A seed is a history: what workers want, how long messages take, which connections break, who is stopped, killed and
 * replaced. The same seed gives the same history.
 */
#ifndef LH_TESTS_SIMULATION_H
#define LH_TESTS_SIMULATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../unit/fake_rules.h"
#include "loop/internal.h"

#define DAEMONS_MAX 3
#define WORKERS_MAX 4
#define SCOPES 3

struct process {
    struct lh_loop *loop; /* NULL: it does not run */
    bool is_ready;        /* has something to read or to write */
    int64_t stopped_until_us;
};

struct simulation {
    struct fake_world world; /* its clock is everybody's */
    uint64_t seed;
    struct process *starting;
    size_t window; /* of each direction of a connection: so many bytes are on their way, or not read */
    int daemons;
    int workers;
    int anger;                /* of a hundred steps so many are strikes */
    bool is_gentle;           /* nobody is killed and the database stays, so that no lease is left to expire */
    bool is_strict;           /* gentle, and no poll of the database makes good a wake-up that was forgotten */
    bool has_failed;          /* the database has refused batches */
    bool is_calm;             /* nothing breaks any more, and nobody wants anything new */
    uint64_t drawn;           /* random numbers, by anybody */
    uint64_t trace;           /* a checksum of what has happened */
    int64_t trouble_until_us; /* of what fate has done so far */
    struct {                  /* what has happened, so that a history in which little does is seen */
        uint64_t grants, together, losses, forced, refusals, cuts, stops, kills, closes, steps;
    } seen;
};

extern struct simulation sim;

int below(int n);
bool chance(int percent);
int64_t ms_below(int n);                           /* in microseconds */
void note(const char *what, int64_t a, int64_t b); /* into the trace; printed with LH_TRACE=1 */

void process_start(struct process *process);
void process_end(struct process *process); /* everything on its loop has been finished */
void process_stop_until(struct process *process, int64_t until_us);
bool process_is_stopped(const struct process *process);
/* Runs until then, and until nothing is on its way. */
void run_until_us(int64_t until_us);

/* The network: network.c. Client `worker` reaches daemon `number` at its own address, which breaks for it alone. */
int network_listen(int number);
void network_end(void); /* everybody has closed everything */
void network_address(int worker, int number, char *text, size_t bytes);
void network_cut(int worker, int number); /* what is on its way is lost */
#define WAYS_BOTH 3u
/* Nothing arrives before: at the daemon (1), at the client (2). */
void network_stall(int worker, int number, unsigned ways, int64_t until_us);
void network_calm(void);

/* Daemons: daemons.c. */
void daemon_start(int number);
void daemon_kill(int number);
void daemon_stop(int number); /* as on SIGTERM; another starts when it has gone */
void daemon_pause(int number, int64_t until_us);
void daemons_end(void);
int64_t daemon_stopped_until_us(const struct fake_node *node); /* 0: it runs */
bool daemon_is_well(const struct fake_node *node);
struct fake_node *daemon_node(int number); /* NULL: it has gone */

/* Workers: workers.c. */
void worker_start(int number);
void worker_kill(int number);
void worker_close(int number); /* as a program that ends; it comes back */
void worker_pause(int number, int64_t until_us);
void workers_check(void); /* nobody believes to hold what the database has given away */
bool workers_are_done(void);
void workers_end(void);

#endif
