/* The inner process of `leasehold run`. It finds the processes of the command, and ends them. */
#ifndef LH_CLI_RUN_SUPERVISOR_INTERNAL_H
#define LH_CLI_RUN_SUPERVISOR_INTERNAL_H

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/clock.h"
#include "leasehold.h"

/*
 * The times at which a command whose lease is not renewed any more gets TERM and KILL: pure arithmetic.
 *
 *     deadline - grace              TERM: renewal is given up, the command may clean up
 *     deadline - margin             KILL, again and again until no process is left
 *     deadline                      another holder may have the lease: no process of the command runs any more
 *
 * All points in time are on lh_clock_us().
 */
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

/*
 * A cgroup (version 2) for the command, where this process's own is delegated: the kernel ends all that is in it by one
 * write, processes of other users too, as those of sudo. cgroups(7); systemd's Delegate=yes.
 */
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

/*
 * Every process that descends from this one, wherever it went: other process groups, other sessions, forked away twice.
 * The caller is a child subreaper (prctl(2)), so a process that loses its parent becomes its child and stays in reach.
 * It has no descendant exactly when it has no child: wait(2) says ECHILD, without a race. /proc only says which
 * processes to signal.
 */

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

#define LH_RUN_GATHER_US (200 * LH_US_PER_MS) /* run_internal.h */

/* A message over the socket, one a packet. */
struct lh_run_message {
    enum {
        /* to the supervisor */
        LH_RUN_START,    /* leases are held: deadline_us, token, slot */
        LH_RUN_DEADLINE, /* renewed: deadline_us */
        LH_RUN_LOST,     /* end the command */
        LH_RUN_STOP,     /* likewise, because the lease is handed over */
        LH_RUN_SIGNAL,   /* pass signal `number` on to the command, unless it has had it: run_internal.h */
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
    char tick[32];                        /* tick of --schedule, as 2026-11-28T03:00:00Z: the key of its lease */
    char attempt[12];                     /* which attempt of the tick this is; "": there is no tick */
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
