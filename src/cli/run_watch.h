/* One run of `leasehold run`, and its signals. run.c describes how it goes. */
#ifndef LH_CLI_RUN_WATCH_H
#define LH_CLI_RUN_WATCH_H

#include "cli/acquire_options.h"
#include "cli/cli.h"
#include "cli/run_lease.h"
#include "cli/run_signals.h"
#include "cli/run_supervisor.h"
#include "cli/run_terminal.h"
#include "cli/run_terraform.h"

struct lh_run {
    struct lh_cli *cli;
    struct lh_cli_acquire asked;
    struct lh_run_scopes scopes;
    struct lh_run_schedule schedule;
    int own_status; /* exit status of -E, instead of 3 and 4; -1: not given */
    bool repeats;
    struct lh_run_plan plan;
    char **argv;
    struct lh_run_values *values;   /* the plan's */
    struct lh_terraform *terraform; /* NULL: without --terraform */

    struct lh_run_lease lease;
    struct lh_run_terminal terminal;
    pid_t supervisor;
    int channel;
    struct lh_run_signals signals;
    int64_t told_us; /* last deadline sent to the supervisor */
    /* The longest time in which this process did not run, though it wanted to: stopped, or suspended. */
    int64_t pause_us;

    bool is_stopping;            /* a signal ended this run: no round follows */
    int interrupt;               /* the signal that ended the wait for the lease */
    bool has_terminal_interrupt; /* Ctrl-C, which the command has had too */
    bool was_lost_told;
    bool has_ended;
    bool was_late;
    bool was_abandoned; /* the supervisor is gone, and sent no end */
    int status;         /* the command's wait status */
};

/* Takes signals: before the leases they end the wait; later they are passed on. */
void lh_run_take_signals(struct lh_run *run);

/* Watches, with the leases, from the start of the command until no process of it is left. */
void lh_run_watch(struct lh_run *run);

#endif
