/*
 * Every process that descends from this one, wherever it went: other process groups, other sessions, forked away twice.
 * The caller is a child subreaper (prctl(2)), so a process that loses its parent becomes its child and stays in reach.
 * It has no descendant exactly when it has no child: wait(2) says ECHILD, without a race. /proc only says which
 * processes to signal.
 */
#ifndef LH_CLI_RUN_DESCENDANTS_H
#define LH_CLI_RUN_DESCENDANTS_H

#include "cli/run_cgroup.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Returns true if the process is the parent of ours, or its parent, and so on. */
bool lh_run_descends_from(pid_t ancestor);

/* Returns true if lh_run_signal_descendants works here. */
bool lh_run_can_see_descendants(void);

#define LH_RUN_NAMES_BYTES 160

/* The findings of a walk; processes that have ended and wait for their parent are not counted. */
struct lh_run_found {
    size_t count;
    size_t denied;                  /* processes of another user, which we may not signal, outside of the cgroup */
    char names[LH_RUN_NAMES_BYTES]; /* "sleep (12), sh (13), ..." of the denied, or of all where none was denied */
};

/*
 * Sends each descendant this signal (0: only looks), and SIGCONT after SIGTERM, because a stopped process does not get
 * it. `session` 0: all of them; else only those that have not left this session. Processes forked meanwhile may be
 * missed: to kill, repeat until no child is left.
 */
void lh_run_signal_descendants(int number, pid_t session, const struct lh_run_cgroup *cgroup,
                               struct lh_run_found *found);

/* Kills them and all that is in the cgroup, again and again, and reaps them until none is left. */
void lh_run_kill_descendants(const struct lh_run_cgroup *cgroup);

#endif
