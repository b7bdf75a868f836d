/*
 * The inner of the two processes of `leasehold run`: the parent of the command and of all that it leaves behind.
 *
 * It only watches: the clock, its children, and the socket to the outer process, which holds the lease and sends each
 * new deadline. From the command's start on it has a session of its own, so that neither Ctrl-Z nor a signal to the job
 * stops it; of signals it only notes that they came. It ends every process of the command when the outer process says
 * that the lease is lost, when the outer process is gone (however it ended), and when the last deadline it knows comes
 * near (even if the outer process is stopped). When the command itself has ended, it ends the rest of its processes. If
 * the outer process is gone, the supervisor releases the lease before it exits.
 */
#ifndef LH_CLI_RUN_SUPERVISOR_H
#define LH_CLI_RUN_SUPERVISOR_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/clock.h"
#include "cli/run_cgroup.h"
#include "cli/run_descendants.h"
#include "cli/run_schedule.h"
#include "leasehold.h"

#define LH_RUN_GATHER_US (200 * LH_US_PER_MS) /* run_signals.h */

/* A message over the socket, one a packet. */
struct lh_run_message {
    enum {
        /* to the supervisor */
        LH_RUN_START,    /* leases are held: deadline_us, token, slot */
        LH_RUN_DEADLINE, /* renewed: deadline_us */
        LH_RUN_LOST,     /* end the command */
        LH_RUN_SIGNAL,   /* pass signal `number` on to the command, unless it has had it: run_signals.h */
        /* to the outer process */
        LH_RUN_NOT_EXECUTED, /* `number` is the errno; LH_RUN_ENDED follows */
        LH_RUN_LEFT,         /* the command has ended; the processes it left are ended: how many, names */
        LH_RUN_DENIED,       /* processes that cannot be signalled: how many, names */
        LH_RUN_ENDED,        /* no process is left: `number` is the command's wait status; then the supervisor exits */
    } kind;
    int32_t number;
    bool is_in_group, is_of_ancestor; /* LH_RUN_SIGNAL */
    bool is_late;                     /* LH_RUN_ENDED: the supervisor ended the command because its deadline came
                                         near */
    int64_t deadline_us;
    int64_t token;
    int32_t slot; /* the lowest; 0: none */
    char names[LH_RUN_NAMES_BYTES];
};

/* Values of variables that are known with the leases: filled before LH_RUN_START. "": not set. */
struct lh_run_values {
    char tokens[LH_ACQUIRE_ALL_MAX * 21]; /* tokens of several leases, with commas */
    char slots[120 * 1024];               /* slots, within one variable of an environment (execve(2): 128 KiB) */
};

/* The part of a run that is known before the leases. Borrowed. */
struct lh_run_plan {
    char *const *argv; /* ends in NULL */
    const char *namespace_text;
    const char *key;
    const char *lease_key;
    struct lh_run_values *values; /* made by lh_run_values_create */
    struct lh_run_schedule schedule;
    sigset_t mask;       /* the command's blocked signals */
    bool keeps_detached; /* keep processes with a session of their own at the command's end */
    struct lh_run_cgroup cgroup;

    /* Called in the supervisor when no process of the command is left and the outer process is gone. */
    void (*on_alone)(void *arg);
    void *arg;
};

/*
 * Forks the supervisor. *channel is the outer process's end of the socket; closing it ends the supervisor and the
 * command. Returns -1 with errno. The caller has no other threads, blocks all signals that are to be passed on, and is
 * a child subreaper too: if the supervisor is killed, its children become the caller's.
 */
pid_t lh_run_supervisor_start(const struct lh_run_plan *plan, int *channel);

/* Makes empty values that both processes see; they live as long as the processes. Returns NULL with errno. */
struct lh_run_values *lh_run_values_create(void);

/* Sends without blocking. Returns false if the socket is full or closed. */
bool lh_run_send(int channel, const struct lh_run_message *message);

#endif
