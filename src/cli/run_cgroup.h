/*
 * A cgroup (version 2) for the command, where this process's own is delegated: the kernel ends all that is in it by one
 * write, processes of other users too, as those of sudo. cgroups(7); systemd's Delegate=yes.
 */
#ifndef LH_CLI_RUN_CGROUP_H
#define LH_CLI_RUN_CGROUP_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct lh_run_cgroup {
    char directory[PATH_MAX]; /* "": there is none */
};

/*
 * Makes a cgroup below this process's own. There is none where version 2 is not mounted, where nothing is delegated, and
 * where the kernel (before 5.14) cannot end a whole one. Root needs the mark that systemd gives, the attribute
 * user.delegate or trusted.delegate of the cgroup or one above it: it may write to all, those of other managers too.
 */
void lh_run_cgroup_make(struct lh_run_cgroup *cgroup);

/* Moves this process into it. Safe between fork and exec. */
void lh_run_cgroup_enter(const struct lh_run_cgroup *cgroup);

/* Returns true if the process is in it. */
bool lh_run_cgroup_has(const struct lh_run_cgroup *cgroup, pid_t pid);

/* Ends all that is in it. */
void lh_run_cgroup_kill(const struct lh_run_cgroup *cgroup);

/* Removes it; it stays where a process is left in it. */
void lh_run_cgroup_remove(const struct lh_run_cgroup *cgroup);

#endif
