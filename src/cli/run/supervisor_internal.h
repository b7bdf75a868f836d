/*
 * The times at which a command whose lease is not renewed any more gets TERM and KILL: pure arithmetic.
 *
 *     deadline - grace              TERM: renewal is given up, the command may clean up
 *     deadline - margin             KILL, again and again until no process is left
 *     deadline                      another holder may have the lease: no process of the command runs any more
 *
 * All points in time are on lh_clock_us().
 */
#ifndef LH_CLI_RUN_SCHEDULE_H
#define LH_CLI_RUN_SCHEDULE_H

#include <stdint.h>

struct lh_run_schedule {
    int64_t grace_us; /* --kill-after, at most a third of the duration, at least twice the margin */
    /* Time to find and kill every process: a tenth of the duration, at most 1 s. */
    int64_t margin_us;
};

struct lh_run_schedule lh_run_schedule_of(int64_t duration_us, int64_t kill_after_us);

int64_t lh_run_term_at_us(const struct lh_run_schedule *schedule, int64_t deadline_us);

/* Returns when processes that got TERM at now_us get KILL: a grace later, in any case the margin before the
   deadline. It may be past. */
int64_t lh_run_kill_at_us(const struct lh_run_schedule *schedule, int64_t now_us, int64_t deadline_us);

#endif
